"""Objects: writes under conditions, writing and reading in parts, listing, ledgers and keys."""

import os
import threading
from typing import Any

import pytest
from labeldp.pipelines.ledger.ledger import Caps, Ledger, LedgerEntry
from labeldp.transforms import InputError, ShardFile, StageError
from labeldp.transforms.errors import StoreConflict, StoreNotFound
from labeldp.transforms.io.filesystems import complete_file, match, open_input, store_of
from labeldp.transforms.noise_key_file import NoiseKeyFile
from labeldp.transforms.shards.publish_shards import _move
from labeldp.transforms.stores.object_store import ABSENT, require_conditions

pytestmark = pytest.mark.xdist_group("stores")

STORES = pytest.mark.parametrize("emulator", ["s3", "gs"], indirect=True)
S3 = pytest.mark.parametrize("emulator", ["s3"], indirect=True)
GS = pytest.mark.parametrize("emulator", ["gs"], indirect=True)
MANY = 1001


@STORES
def test_a_write_replaces_the_version_that_it_names_or_nothing(emulator: Any) -> None:
    url = emulator.url("a/x")
    store = store_of(url)
    assert store.read(url) is None
    assert store.head(url) is None
    first = store.write(url, b"1", ABSENT)
    assert store.read(url) == (b"1", first)
    with pytest.raises(StoreConflict):
        store.write(url, b"2", ABSENT)
    second = store.write(url, b"2", first)
    with pytest.raises(StoreConflict):
        store.write(url, b"3", first)
    assert store.read(url) == (b"2", second)
    require_conditions(store, url)
    assert emulator.objects("a/") == {"x": b"2"}


@STORES
def test_shards_of_a_bundle_are_moved_together(emulator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The originals go in one request, after all copies: a retry finds each shard in one of its two places."""
    names = [f"part-{shard}" for shard in range(3)]
    shards = [ShardFile(emulator.put(f"a/{name}", name.encode()), 7) for name in names]
    store = store_of(shards[0].path)
    deleted, delete = [], store.delete
    monkeypatch.setattr(store, "delete", lambda paths: deleted.append(list(paths)))
    moved = _move(shards, emulator.url("out"), 0)
    assert [shard.path for shard in moved] == [emulator.url(f"out/{name}") for name in names]
    assert deleted == [[shard.path for shard in shards]]
    monkeypatch.setattr(store, "delete", delete)
    store.delete([shards[1].path])
    assert _move(shards, emulator.url("out"), 0) == moved
    assert emulator.objects() == {f"out/{name}": name.encode() for name in names}


@STORES
@pytest.mark.parametrize("size", [0, 1, 6_000_000])
def test_an_object_appears_whole_or_not_at_all(emulator: Any, size: int) -> None:
    url, content = emulator.url("a/x"), os.urandom(size)
    store = store_of(url)

    def fail() -> None:
        with store.create(url, "run") as file:
            file.write(content)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert store.head(url) is None
    with store.create(url, "run") as file:
        for start in range(0, size, 1_000_000):
            file.write(content[start : start + 1_000_000])
        assert store.head(url) is None
    info = store.head(url)
    assert info is not None
    assert (info.size, info.tag) == (size, "run")
    with store.open(url) as file:
        assert file.read() == content
        if size > 1:
            for position in (5, size - 3, 2_000_000):
                file.seek(position)
                assert file.read(7) == content[position : position + 7]


@S3
def test_a_stream_that_breaks_off_is_opened_again(emulator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.response import StreamingBody

    content = os.urandom(3_000_000)
    url, read, breaks = emulator.put("x", content), StreamingBody.read, iter([False, True, False, False])

    def broken(self: Any, amt: int | None = None) -> bytes:
        return b"" if next(breaks, False) else read(self, amt)

    monkeypatch.setattr(StreamingBody, "read", broken)
    with store_of(url).open(url) as file:
        assert b"".join(iter(lambda: file.read(1_500_000), b"")) == content


@GS
def test_a_whole_object_is_read_in_few_requests(emulator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from labeldp.transforms.stores.google_store import _Ranges

    content, sizes, read = os.urandom(2_500_000), [], _Ranges.read

    def counted(self: Any, size: int) -> bytes:
        sizes.append(size)
        return read(self, size)

    monkeypatch.setattr(_Ranges, "read", counted)
    with store_of(emulator.put("x", content)).open(emulator.url("x")) as file:
        assert file.read() == content
    assert len(sizes) == 3


@S3
def test_an_object_that_is_replaced_while_it_is_read_is_an_error(emulator: Any) -> None:
    url = emulator.put("x", bytes(3_000_000))
    with store_of(url).open(url) as file:
        file.read(10)
        emulator.put("x", os.urandom(3_000_000))
        file.seek(2_000_000)
        with pytest.raises(StoreConflict):
            file.read(10)


@STORES
def test_a_shard_of_another_run_is_not_replaced(emulator: Any) -> None:
    url = emulator.url("out/data/part")

    def write(run: str, content: bytes) -> None:
        with complete_file(url, run) as file:
            file.write(content)

    write("one", b"records")
    write("one", b"records")
    with pytest.raises(StageError, match="another run has written it"):
        write("two", b"others")
    assert emulator.objects("out/data/") == {"part": b"records"}


@STORES
def test_a_large_shard_of_another_run_is_not_replaced(emulator: Any) -> None:
    """It goes up in parts."""
    url, store = emulator.put("out/data/part", b"records"), store_of(emulator.url(""))
    with pytest.raises(StageError, match="another run has written it"), complete_file(url, "two") as file:
        file.write(bytes(6_000_000))
    found = store.read(url)
    assert found is not None
    assert found[0] == b"records"


@STORES
def test_a_thousand_objects_are_listed_and_deleted(emulator: Any, request: pytest.FixtureRequest) -> None:
    """S3 gives at most 1,000 names in an answer."""
    names = [f"many/{i:04d}.csv" for i in range(MANY)]
    if emulator.scheme == "s3":
        from moto.s3.models import s3_backends

        backend = s3_backends["123456789012"]["aws"]
        for name in names:
            backend.put_object("log", name, b"f,y\n1,2\n")
    else:
        for name in names[:100]:
            emulator.put(name, b"f,y\n1,2\n")
        names = names[:100]
    emulator.put("many/folder/", b"")
    emulator.put("many/other.txt", b"")
    found = match(emulator.url("many/*.csv"))
    assert list(found) == [emulator.url(name) for name in names]
    assert set(found.values()) == {8}
    assert list(match(emulator.url("many/0**")))[:100] == list(found)[:100]
    assert list(match(emulator.url("many/000[1-3].csv"))) == [emulator.url(f"many/000{i}.csv") for i in (1, 2, 3)]
    assert list(match(emulator.url("many/0007.csv"))) == [emulator.url("many/0007.csv")]
    with pytest.raises(InputError, match="matches no file"):
        match(emulator.url("many/*.tfrecord"))
    store = store_of(emulator.url(""))
    store.delete(found)
    store.delete(list(found)[:3])
    assert set(emulator.objects("many/")) == {"folder/", "other.txt"}


@S3
def test_gzip_is_decompressed(emulator: Any) -> None:
    import bz2
    import gzip

    with open_input(emulator.put("x.csv.gz", gzip.compress(b"f,y\n"))) as file:
        assert file.read() == b"f,y\n"
    with open_input(emulator.put("x.csv.bz2", bz2.compress(b"f,y\n"))) as file:
        assert file.read() == b"f,y\n"


# Ledgers.


def charge(ledger: Ledger, name: str, cap: float) -> bool:
    """Charges epsilon 1 for a release; tells whether the cap admitted it."""
    entry = LedgerEntry("labels", 1.0, name)
    try:
        with ledger.locked():
            ledger.charge([entry], Caps(cap), request=name)
    except InputError as error:
        if "would be exceeded" not in str(error):
            raise
        return False
    return True


@STORES
def test_charges_that_meet_never_pass_a_cap_together(emulator: Any) -> None:
    """Each of eight runs reads the ledger before any of them writes it, and the cap admits three."""
    url = emulator.url("ledger.jsonl")
    begin, admitted = threading.Barrier(8), []

    def run(name: str) -> None:
        ledger = Ledger(url)
        assert ledger.spent().epsilon == 0
        begin.wait()
        admitted.append(charge(ledger, name, 3.0))

    threads = [threading.Thread(target=run, args=(f"release {i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(admitted) == [False] * 5 + [True] * 3
    assert Ledger(url).spent().epsilon == 3
    assert len(Ledger(url).runs()) == 3
    assert set(emulator.objects()) == {"ledger.jsonl"}


@S3
def test_a_charge_between_reading_and_writing_is_seen(emulator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from labeldp.transforms.stores.s3_store import S3Store

    url, write = emulator.url("ledger.jsonl"), S3Store.write
    others = iter(["other"])

    def after_another(self: Any, path: str, content: bytes, replaces: str | None = None) -> str:
        if path == url and next(others, None):
            assert charge(Ledger(url), "another", 1.0)
        return write(self, path, content, replaces)

    monkeypatch.setattr(S3Store, "write", after_another)
    assert not charge(Ledger(url), "mine", 1.0)
    assert [run["request"] for run in Ledger(url).runs()] == ["another"]


@S3
def test_a_charge_whose_answer_is_lost_counts_once(emulator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client then sends the request again, which meets its own object."""
    from labeldp.transforms.stores.s3_store import S3Store

    url, write = emulator.url("ledger.jsonl"), S3Store.write

    def twice(self: Any, path: str, content: bytes, replaces: str | None = None) -> str:
        written = write(self, path, content, replaces)
        return write(self, path, content, replaces) if path == url else written

    monkeypatch.setattr(S3Store, "write", twice)
    assert charge(Ledger(url), "mine", 1.0)
    assert len(Ledger(url).runs()) == 1


@GS
def test_a_store_that_ignores_conditions_is_refused(
    emulator: Any, on_store: Any, invoke: Any, unenforced: None
) -> None:
    """As gcp-storage-emulator is by itself."""
    with pytest.raises(InputError, match=r"ignores the conditions of writes .* postgresql://USER@HOST/DATABASE"):
        charge(Ledger(emulator.url("ledger.jsonl")), "mine", 1.0)
    with pytest.raises(InputError, match="ignores the conditions"):
        NoiseKeyFile(emulator.url("new.key")).create()
    job, before = on_store(), emulator.objects()
    assert "ignores the conditions of writes" in invoke(job).error
    assert emulator.objects() == before


def test_a_ledger_on_another_remote_filesystem_is_refused() -> None:
    with pytest.raises(InputError, match=r"no conditional writes; use a local file, s3://"):
        Ledger("hdfs://host/ledger.jsonl")


# Keys.


@STORES
def test_a_key_is_created_once(emulator: Any) -> None:
    key = NoiseKeyFile(emulator.url("noise.key"))
    assert key.create()
    first = key.load()
    assert len(first) == 32
    assert not key.create()
    assert key.load() == first
    assert set(emulator.objects()) == {"noise.key"}


@S3
def test_a_key_must_be_there_and_outside_the_output(emulator: Any, on_store: Any, invoke: Any) -> None:
    inside = invoke(on_store(noise_key_file=emulator.url("out/released/noise.key")))
    assert inside.code == 2
    assert "lies inside --output" in inside.error
    missing = invoke(on_store(noise_key_file=emulator.url("key/other.key")))
    assert missing.code == 2
    assert "key/other.key cannot be read (no such object)" in missing.error
    emulator.put("key/short.key", bytes(31))
    short = invoke(on_store(noise_key_file=emulator.url("key/short.key")))
    assert "does not hold exactly 32 bytes" in short.error
    assert "ledger" in invoke(on_store(ledger=emulator.url("out/released/ledger"))).error
    assert emulator.objects("out/") == {}


@S3
def test_a_missing_object_is_not_found(emulator: Any) -> None:
    with pytest.raises(StoreNotFound):
        store_of(emulator.url("x")).open(emulator.url("x"))
