"""The Beam YAML jobs on Flink, run by Beam's own program."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

# Beam's YAML module and its imports issue deprecation warnings.
pytestmark = pytest.mark.filterwarnings("ignore")

DOMAIN = {"label_min": 0, "label_max": 19, "label_step": 1}
ROWS = 4000


@pytest.fixture
def run_yaml(
    root: Path, beam_yaml: ModuleType, key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Function (name of a job in templates/yaml, the runner's flags, variable=value, ...) that runs the job."""
    folder = root / "templates" / "yaml"
    monkeypatch.chdir(tmp_path)

    def run(job: str, runner: Sequence[str], **variables: Any) -> None:
        standard = {"providers": folder / "providers.yaml", "label": "y", "noise_key_file": key_file, "epsilon": 2}
        values = {name: value if isinstance(value, int) else str(value) for name, value in variables.items()}
        values = {name: str(value) for name, value in standard.items()} | DOMAIN | values
        files = [f"--yaml_pipeline_file={folder / job}.yaml", f"--jinja_variables={json.dumps(values)}"]
        beam_yaml.run([*files, *runner])

    return run


def test_rows_to_rows(run_yaml: Callable[..., None], flink: Any, tmp_path: Path) -> None:
    """The noise depends on a row's id and not on the order of the rows, so the rows equal those of DirectRunner."""
    log = tmp_path / "log.csv"
    log.write_text("id,y\n" + "".join(f"u{i},{i * i % 20}\n" for i in range(ROWS)))
    released = {}
    for name, runner in {"flink": flink.flags, "direct": []}.items():
        folder = tmp_path / name
        places = {"output": folder / "rows", "release": folder / "release"}
        run_yaml("label_dp", runner, input=log, id_column="id", **places)
        released[name] = {
            kind: sorted(line for path in folder.glob(f"{kind}-*") for line in path.read_text().splitlines())
            for kind in ("rows", "release")
        }
    assert len(released["flink"]["rows"]) == ROWS
    assert len(released["flink"]["release"]) == 1
    assert released["flink"] == released["direct"]
