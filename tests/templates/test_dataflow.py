"""Flex Template: its parameters are the flags of the command, in the format of the Dataflow API."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

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
        # An ENUM could not have the parameters of a mechanism.
        choices = None if name == "mechanism" else flags[name].choices
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


SCRIPTS: dict[str, tuple[list[str], list[list[str]]]] = {
    "build.sh": (
        ["IMAGE", "gs://b/t.json"],
        [
            ["docker", "build", "-f", "templates/dataflow/Dockerfile", "-t", "IMAGE", "."],
            ["docker", "push", "IMAGE"],
            ["gcloud", "dataflow", "flex-template", "build", "gs://b/t.json", "--image", "IMAGE",
             "--sdk-language", "PYTHON", "--metadata-file", "templates/dataflow/metadata.json"],
        ],
    ),
    "run.sh": (
        ["gs://b/t.json", "IMAGE", "REGION", "gs://b/staging", "--service-account-email=job@project",
         "--subnetwork=regions/r/subnetworks/s", "--dataflow-kms-key=KEY", "center_features=a,b c", "epsilon=1"],
        [
            ["gcloud", "dataflow", "flex-template", "run", "NAME", "--template-file-gcs-location", "gs://b/t.json",
             "--region", "REGION", "--staging-location", "gs://b/staging", "--additional-experiments=use_runner_v2",
             "--service-account-email=job@project", "--subnetwork=regions/r/subnetworks/s", "--dataflow-kms-key=KEY",
             "--parameters", "^~^center_features=a,b c", "--parameters", "^~^epsilon=1",
             "--parameters", "^~^sdk_container_image=IMAGE"],
        ],
    ),
    "submit.sh": (
        ["PROJECT", "REGION", "gs://b/temp", "--label", "weeks"],
        [
            ["labeldp", "privatize", "--runner", "DataflowRunner", "--project", "PROJECT", "--region", "REGION",
             "--temp_location", "gs://b/temp", "--setup_file", "SETUP", "--label", "weeks"],
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_call_the_tools_with_their_arguments(script: str, templates: Path, tmp_path: Path) -> None:
    """The tools are replaced by programs that write down how they are called."""
    log = tmp_path / "log"
    for tool in ("docker", "gcloud", "labeldp"):
        (tmp_path / tool).write_text(f"#!/bin/sh\nprintf '%s\\n' {tool} \"$@\" END >> {log}\n")
        (tmp_path / tool).chmod(0o755)
    arguments, expected = SCRIPTS[script]
    run = ["bash", str(templates / "dataflow" / script)]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run([*run, *arguments], check=True, env=environment, cwd=tmp_path, timeout=20)
    text = log.read_text().replace(str(templates.parent / "setup.py"), "SETUP")
    calls = re.sub(r"^labeldp-[0-9]{8}-[0-9]{6}$", "NAME", text, flags=re.M).split("\nEND\n")
    assert [call.split("\n") for call in calls[:-1]] == expected
    for wrong in ([], [*arguments, "word"]) if script == "run.sh" else ([],):
        done = subprocess.run([*run, *wrong], check=False, env=environment, capture_output=True, text=True, timeout=20)
        assert done.returncode == 2
        assert done.stderr.startswith("usage: ") or "word is neither --FLAG=VALUE nor NAME=VALUE" in done.stderr


@pytest.fixture(scope="module")
def image(templates: Path) -> list[list[str]]:
    """Lines of the Dockerfile, as their instruction and its argument."""
    lines = (templates / "dataflow" / "Dockerfile").read_text().replace("\\\n", "").splitlines()
    return [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]


def test_the_image_has_what_the_locks_have(image: list[list[str]], templates: Path) -> None:
    """The base image and the lock must have the same Beam version, as workers and launcher must agree."""
    version = next(argument for name, argument in image if name == "ARG").removeprefix("BEAM_VERSION=")
    pinned = [re.search(r":\$\{[A-Z]+_VERSION\}( AS \w+)?$", argument) for name, argument in image if name == "FROM"]
    assert len(pinned) == 3
    assert all(pinned)
    locks = [templates.parent / "requirements.lock", templates / "dataflow" / "requirements.lock"]
    whole, part = (dict(re.findall(r"^([a-z0-9._-]+)(?:\[\S+\])?==(\S+)", lock.read_text(), re.M)) for lock in locks)
    assert part.items() <= whole.items()
    assert part["apache-beam"] == version
    # No later Beam was tested.
    major, minor = map(int, version.split(".")[:2])
    assert f',<{major}.{minor + 1}"' in (templates.parent / "setup.py").read_text()
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
