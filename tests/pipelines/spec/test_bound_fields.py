"""Every field of a request changes every noise and digest of a release, or there is a reason why it need not.

The labels are the same arrays for all requests: were noise or digests equal then, they would tell exactly that a field
gives no label of the log another meaning.
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from labeldp.mechanisms.noise.keyed_words import integer_identities, row_identities, words
from labeldp.mechanisms.registry import AUTO, mechanism_named
from labeldp.mechanisms.release.bound_noise import StreamBinding
from labeldp.mechanisms.release.center_passes import CenterPass
from labeldp.mechanisms.release.conclude import solved
from labeldp.mechanisms.release.feature_sample import FeatureSample, sample_words
from labeldp.mechanisms.release.label_records import LabelRecords
from labeldp.pipelines.spec.fields import Fields
from labeldp.pipelines.spec.make_release import make_release
from labeldp.pipelines.spec.release import Release

from tests.commands import write_key

RECORDS = 3000
RANDOM = np.random.default_rng(3)
FEATURES = {name: RANDOM.normal(size=RECORDS) for name in "fg"}
PLACES = np.clip(np.rint(FEATURES["f"] + np.sign(FEATURES["f"] * FEATURES["g"]) + 1), 0, 2)
HEADER = "id,other_id,user,person,y,z,grade,k,f,g,p,q"
ROWS = [f"{row},{row},{row},{row},{row % 3},{row % 3},low,red,{row / 7},{row % 7},1,1" for row in range(9)]

GRID = {"label": "y", "label_min": 0, "label_max": 4, "label_step": 1, "epsilon": 2.0, "id_column": "id"}
BASES: dict[str, dict[str, Any]] = {
    "numbers": {**GRID, "mechanism": "rr", "center": "none"},
    "column": {**GRID, "mechanism": "rr", "center_column": "p"},
    "cells": {**GRID, "mechanism": AUTO, "center": "cells", "center_features": "f,g"},
    "marginals": {**GRID, "mechanism": AUTO, "center": "marginals", "center_features": "f,g"},
    "classes": {
        "label": "grade", "label_classes": "low,mid,high", "epsilon": 2.0, "id_column": "id", "for_": "models",
        "center_features": "f,g",
    },
}  # fmt: skip
BASES["response"] = {**BASES["classes"], "center": "none", "center_features": None}
CLASSES = ("classes", "response")
NUMBERS, ALL = ("numbers", "column", "cells", "marginals"), tuple(BASES)
PUBLIC = "what it selects is public, and so is which records have a usable label"
OUTPUT = "it says where and how results are written, not what noise is of"
LABELS = "the same labels are released, beside fewer public columns: the same outputs say nothing new of them"
KEY = "it says where the key is, and who reads it; the key itself is that of all noise"
LIMIT = "it stops a job, and changes no release"
PART = "the mechanism is a part of the key of words; the histogram is that of the same labels for any of them"
AFTER = "sums are of labels and features; what is made of them later changes neither"
NAMED = "an id names a record, wherever its file lies"
AROUND = "labels, centers and budgets are those of the other request, whatever features the centers are made of"
OF_CENTERS = ("digest", "histogram", "words of records", "words of a stream")


@dataclasses.dataclass(frozen=True)
class Change:
    """A field's change in requests of some bases, and the reasons why streams do not change; one text is for all."""

    values: dict[str, Any]
    same: str | dict[str, str] = dataclasses.field(default_factory=dict)
    bases: tuple[str, ...] = ("numbers",)
    given: dict[str, Any] = dataclasses.field(default_factory=dict)


UNIT = {"unit_column": "user", "max_records_per_unit": 2}
SINGLE = {"input": "single.csv", "id_column": None, "num_shards": 1}
CHANGES: dict[str, list[Change]] = {
    "label": [Change({"label": "z"}, bases=NUMBERS), Change({"label": "y,z"}), Change({"label": "k"}, bases=CLASSES)],
    "input": [Change({"input": "copy.csv"}, NAMED, ALL), Change({"input": "copy.csv"}, {}, ALL, {"id_column": None})],
    "input_format": [Change({"input_format": "parquet", "input": "log.parquet"}, NAMED, ALL)],
    "csv_types": [
        Change({"csv_types": "y=float64"}, bases=NUMBERS),
        Change({"csv_types": "grade=string"}, bases=CLASSES),
    ],
    "csv_dialect": [
        Change({"csv_dialect": "delimiter=;"}, given=SINGLE),
        Change({"csv_dialect": "encoding=latin-1"}, bases=ALL),
        Change(
            {"csv_dialect": ["delimiter=;", "decimal=,"]},
            given={"input": "semicolons.csv", "csv_dialect": "delimiter=;"},
            bases=ALL,
        ),
        Change({"csv_dialect": "thousands='"}, bases=ALL),
        Change(
            {"csv_dialect": f"columns={HEADER.replace('y,z,grade,k', 'z,y,k,grade')}"},
            given={"input": "bare.csv", "csv_dialect": f"columns={HEADER}"},
            bases=ALL,
        ),
        Change({"csv_dialect": "newlines=true"}, bases=ALL),
    ],
    "partitions": [Change({"partitions": "none"}, PUBLIC)],
    "missing_columns": [
        Change({"missing_columns": "null"}, PUBLIC, given={"input": "log.parquet", "input_format": "parquet"})
    ],
    "where": [Change({"where": "k=red"}, PUBLIC, ALL)],
    "id_column": [Change({"id_column": "other_id"}, bases=ALL), Change({"id_column": None}, bases=ALL)],
    "max_unusable_fraction": [Change({"max_unusable_fraction": 0.25}, LIMIT)],
    "label_min": [Change({"label_min": -1}, bases=NUMBERS)],
    "label_max": [Change({"label_max": 5}, bases=NUMBERS)],
    "label_step": [Change({"label_step": 2}, bases=NUMBERS)],
    "label_values": [Change({"label_values": (0, 1, 2, 4), **dict.fromkeys(("label_min", "label_max", "label_step"))})],
    "label_classes": [Change({"label_classes": "low,high,mid"}, bases=CLASSES)],
    "other_class": [Change({"other_class": "mid"}, bases=CLASSES)],
    "missing_label": [
        Change({"missing_label": 0}, bases=NUMBERS),
        Change({"missing_label": 1}, bases=NUMBERS, given={"missing_label": 0}),
        Change({"missing_label": "low"}, bases=CLASSES),
    ],
    "rounding": [Change({"rounding": "randomized"}, bases=NUMBERS, given={"rounding": "nearest"})],
    "epsilon": [Change({"epsilon": 1.5}, bases=ALL)],
    "delta": [
        Change(
            {"delta": 1e-6},
            {"histogram": PART, "digest": PART},
            given={"mechanism": "gaussian", "delta": 1e-5},
        ),
    ],
    "prior_epsilon": [Change({"prior_epsilon": 0.25}, {}, NUMBERS)],
    "ledger": [Change({"ledger": "other.jsonl"}, OUTPUT)],
    "epsilon_cap": [Change({"epsilon_cap": 9.0}, LIMIT)],
    "delta_cap": [Change({"delta_cap": 0.1}, LIMIT)],
    "cap_window": [Change({"cap_window": "30d"}, LIMIT, given={"epsilon_cap": 9.0})],
    "noise_key_file": [Change({"noise_key_file": "other.key"}, KEY)],
    "noise_key_mode": [Change({"noise_key_mode": "group"}, KEY)],
    "unit_column": [Change(UNIT, bases=ALL), Change({"unit_column": "person"}, bases=ALL, given=UNIT)],
    "max_records_per_unit": [Change({"max_records_per_unit": 3}, bases=ALL, given=UNIT)],
    "for_": [Change({"for_": "labels"}, given={"mechanism": None, "for_": "models"})],
    "mechanism": [
        Change({"mechanism": "laplace"}, {"histogram": PART, "digest": PART}, ("numbers", "column")),
        Change(
            {"mechanism": "bias_limited:bias=0.3"},
            {"histogram": PART, "digest": PART},
            given={"mechanism": "bias_limited:bias=0.2"},
        ),
    ],
    "loss": [Change({"loss": "absolute"}, {"histogram": PART, "digest": PART}, given={"mechanism": "rr_on_bins"})],
    "mechanism_file": [],
    "center": [
        Change({"center": "linear"}, {"moments": AFTER}, ("cells",)),
        Change({"center": "none", "center_features": None}, bases=("classes",)),
    ],
    "center_column": [
        Change({"center_column": "q"}, bases=("column",)),
        Change({"center_column": "c"}, {"moments": AFTER, "cells": AFTER}, ("cells",)),
        Change({"center_column": "c"}, {"marginals": AFTER}, ("marginals",)),
    ],
    "center_features": [
        Change({"center_features": "f"}, dict.fromkeys(OF_CENTERS, AROUND), ("cells", "marginals")),
        Change({"center_features": "f"}, dict.fromkeys(("digest", "histogram"), AROUND), ("classes",)),
    ],
    "output": [Change({"output": "elsewhere"}, OUTPUT)],
    "leave_out": [
        # One that a center would be made of by default changes its features, as `center_features` does.
        Change({"leave_out": "k,person"}, LABELS, NUMBERS),
        Change({"leave_out": "id,user"}, LABELS, ALL, {"unit_column": "user", "max_records_per_unit": 2}),
    ],
    "output_table": [],
    "sign": [],
    "output_format": [Change({"output_format": "tfrecord"}, OUTPUT)],
    "num_shards": [Change({"num_shards": 2}, OUTPUT)],
    "shuffle": [Change({"shuffle": True}, OUTPUT)],
    "partition_output": [],
    "compression": [Change({"compression": "gzip"}, OUTPUT)],
    "validate": [],
    "dry_run": [Change({"dry_run": True}, OUTPUT)],
}
WITHOUT_RUN = {
    "mechanism_file": "with `apply`, the column has the domain, classes, rounding, center and unit of the file, and "
    "the budget that of its randomizer, as where it was fitted",
    "output_table": OUTPUT,
    "sign": OUTPUT,
    "partition_output": OUTPUT,
    "validate": OUTPUT,
}
"""Reasons of fields that need a table, a key or a package."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bound")
    lines = [HEADER, *ROWS]
    for name in ("log.csv", "copy.csv"):
        (root / name).write_text("\n".join(lines) + "\n")
    (root / "semicolons.csv").write_text("\n".join(lines).replace(",", ";") + "\n")
    (root / "bare.csv").write_text("\n".join(ROWS) + "\n")
    (root / "single.csv").write_text("y\n" + "1\n2\n" * 5)
    pq.write_table(pc.read_csv(root / "log.csv"), root / "log.parquet")
    for name in ("noise.key", "other.key"):
        write_key(root / name, bytes(range(32)))
    return root


@pytest.fixture(scope="module")
def streams_of(folder: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Function (fields) -> noise keys, words and digest of the release of those fields, each made once."""
    known: dict[str, dict[str, Any]] = {}
    paths = ("input", "output", "ledger", "noise_key_file")

    def streams(fields: dict[str, Any]) -> dict[str, Any]:
        own = {"input": "log.csv", "input_format": "csv", "output": "out", "noise_key_file": "noise.key", **fields}
        named = {name: str(folder / value) if name in paths else value for name, value in own.items()}
        if repr(named) not in known:
            release = make_release("privatize", Fields.of(named))
            known[repr(named)] = dict(_streams(release, bytes(range(32))))
        return known[repr(named)]

    return streams


def _streams(release: Release, secret: bytes) -> Iterator[tuple[str, Any]]:
    label = release.labels[0]
    column = label.column
    numbers = np.arange(RECORDS)
    if column.id_column is None:
        identities = row_identities(release.input.paths[0], numbers)
    else:
        identities = integer_identities(column.id_column, numbers)
    records = LabelRecords(column, PLACES, identities)
    yield "words of rounding", words(secret, f"rounding {column.name}".encode(), identities)[0]
    yield "words of the sample", sample_words(secret, identities)[0]
    stream = StreamBinding("stream").noise_key(secret, column)
    bound, released = dataclasses.replace(records, centers=np.full(RECORDS, 1)), None
    name, found = label.mechanism.name, None
    features = {} if label.features is None else {name: FEATURES[name] for name in label.features.names}
    sample = FeatureSample(np.arange(RECORDS, dtype=np.uint64), features, RECORDS)
    for step in label.passes:
        counted = bound if step.binds and column.around_center else records
        design = step.design(sample, released)
        assert design is not None
        sums = step.summarize(counted, features, design, released, secret)
        if isinstance(step, CenterPass):
            # The noise is the same for all requests, so that what passes release tells none apart.
            yield step.name, step.noise_key(sums, column, design, released, secret)
            released = step.noised(sums, column, design, released, bytes(32))
            continue
        found = step.release(sums, column, design, released, secret)
        exact = column.classes is not None
        released = dataclasses.replace(found, counts=tuple(sums.sums.tolist())) if exact else found
    assert found is not None
    key, classes = found.noise_key(secret), column.classes is not None
    # The choice of `auto`, and the center of classes, take long; their epsilon and features stand for them.
    fingerprint = str(found.budget.labels).encode()
    if label.features is not None and classes:
        fingerprint += repr(label.features.names).encode()
    elif name != AUTO:
        fingerprint = solved(found, mechanism_named(name, **label.mechanism.parameters)).fingerprint
    yield "digest", found.digest
    yield "histogram", key
    yield "words of records", words(key, fingerprint, identities)[0]
    yield "words of a stream", words(stream, fingerprint, identities)[0]


UNBOUND = {
    "words of rounding": "for any coins, a release is private: they need no binding but the name of the label and ids",
    "words of the sample": "which records are sampled is public, and so are their features",
}


def test_every_field_has_an_entry() -> None:
    assert {field.name for field in dataclasses.fields(Fields)} == set(CHANGES)
    assert {name for name, changes in CHANGES.items() if not changes} == set(WITHOUT_RUN)


CASES = [
    pytest.param(name, base, change, id=f"{name}, {base}, {place}")
    for name, changes in CHANGES.items()
    for place, change in enumerate(changes)
    for base in change.bases
]


@pytest.mark.parametrize(("name", "base", "change"), CASES)
def test_each_stream_changes_or_need_not(name: str, base: str, change: Change, streams_of: Any) -> None:
    fields = {**BASES[base], **change.given}
    before, after = streams_of(fields), streams_of({**fields, **change.values})
    common = before.keys() & after.keys() - UNBOUND.keys()
    assert common
    same = {stream for stream in common if before[stream] == after[stream]}
    assert same == (common if isinstance(change.same, str) else change.same.keys())
