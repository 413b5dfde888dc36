"""The examples for classes in docs/guides/training.md run as printed, on the releases of its commands.

Those of a library that need not be installed run in a process of their own, after all that need none: TensorFlow and
PyTorch cannot be loaded into one process.
"""

import json
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
import pytest

from tests.commands import write_key
from tests.false_alarms import standard_errors

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "training.md").read_text()
PAGE = PAGE.partition("\n## Classes\n")[2]
BLOCKS = re.findall(r"^(?:<!-- needs (\w+) -->\n)?```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LIBRARIES = {library: code for library, code in BLOCKS if library}
COMMON = [code for library, code in BLOCKS if not library]
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
# The first two blocks read the release and keep a part of it.
START = "\n".join(COMMON[:2])

pytest.importorskip("sklearn", reason="the extra evaluation is not installed")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, np.ndarray]:
    """Folder with log.csv and the releases of the page, and true labels and probabilities, which the page has not."""
    path = tmp_path_factory.mktemp("guide")
    rng = np.random.default_rng(3)
    features = rng.normal(size=(100_000, 3)).round(4)
    p = 1 / (1 + np.exp(5 - 1.1 * features[:, 0] - 0.8 * features[:, 1] + 0.6 * features[:, 2]))
    true = (rng.uniform(size=len(p)) < p).astype(int)
    columns = dict(zip(("visits", "recency", "price"), features.T, strict=True))
    pyarrow.csv.write_csv(pa.table({**columns, "converted": true}), str(path / "log.csv"))
    write_key(path / "noise.key", bytes(range(32)))
    assert len(COMMANDS) == 2
    for command in COMMANDS:
        program, *argv = shlex.split(command.replace("\\\n", " "))
        assert program == "labeldp"
        argv = [sys.executable, "-m", "labeldp", *argv, "--noise_key_file", "noise.key"]
        subprocess.run(argv, cwd=path, check=True, capture_output=True)
    return path, true, p


def excess(p: np.ndarray, found: Any) -> float:
    """Mean excess of the log loss over that of the true probabilities."""
    found = np.asarray(found)
    return float(np.mean(p * np.log(p / found) + (1 - p) * np.log((1 - p) / (1 - found))))


def test_the_examples_run_as_printed(
    log: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, true, p = log
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, code in enumerate(COMMON):
        exec(compile(code, f"example {number} of training.md", "exec"), names)
    printed = capsys.readouterr().out
    kept, share, by_price = names["kept"], names["share"], names["by_price"]
    assert np.abs(share.values[1] - true.mean()) < standard_errors() * share.standard_errors[1]
    for row, above in enumerate((False, True)):
        mean = true[(names["features"][:, 2] > 0) == above].mean()
        assert abs(by_price.values[row, 1] - mean) < standard_errors() * by_price.standard_errors[row, 1]
    found = {name: (float(v), float(e)) for name, v, e in re.findall(r"^(\w+) (\S+) \+- (\S+)$", printed, re.MULTILINE)}
    predicted = names["p"]
    truth = {
        "log_loss": -np.log(np.where(true[kept] == 1, predicted, 1 - predicted)).mean(),
        "brier_score": np.mean((predicted - true[kept]) ** 2),
        "calibration_slope": np.polyfit(predicted, true[kept], 1)[0],
    }
    for metric, value in truth.items():
        assert abs(found[metric][0] - value) < standard_errors() * found[metric][1], metric
    constant = excess(p[kept], np.full(kept.sum(), p.mean()))
    assert excess(p[kept], predicted) < constant / 5
    assert excess(p[kept], names["inverted"]) < constant / 2
    assert excess(p, names["modeled_p"]) < constant / 10


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_example_of_a_library(log: Any, library: str) -> None:
    """Each learns probabilities that are far better than one prediction, and have the right mean."""
    if not find_spec(library):
        pytest.skip(f"{library} is not installed")
    folder, true, p = log
    code = f"{START}\n{LIBRARIES[library]}\nimport json\nprint(json.dumps([float(each) for each in p]))\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True, text=True)
    found = np.array(json.loads(done.stdout.splitlines()[-1]))
    kept = np.arange(len(p)) % 4 == 0
    constant = excess(p[kept], np.full(kept.sum(), p.mean()))
    print(f"{library}: excess log loss {excess(p[kept], found):.5f}, of a constant {constant:.5f}")
    assert excess(p[kept], found) < constant / 4
    assert found.mean() == pytest.approx(true.mean(), abs=0.005)
