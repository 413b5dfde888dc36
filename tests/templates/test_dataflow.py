"""Flex Template: its parameters are the flags of the command, in the format of the Dataflow API."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format


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

    assert set(parameters) == set(flags) - {"help", "config", "dry_run", "if_exists", "result_json"}
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


@pytest.mark.parametrize("script", ["build.sh", "run.sh", "submit.sh"])
def test_scripts_say_how_they_are_used(templates: Path, script: str) -> None:
    done = subprocess.run(
        ["bash", str(templates / "dataflow" / script)], check=False, capture_output=True, text=True, timeout=20
    )

    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")


def test_the_image_has_what_the_lock_has(templates: Path) -> None:
    """The base image and the lock must have the same Beam version, as workers and launcher must agree."""
    dockerfile = (templates / "dataflow" / "Dockerfile").read_text()
    lock = (templates.parent / "requirements.lock").read_text()
    version = dockerfile.split("ARG BEAM_VERSION=")[1].splitlines()[0]

    assert re.search(rf"^apache-beam(\[\S+\])?=={re.escape(version)} ", lock, re.MULTILINE)
    lines = [line.split() for line in dockerfile.splitlines() if line.startswith("COPY ") and "--from" not in line]
    copied = {name for line in lines for name in line[1:-1]}
    assert [name for name in copied if not (templates.parent / name).exists()] == []
    # setup.py installs the packages in these folders.
    assert copied >= {"labeldp", "mechanisms", "transforms", "pipelines", "templates", "setup.py", "README.md"}
