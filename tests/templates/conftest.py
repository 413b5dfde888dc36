"""Fixtures of the template tests."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"


@pytest.fixture(scope="session")
def templates() -> Path:
    """The folder of the templates."""
    return TEMPLATES


@pytest.fixture(scope="session")
def run_yaml(templates: Path, beam_yaml: ModuleType) -> Callable[..., None]:
    """(name of a job in templates/yaml, variables, Beam's flags) -> runs it in this process."""

    def run(job: str, variables: dict[str, Any], *flags: str) -> None:
        # The providers file is found relative to the job, as documented.
        values = {"providers": "providers.yaml"} | {
            name: str(value) if isinstance(value, Path) else value for name, value in variables.items()
        }
        path = templates / "yaml" / f"{job}.yaml"
        arguments = [f"--yaml_pipeline_file={path}", f"--jinja_variables={json.dumps(values)}"]
        beam_yaml.run([*arguments, "--runner=FnApiRunner", *flags])

    return run
