"""Flex Template: its parameters are the flags of the command, in the format of the Dataflow API."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format

NOT_OFFERED = {
    "help",
    "config",
    "dry_run",
    "if_exists",
    "result_json",
    "wait_until_finish",
    "validate",
    "sign",
    "verbose",
}


@pytest.fixture(scope="module")
def document(templates: Path) -> dict[str, Any]:
    """metadata.json."""
    return json.loads((templates / "dataflow" / "metadata.json").read_text())


@pytest.fixture(scope="module")
def parser() -> Any:
    """The parser of `labeldp privatize`."""
    from labeldp.pipelines.cli.commands import command_parser

    return command_parser("privatize")


def test_the_file_is_what_the_flags_make(document: dict[str, Any]) -> None:
    """To update the file: python -m labeldp.templates.dataflow_metadata > templates/dataflow/metadata.json"""
    from labeldp.templates.dataflow_metadata import metadata

    assert document == json.loads(json.dumps(metadata()))


def test_it_is_valid_by_the_public_api(document: dict[str, Any]) -> None:
    """The messages of the client library of Dataflow take the file, without a field or choice that they do not know."""
    from google.cloud.dataflow_v1beta3.types import TemplateMetadata

    decoded = json_format.ParseDict(document, TemplateMetadata.pb(TemplateMetadata()))

    assert len(decoded.parameters) == len(document["parameters"])
    for parameter in decoded.parameters:
        assert parameter.name
        assert parameter.label
        assert parameter.help_text


def test_parameters_are_flags_with_their_choices_and_defaults(document: dict[str, Any], parser: Any) -> None:
    flags = parser.flags()
    parameters = {parameter["name"]: parameter for parameter in document["parameters"]}

    assert set(parameters) == set(flags) - NOT_OFFERED
    for name, parameter in parameters.items():
        choices = flags[name].choices
        assert [option["value"] for option in parameter.get("enumOptions", [])] == list(map(str, choices or []))
        assert (parameter["paramType"] == "ENUM") == (choices is not None)
        default = False if flags[name].nargs == 0 else flags[name].default
        assert parameter.get("defaultValue", "").lower() == ("" if default is None else str(default).lower())


def test_what_the_command_needs_is_not_optional(document: dict[str, Any], parser: Any) -> None:
    needed = {parameter["name"] for parameter in document["parameters"] if not parameter["isOptional"]}
    # A default key would be created on the launcher, which is deleted after the job.
    assert needed == {*parser.needed, "noise_key_file"}


def test_the_launcher_passes_flags_without_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    from labeldp.templates import dataflow_metadata

    def with_a_switch(parser: Any) -> None:
        parser.add_argument("--switch", action="store_true", help="on or off")
        parser.add_argument("--label", help="a name")

    monkeypatch.setattr(dataflow_metadata, "privatize_flags", with_a_switch)
    assert dataflow_metadata.metadata()["parameters"][0] == {
        "name": "switch", "label": "Switch", "helpText": "on or off", "isOptional": True, "paramType": "BOOLEAN",
        "defaultValue": "false",
    }  # fmt: skip
    passed = ["--switch=true", "--label=switch=true", "--region=here"]
    assert dataflow_metadata.arguments(passed) == ["--switch", "--label=switch=true", "--region=here"]
    assert dataflow_metadata.arguments(["--switch=False"]) == []
    monkeypatch.undo()
    settings = "delimiter=';' columns='first name,y'"
    assert dataflow_metadata.arguments([f"--csv_dialect={settings}"]) == [
        "--csv_dialect=delimiter=;", "--csv_dialect=columns=first name,y",
    ]  # fmt: skip


@pytest.mark.parametrize("script", ["build.sh", "run.sh", "submit.sh"])
def test_scripts_say_how_they_are_used(templates: Path, script: str) -> None:
    done = subprocess.run(
        ["bash", str(templates / "dataflow" / script)], check=False, capture_output=True, text=True, timeout=20
    )

    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")


@pytest.fixture(scope="module")
def image(templates: Path) -> list[list[str]]:
    """Lines of the Dockerfile, as their instruction and its argument."""
    lines = (templates / "dataflow" / "Dockerfile").read_text().splitlines()
    return [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]


def test_the_image_has_what_the_locks_have(image: list[list[str]], templates: Path) -> None:
    """The base image and the lock must have the same Beam version, as workers and launcher must agree."""
    version = next(argument for name, argument in image if name == "ARG").removeprefix("BEAM_VERSION=")
    locks = [templates.parent / "requirements.lock", templates / "dataflow" / "requirements.lock"]
    whole, part = (dict(re.findall(r"^([a-z0-9._-]+)(?:\[\S+\])?==(\S+)", lock.read_text(), re.M)) for lock in locks)
    assert part.items() <= whole.items()
    assert part["apache-beam"] == version
    # Neither tests nor TensorFlow.
    assert not {"tensorflow", "pytest", "mkdocs-material", "matplotlib"} & part.keys()


def test_the_build_takes_code_alone(image: list[list[str]], templates: Path) -> None:
    copied = [argument.split()[:-1] for name, argument in image if name == "COPY" and "--from" not in argument]
    names = {name for line in copied for name in line}
    assert [name for name in names if not (templates.parent / name).exists()] == []
    # setup.py installs the packages in these folders.
    assert names >= {"labeldp", "mechanisms", "transforms", "pipelines", "templates", "setup.py", "README.md"}
    ignored = (templates.parent / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    assert {name.partition("/")[0] for name in names} == {line[1:] for line in ignored if line.startswith("!")}


def test_the_image_can_run_a_stage(image: list[list[str]], templates: Path, tmp_path: Path) -> None:
    """The RUN lines, in an empty environment, where a stage that was pickled here is loaded outside of the sources."""
    from apache_beam.internal import pickler
    from labeldp.mechanisms import Prior
    from labeldp.mechanisms.response.randomized_response import RandomizedResponse
    from labeldp.transforms import LabelColumn, PrivatizeLabels, StreamBinding
    from labeldp.transforms.noise_key_file import NoiseKeyFile

    python, wheels = tmp_path / "image" / "bin" / "python", tmp_path / "wheels"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "image"], check=True, timeout=120)
    wheels.mkdir()
    (wheels / "requirements.lock").write_bytes((templates / "dataflow" / "requirements.lock").read_bytes())
    uv = f"{Path(sys.executable).with_name('uv')} pip install -q --python {python}"
    source = tmp_path / "source"
    source.mkdir()
    for name in ("labeldp", "mechanisms", "transforms", "pipelines", "templates"):
        shutil.copytree(templates.parent / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(templates.parent / name, source)
    commands = [argument for name, argument in image if name == "RUN"]
    assert len(commands) == 3
    # uv installs what pip does, in a tenth of the time; the wheel is built with what this environment has.
    here = {
        "pip install --no-cache-dir": uv,
        "pip wheel --no-cache-dir": f"{sys.executable} -m pip wheel -q --no-build-isolation",
        "python -c": f"{python} -c",
        "/wheels": str(wheels),
    }
    for place, command in enumerate(commands):
        for there, instead in here.items():
            command = command.replace(there, instead)  # noqa: PLW2901
        subprocess.run(command, shell=True, check=True, cwd=source if place == 0 else tmp_path, timeout=300)
    randomizer = RandomizedResponse().solve(Prior(np.arange(2.0), np.ones(2)), 1.0)
    stage = PrivatizeLabels(randomizer, StreamBinding("s"), LabelColumn("y", (0.0, 1.0), "id"), NoiseKeyFile("k"))
    (tmp_path / "stage").write_bytes(pickler.dumps(stage))
    load = "from apache_beam.internal import pickler; print(type(pickler.loads(open('stage', 'rb').read())))"
    done = subprocess.run([python, "-c", load], check=True, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "labeldp.transforms.privatize_labels.PrivatizeLabels" in done.stdout
