"""Interpreter of the form of the documents of a release: documents.json of the package, a JSON Schema.

The form is read strictly: 1 is no number, 1.0 is no integer, and numbers are finite. The order of members is not looked
at: the audit of a release does that.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from importlib.resources import files
from types import NoneType
from typing import Any

_TYPES: dict[str, type] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": float, "boolean": bool, "null": NoneType,
}  # fmt: skip
_LARGEST = sys.float_info.max


@cache
def _schema() -> dict[str, Any]:
    return json.loads((files("labeldp") / "documents.json").read_text(encoding="utf-8"))["$defs"]


def check_form(document: object, form: str, name: str) -> None:
    """Compares an untrusted document, parsed JSON, with a form, or a member of one as `mechanism/properties/gap`.

    `name` is that of the document in errors.

    Raises ValueError, which names the member, if the document has another form.
    """
    _check(document, _resolved({"$ref": f"#/$defs/{form}"}), name)


def _resolved(form: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in form:
        first, *steps = form["$ref"].removeprefix("#/$defs/").split("/")
        form = _schema()[first]
        for step in steps:
            form = form[step]
    return form


def _check(value: Any, form: dict[str, Any], name: str) -> None:
    if "anyOf" in form:
        forms = list(map(_resolved, form["anyOf"]))
        form = next((part for part in forms if _may_be(value, part)), forms[-1])
    types = [form["type"]] if isinstance(form["type"], str) else form["type"]
    if type(value) not in [_TYPES[kind] for kind in types]:
        raise ValueError(f"{name} is not {' or '.join(types)}")
    if "enum" in form and value not in form["enum"]:
        raise ValueError(f"{name} is not one of {', '.join(map(str, form['enum']))}")
    if isinstance(value, str) and "pattern" in form and not re.fullmatch(form["pattern"], value):
        raise ValueError(f"{name} does not have the form {form['pattern']}")
    if type(value) in (int, float) and not form.get("minimum", -_LARGEST) <= value <= form.get("maximum", _LARGEST):
        raise ValueError(f"{name} is not between {form.get('minimum', -_LARGEST)} and {form.get('maximum', _LARGEST)}")
    if isinstance(value, list):
        least, most = form.get("minItems", 0), form.get("maxItems", sys.maxsize)
        if not least <= len(value) <= most:
            raise ValueError(f"{name} has {len(value)} entries, not {least} to {most}")
        inner = _resolved(form.get("items", {}))
        for item in value if inner else ():
            _check(item, inner, name)
    elif isinstance(value, dict):
        members, others = form.get("properties", {}), form["additionalProperties"]
        lost, strangers = [key for key in form.get("required", ()) if key not in value], value.keys() - members.keys()
        if lost or (strangers and not others):
            raise ValueError(f"{name} lacks {', '.join(lost)}" if lost else f"{name} has a member {min(strangers)!r}")
        for key, member in value.items():
            _check(member, _resolved(members.get(key, others)), f"{name}.{key if key in members else ascii(key)}")


def _may_be(value: Any, form: dict[str, Any]) -> bool:
    return type(value) is _TYPES[form["type"]] and all(key in value for key in form.get("required", ()))
