"""Files of a release that a test changes, written as the job writes them: other bytes fail the audit."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from labeldp.audit.document_members import MECHANISM, RELEASE
from labeldp.mechanisms.noise.noisy_histogram import estimated_prior
from labeldp.transforms.shards.shard_formats import GroupWriter

PRIOR = {
    "weights": [0.5, 0.25, 0.25], "epsilon": 0.25, "release": "0f" * 16, "label": "y", "counts": [3, 1, 1],
    "records": 5,
}  # fmt: skip
"""Member of a mechanism file of three labels."""


def noised_prior(labels: list[float], counts: list[int], epsilon: float) -> str:
    """What `--prior` reads of a mechanism file: labels and the prior that was released of them."""
    weights = estimated_prior(np.array(labels), np.array(counts), sum(counts), epsilon).weights.tolist()
    released = PRIOR | {"weights": weights, "epsilon": epsilon, "counts": counts, "records": sum(counts)}
    return json.dumps({"labels": labels, "prior": released})


def change_members(document: Any, change: Any) -> None:
    """Calls a function with a document; or sets members by path, "a.0.b" for example, and deletes those of None."""
    if callable(change):
        change(document)
        return
    for path, value in change.items():
        *above, last = (int(key) if key.isdigit() else key for key in path.split("."))
        parent = functools.reduce(lambda found, key: found[key], above, document)
        if value is None:
            del parent[last]
        else:
            parent[last] = value


def write_document(path: Path, document: Any) -> None:
    """Writes a JSON document of a release, with its members in their order."""
    form = {"release.json": RELEASE[0], "mechanism.json": MECHANISM[0]}.get(path.name, {})
    document = _ordered(document, {} if "labels" in document and "mechanism" not in document else form)
    path.write_text(json.dumps(document, indent=2 if path.name == "release.json" else None) + "\n")


def _ordered(document: Any, form: Any) -> Any:
    if not isinstance(document, dict) or not isinstance(form, dict):
        return document
    known = {key: _ordered(document[key], form[key]) for key in form if key in document}
    return known | {key: value for key, value in document.items() if key not in form}


def write_shard(table: pa.Table, path: Path, compression: str = "none") -> None:
    """Writes a Parquet shard."""
    with path.open("wb") as file, GroupWriter(file, table.schema.remove_metadata(), compression) as writer:
        for batch in table.to_batches():
            writer.write(batch)
