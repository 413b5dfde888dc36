"""Recovery: commands that are disturbed at every step, on a disk, on S3 and on Google's store, and what comes next.

The law: the next command releases the bytes of an undisturbed run, charged once, and nothing else is left.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from labeldp.pipelines.ledger.ledger import Ledger, LedgerEntry
from labeldp.pipelines.ledger.spent_budget import Caps
from labeldp.pipelines.publish.output_folder import publish_folder, publishing, staging_folder
from labeldp.transforms.errors import InputError, StageError
from labeldp.transforms.io.filesystems import complete_file, make_directory, store_of

LEDGER = "labeldp_ledger.jsonl"
MANIFEST = "released/release.json"
RUNNER = "--runner=detached_runner.DetachedRunner"
CHARGED = re.compile(f"{LEDGER}|rewriteTo/b/log/o/out%2Freleased")
"""Steps from the charge on; on Google's store an object that is written is not named in the URL."""
MISSED = 3
"""Most steps of a run that another one lacks: workers take turns."""
BLOCKED_SECONDS = 0.3

# Acts before the step of a number.
FAULT = """
import errno, itertools, os, signal, threading, time

signal.signal(signal.SIGINT, signal.default_int_handler)
steps = itertools.count()


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def fault(step):
    if next(steps) == {moment}:
        {act}
"""
ACTS = {
    "killed": "kill()",
    # Between two steps: while labels are counted and drawn, and files are written.
    "killed later": "threading.Timer((0.001, 0.02, 0.1)[{moment} % 3], kill).start()",
    "interrupted": "os.kill(os.getpid(), (signal.SIGTERM, signal.SIGINT)[{moment} % 2])",
    "failing": "raise OSError(errno.EIO, os.strerror(errno.EIO))",
    "stopped": """open(trace + ".stopped", "x").close()
        while not os.path.exists(trace + ".continued"):
            time.sleep(0.01)""",
}


class Row(NamedTuple):
    """A command that is disturbed at each of its steps.

    Attributes:
      place: disk, s3 or gs.
      act: How it is disturbed, of ACTS.
      flags: Flags of the job.
      command: privatize; or finish, of a job that was submitted.
      then: The command that comes next: privatize or finish.
      given: Flags of `finish`: of the one that is disturbed, and of the next.
      changed: Flags of the job that the next run has instead.
      steps: Pattern of the steps at which it is disturbed.
      every: It is disturbed at one of so many of these, with LABELDP_EXPLORE at all.
    """

    place: str
    act: str
    flags: dict[str, Any] = {}
    command: str = "privatize"
    then: str = "privatize"
    given: tuple[str, str] = ("", "")
    changed: dict[str, Any] = {}
    steps: str = ""
    every: int = 1


SEVERAL = {
    "label": "y,z", "label_min": "0,0", "label_max": "4,4", "label_step": "1,1", "mechanism": "unbiased",
    "center": "linear", "epsilon": 4, "epsilon_cap": 4, "num_shards": 1,
}  # fmt: skip
TFRECORDS = {"output_format": "tfrecord", "num_shards": 1}
THREE, TWO, SINGLE, WORKERS = {"num_shards": 3}, {"num_shards": 2}, {"num_shards": 1}, {"direct_num_workers": 2}
AFTER_THE_JOB = r"open .*release\.json\.|rmtree .*segments|ledger.jsonl.pending|rename .*released$"
ROWS = {
    "disk killed": Row("disk", "killed"),
    "disk killed later": Row("disk", "killed later", WORKERS, every=3),
    "disk killed, TFRecords": Row("disk", "killed", TFRECORDS, steps=r"^read|rename .*segments/part-"),
    "disk interrupted": Row("disk", "interrupted", WORKERS, every=2),
    "disk failing": Row("disk", "failing", every=3),
    "disk stopped": Row("disk", "stopped", SINGLE, every=3),
    "disk killed, finish": Row("disk", "killed", then="finish", steps=AFTER_THE_JOB),
    "disk killed, finish validates": Row("disk", "killed", {"validate": True}, then="finish", steps=r"release\.json\."),
    "disk finish killed": Row("disk", "killed", command="finish", then="finish"),
    "disk finish failing": Row("disk", "failing", command="finish", then="finish", given=("first", "second"), every=2),
    "s3 killed": Row("s3", "killed", THREE, changed=TWO),
    "s3 interrupted": Row("s3", "interrupted", every=4),
    "s3 failing": Row("s3", "failing", every=4),
    "s3 stopped": Row("s3", "stopped", SINGLE),
    "s3 finish killed": Row("s3", "killed", command="finish", then="finish", given=("first", "second"), every=2),
    "s3 finish failing": Row("s3", "failing", SEVERAL, command="finish", then="finish", every=3),
    "gs killed": Row("gs", "killed", SEVERAL, every=2),
    "gs interrupted": Row("gs", "interrupted", every=6),
    "gs finish killed": Row("gs", "killed", command="finish", then="finish", given=("first", ""), every=2),
}


@dataclass
class Place:
    """Place of the outputs of a run."""

    url: str
    emulator: Any = None

    def objects(self) -> dict[str, bytes]:
        """Files, and folders without any; unfinished uploads of S3."""
        if self.emulator is None:
            paths = [path for path in Path(self.url).rglob("*") if not path.is_dir() or not any(path.iterdir())]
            return {str(path.relative_to(self.url)): b"" if path.is_dir() else path.read_bytes() for path in paths}
        found = self.emulator.objects("out/")
        if self.emulator.scheme == "s3":
            import boto3

            uploads = boto3.client("s3").list_multipart_uploads(Bucket="log").get("Uploads", [])
            found |= {f"upload {upload['Key']}": b"" for upload in uploads}
        return found

    def clear(self) -> None:
        """Deletes all of it."""
        if self.emulator is None:
            shutil.rmtree(self.url)
            Path(self.url).mkdir()
        else:
            store = store_of(self.url)
            store.abort_uploads(f"{self.url}/")
            store.delete([info.path for info in store.list(f"{self.url}/")])


def release_of(found: dict[str, bytes]) -> tuple[dict[str, bytes], list[str]]:
    """Files of the release, and the distinct charges."""
    runs = [json.loads(line) for line in found.get(LEDGER, b"").decode().splitlines()]
    return {name: content for name, content in found.items() if name.startswith("released/")}, charges_of(runs)


def charges_of(runs: list[dict[str, Any]]) -> list[str]:
    """The distinct charges of lines of a ledger."""
    return sorted({json.dumps(charge) for run in runs for charge in run["charges"]})


def left_of(found: dict[str, bytes]) -> list[str]:
    """Objects that are neither of a release nor the ledger."""
    kept = ("released/", LEDGER) if MANIFEST in found else (LEDGER,)
    return sorted(name for name in found if not name.startswith(kept))


@pytest.fixture
def place(emulator: Any, outputs: Path) -> Place:
    """The place of the emulator: that of a disk is without one."""
    return Place(str(outputs)) if emulator is None else Place(emulator.url("out"), emulator)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, write_csv: Any) -> str:
    """Glob of a log of three files, in which one record has no label. Each of two shards has rows of two files."""
    folder = tmp_path_factory.mktemp("log")
    rows = [f"{i},{'' if i == 7 else i % 5},{i % 3}" for i in range(600)]
    for start in range(0, 600, 200):
        write_csv(folder / f"log-{start}.csv", rows[start : start + 200], "f,y,z")
    return f"{folder}/log-*.csv"


@pytest.fixture(scope="module")
def other_log(tmp_path_factory: pytest.TempPathFactory, write_csv: Any) -> Path:
    """A log of the run that goes on while another one is stopped."""
    return write_csv(tmp_path_factory.mktemp("other") / "log.csv", ["1,4,2"] * 300, "f,y,z")


@pytest.fixture
def arguments(job: Any, log: str, place: Place) -> Callable[[dict[str, Any]], list[str]]:
    """Function (flags) -> arguments of the run. Its cap admits one charge."""
    standard = {"input": log, "num_shards": 2, "epsilon_cap": 1, "max_unusable_fraction": 0.1}
    return lambda flags: job(**{**standard, "output": f"{place.url}/released", **flags})


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Flags of `finish` for no key and for two keys that sign."""
    flags = {"": ""}
    for name in ("first", "second"):
        path = tmp_path_factory.mktemp("signing") / f"{name}.pem"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], check=True)
        flags[name] = f"--sign={path}"
    return flags


Expected = tuple[dict[str, bytes], list[str]]


@pytest.fixture(scope="session")
def kept_results() -> dict[str, Expected]:
    """Results that `undisturbed` keeps."""
    return {}


@pytest.fixture
def undisturbed(
    job: Any, log: str, invoke: Any, tmp_path: Path, keys: Any, kept_results: Any
) -> Callable[..., Expected]:
    """Function (flags, key) -> release and charges of an undisturbed run on a disk, wherever the others are."""

    def run(flags: dict[str, Any], key: str = "") -> Expected:
        name = json.dumps([log, flags, key], default=str)
        if name not in kept_results:
            folder = tmp_path / f"undisturbed-{len(kept_results)}"
            standard = {"input": log, "num_shards": 2, "max_unusable_fraction": 0.1, "output": folder / "released"}
            invoke([*job(**{**standard, **flags}), *keys[key].split()]).ok()
            kept_results[name] = release_of(Place(str(folder)).objects())
        return kept_results[name]

    return run


@pytest.fixture
def submit(
    arguments: Any, place: Place, invoke: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Row], None]:
    """Function (row) -> None: empties the place, and submits and runs the job that is to be finished, if there is one.

    On a disk, it is a copy of the first one.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "finish"))
    graph, kept = tmp_path / "graph", tmp_path / "kept"
    monkeypatch.setenv("LABELDP_TESTS_GRAPH", str(graph))

    def prepare(row: Row) -> None:
        place.clear()
        if row.command != "finish":
            return
        if kept.exists():
            shutil.copytree(kept, place.url, dirs_exist_ok=True)
            return
        invoke([*arguments(row.flags), RUNNER, "--no_wait_until_finish"]).ok()
        sys.modules["detached_runner"].run_graph(str(graph))
        if place.emulator is None:
            shutil.copytree(place.url, kept)

    return prepare


@dataclass
class OtherRun:
    """A run with another input and the same output, which was made once, and is released while others are stopped."""

    place: Place
    files: dict[str, bytes]
    entry: dict[str, Any]
    outcome: str = ""

    def act(self) -> None:
        """Writes its files, is charged and published; or is refused."""
        target, ledger = f"{self.place.url}/released", Ledger(f"{self.place.url}/{LEDGER}")
        charges = [LedgerEntry.from_dict(charge) for charge in self.entry["charges"]]
        details = {key: value for key, value in self.entry.items() if key not in ("charges", "time", "adjacency")}
        try:
            with staging_folder(target) as staging:
                for name, content in self.files.items():
                    path = f"{staging.release}/{name.removeprefix('released/')}"
                    make_directory(path.rpartition("/")[0])
                    with complete_file(path, staging.work) as file:
                        file.write(content)
                with ledger.locked(), publishing(staging, target):
                    ledger.charge(charges, Caps(), **details)
                    publish_folder(staging, target)
        except (InputError, StageError) as error:
            self.outcome = str(error)
        else:
            self.outcome = "published"


@pytest.fixture
def other_run(place: Place, job: Any, other_log: Path, invoke: Any, tmp_path: Path) -> OtherRun:
    """A release of other records, with more shards."""
    folder = tmp_path / "other"
    invoke(job(input=other_log, num_shards=2, output=folder / "released")).ok()
    found = Place(str(folder)).objects()
    return OtherRun(place, release_of(found)[0], json.loads(found[LEDGER]))


@pytest.fixture
def stopped(place: Place, fork: Any, other_run: OtherRun) -> Callable[..., Any]:
    """Function (fork's arguments) -> its result; the other run releases while this one is stopped.

    On a disk, the other run may have to wait for the lock of the ledger.
    """

    def run(*given: Any, **more: Any) -> Any:
        acting = threading.Thread(target=other_run.act)
        other_run.outcome = ""

        def act() -> None:
            acting.start()
            acting.join(BLOCKED_SECONDS if place.emulator is None else None)

        result = fork(*given, meanwhile=act, **more)
        if acting.ident is not None:
            acting.join()
        return result

    return run


def check_end(row: Row, outcome: Any, found: dict[str, bytes], charged: bool) -> None:
    """Checks how the disturbed command ended, and what it says and leaves. `charged`: the ledger may be."""
    if row.act.startswith("killed"):
        assert outcome.code == -signal.SIGKILL or row.act == "killed later"
    elif outcome.code == 0:
        # It came too late, or concerned what is of no account.
        assert MANIFEST in found
        assert row.act == "failing" or (charged and left_of(found) == [])
    else:
        assert outcome.code == 1
        assert MANIFEST not in found
        if row.act == "interrupted":
            assert outcome.error == f"labeldp {row.command}: interrupted; nothing is released"
        else:
            assert outcome.error.startswith(f"labeldp {row.command}: error: ")
        left = left_of(found)
        # Threads of a run that was interrupted may still write to a store.
        may_stay = row.act == "interrupted" and row.place != "disk" and MANIFEST not in found
        assert row.command == "finish" or claimed(found) or may_stay or left == []


@pytest.mark.parametrize(
    ("emulator", "row"),
    [pytest.param(row.place, row, id=name, marks=pytest.mark.xdist_group("stores" if row.place != "disk" else name))
     for name, row in ROWS.items()],
    indirect=["emulator"],
)  # fmt: skip
def test_after_each_step(
    row: Row, place: Place, arguments: Any, submit: Any, fork: Any, invoke: Any, undisturbed: Any, keys: Any,
    subtests: pytest.Subtests, request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    finish = ["finish", f"{place.url}/released", "--timeout=0"]
    first, then = ([*finish, *keys[key].split()] for key in row.given)
    disturbed = arguments(row.flags) if row.command == "privatize" else first
    following = arguments({**row.flags, **row.changed}) if row.then == "privatize" else then
    before, after = undisturbed(row.flags, row.given[0]), undisturbed({**row.flags, **row.changed}, row.given[1])
    run = fork if row.act != "stopped" else request.getfixturevalue("stopped")
    other = None if row.act != "stopped" else request.getfixturevalue("other_run")
    variables = None if place.emulator is None else place.emulator.variables
    submit(row)
    steps = fork(disturbed, variables=variables)[1]
    assert release_of(place.objects()) == before
    moments = [number for number, step in enumerate(steps) if re.search(row.steps, step)]
    reached: list[str] = []
    for moment in moments[:: 1 if os.environ.get("LABELDP_EXPLORE") else row.every]:
        with subtests.test(step=f"{moment} {steps[moment]}"):
            submit(row)
            prelude = FAULT.format(moment=moment, act=ACTS[row.act].format(moment=moment))
            outcome, made = run(disturbed, prelude, variables=variables)
            if len(made) <= moment:
                # Workers take turns, and a run may need a step less than another one.
                assert moment >= len(steps) - MISSED or row.act == "killed later"
                continue
            found = place.objects()
            if other is not None:
                reached.append(check_the_two(other, outcome, found, before))
                continue
            check_end(row, outcome, found, any(CHARGED.search(step) for step in made[: moment + 1]))
            published = MANIFEST in found
            reached.append("published" if published else "charged" if LEDGER in found else "begun")
            again = invoke(following)
            kept = published or has_begun(found) or (claimed(found) and row.then == "privatize")
            if claimed(found) and row.then == "privatize" and not published:
                # Only another process of this run may go on.
                assert (again.code, f"`labeldp finish {place.url}/released` ends it" in again.error) == (1, True)
                invoke(first).ok()
            elif published:
                # Nothing was lost but the lines on standard output. What is left is public, and `finish` removes it.
                if row.then == "privatize":
                    assert (again.code, "exists and is not" in again.error) == (2, True)
                again = invoke(first)
                assert "published before; its audit holds" in again.ok().out
            else:
                again.ok()
                if left_of(found) and row.then == "privatize" and row.place == "disk":
                    assert "which a killed run had left behind" in again.err
            found = place.objects()
            assert left_of(found) == []
            assert release_of(found) == (before if kept else after)
    assert reached


def claimed(found: dict[str, bytes]) -> bool:
    """Tells whether a run has claimed the output on a store."""
    return found.get(".released.labeldp/claim", b"").startswith(b"claimed")


def has_begun(found: dict[str, bytes]) -> bool:
    """Tells whether a run on a store has begun to publish its files, which do not change from then on."""
    return any(name.endswith("/state") and content == b"begun\n" for name, content in found.items())


def check_the_two(other: OtherRun, outcome: Any, found: dict[str, bytes], own: Expected) -> str:
    """Checks that one of the two runs is released, charged alone, and that the other one says so; who it is."""
    assert left_of(found) == []
    if other.outcome == "published":
        assert outcome.code == 1
        assert re.search("exists|another run", outcome.error), outcome.error
        assert release_of(found) == (other.files, charges_of([other.entry]))
        return "other"
    assert re.search("exists|another run", other.outcome)
    assert outcome.code == 0
    assert release_of(found) == own
    return "own"


# Disks that fill up: a small tmpfs that is filled before a step. Where nothing may be mounted, a limit on file sizes
# takes its place: the kernel then refuses the same writes, with another text.

FULL, TOO_LARGE = "No space left on device", "File too large"
# Fills the disk before the first step that contains a text.
FILL = """
import os


def fault(step, file={ballast!r}):
    if {text!r} in step and not os.path.exists(file):
        with open(file, "wb", buffering=0) as ballast:
            for size in (1 << 12, 1):
                try:
                    while True:
                        ballast.write(b"x" * size)
                except OSError:
                    pass
"""
# From the first step that contains a text on, no regular file may grow beyond a size.
LIMIT = """
import resource


def fault(step):
    if {text!r} in step:
        resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, resource.RLIM_INFINITY))
"""
STAGES = {
    "segments": ("segments/00000-", "writing {staging}/segments failed"),
    "mechanism": ("mechanism.json.", "writing {staging}/release/mechanism.json failed"),
    "shards": ("segments/part-", "writing {staging}/release/data/part-0000[01]-of-00002.parquet failed"),
    "dead letters": ("dead_letters.jsonl.", "writing {staging}/release/dead_letters.jsonl failed"),
    "job result": ("job_result_0.json.", "writing {staging}/job_result_0.json failed"),
    "manifest": ("release.json.", "writing {staging}/release/release.json failed"),
    "ledger": (f"{LEDGER}.pending", "charging the ledger {ledger} failed"),
}


@pytest.fixture
def disk(outputs: Path) -> Iterator[str]:
    """Mounts a tmpfs of 2 MB at the folder of outputs, if that is permitted. Gives the text of errors on it."""
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(outputs)]
    mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
    yield FULL if mounted else TOO_LARGE
    if mounted:
        subprocess.run(["umount", str(outputs)], check=True)


@pytest.mark.parametrize("emulator", ["disk"], indirect=True)
@pytest.mark.parametrize(("stage", "size"), [*((stage, 0) for stage in STAGES), ("segments", 100), ("ledger", 100)])
def test_a_full_disk(
    stage: str, size: int, disk: str, place: Place, fork: Any, arguments: Any, invoke: Any, undisturbed: Any
) -> None:
    """The run names the file, with the system's text. Files that may grow to 100 bytes are written in part."""
    (text, where), ballast = STAGES[stage], Path(place.url, "ballast")
    limited = LIMIT.format(text=text, size=size)
    fault = FILL.format(text=text, ballast=str(ballast)) if disk == FULL and not size else limited
    outcome, steps = fork(arguments({}), fault)
    assert any(text in step for step in steps)
    assert outcome.code == 1
    named = where.format(staging=rf"{place.url}/\.released\.[0-9a-f]{{12}}", ledger=f"{place.url}/{LEDGER}")
    words = TOO_LARGE if size else disk
    assert re.fullmatch(f"labeldp privatize: error: the job failed: {named}: {words}", outcome.error), outcome.error
    ballast.unlink(missing_ok=True)
    found = place.objects()
    assert set(found) <= {LEDGER}
    assert release_of(found) == ({}, [])
    invoke(arguments({})).ok()
    assert left_of(found := place.objects()) == []
    assert release_of(found) == undisturbed({})
