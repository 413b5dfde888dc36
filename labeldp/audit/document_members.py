"""Members of the documents of a release, and the one way to write them.

A member that no check reads or that is missing, a space, another spelling of a number or another order of members could
each say something of the true labels. So every object has its members in one order and none besides, every value has
the type that labeldp writes, and the text of a file is the one that its members have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

from .documents import printable


class _Named(NamedTuple):
    """Object whose names are not members, such as those of shards; all values have one form."""

    form: Any


_NUMBER = (float, NoneType)
_TEXT = (str, NoneType)
_PARAMETERS = _Named((bool, int, float, str))
_CHOICE = {"mechanism": str, "model_errors": _Named(float)}
_CLASSES = {"values": [str], "other": (int, NoneType)}
_GRID = {"labels": int, "epsilon": float}
_TREE = {"columns": [int], "cuts": [int], "children": [int]}
_ENCODER = {"name": str, "mean": float, "values": [str], "shares": [float], "spread": float}
_CODED = {"feature": int, "cuts": [int], "places": [int]}
_LINEAR = {
    "encoders": [_ENCODER], "weights": [[int]], "norm": int, "epsilon": float, "gram": [[int]], "sampled": int,
    "signal": [float], "records": int, "labels": int, "sums": [int], "coefficients": [int],
    "cells": {
        "columns": [_CODED], "codes": [str], "tree": _TREE, "histogram_epsilon": float, "sums_epsilon": float,
        "records": [int], "counts": [int], "range": [int], "sums": [int],
        "trees": {"columns": [[int]], "cuts": [[int]], "leaves": [[int]]},
    },
}  # fmt: skip
_CLASS_CENTER = {
    "column": str,
    "center": {
        "budget": {"counts": float, "sums": float, "cells": float},
        "counts": [int],
        "linear": {
            "encoders": [_ENCODER], "weights": [[int]], "norm": int, "records": int, "epsilon": float, "rows": [str],
            "signal": [float], "sums": [[int]], "coefficients": [[int]],
        },
        "cells": {
            "features": [_CODED], "others": [{"logit": bool, "place": int, "cuts": [int]}], "codes": [str],
            "rows": [str], "tree": _TREE, "epsilon": float, "counts": [[int]], "coefficients": [[int]],
            "trees": {"columns": [[int]], "cuts": [[int]], "leaves": [[[int]]]},
        },
    },
}  # fmt: skip
_MECHANISM = {
    "format": str, "mechanism": str, "parameters": _PARAMETERS, "epsilon": float, "delta": float, "bits": int,
    "labels": [float], "outputs": [float], "columns": [[[(str, int)]]],
    "certificate": {
        "epsilon": float, "ratio": [str], "delta": float, "bias": [float], "max_bias": float, "row_sum": str,
    },
    "gap": _NUMBER, "choice": _CHOICE, "fingerprint": str,
    "prior": {
        "weights": [float], "epsilon": float, "release": str, "label": str, "missing_label": (float, str),
        "counts": [int], "records": int,
    },
    "rounding": str, "declared_grid": _GRID, "classes": _CLASSES,
    "center": {"column": str, "domain": [float], "counts": [int], "linear": _LINEAR},
    "unit": {"column": str, "max_records": int},
}  # fmt: skip
_CENTER_MECHANISM = {
    "format": str, "label": str, "missing_label": str, "classes": _CLASSES, "class_center": _CLASS_CENTER,
    "unit": {"column": str, "max_records": int},
}  # fmt: skip
_OUTPUT = {"format": str, "compression": str, "row_group": int, "columns": [{"name": str, "type": str}]}
_SHARDS = {
    "output": _OUTPUT, "shards": _Named(int), "removals": [{"date": str, "records": int, "manifest": str}],
    "dead_letters": _Named(int),
    "versions": dict.fromkeys(("labeldp", "python", "apache-beam", "numpy", "pyarrow", "sbom"), str),
}  # fmt: skip
_TABLE = dict.fromkeys(("format", "name", "id", "snapshot", "schema"), str)
_BUDGET = {"epsilon": float, "certified_epsilon": float, "delta": float, "certified_delta": float}
_RELEASE = {
    "format": str, "adjacency": str, "epsilon": float,
    "unit": {
        "column": str, "max_records": int, "over_limit": str, "units": int, "records_left_out": int,
        "records_without_unit": int, "record_epsilon": float,
    },
    "center_epsilon": float, "prior_epsilon": float, "randomizer_epsilon": float, "certified_epsilon": float,
    "delta": float, "certified_delta": float, "mechanism": str, "parameters": _PARAMETERS,
    "mechanism_fingerprint": str, "domain": {"min": float, "max": float, "labels": int}, "classes": _CLASSES,
    "declared_grid": _GRID, "rounding": str, "missing_label": (float, str),
    "center": {
        "column": str, "missing": int, "residuals": {"min": float, "max": float, "labels": int},
        "clipping": {"share": float, "bias": float, "squared_error": float},
        "linear": {
            "features": [str], "components": int, "epsilon": float,
            "cells": {"cells": int, "trees": int, "epsilon": float},
        },
    },
    "class_center": {
        "column": str, "features": [str], "sums": int, "cells": int, "trees": int, "fingerprint": str,
    },
    "records": int, "records_without_label": int, "input_digest": str,
    "expected_loss": dict.fromkeys(("squared", "absolute", "poisson", "zero_one"), _NUMBER), "max_bias": float,
    "label": str, "identity": str, "table": _TABLE, "where": _TEXT, "left_out": [str], "loss": _TEXT,
    "features": (int, NoneType), "warnings": [str], "choice": _CHOICE, "validation": str, **_SHARDS, "data": str,
}  # fmt: skip
_LABELS = {
    "format": str, "adjacency": str, **_BUDGET,
    "labels": [{"label": str, "folder": str, **_BUDGET, "mechanism": str, "mechanism_fingerprint": str}],
    "unit": {"column": str, "max_records": int, "over_limit": str},
    "identity": str, "table": _TABLE, "where": _TEXT, "left_out": [str], "records": int,
    "records_without_label": int, **_SHARDS,
}  # fmt: skip

_OF_RANDOMIZER = {
    "prior_epsilon", "randomizer_epsilon", "mechanism", "parameters", "mechanism_fingerprint", "rounding",
    "expected_loss", "choice", "declared_grid",
}  # fmt: skip

# Members that may be missing, by the member that they are of. All others are written always.
_MAY_LACK = {
    "mechanism": {"delta", "choice", "declared_grid", "classes", "center", "unit", "missing_label"},
    "certificate": {"ratio", "delta"},
    "prior": {"release", "label", "missing_label", "counts", "records"},
    "center": {"linear"},
    "linear": {"cells"},
    "encoders": {"mean", "values", "shares"},
    "columns": {"cuts", "places"},
    "features": {"cuts", "places"},
    "unit": {"epsilon", "delta"},
    "release": {
        "unit", "center_epsilon", "classes", "declared_grid", "missing_label", "center", "class_center", "max_bias",
        "table", "left_out", "choice", "validation", "removals", "dead_letters", "data",
    },
    "expected_loss": {"squared", "absolute", "poisson", "zero_one"},
    "output": {"row_group", "columns"},
    "labels": {"mechanism", "mechanism_fingerprint"},
}  # fmt: skip

# Forms of documents by name of the file, and whether the file is indented.
RELEASE, LABELS, MECHANISM = (_RELEASE, 2), (_LABELS, 2), (_MECHANISM, None)
# Of classes that are drawn from a center, which have no randomizer.
CENTER_MECHANISM = _CENTER_MECHANISM, None
CENTER_RELEASE = {key: form for key, form in _RELEASE.items() if key not in _OF_RANDOMIZER}, 2
CENTER = {"format": str, "column": str, "domain": [float], "linear": _LINEAR}, None
CLASS_CENTER = {"format": str, "column": str, "classes": _CLASSES, "center": _CLASS_CENTER["center"]}, None


def written_problems(path: Path, document: Any, kind: tuple[dict[str, Any], int | None]) -> Iterator[str]:
    """Compares a document, which was read from a file, with its members and its text; one line for each that fails."""
    form, indent = kind
    problems = list(_wrong(document, form, path.name.removesuffix(".json")))
    yield from problems[:3]
    if not problems and path.read_bytes() != f"{json.dumps(document, indent=indent)}\n".encode():
        yield f"{path.name} is not written as labeldp writes it"


def _wrong(value: Any, form: Any, name: str) -> Iterator[str]:
    """Lines on the members that are not those of a form: a type, types, a list of one form, an object, or _Named."""
    if isinstance(form, dict | _Named) and isinstance(value, dict):
        known = form if isinstance(form, dict) else dict.fromkeys(value, form.form)
        if [key for key in known if key in value] != list(value):
            strangers = [key for key in value if key not in known]
            what = f"members that labeldp does not write: {printable(', '.join(strangers))}"
            yield f"{name} has {what if strangers else 'its members in another order than labeldp writes them'}"
            return
        if lost := [key for key in known if key not in value and key not in _MAY_LACK.get(name.split(".")[-1], ())]:
            yield f"{name} lacks members that labeldp writes: {printable(', '.join(lost))}"
        for key, member in value.items():
            yield from _wrong(member, known[key], f"{name}.{printable(key)}")
    elif isinstance(form, list) and isinstance(value, list):
        if isinstance(form[0], type):
            value = [] if set(map(type, value)) <= {form[0]} else value
        for item in value:
            yield from _wrong(item, form[0], name)
    elif not (isinstance(form, type | tuple) and type(value) in (form if isinstance(form, tuple) else (form,))):
        yield f"{name} has a value of another type than labeldp writes"
