"""`labeldp compare`: the table, its files, and mechanisms that cannot be solved."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from labeldp.mechanisms import LOSSES, Prior, solve
from labeldp.mechanisms.core.randomizer import quality
from labeldp.study.study_flags import COMPARED_MECHANISMS as DEFAULT_MECHANISMS
from labeldp.study.study_flags import DEFAULT_EPSILONS

from tests.audit.written_files import noised_prior

LABELS, WEIGHTS = [0.0, 1.0, 2.0], [0.6, 0.25, 0.15]
PRIOR = "label,weight\n0,0.6\n1,0.25\n2,0.15\n"
COLUMNS = [
    "mechanism", "epsilon", "certified", "delta", "mse", "mae", "loss", "max_variance", "max_bias", "outputs", "gap",
    "seconds", "reason",
]  # fmt: skip


@pytest.fixture
def compare(invoke: Any, tmp_path: Path) -> Callable[..., Any]:
    """Function (prior's text, flag=value or values, ...) -> the outcome.

    It runs in this process unless --processes is given. The JSON is written to tmp_path / "table.json".
    """

    def run(text: str = PRIOR, **flags: Any) -> Any:
        (tmp_path / "prior").write_text(text)
        flags = {"prior": tmp_path / "prior", "processes": 1, "json": tmp_path / "table.json"} | flags
        argv = ["compare"]
        for name, value in flags.items():
            argv += [f"--{name}", *(map(str, value) if isinstance(value, list) else [str(value)])]
        return invoke(argv)

    return run


@pytest.fixture
def rows(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    """Function () -> the rows of the JSON that `compare` wrote."""
    return lambda: json.loads((tmp_path / "table.json").read_text())["rows"]


def test_by_default_well_known_mechanisms_from_little_to_much_epsilon(compare: Any, rows: Any) -> None:
    compare().ok()

    assert [(row["epsilon"], row["mechanism"]) for row in rows()] == [
        (epsilon, name) for epsilon in DEFAULT_EPSILONS for name in DEFAULT_MECHANISMS
    ]
    for row in rows():
        assert list(row) == COLUMNS
        assert row["reason"] is None
        assert 0 <= row["certified"] <= row["epsilon"]
        # `rr_on_bins` has the smallest squared loss of all epsilon-DP mechanisms (Ghazi et al. 2022, Theorem 5), and
        # `unbiased` the smallest of those without bias.
        best = {each["mechanism"]: each for each in rows() if each["epsilon"] == row["epsilon"]}
        assert row["mse"] >= best["rr_on_bins"]["mse"] - 1e-9
        assert row["max_bias"] > 1e-9 or row["mse"] >= best["unbiased"]["mse"] * (1 - 1e-6)


def test_the_published_value(compare: Any, rows: Any) -> None:
    """Badanidiyuru et al. 2023, Table 1 (whose squared loss has a factor 1/2): two bins, 0.26065."""
    compare(epsilon=0.5, mechanism="rr_on_bins").ok()

    (row,) = rows()
    assert row["mse"] == pytest.approx(2 * 0.26065, abs=2e-5)
    assert row["outputs"] == 2


@pytest.mark.parametrize("loss", LOSSES)
def test_each_row_is_what_solving_gives(compare: Any, rows: Any, loss: str) -> None:
    labels = [1.0, 2.0, 3.0]
    specs = {"rr_on_bins": {}, "bias_limited:bias=0.25": {"bias": 0.25}, "laplace:clip=false,step=0.5": None}
    text = "".join(f"{y},{p}\n" for y, p in zip(labels, WEIGHTS, strict=True))
    compare(text, epsilon=[2, 1], mechanism=list(specs), loss=loss).ok()

    prior = Prior(np.array(labels), np.array(WEIGHTS))
    assert [row["epsilon"] for row in rows()] == [2, 2, 2, 1, 1, 1]
    for row in rows():
        name, _, _ = row["mechanism"].partition(":")
        parameters = specs[row["mechanism"]]
        if parameters is None:
            parameters = {"clip": False, "step": 0.5}
        randomizer = solve(name, prior, row["epsilon"], loss=loss, **parameters)
        expected = quality(randomizer, prior, LOSSES[loss])
        assert row["certified"] == expected.epsilon
        assert row["mse"] == pytest.approx(expected.squared_error, rel=1e-12)
        assert row["mae"] == pytest.approx(expected.absolute_error, rel=1e-12)
        # The Poisson log loss of an output below 0 is infinite, which JSON cannot represent.
        assert row["loss"] == (pytest.approx(expected.loss, rel=1e-12) if expected.loss < float("inf") else None)
        assert row["max_variance"] == pytest.approx(expected.max_variance, rel=1e-12)
        assert row["max_bias"] == expected.max_bias
        assert row["outputs"] == expected.outputs == len(randomizer.outputs)
        assert row["gap"] == randomizer.gap
        assert row["seconds"] >= 0


def test_the_same_table_three_times(compare: Any, rows: Any, tmp_path: Path) -> None:
    outcome = compare(epsilon=[1, 4], mechanism=["rr_on_bins", "rr"], csv=tmp_path / "table.csv").ok()

    assert outcome.errors == []
    with (tmp_path / "table.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows()] == read
    about, nothing, heading, *lines = outcome.out.splitlines()
    assert "3 labels, taken as public" in about
    assert nothing == ""
    # The printed table omits columns that are empty or equal to another column.
    assert heading.split() == [name for name in COLUMNS if name not in ("delta", "loss", "gap", "reason")]
    assert lines.pop(2) == ""
    for line, row in zip(lines, rows(), strict=True):
        cells = dict(zip(heading.split(), line.split(), strict=True))
        assert cells["mechanism"] == row["mechanism"]
        for name in ("epsilon", "certified", "mse", "mae", "max_variance", "max_bias"):
            assert float(cells[name]) == pytest.approx(row[name], rel=1e-4)


TABLES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": (PRIOR, {"epsilon": [1, 4], "mechanism": ["rr_on_bins", "rr"]}),
    "poisson": ("1,1\n2,1\n", {"loss": "poisson", "epsilon": 1, "mechanism": "rr_on_bins"}),
    "refused": (PRIOR, {"epsilon": [1e-6, 1], "mechanism": ["rqm", "rr_on_bins"]}),
    "delta": (PRIOR, {"epsilon": 1, "delta": 1e-5}),
    "noised": (noised_prior(LABELS, [90, 60, 30], 0.125), {"epsilon": 1, "mechanism": "rr"}),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_printed_table(
    name: str, compare: Any, rows: Any, snapshot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mechanisms that cannot be solved have a row that says why; deltas are of those that have one."""
    from labeldp.study import compare_command

    monkeypatch.setattr(compare_command, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    prior, flags = TABLES[name]
    snapshot(f"tables/compare_{name}", compare(prior, **flags).ok().out, (tmp_path, "FOLDER"))
    for row in rows():
        assert (row["reason"] is None) == (row["mse"] is not None)
        assert row["reason"] or 0 <= row["delta"] <= (1e-5 if row["mechanism"] == "gaussian" else 0)


def test_when_nothing_can_be_solved(compare: Any) -> None:
    outcome = compare(epsilon=1, mechanism="bias_limited:bias=-1")

    assert outcome.code == 1
    assert "no mechanism could be solved" in outcome.error
    assert "bias must be at least 0" in outcome.out


def test_without_the_extra(compare: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compare(epsilon=1, mechanism="rr").ok()
    (tmp_path / "table.json").unlink()
    monkeypatch.setitem(sys.modules, "tqdm", None)

    outcome = compare(epsilon=1, mechanism="rr")

    assert outcome.code == 2
    assert "pip install 'labeldp[evaluation]'" in outcome.error
    assert [path.name for path in tmp_path.iterdir()] == ["prior"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_file_and_no_process(
    tmp_path: Path, environment: dict[str, str], number: signal.Signals, group_lives: Callable[[int], bool]
) -> None:
    """The signal is sent to the process group, as Ctrl-C is. There is work for 30 s, in tasks of about 1 s."""
    labels = "".join(f"{y},{1 + y % 7}\n" for y in range(301))
    (tmp_path / "prior").write_text(labels)
    flags = ["--prior", str(tmp_path / "prior"), "--csv", str(tmp_path / "table.csv"), "--processes", "2"]
    flags += ["--mechanism", "unbiased", "--epsilon", *(f"{0.1 * tenth:g}" for tenth in range(1, 81))]
    process = subprocess.Popen(
        [sys.executable, "-m", "labeldp", "compare", *flags],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # A background job of a shell ignores SIGINT, and the tests may run in one.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )  # fmt: skip
    try:
        assert process.stderr is not None
        assert "of 80" in process.stderr.readline()
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 1
        assert out == ""
        assert err.splitlines()[-1] == "labeldp compare: interrupted; nothing is written"
        assert "Traceback" not in err
        assert [path.name for path in tmp_path.iterdir()] == ["prior"]
        until = time.monotonic() + 10
        while group_lives(process.pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert not group_lives(process.pid)
    finally:
        if group_lives(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
