"""The parameters of the Dataflow Flex Template, made from the flags of `labeldp privatize`: nothing is typed twice.

`python -m labeldp.templates.dataflow_metadata > templates/dataflow/metadata.json` renews the file. Its fields are
TemplateMetadata and ParameterMetadata of the Dataflow API, v1b3.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from ..pipelines.job.job_flags import NEEDED, add_flags

# What `fit` and `apply` take; the template runs `privatize`.
_NOT_OFFERED = ("help", "mechanism_file")
# On Dataflow, files are objects in Cloud Storage; their kind selects the console's input field.
_KINDS = {
    "input": "GCS_READ_FILE",
    "label_values": "GCS_READ_FILE",
    "noise_key_file": "GCS_READ_FILE",
    "schema": "GCS_READ_FILE",
    "output": "GCS_WRITE_FOLDER",
    "ledger": "GCS_WRITE_FILE",
}
# A default of the command is made on the user's own machine; a launcher's machine is gone after the job.
_NEEDED_THERE = ("noise_key_file",)


def arguments(argv: Sequence[str]) -> list[str]:
    """The flags of `labeldp privatize` for what a launcher passes: --NAME=VALUE, for a flag without a value as well."""
    switches = {f"--{action.dest}=": f"--{action.dest}" for action in _actions() if action.nargs == 0}
    found = []
    for argument in argv:
        switch = next((flag for prefix, flag in switches.items() if argument.startswith(prefix)), None)
        if switch is None:
            found.append(argument)
        elif argument.lower().endswith("=true"):
            found.append(switch)
    return found


def metadata() -> dict[str, Any]:
    """The whole document."""
    return {
        "name": "labeldp privatize",
        "description": "Replaces every label of a log by a randomized one, under label differential privacy.",
        "parameters": [_parameter(action) for action in _actions()],
    }


def _actions() -> list[argparse.Action]:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return [action for action in parser._actions if action.dest not in _NOT_OFFERED]


def _parameter(action: argparse.Action) -> dict[str, Any]:
    needed = action.dest in NEEDED["privatize"] or action.dest in _NEEDED_THERE
    parameter: dict[str, Any] = {
        "name": action.dest,
        "label": action.dest.replace("_", " ").capitalize(),
        "helpText": action.help,
        "isOptional": not needed,
        "paramType": _KINDS.get(action.dest) or _kind(action),
    }
    if action.choices is not None:
        parameter["enumOptions"] = [{"value": str(choice), "label": str(choice)} for choice in action.choices]
    if action.default is not None:
        parameter["defaultValue"] = str(action.default).lower() if action.nargs == 0 else str(action.default)
    return parameter


def _kind(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "BOOLEAN"
    if action.choices is not None:
        return "ENUM"
    return "NUMBER" if action.type in (int, float) else "TEXT"


if __name__ == "__main__":
    json.dump(metadata(), sys.stdout, indent=2)
    print()
