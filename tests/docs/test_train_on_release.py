"""The training example prints the expected lines for a small data set like the census.

It and the commands that it starts run in this process, which imports TensorFlow and Beam for other tests, too.
"""

import importlib.util
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "train_on_release.py"
RECORDS, EPSILON = 4000, 20.0

pytestmark = [
    pytest.mark.slow,
    *(
        pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"the extra {extra} is not installed")
        for module, extra in (("tensorflow", "validation"), ("sklearn", "evaluation"))
    ),
]


@pytest.fixture(scope="module")
def census(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CSV file like the census, in which age and gender1 determine the weeks up to a little noise, not linearly."""
    rng = np.random.default_rng(4)
    header = "morekids,gender1,gender2,age,afam,hispanic,other,work"
    rows = []
    for _ in range(RECORDS):
        age, male = int(rng.integers(21, 36)), bool(rng.integers(2))
        # Age counts for one value of gender1 alone, which no linear function expresses: a center misses much of it.
        weeks = np.clip(round((2.5 * (age - 20) + 10 if male else 12) + rng.normal()), 0, 52)
        rows.append(f"no,{'male' if male else 'female'},male,{age},no,yes,no,{weeks:.0f}")
    path = tmp_path_factory.mktemp("census") / "census.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


@pytest.fixture
def run_here(run_labeldp: Callable[[Sequence[str]], int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `subprocess.run` of this environment's `labeldp` run the command in this process."""
    labeldp = Path(sys.executable).with_name("labeldp")
    assert os.access(labeldp, os.X_OK)
    run_process = subprocess.run

    def run(command: Sequence[str | Path], **options: Any) -> Any:
        if command[0] != labeldp:
            return run_process(command, **options)
        assert options == {"check": True}
        if code := run_labeldp([os.fspath(argument) for argument in command[1:]]):
            raise subprocess.CalledProcessError(code, command)
        return None

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.usefixtures("run_here")
def test_it_trains_on_all_releases_and_compares(
    census: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At a large epsilon the labels are nearly exact, so models must explain nearly all of the variance."""
    folder = tmp_path / "work"
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(
        sys, "argv", [str(EXAMPLE), str(census), str(folder), f"--epsilon={EPSILON}", "--epochs=10", "--batch=64"]
    )
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr()
    line = r"^([a-z_]+(?: [a-z]+)*) +test mean squared error ([0-9.]+)$"
    errors = {name: float(error) for name, error in re.findall(line, printed.out, re.MULTILINE)}

    assert set(errors) == {"unbiased", "rr_on_bins", "center alone", "trees around the center", "one prediction"}
    assert errors["unbiased"] < 0.1 * errors["one prediction"]
    assert errors["rr_on_bins"] < 0.1 * errors["one prediction"]
    assert errors["center alone"] < 0.8 * errors["one prediction"]
    # A center that is subtracted or added a second time, or with the wrong sign, would leave more than it alone.
    assert errors["trees around the center"] < 0.1 * errors["center alone"]
    assert (folder / "noise.key").stat().st_mode & 0o777 == 0o600
    for mechanism in ("unbiased", "rr_on_bins", "auto"):
        assert len(list((folder / mechanism / "data").glob("part-*"))) == 4
    assert "Traceback" not in printed.err
    assert not (tmp_path / "config" / "labeldp").exists()


def test_training_and_test_records_are_the_census(
    census: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The example sets it if it is not set.
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    runpy.run_path(str(EXAMPLE))["split"](census, tmp_path, None)
    header, *rows = census.read_text().splitlines()
    parts = [(tmp_path / name).read_text().splitlines() for name in ("train.csv", "test.csv")]

    assert [part[0] for part in parts] == [header, header]
    assert sorted(parts[0][1:] + parts[1][1:]) == sorted(rows)
    assert len(parts[1]) - 1 == RECORDS // 5
