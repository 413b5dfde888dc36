"""Flags of a command in a YAML file, for `--config`. Scalars are taken as they are written, not as YAML reads them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import UsageError, did_you_mean
from ..spec.yaml_file import node_kind, node_text, yaml_entries

_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "seq": "a list", "map": "a mapping"}
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
# What a user may want to call the key, which must not be in such a file.
_KEY_ITSELF = ("noise_key", "key", "secret", "secret_key", "noise_key_value")


@dataclass
class Config:
    """Content of a config file.

    Attributes:
      path: The file.
      arguments: Flags as on a command line.
      lines: Line of each flag with a value, by its name.
      empty: Line of each flag without one.
    """

    path: str
    arguments: list[str] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    empty: dict[str, int] = field(default_factory=dict)


def read_config(
    path: str,
    actions: Mapping[str, argparse.Action],
    hints: Mapping[str, str],
    runner_flags: Callable[[], Collection[str]],
) -> Config:
    """Reads a config file: a YAML mapping of flag names, without dashes, to values.

    `hints` are advice by the name of a flag that the command does not take. `runner_flags` lists the names of the
    runner's flags; it is called for a name that is not the command's.

    Raises UsageError if the file cannot be read, is not such a mapping, or has an unknown or repeated name or a value
    of the wrong type. The message names file and line, and never quotes a value of an unknown name.
    """
    found, seen = Config(path), set()
    for key, value in yaml_entries("--config", path, "flags", "a flag without its dashes"):
        name, line = node_text(key), key.start_mark.line + 1
        where = f"{path}, line {line}"
        if name is None:
            raise UsageError(f"{where}: the name of a flag must be text")
        name = name.lstrip("-")
        if name in seen:
            raise UsageError(f"{where}: {name} is there twice: give each flag once")
        seen.add(name)
        try:
            if name in actions and name not in ("config", "help"):
                arguments = _arguments(name, actions[name], value)
            elif name in _runner_names(name, hints, actions, runner_flags):
                arguments = _runner_arguments(name, value)
            else:
                raise UsageError(_unknown(name, actions, hints))
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
        if arguments is None:
            found.empty[name] = line
        else:
            found.arguments += arguments
            found.lines[name] = line
    return found


def _said(node: Any) -> str:
    return _KINDS.get(node_kind(node), "text")


def _arguments(name: str, action: argparse.Action, node: Any) -> list[str] | None:
    """The flag as on a command line; None for an empty value."""
    if node_kind(node) == "null":
        return None
    if action.nargs == 0 or (action.nargs == "?" and node_kind(node) == "bool"):
        return [f"--{name}" if _boolean(name, node) else f"--no_{name}"]
    if node_kind(node) == "map" and action.metavar == "NAME=VALUE" and action.nargs == "+":
        return [f"--{name}", *(f"{_item(name, key)}={_setting(name, value)}" for key, value in node.value)]
    if action.nargs == "+":
        items = node.value if node_kind(node) == "seq" else [node]
        if not items:
            raise UsageError(f"{name} is an empty list: leave it out, or name values")
        return [f"--{name}", *(_scalar(name, action, item) for item in items)]
    metavar = str(action.metavar or "")
    if node_kind(node) == "seq" and metavar.endswith(",..."):
        return [f"--{name}={','.join(_item(name, item) for item in node.value)}"]
    if node_kind(node) == "map" and metavar.startswith("NAME="):
        pairs = [f"{_item(name, key)}={_item(name, value)}" for key, value in node.value]
        return [f"--{name}={','.join(pairs)}"]
    return [f"--{name}={_scalar(name, action, node)}"]


def _scalar(name: str, action: argparse.Action, node: Any) -> str:
    """The text of a value, of the type of the flag."""
    text = node_text(node)
    wanted = {float: "a number", int: "a whole number"}.get(action.type, "text")  # type: ignore[arg-type]
    if text is None or node_kind(node) == "null":
        raise UsageError(f"{name} must be {wanted}, not {'empty' if text is not None else _said(node)}")
    if action.type in (float, int):
        try:
            action.type(text)  # type: ignore[operator]
        except ValueError:
            raise UsageError(f"{name} must be {wanted}, not {_said(node)}: {text!r}") from None
    elif action.choices is not None and text not in action.choices:
        known = [str(choice) for choice in action.choices]
        raise UsageError(f"{name} must be one of {', '.join(known)}, not {text!r}{did_you_mean(text, known)}")
    return text


def _item(name: str, node: Any) -> str:
    """An item of a list that becomes a text with commas."""
    text = node_text(node)
    if text is None:
        raise UsageError(f"{name} must have simple values, not {_said(node)}")
    if "," in text:
        raise UsageError(f"{name}: {text!r} has a comma, which separates the values")
    return text


def _setting(name: str, node: Any) -> str:
    """The value of a setting NAME=VALUE; a list as a text with commas."""
    if node_kind(node) == "seq":
        return ",".join(_item(name, item) for item in node.value)
    text = node_text(node)
    if text is None:
        raise UsageError(f"{name} must have simple values, or lists of them, not {_said(node)}")
    return text


def _boolean(name: str, node: Any) -> bool:
    value = _BOOLEANS.get((node_text(node) or "").lower()) if node_kind(node) == "bool" else None
    if value is None:
        raise UsageError(f"{name} must be true or false, not {_said(node)}")
    return value


def _runner_names(
    name: str, hints: Mapping[str, str], actions: Mapping[str, argparse.Action], runner_flags: Callable[[], Any]
) -> Collection[str]:
    return () if name in hints or name in actions or name in _KEY_ITSELF else runner_flags()


def _runner_arguments(name: str, node: Any) -> list[str] | None:
    """A flag of the runner as on a command line; a list repeats it."""
    if node_kind(node) == "null":
        return None
    if node_kind(node) == "bool":
        return [f"--{name}"] if _boolean(name, node) else []
    return [f"--{name}={_item_of_runner(name, item)}" for item in (node.value if node_kind(node) == "seq" else [node])]


def _item_of_runner(name: str, node: Any) -> str:
    text = node_text(node)
    if text is None:
        raise UsageError(f"{name} must be text, a number, true, false or a list of those, not {_said(node)}")
    return text


def _unknown(name: str, actions: Mapping[str, argparse.Action], hints: Mapping[str, str]) -> str:
    if name in hints:
        return hints[name]
    if name in _KEY_ITSELF:
        return f"{name}: the secret key must not be in this file: name its file with noise_key_file"
    if name == "config":
        return "a config file cannot name another: leave config out"
    return f"unknown flag {name}{did_you_mean(name, actions)}"
