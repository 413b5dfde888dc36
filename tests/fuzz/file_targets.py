"""Targets of the project's own files, through the commands: mechanism, manifest, ledger, prior and schema."""

import contextlib
import hashlib
import json
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

from commands_in_process import checked
from harness import Case, Target
from hypothesis import strategies as st
from mutations import mutated_bytes, mutated_json
from references import check_mechanism, check_privacy
from seeds import PRIOR_TOKENS, PRIORS, SCHEMA, SCHEMA_TOKENS, job, mechanisms, parsed, release, workspace


class _Stopped(Exception):
    """Takes the place of the job, once all flags and files are accepted."""


def empty_folder() -> Path:
    """Empty folder for one input."""
    folder = workspace() / "case"
    _remove(folder)
    folder.mkdir()
    return folder


def _remove(path: Path) -> None:
    if path.is_dir():
        for inner in path.iterdir():
            _remove(inner)
        path.rmdir()
    elif path.exists():
        path.unlink()


@contextlib.contextmanager
def without_job(releases: list[Any]) -> Iterator[None]:
    """Ends `privatize`, `fit` and `apply` where they would start a pipeline; gathers their releases."""
    from labeldp.pipelines.cli import privatize_command
    from labeldp.transforms import InputError

    def stop(_ledger: Any, release: Any, *_: Any) -> None:
        releases.append(release)
        raise InputError("stopped before the job")

    with mock.patch.object(privatize_command, "run_job", stop), mock.patch.object(privatize_command, "check_features"):
        yield


def _job_starts(argv: list[str]) -> Any | None:
    """The release of a job whose flags and files are all accepted; None if they are refused."""
    releases: list[Any] = []
    with without_job(releases):
        outcome = checked(argv, workspace())
    assert outcome.code, outcome
    assert bool(releases) == ("stopped before the job" in outcome.err), outcome.err
    return releases[0] if releases else None


# Mechanism files.


def signed(content: bytes) -> bytes:
    """A mechanism file with its right fingerprint, if it has one at all."""
    try:
        document = json.loads(content)
        essence = {name: document[name] for name in ("bits", "labels", "outputs", "columns")}
        canonical = json.dumps(essence, sort_keys=True, separators=(",", ":"), allow_nan=False)
        document["fingerprint"] = hashlib.blake2b(canonical.encode(), digest_size=32).hexdigest()
        return json.dumps(document, allow_nan=False).encode() + b"\n"
    except (ValueError, KeyError, TypeError, RecursionError):
        return content


def _certified(document: dict[str, Any]) -> None:
    """States the ratio and the biases of the weights, as the solvers do."""
    bits, certificate = document["bits"], document["certificate"]
    columns = [[int(weight) for weight, times in column for _ in range(times)] for column in document["columns"]]
    outputs = [Fraction(output) for output in document["outputs"]]
    biases = [
        sum((output * column[place] for output, column in zip(outputs, columns, strict=True)), Fraction(0))
        / (1 << bits)
        - Fraction(label)
        for place, label in enumerate(document["labels"])
    ]
    certificate["bias"] = list(map(float, biases))
    largest = max(map(abs, biases))
    certificate["max_bias"] = next(
        bound for bound in (float(largest), math.nextafter(float(largest), math.inf)) if Fraction(bound) >= largest
    )
    if "ratio" in certificate and all(map(min, columns)):
        ratio = max(Fraction(max(column), min(column)) for column in columns)
        certificate["ratio"] = [str(ratio.numerator), str(ratio.denominator)]


@st.composite
def _forged(draw: st.DrawFn) -> bytes:
    """A mechanism file in which weight was moved, with a fingerprint and a certificate to match."""
    document = json.loads(draw(st.sampled_from(mechanisms())))
    labels = len(document["labels"])
    columns = [[[weight, 1] for weight, times in column for _ in range(times)] for column in document["columns"]]
    for _ in range(draw(st.integers(0, 3))):
        one, other = draw(st.integers(0, len(columns) - 1)), draw(st.integers(0, len(columns) - 1))
        row = draw(st.integers(0, labels - 1))
        moved = draw(st.sampled_from([1, -1, 1 << 30, 1 << 55, int(columns[one][row][0])]) | st.integers(0, 1 << 62))
        columns[one][row][0] = str(max(int(columns[one][row][0]) - moved, draw(st.sampled_from([0, 0, -5]))))
        columns[other][row][0] = str(int(columns[other][row][0]) + moved)
    document["columns"] = columns
    try:
        _certified(document)
    except (ArithmeticError, ValueError, StopIteration):
        return signed(json.dumps(document).encode())
    epsilon = draw(st.sampled_from([document["epsilon"], 0.0, 0.5, 1.5, 2.0, 29.0, 5e-324, 1e308]))
    document["epsilon"] = draw(st.sampled_from([document["epsilon"], epsilon]))
    document["certificate"]["epsilon"] = draw(st.sampled_from([document["certificate"]["epsilon"], epsilon]))
    if "delta" in document:
        document["certificate"]["delta"] = draw(st.sampled_from([document["certificate"]["delta"], 0.0, 1e-9, 0.5]))
    return signed(json.dumps(document).encode())


@st.composite
def _mechanisms(draw: st.DrawFn) -> Case:
    content = draw(mutated_json(parsed(mechanisms()), mechanisms()) | _forged())
    return {"mechanism.json": signed(content) if draw(st.booleans()) else content}


def check_mechanism_file(case: Case) -> bool:
    """Audits, reports, applies and solves with a mechanism file; True if it passes the audit."""
    folder = empty_folder()
    path = folder / "mechanism.json"
    path.write_bytes(case["mechanism.json"])
    passed = checked(["audit", str(path)], workspace()).code == 0
    if passed:
        check_mechanism(json.loads(case["mechanism.json"]))
    page = folder / "report.html"
    reported = checked(["report", str(path), f"--output={page}"], workspace()).code == 0
    assert reported == page.exists()
    assert passed or not reported
    release = _job_starts(job("apply", mechanism_file=path, output=folder / "out", delta=0.9))
    if release is not None:
        randomizer = release.fitted.randomizer
        rows = [[int(weight) for weight in row] for row in randomizer.weights]
        assert all(sum(row) == 1 << 62 for row in rows)
        check_privacy(rows, 62, randomizer.epsilon, randomizer.delta)
    # A mechanism file is a prior, too.
    assert checked(_solving(path, folder), workspace()).code or _solved(folder)
    return passed


# Manifests, in a release folder whose other files are right.


@st.composite
def _manifests(draw: st.DrawFn) -> Case:
    content = (release() / "release.json").read_bytes()
    return {"release.json": draw(mutated_json(parsed((content,)), (content,)))}


def _check_manifest(case: Case) -> bool:
    folder = empty_folder() / "released"
    (folder / "data").mkdir(parents=True)
    for name in ("mechanism.json", "center.json"):
        (folder / name).write_bytes((release() / name).read_bytes())
    for shard in (release() / "data").iterdir():
        (folder / "data" / shard.name).write_bytes(shard.read_bytes())
    (folder / "release.json").write_bytes(case["release.json"])
    passed = checked(["audit", str(folder)], workspace()).code == 0
    if passed:
        manifest, mechanism = json.loads(case["release.json"]), json.loads((folder / "mechanism.json").read_bytes())
        spent = Fraction(manifest["prior_epsilon"]) + Fraction(mechanism["certificate"]["epsilon"])
        assert manifest["prior_epsilon"] == mechanism["prior"]["epsilon"]
        assert spent <= Fraction(manifest["certified_epsilon"]) <= Fraction(manifest["epsilon"])
        assert manifest["mechanism_fingerprint"] == mechanism["fingerprint"]
    reported = checked(["report", str(folder)], workspace()).code == 0
    assert reported == (folder / "report.html").exists()
    assert passed or not reported
    checked(["plan", f"--prior={folder}", "--epsilon", "1", "--draws", "1", "--processes", "1"], workspace())
    return passed


# Ledgers.


@st.composite
def _ledgers(draw: st.DrawFn) -> Case:
    line = (release().parent / "labeldp_ledger.jsonl").read_bytes().strip()
    other = json.loads(line)
    other["charges"] = [{"what": "labels", "epsilon": 1.5, "delta": 1e-9, "release": "a" * 65}]
    lines = [line, json.dumps(other).encode()]
    mutated = [
        draw(mutated_json(parsed(tuple(lines)), tuple(lines)) | st.sampled_from(lines))
        for _ in range(draw(st.integers(1, 2)))
    ]
    return {
        "ledger": draw(st.sampled_from([b"\n", b"\r\n", b"\n\n"])).join([*lines[: draw(st.integers(0, 2))], *mutated])
    }


def _charges(content: bytes) -> list[dict[str, Any]]:
    return [charge for line in content.decode().splitlines() if line.strip() for charge in json.loads(line)["charges"]]


def _check_ledger(case: Case) -> bool:
    folder = empty_folder()
    path = folder / "labeldp_ledger.jsonl"
    path.write_bytes(case["ledger"])
    free = _job_starts(job("privatize", ledger=path, output=folder / "out", epsilon=0.5))
    capped = _job_starts(
        job("privatize", ledger=path, output=folder / "out", epsilon=0.5, epsilon_cap=3, delta_cap=0.5)
    )
    if free is not None:
        spent: dict[str, Fraction] = {}
        for charge in _charges(case["ledger"]):
            name = str(charge["release"])
            spent[name] = max(Fraction(charge["epsilon"]), spent.get(name, Fraction(0)))
        deltas = [charge.get("delta", 0) for charge in _charges(case["ledger"])]
        within = sum(spent.values(), Fraction(1, 2)) <= 3
        assert capped is None or within, "the cap was exceeded"
        assert capped is not None or not within or max(deltas, default=0) > 0.4
    mechanism = folder / "mechanism.json"
    mechanism.write_bytes((release() / "mechanism.json").read_bytes())
    reported = checked(["report", str(mechanism)], workspace()).code == 0
    assert reported == (folder / "report.html").exists()
    assert path.read_bytes() == case["ledger"]
    return free is not None


# Priors.


@st.composite
def _priors(draw: st.DrawFn) -> Case:
    documents = (
        PRIORS[2],
        b'{"labels": [0.5, 1], "prior": {"weights": [1, 2], "epsilon": 0}}',
    )
    prior = draw(mutated_bytes(PRIORS, PRIOR_TOKENS) | mutated_json(parsed(documents), documents))
    return {"prior": prior, "command": draw(st.sampled_from([b"solve", b"compare", b"plan"]))}


def _solving(prior: Path, folder: Path) -> list[str]:
    return ["solve", f"--prior={prior}", "--epsilon=1", "--mechanism=rr", f"--output={folder / 'solved.json'}"]


def _solved(folder: Path) -> bool:
    path = folder / "solved.json"
    audit = checked(["audit", str(path)], workspace())
    assert audit.code == 0, audit.out
    check_mechanism(json.loads(path.read_bytes()))
    return True


def _check_prior(case: Case) -> bool:
    folder = empty_folder()
    path = folder / "prior"
    path.write_bytes(case["prior"])
    command = case["command"].decode()
    if command == "solve":
        code = checked(_solving(path, folder), workspace()).code
        assert (code == 0) == (folder / "solved.json").exists()
        return code == 0 and _solved(folder)
    mechanism = (
        ["--mechanism", "rr", "rr_on_bins"]
        if command == "compare"
        else ["--mechanism", "rr", "--draws", "1", "--records=100"]
    )
    flags = ["--epsilon", "1", "--processes", "1", f"--json={folder / 'table.json'}", f"--csv={folder / 'table.csv'}"]
    code = checked([command, f"--prior={path}", *mechanism, *flags], workspace()).code
    if code == 0:
        json.loads((folder / "table.json").read_text(), parse_constant=lambda text: _fail(f"{text} is not JSON"))
    return code == 0


def _fail(text: str) -> None:
    raise AssertionError(text)


# Schemas.


@st.composite
def _schemas(draw: st.DrawFn) -> Case:
    return {"schema.pbtxt": draw(mutated_bytes((SCHEMA,), SCHEMA_TOKENS))}


def _check_schema(case: Case) -> bool:
    folder = empty_folder()
    path = folder / "schema.pbtxt"
    path.write_bytes(case["schema.pbtxt"])
    return _job_starts(job("privatize", validate=path, output=folder / "out")) is not None


def file_targets() -> list[Target]:
    """Targets of this module.

    Returns:
      The targets.
    """
    mechanisms()
    return [
        Target("mechanism", _mechanisms(), check_mechanism_file, 40, memory=2 << 30),
        Target("manifest", _manifests(), _check_manifest, 25, memory=2 << 30),
        Target("ledger", _ledgers(), _check_ledger, 25, memory=2 << 30),
        Target("prior", _priors(), _check_prior, 80, memory=2 << 30),
        Target("schema", _schemas(), _check_schema, 30, memory=2 << 30),
    ]
