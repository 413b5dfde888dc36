"""Parameters of the Dataflow Flex Template, generated from the flags of `labeldp privatize`.

Regenerate the file with `python -m labeldp.templates.dataflow_metadata > templates/dataflow/metadata.json`. Its fields
are TemplateMetadata and ParameterMetadata of the Dataflow API, v1b3.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from ..pipelines.errors import FieldNames, as_flag
from ..pipelines.flags.command_parser import CommandParser
from ..pipelines.flags.job_flags import privatize_flags
from ..pipelines.spec.fields import Fields, declared

# A template has its own form for parameters.
# The launcher submits the job and returns: validation needs passes that it would have to wait for.
_NOT_OFFERED = (
    "help", "config", "dry_run", "if_exists", "result_json", "wait_until_finish", "validate", "sign", "verbose",
)  # fmt: skip
# On Dataflow, files are objects in Cloud Storage. The kind selects the input field in the console.
_KINDS = {
    "input": "GCS_READ_FILE",
    "label_values": "GCS_READ_FILE",
    "noise_key_file": "GCS_READ_FILE",
    "output": "GCS_WRITE_FOLDER",
}
# By default, the command creates the key file on the user's machine; a launcher's machine is deleted after the job.
_NEEDED_THERE = ("noise_key_file",)


def arguments(argv: Sequence[str]) -> list[str]:
    """Converts the arguments of the Flex Template launcher to flags of `labeldp privatize`.

    Args:
      argv: Arguments of the form --NAME=VALUE, also for flags without a value.

    Returns:
      The flags; a flag without a value is kept if its VALUE was true, and VALUES of a flag with several are divided as
      a shell does.
    """
    flags = _parser().flags()
    switches = {f"--{name}=": f"--{name}" for name, action in flags.items() if action.nargs == 0}
    several = {f"--{name}=" for name, action in flags.items() if action.nargs == "+"}
    found = []
    for argument in argv:
        prefix, value = f"{argument.partition('=')[0]}=", argument.partition("=")[2]
        if prefix in several:
            found += [f"{prefix}{each}" for each in shlex.split(value)]
            continue
        switch = next((flag for prefix, flag in switches.items() if argument.startswith(prefix)), None)
        if switch is None:
            found.append(argument)
        elif argument.lower().endswith("=true"):
            found.append(switch)
    return found


def metadata() -> dict[str, Any]:
    """Builds the metadata document of the template.

    Returns:
      The JSON object of metadata.json.
    """
    return {
        "name": "labeldp privatize",
        "description": "Replaces each label of a dataset by a randomized one, under label differential privacy.",
        "parameters": _parameters(),
    }


def _parser() -> CommandParser:
    return CommandParser(privatize_flags)


def _parameters() -> list[dict[str, Any]]:
    parser = _parser()
    flags, needed = parser.flags(), {*parser.needed, *_NEEDED_THERE}
    return [_parameter(name, action, name in needed) for name, action in flags.items() if name not in _NOT_OFFERED]


def _parameter(name: str, action: argparse.Action, needed: bool) -> dict[str, Any]:
    parameter: dict[str, Any] = {
        "name": name,
        "label": name.replace("_", " ").capitalize(),
        "helpText": _text(action),
        "isOptional": not needed,
        "paramType": _KINDS.get(name) or _kind(action),
    }
    if parameter["paramType"] == "ENUM":
        parameter["enumOptions"] = [{"value": str(choice), "label": str(choice)} for choice in action.choices or ()]
    if action.nargs == 0:
        parameter["defaultValue"] = "false"
    elif action.default is not None:
        parameter["defaultValue"] = str(action.default)
    return parameter


def _text(action: argparse.Action) -> str:
    """The long text of a field; the help of any other flag."""
    field = declared(Fields).get(action.dest)
    return str(action.help) if field is None else FieldNames(field.metadata["help"]).text(as_flag)


def _kind(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "BOOLEAN"
    # An ENUM would have no parameters of a mechanism.
    if action.choices is not None and ":" not in str(action.metavar):
        return "ENUM"
    return "NUMBER" if action.type in (int, float) else "TEXT"


if __name__ == "__main__":
    json.dump(metadata(), sys.stdout, indent=2)
    print()
