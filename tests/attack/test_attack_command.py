"""`labeldp attack`: findings on standard output, exit codes, and error lines."""

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SAMPLERS = """
import numpy as np

def constant(labels, ids, key):
    return np.zeros(len(ids)), np.ones(5)

def identity(labels, ids, key):
    return labels

def failing(labels, ids, key):
    raise KeyError("oops")

def refusing(labels, ids, key):
    raise ValueError("no")

def short(labels, ids, key):
    return labels[1:]

def text(labels, ids, key):
    return ["a"] * len(ids)

def sometimes_prior(labels, ids, key):
    return labels, (np.ones(5) if len(ids) == 1 else None)

number = 3
"""


@pytest.fixture(scope="module")
def mechanism(tmp_path_factory: pytest.TempPathFactory, invoke: Any) -> Path:
    """Mechanism file of rr at epsilon 1 for five labels with a public prior."""
    folder = tmp_path_factory.mktemp("mechanism")
    (folder / "prior.csv").write_text("".join(f"{label},{5 - label}\n" for label in range(5)))
    output = folder / "m.json"
    flags = ("--mechanism=rr", "--epsilon=1", f"--prior={folder / 'prior.csv'}", f"--output={output}")
    invoke(["solve", *flags]).ok()
    return output


@pytest.fixture
def attack(invoke: Any, mechanism: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Function (flag, ...) -> outcome of an attack on `mechanism`; samplers.py is in the current folder."""
    (tmp_path / "samplers.py").write_text(SAMPLERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "samplers", raising=False)

    def run(*flags: str, path: Path = mechanism) -> Any:
        return invoke(["attack", str(path), "--draws=50000", *flags])

    return run


def lines_of(outcome: Any) -> dict[str, str]:
    """The findings by name; the verdict is under the empty name."""
    *lines, verdict = outcome.out.splitlines()
    return {line[:19].strip() or "within": line[19:] for line in lines} | {"": verdict}


def test_an_honest_mechanism_passes(attack: Any) -> None:
    outcome = attack().ok()
    found = lines_of(outcome)
    assert list(found) == [
        "mechanism", "sampler", "advantage", "probabilities", "channel", "changed data", "other key", "duplicate ids",
        "",
    ]  # fmt: skip
    assert found["mechanism"] == "rr: 5 labels, 5 outputs; claims epsilon 1 for the labels"
    # Own output e / (e + 4), another 1 / (e + 4). Prior 5..1 of 15. Label 4 is guessed at its own output only.
    e = 2.718281828459045
    informed = sum(max(e * (5 - c), 5 if c else 4) for c in range(5)) / (e + 4) / 15
    assert found["advantage"].startswith(f"{informed - 1 / 3:.4g} for an exact guess: {informed:.4g} with")
    assert found[""] == "PASS"
    assert outcome.out.isascii()
    assert outcome.errors == []


def test_the_same_seed_gives_the_same_lines_and_another_seed_others(attack: Any) -> None:
    assert attack().out == attack().out != attack("--seed=1").out


def test_a_tolerance_is_a_flag(attack: Any) -> None:
    """A guess within 1 is right for three labels: 12 of 15 from the prior."""
    assert "for a guess within 1 of the label: " in attack("--within=1").ok().out
    assert "0.8 from the prior" in lines_of(attack("--within=1"))["within"]


def test_a_release_is_attacked_with_its_histogram(attack: Any, job: Any, invoke: Any, outputs: Path) -> None:
    invoke(job()).ok()
    found = lines_of(attack(path=outputs / "released").ok())
    assert {"histogram", "changed histogram"} <= set(found)
    assert " for the histogram" in found["mechanism"]


def test_a_broken_sampler_fails(attack: Any) -> None:
    outcome = attack("--sampler=samplers:identity")
    assert outcome.code == 1
    found = lines_of(outcome)
    assert found["sampler"] == "samplers:identity"
    # 25,000 of 25,000 against 0 of 25,000; each interval fails with a probability of 1e-6 / 14.
    tail = -math.log(1e-6 / 14) / 25_000
    assert found["channel"].startswith(f"FAIL: epsilon at least {-tail - math.log(-math.expm1(-tail)):.4f}")
    assert found[""] == "FAIL: probabilities, channel, changed data, other key, duplicate ids"
    assert outcome.errors == []


def test_a_constant_is_private_but_not_the_mechanism(attack: Any) -> None:
    outcome = attack("--sampler=samplers:constant")
    assert outcome.code == 1
    assert outcome.out.endswith("\nFAIL: probabilities\n")
    assert {"histogram", "changed histogram"} <= set(lines_of(outcome))


@pytest.mark.parametrize(
    ("sampler", "text"),
    [
        ("failing", "the sampler failed: KeyError: 'oops'"),
        ("refusing", "the sampler refused records with different ids: no"),
        ("short", "the sampler must return released labels, one for each record: shape (50000,), not (49999,)"),
        ("text", "the sampler must return released labels, one for each record, as numbers"),
        ("sometimes_prior", "the sampler must release a prior of finite weights in each run, or in none"),
    ],
)
def test_a_sampler_that_does_not_release_is_an_error(attack: Any, sampler: str, text: str) -> None:
    outcome = attack(f"--sampler=samplers:{sampler}")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.error == f"labeldp attack: error: {text}"


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--sampler=samplers", "--sampler takes MODULE:FUNCTION, not 'samplers'"),
        ("--sampler=samplers:absent", "--sampler samplers:absent: samplers has no function absent"),
        ("--sampler=samplers:number", "--sampler samplers:number: samplers has no function number"),
        ("--sampler=absent_module:f", "--sampler absent_module:f: the module cannot be imported"),
        ("--draws=10", "--draws must be between 1000 and 1000000000, not 10"),
        ("--confidence=1", "--confidence must be at least 0.5 and below 1, not 1"),
        ("--confidence=nan", "--confidence must be at least 0.5 and below 1, not nan"),
        ("--within=-1", "--within must be finite and not negative, not -1"),
    ],
)
def test_bad_usage_is_one_line_that_names_the_flag(attack: Any, flag: str, text: str) -> None:
    outcome = attack(flag)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.error.startswith(f"labeldp attack: error: {text}")


def test_a_path_that_does_not_exist_is_bad_usage(attack: Any, tmp_path: Path) -> None:
    outcome = attack(path=tmp_path / "absent.json")
    assert outcome.code == 2
    assert "does not exist" in outcome.error


def test_a_file_that_fails_the_audit_is_not_attacked(attack: Any, mechanism: Path, tmp_path: Path) -> None:
    """Integer weights of one row are edited in the file."""
    text = mechanism.read_text()
    damaged = tmp_path / "damaged.json"
    weight = text.split('"columns": [[["')[1].split('"')[0]
    damaged.write_text(text.replace(weight, str(int(weight) + 1), 1))
    outcome = attack(path=damaged)
    assert (outcome.code, outcome.out) == (1, "")
    assert "fails the audit" in outcome.error


def test_beam_is_not_imported(mechanism: Path) -> None:
    script = (
        "import sys; from labeldp.pipelines.cli.commands import main; "
        f"code = main(['attack', {str(mechanism)!r}, '--draws=1000']); "
        "print(code, sorted({'apache_beam', 'pyarrow', 'tensorflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 []"
