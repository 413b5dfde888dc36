"""Shared fixtures of the command tests: functions that run a command, input logs, and readers of the output.

The readers use the csv module, pyarrow.parquet and tf.data, and none of the code under test.
"""

import contextlib
import csv
import hashlib
import io
import json
import multiprocessing
import multiprocessing.forkserver
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

SECRET = hashlib.blake2b(b"the key of the tests", digest_size=32).digest()
TIMEOUT_SECONDS = 120
# Beam keeps its results in forks, as in the processes of pytest.
KEPT_BETWEEN_JOBS = Path(__file__).parent / "kept_between_jobs.py"
# Runs with the variables jobs, environment, kept_between_jobs, seconds, stdout and stderr.
FORKED = """
import os, runpy, signal, sys, tempfile, warnings

runpy.run_path(kept_between_jobs)["keep_results"]()
signal.alarm(seconds)
os.setsid()
os.dup2(stdout.fileno(), 1)
os.dup2(stderr.fileno(), 2)
os.environ.update(environment)
tempfile.tempdir = None
# Those of a new process, which shows other warnings.
warnings.resetwarnings()
for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
    warnings.simplefilter("ignore", category)
from labeldp.pipelines.cli.commands import main

for argv in jobs:
    if code := main(argv):
        sys.exit(code)
"""


@dataclass(frozen=True)
class Outcome:
    """Result of a command: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The lines on standard error that are not progress."""
        lines = self.err.splitlines()
        return [line for line in lines if not line.startswith("labeldp: ") or line.startswith("labeldp: error: ")]

    @property
    def error(self) -> str:
        """The only error line."""
        assert "Traceback" not in self.err, self.err
        assert len(self.errors) == 1, self.err
        return self.errors[0]

    def ok(self) -> "Outcome":
        """Returns itself; fails if the command did not succeed."""
        assert self.code == 0, self.err
        return self


class Fork:
    """Commands, one after the other until one fails, in a fork of a process that has the libraries of a job loaded.

    The fork has its own output, signals, environment and process group, as a new process has.
    """

    def __init__(self, forks: Any, jobs: Sequence[Sequence[str]], environment: Mapping[str, str]):
        pipes = [forks.Pipe(duplex=False) for _ in range(2)]
        names = {"jobs": jobs, "environment": environment, "kept_between_jobs": str(KEPT_BETWEEN_JOBS)}
        names |= {"seconds": TIMEOUT_SECONDS * len(jobs), "stdout": pipes[0][1], "stderr": pipes[1][1]}
        self.process = forks.Process(target=exec, args=(FORKED, names))
        self.process.start()
        for _, writer in pipes:
            writer.close()
        self.stdout, self.stderr = (os.fdopen(os.dup(reader.fileno()), encoding="utf-8") for reader, _ in pipes)
        for reader, _ in pipes:
            reader.close()

    @property
    def pid(self) -> int:
        """Its process, and its process group."""
        return self.process.pid

    def wait(self) -> Outcome:
        """Waits for its end. Returns its outcome, with the part of standard error that was not read before."""
        with self.stdout, self.stderr:
            out, err = self.stdout.read(), self.stderr.read()
        self.process.join()
        return Outcome(self.process.exitcode, out, err)

    def kill(self) -> None:
        """Kills the process group if it is still running."""
        if self.process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.process.join()
        self.stdout.close()
        self.stderr.close()


def write_key(path: Path, key: bytes = SECRET) -> Path:
    """Writes a key file that only its owner may read. Returns the path."""
    path.write_bytes(key)
    path.chmod(0o600)
    return path


Invoke = Callable[[Sequence[str]], Outcome]
Job = Callable[..., list[str]]


@pytest.fixture(scope="session")
def secret() -> bytes:
    """The 32 bytes in `key_file`."""
    return SECRET


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key file that holds SECRET, so that records named by ids get the same noise in every run."""
    return write_key(tmp_path_factory.mktemp("key") / "noise.key")


@pytest.fixture(scope="session")
def other_key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File of another key."""
    return write_key(tmp_path_factory.mktemp("key") / "other.key", hashlib.blake2b(SECRET, digest_size=32).digest())


@pytest.fixture
def signing_key(tmp_path: Path) -> Path:
    """File of an Ed25519 private key, which signs releases. Its public key is beside it, with the ending .pub."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key, path = Ed25519PrivateKey.from_private_bytes(SECRET), tmp_path / "signing-key.pem"
    form = serialization.PrivateFormat.PKCS8
    write_key(path, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    path.with_suffix(".pub").write_bytes(public)
    return path


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configuration folder in which the default key is created, instead of the user's own."""
    return tmp_path_factory.mktemp("config")


@pytest.fixture(scope="session")
def environment(home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of subprocesses, whose configuration and temporary folders belong to these tests."""
    return {**os.environ, "XDG_CONFIG_HOME": str(home), "TMPDIR": str(tmp_path_factory.mktemp("tmp"))}


@pytest.fixture(scope="session")
def spawn(environment: dict[str, str]) -> Invoke:
    """Function (arguments) -> Outcome. Runs `labeldp` in a new process, which takes some seconds to import."""

    def run(argv: Sequence[str]) -> Outcome:
        done = subprocess.run(
            [sys.executable, "-m", "labeldp", *argv],
            check=False,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def forks() -> Any:
    """Context of processes that are forked from one with the command's imports, which takes their seconds once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["labeldp.pipelines.cli.privatize_command"])
    with mock.patch.dict(os.environ, PYTHONWARNINGS="ignore"):
        multiprocessing.forkserver.ensure_running()
    return context


@pytest.fixture(scope="session")
def forked(forks: Any, environment: dict[str, str]) -> Callable[..., Fork]:
    """Function (arguments of one command or several, environment variables) -> the running `Fork`."""

    def start(*jobs: Sequence[str], **variables: str) -> Fork:
        return Fork(forks, jobs, environment | variables)

    return start


@pytest.fixture(scope="session")
def invoke(home: Path, loggers_restored: Any) -> Invoke:
    """Function (arguments) -> Outcome. Runs `labeldp` in this process."""
    from labeldp.pipelines.cli.commands import main

    def run(argv: Sequence[str]) -> Outcome:
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, XDG_CONFIG_HOME=str(home)),
            loggers_restored(),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = main(argv)
        return Outcome(code, out.getvalue(), err.getvalue())

    return run


def command_line(command: str, flags: Mapping[str, Any]) -> list[str]:
    """Arguments of `labeldp`. A flag of None is left out, one of a list repeated.

    Unless flags say what labels are for, they are to have the least error of their own, without the passes of a center.
    Unless `verbose` is False, jobs print all their facts.
    """
    flags = dict(flags)
    verbose = flags.pop("verbose", command in ("privatize", "fit", "apply"))
    asked = {"mechanism", "for", "loss", "center", "center_column"} & flags.keys()
    purpose = {} if asked or command not in ("privatize", "fit") else {"for": "labels"}
    given = {**flags, **purpose}.items()
    listed = [(name, value if isinstance(value, list) else [value]) for name, value in given if value is not None]
    named = [f"--{name}" if each is True else f"--{name}={each}" for name, values in listed for each in values]
    return [command, *(["--verbose"] if verbose else []), *named]


@pytest.fixture(scope="session")
def command() -> Callable[[str, Mapping[str, Any]], list[str]]:
    """Function (command, value by flag) -> its arguments; a flag of None is left out."""
    return command_line


@pytest.fixture(scope="session")
def write_csv() -> Callable[..., Path]:
    """Function (path, rows, header) -> the path of a CSV file with those lines."""

    def write(path: Path, rows: Sequence[str], header: str = "f,y") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in [header, *rows]))
        return path

    return write


@pytest.fixture(scope="session")
def small_log(tmp_path_factory: pytest.TempPathFactory, write_csv: Callable[..., Path]) -> Path:
    """CSV file of 1,000 records: f is the row number, y is in 0..4."""
    return write_csv(tmp_path_factory.mktemp("log") / "small.csv", [f"{i},{i % 5}" for i in range(1000)])


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    """Folder that only holds outputs and ledgers."""
    folder = tmp_path / "outputs"
    folder.mkdir()
    return folder


@pytest.fixture
def job(outputs: Path, small_log: Path, key_file: Path) -> Job:
    """Function (command="privatize", flag=value, ...) -> the arguments of a valid job with those flags.

    It reads `small_log` and writes Parquet into `outputs` / "released", or `outputs` / "mechanism.json".
    """

    def arguments(command: str = "privatize", **flags: Any) -> list[str]:
        standard: dict[str, Any] = {
            "input": small_log,
            "input_format": "csv",
            "label": "y",
            "noise_key_file": key_file,
        }
        if command != "apply":
            standard |= {"label_min": 0, "label_max": 4, "label_step": 1, "epsilon": 1}
        if command != "privatize":
            standard["mechanism_file"] = outputs / "mechanism.json"
        if command != "fit":
            standard |= {"output": outputs / "released", "output_format": "parquet"}
        return command_line(command, standard | flags)

    return arguments


@pytest.fixture(scope="session")
def kept_runs() -> dict[Any, tuple[Path, Path]]:
    """By job of `after_job`: a copy of the folder it wrote into, and the path of that folder."""
    return {}


@pytest.fixture
def after_job(
    job: Job, invoke: Invoke, outputs: Path, kept_runs: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., None]:
    """Function as `job`, which makes the empty folder `outputs` what it is after that job. It runs once in a process.

    For tests of what comes after a job. The ledger names the outputs in this folder.
    """

    def prepare(command: str = "privatize", **flags: Any) -> None:
        assert not list(outputs.iterdir())
        key = command, *sorted(flags.items())
        if key not in kept_runs:
            invoke(job(command, **flags)).ok()
            copy = tmp_path_factory.mktemp("kept") / "outputs"
            kept_runs[key] = shutil.copytree(outputs, copy), outputs
            return
        copy, before = kept_runs[key]
        shutil.copytree(copy, outputs, dirs_exist_ok=True)
        ledger = outputs / "labeldp_ledger.jsonl"
        ledger.write_text(ledger.read_text().replace(json.dumps(str(before))[1:-1], json.dumps(str(outputs))[1:-1]))

    return prepare


@pytest.fixture(scope="session")
def census(data_sets: Path) -> Path:
    """Path of census_weeks.csv; its label is `work`, in 0..52."""
    path = data_sets / "census_weeks.csv"
    assert path.is_file(), f"{path} is missing"
    return path


@pytest.fixture(scope="session")
def read_csv() -> Callable[[Path], dict[str, list[str]]]:
    """Function (CSV file) -> its columns as text, by name."""

    def read(path: Path) -> dict[str, list[str]]:
        with path.open(newline="") as file:
            header, *rows = csv.reader(file)
        return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))

    return read


@pytest.fixture(scope="session")
def shard_paths() -> Callable[[Path], list[Path]]:
    """Function (output folder) -> its shards, in order."""
    return lambda output: sorted((output / "data").iterdir())


@pytest.fixture(scope="session")
def read_examples() -> Callable[[Path, Mapping[str, type]], dict[str, np.ndarray]]:
    """Function (TFRecord file, type of each feature: float, int or bytes) -> the features' values, one per record."""
    tensorflow: Any = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

    def read(path: Path, types: Mapping[str, type]) -> dict[str, np.ndarray]:
        kinds = {float: tensorflow.float32, int: tensorflow.int64, bytes: tensorflow.string}
        features = {name: tensorflow.io.FixedLenFeature([], kinds[kind]) for name, kind in types.items()}
        batches = [
            tensorflow.io.parse_example(batch, features)
            for batch in tensorflow.data.TFRecordDataset(str(path)).batch(1 << 16)
        ]
        return {name: np.concatenate([batch[name].numpy() for batch in batches]) for name in types}

    return read


@pytest.fixture(scope="session")
def mechanism_of() -> Callable[[Path], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Function (output folder) -> labels (k,), outputs (m,) and probabilities (k, m), read from mechanism.json."""

    def read(output: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        document = json.loads((output / "mechanism.json").read_text())
        columns, whole = document["columns"], 1 << document["bits"]
        probabilities = [np.repeat([int(w) / whole for w, _ in runs], [times for _, times in runs]) for runs in columns]
        return np.array(document["labels"]), np.array(document["outputs"]), np.array(probabilities).T

    return read


@pytest.fixture(scope="session")
def tree() -> Callable[[Path], dict[str, bytes]]:
    """Function (folder) -> the bytes of every file below it, hidden ones too, by path; links are not followed."""

    def read(folder: Path) -> dict[str, bytes]:
        return {
            str(Path(root, name).relative_to(folder)): Path(root, name).read_bytes()
            for root, _, names in os.walk(folder)
            for name in names
        }

    return read


@pytest.fixture(scope="session")
def entries() -> Callable[[Path], list[dict[str, Any]]]:
    """Function (folder with a ledger) -> its lines."""
    return lambda folder: [json.loads(line) for line in (folder / "labeldp_ledger.jsonl").read_text().splitlines()]


@pytest.fixture(scope="session")
def spent() -> Callable[[Path], Fraction]:
    """Function (folder with a ledger) -> the epsilon of its distinct releases, exactly. 0 without a ledger."""

    def total(folder: Path) -> Fraction:
        path = folder / "labeldp_ledger.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        charges = [charge for line in lines for charge in json.loads(line)["charges"]]
        return sum({charge["release"]: Fraction(charge["epsilon"]) for charge in charges}.values(), Fraction(0))

    return total


@pytest.fixture(scope="session")
def group_lives() -> Callable[[int], bool]:
    """Function (process group) -> True if it still has a process, running or not yet reaped."""

    def lives(group: int) -> bool:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        return True

    return lives


@pytest.fixture(scope="session")
def outcome() -> type[Outcome]:
    """The class `Outcome`, for tests that start their own processes."""
    return Outcome
