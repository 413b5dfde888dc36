"""Changes that tests plant in releases, written as the job writes its files, and the law of the audit on them."""

import functools
import gzip
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.audit.audit_release import audit_path, audit_report
from labeldp.audit.document_members import in_order
from labeldp.mechanisms.noise.noisy_histogram import estimated_prior
from labeldp.transforms.io.limits import LIMITS, Limits
from labeldp.transforms.shards.shard_formats import GroupWriter, compressed_file
from labeldp.transforms.tfrecord.framing import frame, read_records

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
    """Calls a function with a document; or sets members by path, "a.0.b" for example.

    ... deletes a member, and a function gets the old value: what it returns takes its place, unless that is None.
    """
    if callable(change):
        change(document)
        return
    for path, value in change.items():
        *above, last = (int(key) if re.fullmatch(r"-?\d+", key) else key for key in path.split("."))
        parent = functools.reduce(lambda found, key: found[key], above, document)
        if value is ...:
            del parent[last]
        elif callable(value):
            returned = value(parent[last])
            parent[last] = parent[last] if returned is None else returned
        else:
            parent[last] = value


FORMS = {
    "labeldp-mechanism-1": "mechanism", "labeldp-mechanism-2": "center_mechanism", "labeldp-release-1": "release",
    "labeldp-release-2": "center_release", "labeldp-labels-1": "labels_release", "labeldp-center-1": "center_file",
}  # fmt: skip


def write_document(path: Path, document: Any) -> None:
    """Writes a JSON document of a release, with its members in their order."""
    form = FORMS.get(str(document.get("format")), "release")
    if form == "center_file" and "classes" in document:
        form = "class_center_file"
    document = in_order(document, form)
    path.write_text(json.dumps(document, indent=2 if path.name == "release.json" else None) + "\n")


def write_shard(table: pa.Table, path: Path, compression: str = "none", limits: Limits = LIMITS) -> None:
    """Writes a Parquet shard."""
    schema = table.schema.remove_metadata()
    with path.open("wb") as file, GroupWriter(file, schema, compression, limits) as writer:
        for batch in table.to_batches():
            writer.write(batch)


def shards(folder: Path) -> list[Path]:
    """Shards of a release."""
    return sorted(path for path in (folder / "data").rglob("*") if path.is_file() and path.name[0] != ".")


def change_table(path: Path, change: Any) -> None:
    """Writes a Parquet shard anew: calls a function with its table; or with the values of columns, by name."""
    table = pq.ParquetFile(path).read()
    for name, edit in [] if callable(change) else change.items():
        values = edit(table[name].to_pylist())
        values = values if isinstance(values, pa.Array) else pa.array(values, table.schema.field(name).type)
        table = table.set_column(table.schema.get_field_index(name), name, values)
    write_shard(change(table) if callable(change) else table, path)


def change_records(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Writes a TFRecord shard anew: calls a function with its records."""
    zipped = path.suffix == ".gz"
    content = gzip.decompress(path.read_bytes()) if zipped else path.read_bytes()
    batches = read_records(io.BytesIO(content), str(path), 1 << 20)
    records = [record for batch in batches for record in batch.records()]
    with path.open("wb") as file, compressed_file(file) if zipped else file as written:
        written.write(bytes(frame(change(records))))


def _change_center(folder: Path, change: Any) -> None:
    """Changes a center in both files that have it, and what the manifest states of one of classes."""
    mechanism, document, release = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("mechanism", "center", "release")
    )
    if "class_center" in mechanism:
        center = mechanism["class_center"]["center"]
        change_members(center, change)
        document["center"] = center
        text = json.dumps(center, sort_keys=True, separators=(",", ":"))
        release["class_center"] |= {
            "fingerprint": hashlib.blake2b(text.encode(), digest_size=32).hexdigest(),
            "sums": len(center["linear"]["sums"]),
            "cells": len(center["cells"]["counts"]),
            "trees": len(center["cells"]["trees"]["leaves"]),
        }
        write_document(folder / "release.json", release)
    else:
        change_members(mechanism["center"]["linear"], change)
        document["linear"] = mechanism["center"]["linear"]
    write_document(folder / "mechanism.json", mechanism)
    write_document(folder / "center.json", document)


def plant(folder: Path, file: str, change: Any) -> None:
    """Changes a file of a release.

    `file` is the name of a document without its ending, or `center` for the center in all documents that have it, with
    a change of `change_members`; `table`, `tables` or `records` for the first shard or all of them, with one of
    `change_table` or `change_records`; any other file, or `shard` for the first one, with a function of its bytes, or
    ... to delete it; or empty, with a function of the folder.
    """
    if file == "center":
        _change_center(folder, change)
    elif file == "records":
        change_records(shards(folder)[0], change)
    elif file in ("table", "tables"):
        for path in shards(folder)[: 1 if file == "table" else None]:
            change_table(path, change)
    elif file == "" or (folder / f"{file}.json").exists():
        path = folder / f"{file}.json"
        document = json.loads(path.read_text()) if file else folder
        change_members(document, change)
        if file:
            write_document(path, document)
    else:
        path = shards(folder)[0] if file == "shard" else folder / file
        content = path.read_bytes()
        path.unlink()
        if change is not ...:
            path.write_bytes(change(content))
            assert path.read_bytes() != content


Row = tuple[str, str, Any, str]
"""Planted change: case of a release, file and change of `plant`, and words of the finding; "= " before all of it."""


def planted(rows: Iterable[Row]) -> pytest.MarkDecorator:
    """Parametrizes a test by planted changes; all of a case run in one worker, which makes its release once."""
    numbers = Counter[str]()
    cases = []
    for name, *row in rows:
        numbers[name] += 1
        group = pytest.mark.xdist_group(f"release: {name}")
        cases.append(pytest.param(name, *row, marks=group, id=f"{name} {numbers[name]}"))
    return pytest.mark.parametrize(("name", "file", "change", "words"), cases)


RECORDS = ("table", "tables", "records", "shard")
"""Files of records, which the audit reads only where it is asked to."""


def law(folder: Path, file: str, change: Any, words: str, data: bool = False) -> None:
    """A planted change is found, with these words, in one line; without words, it is accepted."""
    plant(folder, file, change)
    audit = audit_path(str(folder), data=data or file in RECORDS)
    found = " | ".join(audit.problems)
    assert words.removeprefix("= ") in ((found,) if words.startswith("= ") else found), found
    assert bool(found) == bool(words), found
    assert found.isprintable()
    assert audit_report(audit).splitlines()[-1].startswith("FAIL: " if words else "PASS")
