"""YAML files of a user, read as nodes: nothing in them is constructed, and errors name file and line."""

from __future__ import annotations

import os
from typing import Any

from ..errors import UsageError, one_line

_MOST_BYTES = 1 << 20


def yaml_entries(flag: str, path: str, kind: str, key: str) -> list[tuple[Any, Any]]:
    """Reads the pairs of key and value nodes of the mapping in a file of at most 1 MB.

    `flag` named the file, which is to be a file of a `kind`; `key` says what its keys are. Raises UsageError if it
    cannot be read, is not YAML, or is not a mapping.
    """
    import yaml

    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{flag} {path} cannot be read: {os.strerror(error.errno or 0)}") from None
    except ValueError:
        raise UsageError(f"{flag} {path!a} cannot be read: it is not a path") from None
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{flag} {path} has more than 1 MB: it is not a file of {kind}")
    try:
        root = yaml.compose(content, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise UsageError(f"{path}{line}: not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError, ValueError):
        raise UsageError(f"{flag} {path} is not a YAML file in UTF-8") from None
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise UsageError(f"{flag} {path} must have lines of NAME: VALUE, where NAME is {key}")
    return list(root.value)


def yaml_mapping(flag: str, path: str, kind: str, key: str) -> dict[str, Any]:
    """Reads the mapping in a file like `yaml_entries`: mappings and lists of scalars, which are text as written.

    A name that is there twice is refused, because readers would differ.
    """
    made: dict[int, Any] = {}

    def mapping(pairs: list[tuple[Any, Any]], mapped: dict[str, Any]) -> dict[str, Any]:
        for key, node in pairs:
            name = node_text(key)
            if name is None or name in mapped:
                problem = "a name must be text" if name is None else f"{one_line(name)} is there twice: give it once"
                raise UsageError(f"{flag} {path}, line {key.start_mark.line + 1}: {problem}")
            mapped[name] = plain(node)
        return mapped

    def plain(node: Any) -> Any:
        if (text := node_text(node)) is not None:
            return "" if node_kind(node) == "null" else text
        # Anchors: each node is read once, however often it is named.
        if id(node) not in made:
            made[id(node)] = {} if node.id == "mapping" else []
            if node.id == "mapping":
                mapping(node.value, made[id(node)])
            else:
                made[id(node)] += map(plain, node.value)
        return made[id(node)]

    return mapping(yaml_entries(flag, path, kind, key), {})


def node_text(node: Any) -> str | None:
    """Text of a scalar as it is written; None for a list or a mapping."""
    return node.value if isinstance(node.value, str) else None


def node_kind(node: Any) -> str:
    """YAML's own kind of a node: int, float, bool, null, str, seq, map or another."""
    return node.tag.rpartition(":")[2]
