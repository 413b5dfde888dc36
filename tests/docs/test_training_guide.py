"""The examples for numbers in docs/guides/training.md run as printed, in order, on the release of its command."""

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pytest

from tests.commands import write_key
from tests.false_alarms import standard_errors

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "training.md").read_text()
PAGE = PAGE.partition("\n## Classes\n")[0]
BLOCKS = re.findall(r"^(?:<!-- needs (\w+) -->\n)?```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(COMMAND,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

pytest.importorskip("sklearn", reason="the extra evaluation is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with log.csv, whose label `weeks` depends on age and visits, and the release of the page."""
    path = tmp_path_factory.mktemp("guide")
    rng = np.random.default_rng(3)
    age, visits = rng.integers(18, 90, 20_000), rng.poisson(2, 20_000)
    weeks = np.clip(np.rint(np.where(age < 60, 6, 20) + 3 * visits + rng.normal(0, 4, len(age))), 0, 52)
    pyarrow.csv.write_csv(pa.table({"age": age, "visits": visits, "weeks": weeks}), str(path / "log.csv"))
    write_key(path / "noise.key", bytes(range(32)))
    program, *argv = shlex.split(COMMAND.replace("\\\n", " "))
    assert program == "labeldp"
    command = [sys.executable, "-m", "labeldp", *argv, "--noise_key_file", "noise.key"]
    subprocess.run(command, cwd=path, check=True, capture_output=True)
    return path


def test_the_examples_run_as_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": "__main__"}
    ran = 0
    for number, (library, code) in enumerate(BLOCKS):
        if not library or find_spec(library):
            exec(compile(code, f"example {number} of training.md", "exec"), names)
            ran += 1
    assert ran >= 4
    printed = capsys.readouterr().out
    # The true labels, which only this test has: the row order is that of the log.
    true = pyarrow.csv.read_csv("log.csv")["weeks"].to_numpy()[names["kept"]]
    ((value, error),) = re.findall(r"^mean_squared_error (\S+) \+- (\S+)$", printed, re.MULTILINE)
    assert abs(float(value) - np.mean((names["predictions"] - true) ** 2)) < standard_errors() * float(error)
    assert abs(names["mean"].value - true.mean()) < standard_errors() * names["mean"].standard_error
    truth = np.mean((names["predictions"] - true) ** 2 - (names["shallow"] - true) ** 2)
    assert abs(names["difference"] - truth) < standard_errors() * names["compare"](
        names["predictions"], names["shallow"], names["z"][names["kept"]], names["release"],
        center=names["center"][names["kept"]],
    ).standard_error  # fmt: skip
    assert names["weights"] == pytest.approx([1, 1])
