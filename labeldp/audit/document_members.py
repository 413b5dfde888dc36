"""Interpreter of the form of the documents of a release, for the auditor; and the one way to write them.

The form is data, documents.json beside this package, a JSON Schema that is read strictly: 1 is no number, 1.0 is no
integer. A member that no check reads or that is missing, a space, another spelling of a number or another order of
members could each say something of the true labels. So in a release, the text of a file is the one that its members
have, in the order of the form.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import Any

from .documents import RefusedDocument, printable

_FORMS = json.loads((Path(__file__).parents[1] / "documents.json").read_text(encoding="utf-8"))
_TYPES = {
    "object": dict, "array": list, "string": str, "integer": int, "number": float, "boolean": bool, "null": NoneType,
}  # fmt: skip


def check_form(document: Any, form: str, name: str) -> None:
    """Compares a document with the form of a name; `name` is that of the document in messages.

    Raises RefusedDocument, which names up to three members, if the document has another form.
    """
    if problems := list(islice(_problems(document, {"$ref": f"#/$defs/{form}"}, name), 3)):
        raise RefusedDocument("; ".join(problems))


def written_problems(path: Path, document: Any, form: str, indent: int | None = None) -> Iterator[str]:
    """Compares the text of a file with the one that labeldp writes of its document, which has this form."""
    if path.read_bytes() != f"{json.dumps(in_order(document, form), indent=indent)}\n".encode():
        yield f"{path.name} is not written as labeldp writes it"


def in_order(document: Any, form: str) -> Any:
    """A document with its members in the order of a form; members that are not of the form come last."""
    return _in_order(document, {"$ref": f"#/$defs/{form}"})


def _in_order(value: Any, form: Any) -> Any:
    form = _chosen(value, form)
    if isinstance(value, list) and "items" in form:
        return [_in_order(item, form["items"]) for item in value]
    if not isinstance(value, dict):
        return value
    forms = form.get("properties", {})
    known = {key: _in_order(value[key], part) for key, part in forms.items() if key in value}
    return known | value | known


def _problems(value: Any, form: Any, name: str) -> Iterator[str]:
    form = _chosen(value, form)
    kinds = _kinds(form)
    if type(value) not in map(_TYPES.get, kinds):
        yield f"{name} is not of type {' or '.join(kinds)}"
    elif "enum" in form and value not in form["enum"]:
        yield f"{name} is not {' or '.join(map(str, form['enum']))}"
    elif isinstance(value, dict):
        known = form.get("properties") or dict.fromkeys(value, form["additionalProperties"])
        if strangers := [key for key in value if key not in known]:
            yield f"{name} has members that labeldp does not write: {printable(', '.join(strangers))}"
        elif lost := [key for key in form.get("required", ()) if key not in value]:
            yield f"{name} lacks members that labeldp writes: {', '.join(lost)}"
        else:
            for key, member in value.items():
                yield from _problems(member, known[key], f"{name}.{printable(key)}")
    elif isinstance(value, list):
        least, most = form.get("minItems", 0), form.get("maxItems", sys.maxsize)
        if not least <= len(value) <= most:
            yield f"{name} does not have {least} to {most} entries"
        for item in value if "items" in form else ():
            yield from _problems(item, form["items"], name)
    elif isinstance(value, str) and not re.fullmatch(form.get("pattern", r"[\s\S]*"), value):
        yield f"{name} is not a text of the form {form['pattern']}"
    elif isinstance(value, int | float):
        least, most = form.get("minimum", -sys.float_info.max), form.get("maximum", sys.float_info.max)
        if not least <= value <= most:
            yield f"{name} is not a number from {least} to {most}"


def _kinds(form: Any) -> list[str]:
    return form["type"] if isinstance(form["type"], list) else [form["type"]]


def _chosen(value: Any, form: Any) -> Any:
    """The form that a reference names, or the first one whose type and required members a value has, or the last."""
    while "$ref" in form:
        target = _FORMS
        for key in form["$ref"].split("/")[1:]:
            target = target[key]
        form = target
    if "anyOf" not in form:
        return form
    forms = [_chosen(value, part) for part in form["anyOf"]]
    typed = [part for part in forms if type(value) in map(_TYPES.get, _kinds(part))]
    return next((part for part in typed if all(key in value for key in part.get("required", ()))), forms[-1])
