"""The notebooks run from top to bottom without an error, and the outputs that they store are those of such a run.

LABELDP_RENEW=1 stores the outputs of this run.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
SECONDS = 240

nbclient: Any = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat: Any = pytest.importorskip("nbformat", reason="nbformat is not installed")
pytest.importorskip("sklearn", reason="the extra evaluation is not installed")


def printed(notebook: Any) -> list[str]:
    """Text that each cell prints and returns, without numbers, which depend on the key, and without spaces."""
    found = []
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        text = "".join(each.get("text", "") + each.get("data", {}).get("text/plain", "") for each in outputs)
        # Numbers first: without the space before it, a number would join the one before unless it is negative.
        found.append("".join(re.sub(r"-?\d[\d,.]*(?:e[-+]?\d+)?%?", "#", text).split()))
    return found


def test_a_notebook_is_found() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_complete_and_without_errors(path: Path) -> None:
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert {output.name for output in outputs if output.output_type == "stream"} <= {"stdout"}
    assert any("image/png" in output.get("data", {}) for output in outputs)
    text = path.read_text()
    assert "Traceback" not in text
    assert not re.search(r"/(?:home|root|tmp|work)/\w", text), "a path of a machine"


@pytest.mark.xdist_group("notebooks")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_prints_what_it_stores(path: Path, tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("XDG_CONFIG_HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "TMPDIR"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    notebook = nbformat.read(path, 4)
    stored = printed(notebook)
    client = nbclient.NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()

    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    if os.environ.get("LABELDP_RENEW"):
        nbformat.write(notebook, path)
    else:
        assert printed(notebook) == stored
