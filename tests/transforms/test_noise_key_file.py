"""Noise key file: 32 bytes, readable by its owner only, created once, and never shown."""

import base64
import os
import pickle
import stat
import threading

import pytest
from labeldp.transforms import InputError, NoiseKeyFile


def key_file(folder, content=bytes(range(32)), mode=0o600):
    path = folder / "noise.key"
    path.write_bytes(content)
    path.chmod(mode)
    return NoiseKeyFile(str(path))


# Reading.


@pytest.mark.parametrize("content", [b"", b"\n", bytes(31), bytes(33), bytes(64), b"ab" * 32], ids=len)
def test_another_length_is_refused_with_what_to_do(tmp_path, content):
    key = key_file(tmp_path, content)
    with pytest.raises(InputError, match="does not hold exactly 32 bytes: create one with") as caught:
        key.load()
    assert key.path in str(caught.value)


def test_a_key_file_is_never_decompressed(tmp_path):
    path = tmp_path / "key.gz"
    path.write_bytes(b"\x1f\x8b" + bytes(30))
    path.chmod(0o600)
    assert NoiseKeyFile(str(path)).load() == b"\x1f\x8b" + bytes(30)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o666, 0o777], ids=oct)
def test_a_file_that_others_can_use_is_refused_with_what_to_do(tmp_path, mode):
    key = key_file(tmp_path, mode=mode)
    with pytest.raises(InputError, match="is accessible to other users: run `chmod 600 "):
        key.load()


@pytest.mark.parametrize("mode", [0o440, 0o640, 0o600, 0o400], ids=oct)
def test_a_group_of_the_process_may_read_the_file_if_that_is_asked_for(tmp_path, mode):
    path = key_file(tmp_path, mode=mode).path
    assert len(NoiseKeyFile(path, group=True).load()) == 32


@pytest.mark.parametrize("mode", [0o444, 0o460, 0o450, 0o644, 0o604, 0o660], ids=oct)
def test_a_group_may_do_nothing_but_read(tmp_path, mode):
    path = key_file(tmp_path, mode=mode).path
    with pytest.raises(InputError, match=r"is accessible to other users: run `chmod 600 [^`]*`$"):
        NoiseKeyFile(path, group=True).load()


def test_the_group_of_the_file_must_be_one_of_the_process(tmp_path, monkeypatch):
    path = key_file(tmp_path, mode=0o440).path
    with pytest.raises(InputError, match=r"; or, for a mounted secret, give `noise_key_mode` group$"):
        NoiseKeyFile(path).load()
    group = os.stat(path).st_gid
    monkeypatch.setattr(os, "getegid", lambda: group + 1)
    monkeypatch.setattr(os, "getgroups", lambda: [group + 2])
    with pytest.raises(InputError, match=f"is readable by group {group}, which this process is not in"):
        NoiseKeyFile(path, group=True).load()
    monkeypatch.setattr(os, "getgroups", lambda: [group + 2, group])
    assert len(NoiseKeyFile(path, group=True).load()) == 32


def test_a_missing_file_is_named(tmp_path):
    key = NoiseKeyFile(str(tmp_path / "nowhere" / "noise.key"))
    with pytest.raises(InputError, match=r"nowhere/noise\.key does not exist"):
        key.load()


def test_a_link_is_as_good_as_its_target(tmp_path):
    target = key_file(tmp_path)
    link = tmp_path / "link.key"
    link.symlink_to(target.path)
    assert NoiseKeyFile(str(link)).load() == target.load()
    os.chmod(target.path, 0o644)
    with pytest.raises(InputError, match="is accessible to other users"):
        NoiseKeyFile(str(link)).load()


def test_folders_and_pipes_are_no_key_files(tmp_path):
    folder, pipe = tmp_path / "folder", tmp_path / "pipe"
    folder.mkdir(mode=0o700)
    os.mkfifo(pipe, 0o600)
    for path in (folder, pipe):
        with pytest.raises(InputError, match="is not a regular file"):
            NoiseKeyFile(str(path)).load()


def test_no_error_shows_the_key(tmp_path):
    content = b"do not show this" * 3
    for mode in (0o600, 0o644):
        with pytest.raises(InputError) as caught:
            key_file(tmp_path, content, mode).load()
        assert "show this" not in str(caught.value)
        assert content.hex()[:8] not in str(caught.value)


def test_the_reference_carries_no_key(tmp_path):
    key = key_file(tmp_path)
    content = key.load()
    for form in (content, content.hex().encode(), base64.b64encode(content)[:40], repr(content).encode()):
        assert form not in pickle.dumps(key)
        assert form not in repr(key).encode()
    assert set(vars(key)) == {"path", "group"}


# Creating.


def test_create_makes_a_key_that_only_the_owner_can_read(tmp_path):
    key = NoiseKeyFile(str(tmp_path / "noise.key"))
    assert key.create() is True
    assert stat.S_IMODE(os.stat(key.path).st_mode) == 0o600
    assert len(key.load()) == 32
    assert os.listdir(tmp_path) == ["noise.key"]


def test_create_does_not_rely_on_the_umask(tmp_path):
    key = NoiseKeyFile(str(tmp_path / "keys" / "noise.key"))
    before = os.umask(0)
    try:
        key.create()
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(key.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "keys").st_mode) == 0o700


@pytest.mark.parametrize("content", [bytes(range(32)), b"", b"something else entirely"], ids=len)
def test_create_leaves_a_file_that_is_there(tmp_path, content):
    key = key_file(tmp_path, content, 0o640)
    assert key.create() is False
    with open(key.path, "rb") as file:
        assert file.read() == content
    assert stat.S_IMODE(os.stat(key.path).st_mode) == 0o640
    assert os.listdir(tmp_path) == ["noise.key"]


def test_create_does_not_write_through_a_link(tmp_path):
    target, link = tmp_path / "target", tmp_path / "noise.key"
    link.symlink_to(target)
    assert NoiseKeyFile(str(link)).create() is False
    assert not target.exists()


def test_creators_that_start_together_agree(tmp_path):
    key = NoiseKeyFile(str(tmp_path / "noise.key"))
    threads, start = 8, threading.Barrier(8)
    made, loaded = [], []

    def work():
        start.wait()
        made.append(key.create())
        loaded.append(key.load())

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(made) == [False] * (threads - 1) + [True]
    assert len(set(loaded)) == 1
    assert len(loaded) == threads
    assert os.listdir(tmp_path) == ["noise.key"]


def test_a_second_name_that_a_killed_process_left_is_removed(tmp_path):
    """Deleting one file destroys the key. A file with other bytes may be a key that is being created."""
    key = key_file(tmp_path)
    os.link(key.path, f"{key.path}.{'0123456789abcdef'}")
    others = [f"{key.path}.{'1' * 16}", f"{key.path}.backup"]
    for other in others:
        with open(other, "wb") as file:
            file.write(bytes(32))
    assert not key.create()
    assert sorted(str(path) for path in tmp_path.iterdir()) == sorted([key.path, *others])
    assert key.load() == bytes(range(32))
