"""Neither a raw label nor the key appears in anything that a run writes or prints, even if the run fails.

The labels here are rare numbers. None of them is an output of the mechanism: labels outside the domain are clamped to
it, labels between grid labels are rounded to the nearest. All contents are searched for them as text and as bytes.
"""

import base64
import contextlib
import gc
import logging
import os
import re
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.written_logs import write_log

DOMAIN = [0, 250, 300, 500]
SENTINELS = [31415.926, -27182.818, 271.8281, 161.80339, 414.21356]
TEXT_SENTINEL = "sentinel31415926x"


def spellings(value: float) -> Iterator[bytes]:
    """Yields the forms of a number: text in full and with float32 precision, and the bytes of a float."""
    yield repr(value).encode()
    single = struct.unpack("<f", struct.pack("<f", value))[0]
    yield repr(single).encode()
    yield f"{value:.6g}".encode()
    for order in "<>":
        yield struct.pack(f"{order}d", value)
        yield struct.pack(f"{order}d", single)
        yield struct.pack(f"{order}f", value)


def key_spellings(key: bytes) -> Iterator[bytes]:
    """Yields the key as bytes, as hexadecimal digits, as Python's repr, and in base64 at each of three alignments."""
    yield key
    yield key.hex().encode()
    yield key.hex().upper().encode()
    yield repr(key)[2:-1].encode()
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + key)
        yield encoded[8 if shift else 0 : 40]


LABEL_SPELLINGS = {spelling for value in SENTINELS for spelling in spellings(value)} | {TEXT_SENTINEL.encode()}


def found(contents: dict[str, bytes], spelled: set[bytes]) -> list[str]:
    """Names of the contents that contain one of the spellings, with the spelling."""
    return [f"{name}: {each!r}" for name, content in contents.items() for each in spelled if each in content]


def test_the_search_finds_what_it_is_for() -> None:
    table = pa.table({"y": SENTINELS, "z": pa.array(SENTINELS, pa.float32())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    for value in SENTINELS:
        only = set(spellings(value))
        assert found({"json": f'{{"y": {value}}}'.encode()}, only)
        assert found({"arrow": sink.getvalue().to_pybytes()}, only)
        assert found({"log": b"value %f is odd" % value}, only)
    key = bytes(range(7, 39))
    for padding in range(3):
        wrapped = b"x" * padding + key + b"yz"
        assert found({"graph": base64.b64encode(wrapped)}, set(key_spellings(key)))
    assert found({"log": str({"key": key}).encode()}, set(key_spellings(key)))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, write_csv: Any) -> Path:
    """Folder with a CSV log of 600 records, two of them without a label, and the file of the label domain."""
    folder = tmp_path_factory.mktemp("sentinels")
    labels = [f"{SENTINELS[i % len(SENTINELS)]}" if i not in (7, 8) else "" for i in range(600)]
    write_csv(folder / "log.csv", [f"{i},{label}" for i, label in enumerate(labels)])
    (folder / "domain").write_text("".join(f"{label}\n" for label in DOMAIN))
    return folder


@pytest.fixture
def flags(log: Path) -> dict[str, Any]:
    """Flags of a job over that log, without input and output.

    Ids name the records, so the noise is the same in every folder and cannot equal a label by chance in some runs.
    """
    return {
        "id_column": "f",
        "label": "y",
        "label_min": None,
        "label_max": None,
        "label_step": None,
        "label_values": log / "domain",
        "max_unusable_fraction": 0.01,
        "epsilon": 3,
    }


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.fixture
def run(job: Any, flags: dict[str, Any], forked: Any, temporary: Path) -> Callable[..., Any]:
    """Function (flag=value, ...) -> the outcome of the job in a process with its own folder of temporary files."""
    return lambda **others: forked(job(**(flags | others)), TMPDIR=str(temporary)).wait()


def said(outcome: Any) -> dict[str, bytes]:
    """Standard output and standard error."""
    return {"stdout": outcome.out.encode(), "stderr": outcome.err.encode()}


def test_a_run_leaves_no_label_and_no_key(
    run: Any, log: Path, outputs: Path, temporary: Path, tree: Any, secret: bytes
) -> None:
    outcome = run(input=log / "log.csv", output_format="tfrecord", mechanism="rr").ok()

    contents = tree(outputs) | tree(temporary) | said(outcome)
    names = {Path(name).name for name in contents}
    assert {"dead_letters.jsonl", "release.json", "mechanism.json", "labeldp_ledger.jsonl"} <= names
    assert found(contents, LABEL_SPELLINGS) == []
    assert found(contents, set(key_spellings(secret))) == []
    assert list(temporary.iterdir()) == []


def test_an_unfinished_run_leaves_no_label_and_no_key(
    job: Any, flags: dict[str, Any], log: Path, outputs: Path, tree: Any, secret: bytes, invoke: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Searches the staging folder after all output is written, before temporary files are removed."""
    from labeldp.pipelines.publish import release_steps

    kept: dict[str, bytes] = {}
    make_manifest = release_steps.make_manifest

    def look(*arguments: Any) -> Any:
        kept.update(tree(outputs))
        return make_manifest(*arguments)

    monkeypatch.setattr(release_steps, "make_manifest", look)
    # The only segment of a shard would be renamed. Here all are kept, as they are where a shard has several.
    monkeypatch.setattr("labeldp.transforms.shards.shard_formats._ParquetLayout.is_shard", lambda *_: False)
    outcome = invoke(job(input=log / "log.csv", **flags)).ok()

    kept |= {f"finished {name}": content for name, content in tree(outputs).items()} | said(outcome)
    assert any("segments" in name for name in kept)
    assert found(kept, LABEL_SPELLINGS) == []
    assert found(kept, set(key_spellings(secret))) == []


def test_logs_counters_and_the_job_itself(
    job: Any, flags: dict[str, Any], log: Path, tmp_path: Path, secret: bytes, caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Searches everything that Beam stores about a job, and every log line at level DEBUG and above."""
    import apache_beam as beam
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from labeldp.pipelines.cli.commands import parse
    from labeldp.pipelines.job.job_graph import build
    from labeldp.pipelines.job.runner_options import runner_options
    from labeldp.pipelines.publish.output_folder import Staging
    from labeldp.pipelines.spec.fields import Fields
    from labeldp.pipelines.spec.make_release import make_release

    (tmp_path / "staging").mkdir()
    caplog.set_level(logging.DEBUG)
    for name in ("labeldp", "apache_beam"):
        caplog.set_level(logging.DEBUG, name)
        # An earlier command in this process may have turned propagation off.
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    args, others = parse(job(input=log / "log.csv", **flags))
    options = runner_options(others, "csv", 0)
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=options)
    staging = str(tmp_path / "staging")
    build(pipeline, make_release("privatize", Fields.of(vars(args))), Staging(staging, staging), [()])
    graph: Any = pipeline.to_runner_api()
    result: Any = pipeline.run()
    result.wait_until_finish()

    infos = [info for stage in result._monitoring_infos_by_stage.values() for info in stage]
    printed = capfd.readouterr()
    contents = {
        "log": "\n".join(f"{record.getMessage()} {record.exc_text}" for record in caplog.records).encode(),
        "counters": str(result.metrics().query()).encode(),
        "monitoring": "\n".join(map(str, infos)).encode(),
        "graph": graph.SerializeToString(),
        "options": str(options.get_all_options()).encode(),
        "stdout": printed.out.encode(),
        "stderr": printed.err.encode(),
    }
    assert "finished the pass of the histogram" in contents["log"].decode()
    assert len(infos) > 10
    # The four bytes of a float32 are not searched: among so many bytes they would occur by chance.
    payloads = {info.urn: info.payload for info in infos}
    assert found(payloads, {spelling for spelling in LABEL_SPELLINGS if len(spelling) > 4}) == []
    assert found(contents, LABEL_SPELLINGS) == []
    assert found(contents, set(key_spellings(secret))) == []


def test_no_counter_tells_how_many_labels_were_clamped(
    job: Any, flags: dict[str, Any], tmp_path: Path, write_csv: Any, invoke: Any, outputs: Path, tree: Any
) -> None:
    """One of two logs has 123 labels outside the domain. The output of the two runs differs only by noise."""
    said = []
    for name, label in {"inside": 500, "outside": 31415.926}.items():
        path = write_csv(tmp_path / name / "log.csv", [f"{i},{label if i < 123 else 250}" for i in range(600)])
        outcome = invoke(job(input=path, output=outputs / name, **flags)).ok()
        said.append(outcome)
        assert "123" not in outcome.out.replace(str(tmp_path), "")
        assert "123" not in outcome.err.replace(str(tmp_path), "")
    assert [len(each.out.splitlines()) for each in said] == [15, 15]


@pytest.mark.parametrize("bad", [None, "1,text"], ids=["good", "corrupt"])
def test_one_label_of_another_width_changes_no_line(
    job: Any, flags: dict[str, Any], forked: Any, tmp_path: Path, write_csv: Any, outputs: Path, bad: str | None
) -> None:
    """Standard error and the exit code are those of the same log with a narrower label."""
    said = []
    for folder, label in (("narrow", "9"), ("wider", "300.000000000001")):
        rows = [f"{i},{label if i == 3 else 250}" for i in range(600)]
        path = write_csv(tmp_path / "log.csv", [*rows, bad] if bad else rows)
        argv = job(input=path, output=outputs / folder, ledger=tmp_path / f"{folder}.jsonl", **flags)
        outcome = forked(argv).wait()
        # Warnings follow from the noised histogram, which is released: they are compared with it elsewhere.
        changing = rf"[0-9.]+ s|epsilon [0-9.]+|{outputs / folder}|{folder}.jsonl|labeldp: warning: [^\n]*\n"
        said.append((outcome.code, re.sub(changing, "", outcome.err)))
    assert said[0] == said[1]
    assert said[0][0] == (1 if bad else 0)


# Runs that fail.


@pytest.fixture
def fails(
    job: Any, flags: dict[str, Any], invoke: Any, outputs: Path, tree: Any, secret: bytes, caplog: Any
) -> Callable[..., str]:
    """Function (flag=value, ...) -> the error line of the job, after a search of its output for labels and the key."""

    def check(code: int = 1, **others: Any) -> str:
        caplog.set_level(logging.DEBUG)
        outcome = invoke(job(**(flags | others)))
        assert outcome.code == code, outcome.err
        contents = said(outcome) | tree(outputs) | {"log": caplog.text.encode()}
        assert found(contents, LABEL_SPELLINGS) == []
        assert found(contents, set(key_spellings(secret))) == []
        return outcome.error

    return check


GOOD, BAD = ["1,271.8281"] * 99, f"2,{TEXT_SENTINEL}"
# Names and contents of CSV files, flags, and what the error says.
LOGS: list[tuple[dict[str, list[str]], dict[str, Any], str]] = [
    ({"a": ["f,y", f"1,{TEXT_SENTINEL}"]}, {}, "holds text on line 2"),
    ({"a": ["f,y", *GOOD, BAD]}, {}, "holds text on line 101"),
    # The first record is read as the header, so a message that listed the columns would show its label.
    ({"a": ["1,31415.926", "2,271.8281"]}, {}, "a.csv"),
    ({"a": ["f,y", "1,271.8281"], "b": ["1,31415.926", "2,271.8281"]}, {}, "b.csv"),
    ({"a": ["f,y", "1,271.8281", "1,271.8281,31415.926"]}, {}, "line 3"),
    # A line whose fields were swapped.
    ({"a": ["f,y", "1,271.8281", "31415.926,2"]}, {"csv_types": "f=int64"}, "'f'"),
    ({"a": ["f,y", "1,271.8281", "2,", "3,31415.926"]}, {}, "1 of 3"),
    ({"a": ["f,y", "1,271.8281", "1,31415.926"]}, {}, "--id_column"),
]


@pytest.mark.parametrize(("files", "more", "said"), LOGS, ids=[said for _, _, said in LOGS])
def test_csv_files(fails: Any, tmp_path: Path, files: dict[str, list[str]], more: dict[str, Any], said: str) -> None:
    for name, lines in files.items():
        (tmp_path / f"{name}.csv").write_text("\n".join([*lines, ""]))
    assert said in fails(2 if said == "a.csv" else 1, input=tmp_path / "*.csv", **more)


def test_labels_that_are_text_in_worker_threads(
    job: Any, flags: dict[str, Any], tmp_path: Path, write_csv: Any, invoke: Any, capfd: Any
) -> None:
    """Worker threads print nothing that contains the labels."""
    path = write_csv(tmp_path / "in.csv", [*GOOD, BAD])
    outcome = invoke(job(input=path, direct_num_workers=2, **flags))
    printed = capfd.readouterr()

    assert outcome.code == 1
    contents = said(outcome) | {"fd 1": printed.out.encode(), "fd 2": printed.err.encode()}
    assert found(contents, LABEL_SPELLINGS) == []


MODES = {"privatize": ["multi_threading", "multi_processing"], "fit": ["multi_threading"]}
RUNNERS = ("directrunner", "Direct", "SwitchingDirectRunner", "FlinkRunner")
RUNNERS += ("apache_beam.runners.portability.fn_api_runner.FnApiRunner",)


@pytest.mark.parametrize(
    ("command", "flags", "said"),
    [
        *((command, {"direct_running_mode": mode}, mode) for command, modes in MODES.items() for mode in modes),
        *(("privatize", {"direct_running_mode": "multi_threading", "runner": runner}, "") for runner in RUNNERS),
        ("privatize", {"runner": "InteractiveRunner"}, "InteractiveRunner opens such ports"),
    ],
)
def test_workers_behind_open_ports_are_refused(
    job: Any, invoke: Any, outputs: Path, command: str, flags: dict[str, Any], said: str
) -> None:
    """Beam's artifact service sends any file of the user, even the key, on all interfaces and without a password."""
    outcome = invoke(job(command, **flags, direct_num_workers=2))
    assert (outcome.code, list(outputs.iterdir())) == (2, [])
    mode = flags.get("direct_running_mode")
    assert (said if mode is None else f"--direct_running_mode {mode} opens ports") in outcome.error


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="no /proc")
@pytest.mark.parametrize("runner", ["FnApiRunner", "directrunner", "SwitchingDirectRunner"])
def test_a_job_in_threads_listens_to_nobody(job: Any, census: Path, forked: Any, runner: str) -> None:
    flags = {"input": census, "label": "work", "label_max": 52, "direct_num_workers": 2, "runner": runner}
    run = forked(job(**flags))
    heard = [listening(run.pid) for line in run.stderr if line.startswith("labeldp: ")]

    run.wait().ok()
    assert len(heard) >= 3
    assert set().union(*heard) == set()


def listening(process: int) -> set[str]:
    """Addresses on which a process listens, in the notation of /proc."""
    links = set()
    descriptors = f"/proc/{process}/fd"
    # The process, or one of its files, may be gone by now.
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(descriptors):
            with contextlib.suppress(OSError):
                links.add(os.readlink(f"{descriptors}/{name}"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in links:
                found.add(fields[1])
    return found


def test_listening_finds_an_open_port() -> None:
    # Servers of other tests may run in this process.
    before = listening(os.getpid())
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
        assert [int(address.rpartition(":")[2], 16) for address in listening(os.getpid()) - before] == [port]


@pytest.mark.parametrize(("format", "flags"), [("parquet", {}), ("tfrecord", {"id_column": None})])
def test_labels_that_are_text_in_other_formats(fails: Any, tmp_path: Path, format: str, flags: dict[str, Any]) -> None:
    path = write_log(tmp_path / f"in.{format}", {"f": [1], "y": [TEXT_SENTINEL]})
    assert "'y'" in fails(input=path, input_format=format, **flags)


def test_a_corrupt_file(fails: Any, tmp_path: Path) -> None:
    path = write_log(tmp_path / "in.tfrecord", {"y": SENTINELS * 20})
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(bytes(content))
    assert "corrupt TFRecord" in fails(input=path, input_format="tfrecord")


@pytest.mark.parametrize(
    ("module", "function", "stage"),
    [
        ("labeldp.mechanisms.release.label_records", "digest_sums", "counting labels"),
        ("labeldp.mechanisms.release.prior_release", "noisy_counts", "adding noise"),
        ("labeldp.transforms.privatize_labels", "label_sums", "privatizing labels"),
        ("labeldp.transforms.shards.shard_formats", "_returns", "writing"),
        # The columns are read before the job, too.
        ("labeldp.transforms.csv_input.csv_reader", "find_types", "the job"),
    ],
)
def test_a_library_that_quotes_labels(
    fails: Any, log: Path, monkeypatch: pytest.MonkeyPatch, module: str, function: str, stage: str
) -> None:
    """An unexpected error whose text contains labels: the message gives only its class and location."""

    def choke(*arguments: Any) -> None:
        raise ZeroDivisionError(f"cannot handle {SENTINELS} {TEXT_SENTINEL}")

    monkeypatch.setattr(f"{module}.{function}", choke)
    error = fails(input=log / "log.csv", num_shards=2)
    gc.collect()  # a file that is left open would make a warning here
    assert f"{stage} failed: ZeroDivisionError at test_command_leaks.py:" in error


def test_an_error_outside_of_all_stages(fails: Any, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def choke(*arguments: Any) -> None:
        raise ZeroDivisionError(f"cannot handle {SENTINELS} {TEXT_SENTINEL}")

    monkeypatch.setattr("labeldp.pipelines.job.job_graph.run_pipeline", choke)
    assert "ZeroDivisionError at test_command_leaks.py:" in fails(input=log / "log.csv")
