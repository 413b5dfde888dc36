"""Fixtures of the tests on clusters: the clusters, logs, jobs in a process of their own, references of DirectRunner.

The tests of an engine run only if LABELDP_FLINK or LABELDP_SPARK is set, as `make flink-test` and `make spark-test` do:
a cluster takes 6 GB and 4 GB of memory. LABELDP_FLINK_REPEAT is the number of repetitions of each fault on Flink.
"""

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands import write_key
from tests.engines.flink_cluster import FlinkCluster
from tests.engines.local_processes import ROOT, LocalProcesses
from tests.engines.spark_cluster import SparkCluster

# Files of tests of each engine alone; the others run on both.
_FILES = {"flink": ["test_flink_*.py", "test_prism.py"], "spark": ["test_spark_*.py"]}
ENGINES = [engine for engine in _FILES if os.environ.get(f"LABELDP_{engine.upper()}")]
_OTHERS = [name for engine, names in _FILES.items() if engine not in ENGINES for name in names]
collect_ignore_glob = _OTHERS if ENGINES else ["test_*.py"]
SECRET = hashlib.blake2b(b"the key of the tests on clusters", digest_size=32).digest()
FILES = 4
RECORDS_PER_FILE = 250_000
LABELS = 20
SECONDS_FOR_A_JOB = 300.0
POLL_SECONDS = 0.005


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs each test that uses `repetition` LABELDP_FLINK_REPEAT times."""
    if "repetition" in metafunc.fixturenames:
        metafunc.parametrize("repetition", range(int(os.environ.get("LABELDP_FLINK_REPEAT", "1"))))


@pytest.fixture(scope="session")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkCluster]:
    """Two TaskManagers of two task slots each: if one ends, the other can run all of a job of parallelism 2."""
    with FlinkCluster(tmp_path_factory.mktemp("flink")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Two executors of one core each: if one ends, the other can run all of a job."""
    with SparkCluster(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster


@pytest.fixture(scope="session", params=ENGINES)
def cluster(request: pytest.FixtureRequest) -> LocalProcesses:
    """The cluster of each engine."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def leaks() -> ModuleType:
    """Module of the functions that search for labels and the key."""
    spec = importlib.util.spec_from_file_location("leaks", ROOT / "tests/pipelines/job/test_command_leaks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of all commands, with a configuration folder that belongs to these tests."""
    return {**os.environ, "XDG_CONFIG_HOME": str(tmp_path_factory.mktemp("config"))}


@pytest.fixture(scope="session")
def secret() -> bytes:
    """The 32 bytes in `key_file`."""
    return SECRET


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key file that holds SECRET."""
    return write_key(tmp_path_factory.mktemp("key") / "noise.key", SECRET)


@pytest.fixture(scope="session")
def parquet_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Glob of four Parquet files with a million records in total, whose label y is in 0..19."""
    folder = tmp_path_factory.mktemp("parquet")
    generator = np.random.default_rng(7)
    for number in range(FILES):
        columns = {
            "f": np.arange(RECORDS_PER_FILE) + number * RECORDS_PER_FILE,
            "x": generator.normal(size=RECORDS_PER_FILE).astype(np.float32),
            "y": generator.binomial(LABELS - 1, 0.3, RECORDS_PER_FILE).astype(np.float64),
        }
        pq.write_table(pa.table(columns), folder / f"in-{number}.parquet")
    return folder / "in-*.parquet"


@pytest.fixture(scope="session")
def small_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Glob of two CSV files with 8,000 records in total."""
    folder = tmp_path_factory.mktemp("csv")
    for name, label in {"a": 3, "b": 7}.items():
        rows = "".join(f"{i},{i * label % LABELS}\n" for i in range(4000))
        (folder / f"{name}.csv").write_text("f,y\n" + rows)
    return folder / "*.csv"


@dataclass(frozen=True)
class Running:
    """A command that was started. outputs: the folder of the release and the ledger."""

    process: "subprocess.Popen[str]"
    outputs: Path
    temporary: Path

    @property
    def release(self) -> Path:
        """The output folder."""
        return self.outputs / "released"

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits until the condition holds; fails if the command ends first."""
        while not condition():
            assert self.process.poll() is None, f"ended before {what}: {self.process.communicate()}"
            time.sleep(POLL_SECONDS)

    def segments(self) -> int:
        """Bytes of privatized records that its workers have written for shards that are not complete yet."""
        paths = self.outputs.glob(".released.*/segments/*")
        return sum(path.stat().st_size for path in paths if path.exists())

    def finish(self) -> "Outcome":
        """Waits until the command ends."""
        out, err = self.process.communicate(timeout=SECONDS_FOR_A_JOB)
        return Outcome(self.process.returncode, out, err, self)


@dataclass(frozen=True)
class Outcome:
    """Result of a command: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str
    ran: Running = field(repr=False)

    @property
    def error(self) -> str:
        """The one line on standard error that is not progress."""
        lines = [line for line in self.err.splitlines() if not line.startswith("labeldp: ")]
        assert len(lines) == 1, self.err
        return lines[0]

    def ok(self) -> "Outcome":
        """Returns itself; fails if the command did not succeed."""
        assert self.code == 0, self.err
        return self


Start = Callable[..., Running]
Arguments = Callable[..., list[str]]


@pytest.fixture(scope="session")
def arguments(key_file: Path, parquet_log: Path) -> Arguments:
    """Function (folder of the outputs, command, flag=value, ...) -> arguments of `labeldp`. None leaves a flag out."""

    def make(outputs: Path, command: str = "privatize", **flags: Any) -> list[str]:
        standard: dict[str, Any] = {
            "input": parquet_log, "input_format": "parquet", "label": "y", "label_min": 0, "label_max": LABELS - 1,
            "label_step": 1, "epsilon": 2, "num_shards": 3, "output": outputs / "released", "noise_key_file": key_file,
        }  # fmt: skip
        # Unless a test is about them, jobs do without the passes of a linear center.
        if command != "apply" and not {"mechanism", "for", "center_column"} & flags.keys():
            standard["for"] = "labels"
        given = (standard | flags).items()
        return [command, "--verbose", *(f"--{name}={value}" for name, value in given if value is not None)]

    return make


@pytest.fixture(scope="session")
def start(
    environment: dict[str, str], arguments: Arguments, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Start]:
    """Function (runner's flags, command="privatize", flag=value, ...) -> running command, in a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def run(runner: Sequence[str] = (), command: str = "privatize", **flags: Any) -> Running:
        folder = tmp_path_factory.mktemp("job")
        outputs, temporary = folder / "outputs", folder / "tmp"
        outputs.mkdir()
        temporary.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-m", "labeldp", *arguments(outputs, command, **flags), *runner],
            env=environment | {"TMPDIR": str(temporary)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return Running(process, outputs, temporary)

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def tree() -> Callable[..., dict[str, bytes]]:
    """Function (folder) -> the bytes of every file below it, by path.

    changed_since: size and modification time of files that were read before. They are skipped if unchanged; the
    dictionary is updated.
    """

    def read(folder: Path, changed_since: dict[Path, tuple[int, int]] | None = None) -> dict[str, bytes]:
        files = {}
        for root, _, names in os.walk(folder):
            for path in (Path(root, name) for name in names):
                # A running cluster may remove files at any time.
                with contextlib.suppress(OSError):
                    state = path.stat().st_size, path.stat().st_mtime_ns
                    if changed_since is None or changed_since.get(path) != state:
                        files[str(path.relative_to(folder))] = path.read_bytes()
                        if changed_since is not None:
                            changed_since[path] = state
        return files

    return read


@pytest.fixture(scope="session")
def reference(
    environment: dict[str, str], arguments: Arguments, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Function (flag=value, ...) -> the output folder of the same job on DirectRunner, in the process of the tests.

    Tests call it while their job runs on the cluster, where the command mostly waits.
    """
    made: dict[str, Path] = {}

    def release(**flags: Any) -> Path:
        name = json.dumps(flags, default=str, sort_keys=True)
        if name not in made:
            from labeldp.pipelines.cli.commands import main

            outputs = tmp_path_factory.mktemp("reference")
            printed = io.StringIO()
            with (
                mock.patch.dict(os.environ, environment),
                contextlib.redirect_stdout(printed),
                contextlib.redirect_stderr(printed),
            ):
                code = main(arguments(outputs, **flags))
            assert code == 0, printed.getvalue()
            made[name] = outputs / "released"
        return made[name]

    return release


@pytest.fixture(scope="session")
def undisturbed(reference: Callable[..., Path], tree: Any) -> Callable[..., dict[str, bytes]]:
    """Function (flag=value, ...) -> the bytes of every file that DirectRunner releases, by path."""
    return lambda **flags: tree(reference(**flags))


@pytest.fixture(scope="session")
def charges() -> Callable[[Path], list[Mapping[str, Any]]]:
    """Function (folder with a ledger) -> all charges in the ledger, in order."""

    def read(folder: Path) -> list[Mapping[str, Any]]:
        lines = (folder / "labeldp_ledger.jsonl").read_text().splitlines()
        return [charge for line in lines for charge in json.loads(line)["charges"]]

    return read
