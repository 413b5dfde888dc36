"""Users without a home folder, paths whose ~ no shell has expanded, machines without a folder for temporary files."""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labeldp import LabelPrivatizer
from labeldp.pipelines.cli.commands import main
from labeldp.pipelines.errors import FieldError
from labeldp.pipelines.spec.target_checks import noise_key_file
from labeldp.transforms.errors import InputError
from labeldp.transforms.noise_key_file import default_key_path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which must stay empty."""
    folder = tmp_path / "current"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without HOME and without an entry in the system's list of users."""
    pwd = pytest.importorskip("pwd")

    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.mark.usefixtures("no_home")
def test_without_a_home_the_key_file_must_be_named(
    job: Any, folder: Path, key_file: Path, capsys: pytest.CaptureFixture[str], outputs: Path
) -> None:
    assert main(job(noise_key_file=None)) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert "neither HOME nor XDG_CONFIG_HOME" in error
    assert error.endswith("name the file of the secret key with --noise_key_file")
    assert not list(folder.iterdir())
    assert not list(outputs.iterdir())


@pytest.mark.usefixtures("no_home")
def test_without_a_home_a_privatizer_needs_a_key_file(folder: Path) -> None:
    privatizer = LabelPrivatizer(label_min=0, label_max=4, label_step=1, epsilon=1, ledger=str(folder / "l.jsonl"))
    with pytest.raises((InputError, ValueError), match=r"neither HOME .* with noise_key_file$"):
        privatizer.fit_transform(np.arange(1000) % 5)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("value", ["~/.config", "config"])
def test_a_configuration_folder_must_be_absolute(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", value)
    with pytest.raises(InputError, match="neither HOME nor XDG_CONFIG_HOME names an absolute folder"):
        default_key_path()
    with pytest.raises(FieldError, match="name the file of the secret key with --noise_key_file"):
        noise_key_file(None)


def test_no_folder_is_named_tilde_by_other_ways(job: Any, invoke: Any, folder: Path, key_file: Path) -> None:
    database = pytest.importorskip("labeldp.pipelines.ledger.ledger_database", reason="no extra ledger")
    with pytest.raises(ValueError, match="has not expanded ~"):
        database.parse_database_url("sqlite:///~/ledger.db")
    kinds: list[dict[str, Any]] = [
        {"ledger": "~/l.jsonl", "noise_key_file": str(key_file)},
        {"noise_key_file": "~/noise.key"},
    ]
    for more in kinds:
        with pytest.raises((InputError, ValueError), match="has not expanded ~"):
            LabelPrivatizer(label_min=0, label_max=4, label_step=1, epsilon=1, **more).fit_transform(
                np.arange(1000) % 5
            )
    assert "has not expanded ~" in invoke(job("fit", mechanism_file="~/m.json")).error
    assert not list(folder.iterdir())


def test_a_folder_that_is_named_tilde_can_be_given(job: Any, invoke: Any, folder: Path) -> None:
    invoke(job(output="./~/released")).ok()
    assert (folder / "~" / "released" / "release.json").is_file()


@pytest.fixture
def no_temporary_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """No candidate of Python's folders for temporary files can be written to."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [os.path.join(folder, "missing")])


@pytest.mark.usefixtures("no_temporary_folder")
def test_without_a_temporary_folder_the_error_names_tmpdir(job: Any, invoke: Any, outputs: Path) -> None:
    for argv in (job(), ["audit", "s3://log/released"]):
        outcome = invoke(argv)
        assert outcome.code == 1
        assert outcome.error.endswith(
            "no folder for temporary files can be written to: name one in the environment variable TMPDIR"
        )
    assert not list(outputs.iterdir())


@pytest.mark.usefixtures("no_temporary_folder")
def test_libraries_that_look_for_it_when_they_are_imported(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from labeldp.pipelines.cli import commands

    monkeypatch.setattr(commands, "_call", lambda *_: tempfile.gettempdir())
    assert "TMPDIR" in invoke(["solve", "--prior=p.csv", "--epsilon=1", "--mechanism=rr"]).error
    monkeypatch.setattr(commands, "_call", lambda *_: os.stat("missing"))
    monkeypatch.setattr(tempfile, "tempdir", "/")
    with pytest.raises(FileNotFoundError):
        invoke(["solve", "--prior=p.csv", "--epsilon=1", "--mechanism=rr"])


def test_a_named_key_file_is_created_but_not_by_a_dry_run(job: Any, tmp_path: Path) -> None:
    path = tmp_path / "new.key"
    assert main([*job(noise_key_file=path), "--dry_run"]) == 0
    assert not path.exists()
    assert main(job(noise_key_file=path)) == 0
    assert (path.stat().st_size, path.stat().st_mode & 0o777) == (32, 0o600)
