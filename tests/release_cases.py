"""Releases of one log, by format, kind of label, center, units, missing labels and folders: what golden bytes and laws
are checked on.

Each record has an id, so that its noise does not depend on where the log lies.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.written_logs import write_log

RECORDS = 600
GRID = {"label": "y", "label_min": 0, "label_max": 10, "label_step": 0.5, "epsilon": 2, "id_column": "id"}
LABELS = {"for": "labels"}
CELLS = {"center": "cells", "mechanism": "auto", "center_features": "f,k"}
LINEAR = {"center": "linear", "mechanism": "unbiased", "center_features": "f,k"}
UNITS = {"unit_column": "user", "max_records_per_unit": 2}
SHUFFLED = {"shuffle": True, "num_shards": 2}
NO_GRID = {"label_min": None, "label_max": None, "label_step": None}
TEXTS = NO_GRID | {"label": "k", "label_classes": "red,green"}
CLASS_CENTER = NO_GRID | {
    "label": "grade", "label_classes": "low,mid,high", "for": "models", "center_features": "f,k", "epsilon": 3,
}  # fmt: skip
TWO = {"label": "y,z", "label_max": "10,4", "label_step": "0.5,1"}
NOISE = tuple(f"n{number}" for number in range(24))
ILL = ("none", "cold", "flu", "covid, severe")
FORMATS = ("csv", "parquet", "tfrecord")
# Each format is read and written with a center; the records of TFRecords are also copied as they stand.
LAWS_OF_FORMATS = (("csv", "tfrecord", "labels"), ("csv", "parquet", "linear"), ("parquet", "tfrecord", "linear"))
LAWS_OF_FORMATS += (("tfrecord", "parquet", "linear"), ("tfrecord", "tfrecord", "linear"))
VALUES = (0, 1, 2, 3, 5, 8, 10)


@dataclass(frozen=True)
class Case:
    """A release.

    Attributes:
      log: Name of its log: a format, or one of `TABLES`, which are Parquet files.
      flags: What differs from `GRID`.
      laws: Whether the laws are checked on it. They are not on those that differ in the output's format or in the
        mechanism alone.
    """

    log: str
    flags: dict[str, Any] = field(default_factory=dict)
    laws: bool = True

    @property
    def format(self) -> str:
        """Format of the log."""
        return "parquet" if self.log in TABLES else self.log

    @property
    def labels(self) -> list[str]:
        """Names of the labels."""
        return self.flags.get("label", GRID["label"]).split(",")


def columns(records: int = RECORDS) -> dict[str, Any]:
    """Columns of the log, from integer arithmetic alone: the same on every machine."""
    place = np.arange(records)
    drawn = (place * 7919 + 13) * 104729 % 10007
    return {
        "id": place + 1000,
        "f": (drawn % 101) / 4,
        "k": [("red", "green", "blue")[each] for each in drawn % 3],
        "user": place // 3,
        "p": drawn % 21 / 2,
        "y": (drawn % 101 / 10 + drawn % 7 / 4) / 1.25,
        "z": drawn % 5,
    }


def _grades(table: pa.Table) -> pa.Table:
    """Adds classes that depend on a number, a category and an interaction of both, and on nothing else in 1 of 7."""
    f, k, z = (np.array(table[name].to_pylist()) for name in "fkz")
    places = np.where(table["user"].to_numpy() % 7 == 0, z % 3, (f > 12) + ((k == "red") & (f > 6)))
    return table.append_column("grade", pa.array(["low", "mid", "high"]).take(pa.array(places)))


def _kinds(table: pa.Table) -> pa.Table:
    """Adds classes of other types, one of which is missing or not listed, and a number that float32 cannot hold."""
    place, z = np.arange(len(table)), table["z"].to_numpy()
    drawn = (place * 6007 + 5) * 10_007 % 1009 % 20
    ill = np.array(ILL).take(np.searchsorted([10, 15, 18], drawn, "right"))
    columns = {
        "far": 1e5 + place * 7 % 101 / 7,
        "ill": ill.tolist(),
        "level": np.array([1, 2, -3, 4, 1], np.int16)[z],
        "bought": drawn < 4,
        **{name: (place * (2 * number + 3) % 30_011) ** 2 % 997 for number, name in enumerate(NOISE)},
        "days": np.where(drawn < 16, 0, z),
        "visits": np.array([0.0, 0.0, 1.0, 2.0, np.nan])[np.where(drawn < 12, 0, z)],
    }
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    return table


def _lacking(table: pa.Table) -> pa.Table:
    """Takes the label from every fifth record, and adds a label of truth values."""
    z = table["z"].to_numpy()
    table = table.set_column(5, "y", pa.array(table["y"].to_numpy(), mask=z == 0))
    return table.append_column("bought", pa.array(z > 2))


TABLES: dict[str, Callable[[], pa.Table]] = {
    "folders": functools.cache(lambda: pa.table(columns())),
    "many": functools.cache(lambda: pa.table(columns(5 * RECORDS))),
    "grades": functools.cache(lambda: _grades(TABLES["many"]())),
    "kinds": functools.cache(lambda: _kinds(TABLES["grades"]())),
    "lacking": functools.cache(lambda: _lacking(TABLES["folders"]())),
}


def table_of(case: Case) -> pa.Table:
    """The records of a case as its files hold them, those that --where keeps."""
    table = TABLES.get(case.log, TABLES["folders"])()
    if case.format == "tfrecord":
        place = table.schema.get_field_index("y")
        table = table.set_column(place, "y", table["y"].cast(pa.float32()).cast(pa.float64()))
    if "where" in case.flags:
        name, _, value = case.flags["where"].partition("=")
        table = table.filter(pc.equal(table[name], value))  # type: ignore[attr-defined]
    return table


def write_logs(root: Path) -> dict[str, Path]:
    """Writes each log: two files in each format, folders `part=A` and `part=B`, and files of `TABLES`."""
    table, cut = TABLES["folders"](), 350
    for number, part in enumerate((table.slice(0, cut), table.slice(cut))):
        for format in (*FORMATS, "orc"):
            write_log(root / f"log-{number}.{format}", part)
        pq.write_table(part, root / f"log-{number}.parquet", row_group_size=200)
        write_log(root / f"part={'AB'[number]}" / "log.parquet", part)
    for name, values in (("values.txt", VALUES), ("ill.txt", ILL)):
        (root / name).write_text("".join(f"{value}\n" for value in values))
    return {format: root / f"log-*.{format}" for format in (*FORMATS, "orc")} | {
        name: root / "part=*" / "log.parquet" if name == "folders" else write_log(root / f"{name}.parquet", made())
        for name, made in TABLES.items()
    }


def _cases() -> dict[str, Case]:
    cases = {
        f"{format} to {output}, {title}": Case(
            format, {**flags, "output_format": output, "num_shards": 3}, laws=(format, output, title) in LAWS_OF_FORMATS
        )
        for format in FORMATS
        for output in ("parquet", "tfrecord")
        for title, flags in (("labels", LABELS), ("linear", LINEAR))
    }
    cases |= {
        f"mechanism {name}": Case("csv", {"mechanism": name, "center": "none"}, laws=False)
        for name in ("unbiased", "bias_limited", "debiased_rr", "rr", "rr_top_k", "laplace", "staircase", "exponential")
    }
    kinds = (
        ("ill", "ill.txt", "parquet", {"num_shards": 2, "epsilon": 0.5}),
        ("ill", "ill.txt", "tfrecord", {"mechanism": "rr_top_k", "compression": "gzip"}),
        ("level", "1,2,-3", "parquet", {}),
        ("level", "1,2,-3", "tfrecord", {"num_shards": 2}),
        ("bought", "false,true", "parquet", {}),
        ("bought", "true,false", "tfrecord", {}),
        ("visits", "0,1,2", "parquet", {}),
        ("visits", "0,1,2", "tfrecord", {}),
    )
    days = {"label": "days", "label_max": 4, "label_step": 1, "epsilon": 1, "center": "none", "num_shards": 2}
    for output, more in (("parquet", {}), ("tfrecord", {}), ("gzip", {"compression": "gzip"})):
        flags = {**days, "mechanism": "rr", "prior_epsilon": 0.1, "output_format": output.replace("gzip", "tfrecord")}
        cases[f"days to {output}"] = Case("kinds", {**flags, **more}, laws=False)
    common = {"mechanism": "rr", "prior_epsilon": 0.1, "max_unusable_fraction": 0.1}
    for label, classes, output, more in kinds:
        flags = {**TEXTS, **common, "label": label, "label_classes": classes, "output_format": output, **more}
        cases[f"{label} to {output}"] = Case("kinds", flags, laws=False)
    # It never releases the last class.
    top = {"mechanism": "rr_top_k", "epsilon": 2.3, "output_format": "parquet"}
    cases["visits, top"] = Case("kinds", {**cases["visits to tfrecord"].flags, **top}, laws=False)
    return cases | {
        "auto": Case("csv", {"mechanism": "auto"}),
        "gaussian": Case("csv", {"mechanism": "gaussian", "delta": 1e-5, "center": "none"}),
        "parameters": Case("csv", {"mechanism": "bias_limited:bias=0.2", "center": "none"}),
        "absolute loss": Case("csv", {"mechanism": "rr_on_bins", "loss": "absolute"}, laws=False),
        "values": Case("csv", {**LABELS, **NO_GRID, "label_values": "values.txt"}),
        "fine grid": Case("csv", {"mechanism": "unbiased", "center": "none", "label_step": "0.01"}),
        "gzip": Case("tfrecord", {**LABELS, "compression": "gzip"}, laws=False),
        "gzip parquet": Case("parquet", {**LABELS, "compression": "gzip"}, laws=False),
        "orc": Case("orc", LABELS),
        "center column": Case("parquet", {"mechanism": "unbiased", "center_column": "p"}),
        "center column of tfrecords": Case("tfrecord", {"mechanism": "unbiased", "center_column": "p"}),
        "prior_epsilon": Case("csv", {**LABELS, "prior_epsilon": 0.25, "rounding": "randomized"}),
        "where": Case("parquet", {**LABELS, "where": "k=red"}),
        "missing labels": Case("lacking", {**LABELS, "missing_label": 3}),
        "records without a label": Case("lacking", {**LABELS, "max_unusable_fraction": 0.3}),
        "truth values": Case("lacking", {**LABELS, "label": "bought", "label_max": 1, "label_step": 1}),
        "units": Case("csv", {**LABELS, **UNITS}),
        "units, linear": Case("parquet", {**LINEAR, **UNITS}),
        "units of tfrecords": Case("tfrecord", {"mechanism": "debiased_rr", "center": "none", **UNITS}),
        "several labels": Case("csv", {**TWO, **LABELS}),
        "several labels, linear": Case("tfrecord", {**TWO, **LINEAR}),
        "several labels, units": Case("parquet", {**TWO, **LABELS, **UNITS}),
        "classes": Case("csv", TEXTS),
        "classes, units": Case("csv", {**TEXTS, **UNITS}),
        "classes, tfrecord": Case("tfrecord", {**TEXTS, "other_class": "green"}),
        "classes, top": Case("parquet", {**NO_GRID, **LABELS, "label": "z", "label_classes": "4,3,2,1,0"}),
        "classes and a number": Case("parquet", {**LABELS, "label": "y,k", "label_classes": "k=blue,red,green"}),
        "cells": Case("many", {**CELLS, "output_format": "tfrecord"}),
        "units, cells": Case("many", {**CELLS, **UNITS}, laws=False),
        "center of classes": Case("grades", CLASS_CENTER),
        "units, center of classes": Case("grades", {**CLASS_CENTER, **UNITS}, laws=False),
        "center of classes to tfrecord": Case(
            "grades", {**CLASS_CENTER, "output_format": "tfrecord", "num_shards": 2}, laws=False
        ),
        "center of classes, far": Case(
            "kinds", {**CLASS_CENTER, "center_features": "far,k", "output_format": "tfrecord"}, laws=False
        ),
        "center of classes without sums": Case(
            "kinds", {**CLASS_CENTER, "center_features": ",".join(NOISE), "epsilon": 0.1}, laws=False
        ),
        "partitions": Case("folders", {**LABELS, "partition_output": "part"}),
        "shuffled": Case("csv", {**LABELS, **SHUFFLED}),
        "shuffled, linear": Case("parquet", {**LINEAR, **UNITS, **SHUFFLED}),
        "shuffled labels of tfrecords": Case("tfrecord", {**TWO, **LABELS, **SHUFFLED}),
        "shuffled partitions": Case("folders", {**LABELS, **SHUFFLED, "partition_output": "part"}),
        "shuffled classes to tfrecord": Case(
            "csv", {**TEXTS, **SHUFFLED, "output_format": "tfrecord", "compression": "gzip"}, laws=False
        ),
    }


CASES = _cases()


def over(names: Any) -> pytest.MarkDecorator:
    """Parametrizes a test by cases; all tests of a case run in one worker, which makes its release once."""
    groups = [pytest.param(name, marks=pytest.mark.xdist_group(f"release: {name}")) for name in names]
    return pytest.mark.parametrize("name", groups)
