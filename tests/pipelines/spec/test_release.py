"""Conversion of flags to a release: defaults, the domain, the key, and the flags passed on to Beam."""

import dataclasses
import logging
import os
import stat
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from labeldp.pipelines.errors import FieldError

from tests.commands import write_key
from tests.release_cases import CASES, GRID


@pytest.fixture
def request_of(job: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Function (command="privatize", flag=value, ...) -> the release of a valid job with those flags."""
    from labeldp.pipelines.cli.commands import parse
    from labeldp.pipelines.spec.fields import Fields
    from labeldp.pipelines.spec.make_release import make_release

    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))

    def make(command: str = "privatize", **flags: Any) -> Any:
        args, _ = parse(job(command, **flags))
        return make_release(command, Fields.of(vars(args)))

    return make


@pytest.fixture
def beam_options(job: Any) -> Callable[..., dict[str, Any]]:
    """Function (argument, ...) -> Beam's options of a job with those additional arguments."""
    from labeldp.pipelines.cli.commands import parse
    from labeldp.pipelines.job.runner_options import runner_options

    def options(*more: str, input_format: str = "csv", file_size: float = 0) -> dict[str, Any]:
        return runner_options(parse([*job(), *more])[1], input_format, file_size).get_all_options()

    return options


@pytest.mark.parametrize("command", ["privatize", "fit"])
@pytest.mark.parametrize("name", CASES)
def test_no_check_looks_at_a_file(
    name: str, command: str, logs: Any, request_of: Any, key_file: Path, looking_once: Any
) -> None:
    """`look_at` has looked at all of them."""
    case, folder = CASES[name], logs["csv"].parent
    flags = {**GRID, "input": logs[case.log], "input_format": case.format, "noise_key_file": key_file, **case.flags}
    flags |= {key: folder / value for key, value in flags.items() if str(value).endswith(".txt")}
    if command == "fit" and len(case.labels) > 1:
        pytest.skip("fit takes one label")
    of_output = ("output_format", "num_shards", "compression", "shuffle", "partition_output")
    flags |= dict.fromkeys(of_output, None) if command == "fit" else {}
    release = looking_once(lambda: request_of(command, **flags))
    assert [label.name for label in release.labels] == case.labels


def test_parts_of_several_labels_add_up_to_the_budget(release_of: Any) -> None:
    """And to no more, as decimals."""
    asked: dict[str, Any] = {"epsilon": 0.7, "delta": 1e-6, "prior_epsilon": 0.1}
    for names in ("y,z", "y,z,x"):
        found = release_of(label=names, label_max=4, mechanism="gaussian", center="none", **asked)
        for name, total in asked.items():
            parts = [Fraction(getattr(label.budget, name)) for label in found.labels]
            assert 0.999 * total < sum(parts) <= Fraction(str(total))
            assert min(parts) > 0


def test_as_many_shards_as_files(request_of: Any, tmp_path: Path, write_csv: Any) -> None:
    for name in "cab":
        write_csv(tmp_path / f"{name}.csv", ["1,1"])
    found = request_of(input=tmp_path / "*.csv")

    assert found.input.paths == tuple(str(tmp_path / f"{name}.csv") for name in "abc")
    assert found.output.num_shards == 3
    assert request_of(input=tmp_path / "*.csv", num_shards=2).output.num_shards == 2


def test_the_domain_is_exact(request_of: Any) -> None:
    found = request_of(label_min="0.1", label_max="1", label_step="0.1")
    assert found.labels[0].column.domain == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    assert request_of(label_min=-2, label_max=2, label_step=2).labels[0].column.domain == (-2.0, 0.0, 2.0)


def test_paths_do_not_depend_on_where_the_job_is_started(
    request_of: Any, small_log: Path, outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise of a record depends on its file path, so another spelling of it would be another charged release."""
    monkeypatch.chdir(small_log.parent)
    found = request_of(input=small_log.name, output=os.path.relpath(outputs / "released"))

    assert found.input.pattern == str(small_log)
    assert found.output.target == str(outputs / "released")
    assert found.ledger == str(outputs / "labeldp_ledger.jsonl")


def test_a_key_is_made_once_for_the_user_alone(
    request_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / "config" / "labeldp" / "noise.key"
    caplog.set_level("INFO", "labeldp")
    before = os.umask(0)  # the file mode must not depend on the user's umask
    try:
        assert request_of(noise_key_file=None).key.path == str(path)
    finally:
        os.umask(before)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    key = path.read_bytes()
    assert len(key) == 32
    assert len(set(key)) > 8  # 32 random bytes have fewer distinct values with probability 1e-26
    assert caplog.text.count(str(path)) == 1
    assert [each.name for each in path.parent.iterdir()] == ["noise.key"]
    assert request_of(noise_key_file=None).key.load() == key
    assert caplog.text.count(str(path)) == 1


@pytest.mark.parametrize(("size", "mode"), [(16, 0o600), (32, 0o644)])
def test_a_default_key_that_was_spoilt(
    request_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, mode: int
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "labeldp" / "noise.key"
    path.parent.mkdir()
    write_key(path, bytes(size)).chmod(mode)
    with pytest.raises(FieldError, match=str(path)):
        request_of(noise_key_file=None)
    assert path.read_bytes() == bytes(size)


def test_runner_flags_pass_through(beam_options: Any) -> None:
    options = beam_options(
        "--direct_num_workers=2", "--experiments", "pre_optimize=all", "--labels=team=ads", "--temp_location=/t"
    )
    assert options["direct_num_workers"] == 2
    assert options["experiments"] == ["pre_optimize=all"]
    assert options["labels"] == ["team=ads"]
    assert options["temp_location"] == "/t"


@pytest.mark.parametrize(
    ("flags", "more", "processors", "workers"),
    [
        ((), 0, 2, 2),
        ((), 1, 64, 2),
        ((), -1, 2, 1),
        ((), 0, 1, 1),
        (("--runner=DirectRunner",), 0, 2, 2),
        (("--runner=direct",), 0, 2, 2),
        (("--runner=PrismRunner",), 0, 2, 1),
        (("--direct_num_workers=1",), 0, 2, 1),
        (("--direct_num_workers", "3"), -1, 2, 3),
    ],
)
def test_two_threads_unless_told_or_files_are_small(
    beam_options: Any, monkeypatch: pytest.MonkeyPatch, flags: Any, more: int, processors: int, workers: int
) -> None:
    from labeldp.pipelines.job import runner_options as module

    monkeypatch.setattr(module, "available_cpus", lambda: processors)
    assert beam_options(*flags, file_size=module.SMALL_FILE_SIZE + more)["direct_num_workers"] == workers


@pytest.mark.parametrize(("processors", "workers"), [(1, 1), (2, 1), (3, 1), (4, 2), (64, 2)])
def test_one_thread_leaves_parquet_to_those_of_arrow(
    beam_options: Any, monkeypatch: pytest.MonkeyPatch, processors: int, workers: int
) -> None:
    from labeldp.pipelines.job import runner_options as module

    monkeypatch.setattr(module, "available_cpus", lambda: processors)
    assert beam_options(input_format="parquet", file_size=1e9)["direct_num_workers"] == workers
    assert beam_options("--direct_num_workers=2", input_format="parquet", file_size=1e9)["direct_num_workers"] == 2


def test_the_size_of_files_is_their_mean(request_of: Any, tmp_path: Path) -> None:
    for name, size in {"a": 10, "b": 300}.items():
        (tmp_path / name).write_text("f,y\n".ljust(size, "1"))
    assert request_of(input=tmp_path / "?").input.file_size == 155


@pytest.mark.parametrize(
    ("files", "more", "files_per_read"), [(1, -1, 1), (127, -1, 1), (128, -1, 2), (1000, -1, 15), (1000, 0, 1)]
)
def test_small_files_are_read_together(request_of: Any, files: int, more: int, files_per_read: int) -> None:
    from labeldp.transforms.io.input_format import SMALL_FILE_SIZE

    one = request_of().input
    many = dataclasses.replace(one, parts=one.parts * files, file_size=SMALL_FILE_SIZE + more)
    assert many.files_per_read == files_per_read


READ_RECORDS = "one worker read the records of the input file: with --num_shards 8, several can"
READ_FILE = "one worker read the input file: of 8 files or more, several can be read at a time"


@pytest.mark.parametrize(
    ("flags", "path", "said"),
    [
        ({}, None, [READ_RECORDS]),
        ({"num_shards": 8}, None, []),
        ({"output_format": "tfrecord"}, None, [READ_RECORDS]),
        ({"output_format": "tfrecord", "num_shards": 2}, None, []),
        ({"csv_dialect": "encoding=latin-1", "num_shards": 8}, None, [READ_FILE]),
        ({"num_shards": 8}, "log.csv.gz", [READ_FILE]),
        ({"num_shards": 8}, "gs://bucket/log.csv", [READ_FILE]),
        ({"num_shards": 8, "unit_column": "f", "max_records_per_unit": 2}, None, [READ_FILE]),
    ],
)
def test_what_lets_several_workers_read_a_large_file(
    request_of: Any, caplog: Any, flags: dict[str, Any], path: Any, said: list[str]
) -> None:
    from labeldp.pipelines.cli import announcement

    caplog.set_level(logging.INFO, "labeldp")
    found = request_of(**flags)
    parts = tuple(dataclasses.replace(part, path=path or part.path) for part in found.input.parts)

    def announce(files: int, records: int) -> None:
        # However many bytes they take: that may depend on labels.
        input = dataclasses.replace(found.input, parts=parts * files, file_size=records * 10**3)
        binding: Any = SimpleNamespace(records=records - 5, unusable=5)
        announcement.announce_readers(dataclasses.replace(found, input=input), binding)

    announce(1, announcement.LARGE_FILE - 1)
    announce(8, announcement.LARGE_FILE * 8)
    assert caplog.messages == []
    announce(1, announcement.LARGE_FILE)
    assert caplog.messages == said


def test_the_key_is_in_no_option_that_a_runner_shows(beam_options: Any, key_file: Path, secret: bytes) -> None:
    shown = str(beam_options())
    assert secret.hex() not in shown
    assert repr(secret)[2:-1] not in shown
    assert str(key_file) not in shown


def test_the_request_holds_the_name_of_the_key_only(request_of: Any, key_file: Path, secret: bytes) -> None:
    import pickle

    found = request_of()
    assert str(key_file).encode() in pickle.dumps(found)
    assert secret not in pickle.dumps(found)
    assert repr(secret)[2:-1] not in repr(found)
