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
MARGINALS = {"center": "marginals", "mechanism": "auto", "center_features": "f,k"}
OF_LOG = {"for": "log_features"}
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
CUT = 350
UNLISTED = "an unlisted sort of some length"
MISSING = {**LABELS, "missing_label": 3}
SOME = {**LABELS, "max_unusable_fraction": 0.3}
CHOSEN = "bias_limited:bias=0.3"
SORTS = TEXTS | {"label": "sort", "label_classes": "poor,fair,good", "mechanism": "rr"}
TRUTH = {**LABELS, "label": "bought", "label_max": 1, "label_step": 1}
EDGES = {"label_max": 10_000, "label_step": 500, "mechanism": "debiased_rr", "num_shards": 1}
BETWEEN = {"label_step": 5, "epsilon": 3, "mechanism": "debiased_rr", "center": "none"}
MILLION = {"label_max": 1_000_000, "label_step": 1, "mechanism": "unbiased", "center": "none"}


@dataclass(frozen=True)
class Case:
    """A release.

    Attributes:
      log: Name of its log: a format, or one of `TABLES` with its format, Parquet if there is none.
      flags: What differs from `GRID`.
      laws: Whether the laws are checked on it. They are not on those that differ in the output's format or in the
        mechanism alone.
      states: Value by "file member.member" of the release; None if there is none.
      said: Texts that the command prints.
      counts_as: Whether some labels count as others, as those of `completed` do.
    """

    log: str
    flags: dict[str, Any] = field(default_factory=dict)
    laws: bool = True
    states: dict[str, Any] = field(default_factory=dict)
    said: tuple[str, ...] = ()
    counts_as: bool = False

    @property
    def format(self) -> str:
        """Format of the log."""
        table, _, format = self.log.partition(".")
        return format or ("parquet" if table in TABLES else table)

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


def _gaps(table: pa.Table) -> pa.Table:
    """Takes the user and p from some records, and adds classes of which some are missing or not listed."""
    place = np.arange(len(table))
    sorts = pa.array(["poor", "fair", "good", UNLISTED, None]).take(
        pa.array(np.searchsorted([4, 7, 8, 9], place * 7 % 10, "right"))
    )
    for column, name, lost in ((3, "user", place % 50 == 7), (4, "p", place % 60 == 30)):
        table = table.set_column(column, name, pa.array(table[name].to_numpy(), mask=lost))
    return table.append_column("sort", sorts)


def _between() -> pa.Table:
    """Labels that are neither of a grid nor the mean of two of its labels."""
    place = np.arange(9_000)
    return pa.table({"id": place, "f": place % 3, "y": np.array([1.3, 3.5, 7.9])[place % 3]})


def _edges() -> pa.Table:
    """Centers on and beside the bounds between labels of a grid of 500, beyond float32, and none."""
    place = np.arange(400)
    floats = [
        250.0, np.nextafter(250.0, 0), np.nextafter(250.0, 500), 249.99999999, 1e308, -1e308, 3.5e38, 1e-300, -0.0,
        np.nan, np.inf, -np.inf, 9749.9999, 9750.0, 1e7 + 0.5, None,
    ]  # fmt: skip
    # TFRecord output refuses what is beyond float32.
    singles = [
        each if each is None or not 3.4e38 < abs(each) < np.inf else np.copysign(np.inf, each) for each in floats
    ]
    integers = [250, 249, 251, (1 << 24) + 1, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63), 9750, 0, None]
    values: dict[str, tuple[list[Any], pa.DataType]] = {
        "c64": (floats, pa.float64()), "c32": (singles, pa.float32()), "single": (singles, pa.float64()),
        "whole": (integers, pa.int64()), "wide": ([(1 << 64) - 1, 250, 9750, 251], pa.uint64()),
        "truth": ([True, False, None, True], pa.bool_()),
        "lists": ([None, [], [1.0, 2.0], *([each] for each in singles[:-1])], pa.list_(pa.float64())),
    }  # fmt: skip
    columns = {
        name: pa.array([given[each % len(given)] for each in place], kind) for name, (given, kind) in values.items()
    }
    return pa.table({"id": place, "y": np.where(place % 5 == 0, 7361, place * 25).astype(float), **columns})


TABLES: dict[str, Callable[[], pa.Table]] = {
    "folders": functools.cache(lambda: pa.table(columns())),
    "many": functools.cache(lambda: pa.table(columns(5 * RECORDS))),
    "grades": functools.cache(lambda: _grades(TABLES["many"]())),
    "kinds": functools.cache(lambda: _kinds(TABLES["grades"]())),
    "lacking": functools.cache(lambda: _lacking(TABLES["folders"]())),
    "gaps": functools.cache(lambda: _gaps(TABLES["lacking"]())),
    "between": functools.cache(_between),
    "edges": functools.cache(_edges),
}
# Those that are written in other formats than Parquet, too.
OTHER_LOGS = ("gaps.csv", "gaps.orc", "gaps.tfrecord", "grades.csv", "grades.tfrecord")


def table_of(case: Case) -> pa.Table:
    """The records of a case as its files hold them, those that --where keeps."""
    table = TABLES.get(case.log.partition(".")[0], TABLES["folders"])()
    if case.format == "tfrecord":
        place = table.schema.get_field_index("y")
        table = table.set_column(place, "y", table["y"].cast(pa.float32()).cast(pa.float64()))
    if "csv_types" in case.flags:
        table = table.set_column(0, "id", table["id"].cast(pa.string()))
    if "where" in case.flags:
        name, _, value = case.flags["where"].partition("=")
        table = table.filter(pc.equal(table[name].cast(pa.string()), value))  # type: ignore[attr-defined]
    return table


def completed(case: Case, table: pa.Table) -> pa.Table:
    """The log with those labels in it that a missing label, a class that is not listed and a truth value count as."""
    for label in case.labels:
        column, flags = table[label], case.flags
        listed = str(flags.get("label_classes") or "").rpartition("=")[2].split(",")
        if "missing_label" in flags:
            column = column.fill_null(flags["missing_label"])
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.int64()) if len(listed) == 1 else column
        elif len(listed) > 1 and label == case.labels[-1]:
            other = pa.array([flags.get("other_class", listed[0])]).cast(column.type)[0].as_py()
            known = [value is None or str(value).removesuffix(".0") in listed for value in column.to_pylist()]
            values = [value if of_list else other for value, of_list in zip(column.to_pylist(), known, strict=True)]
            column = pa.chunked_array([pa.array(values, column.type)])
        table = table.set_column(table.schema.get_field_index(label), label, column)
    return table


def write_files(root: Path, case: Case, table: pa.Table) -> Path:
    """Writes another log of a case, in as many files as its own. Returns its glob."""
    parts = [table] if case.log.partition(".")[0] in TABLES else [table.slice(0, CUT), table.slice(CUT)]
    for number, part in enumerate(parts):
        write_log(root / f"log-{number}.{case.format}", part)
    return root / f"log-*.{case.format}"


def write_logs(root: Path) -> dict[str, Path]:
    """Writes each log: two files in each format, folders `part=A` and `part=B`, and files of `TABLES`."""
    table = TABLES["folders"]()
    for number, part in enumerate((table.slice(0, CUT), table.slice(CUT))):
        for format in (*FORMATS, "orc"):
            write_log(root / f"log-{number}.{format}", part)
        pq.write_table(part, root / f"log-{number}.parquet", row_group_size=200)
        write_log(root / f"part={'AB'[number]}" / "log.parquet", part)
    for name, values in (("values.txt", VALUES), ("ill.txt", ILL)):
        (root / name).write_text("".join(f"{value}\n" for value in values))
    return (
        {format: root / f"log-*.{format}" for format in (*FORMATS, "orc")}
        | {
            name: root / "part=*" / "log.parquet" if name == "folders" else write_log(root / f"{name}.parquet", made())
            for name, made in TABLES.items()
        }
        | {name: write_log(root / name, TABLES[name.partition(".")[0]]()) for name in OTHER_LOGS}
    )


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
    nothing = dict.fromkeys(f"release.json {each}" for each in ("prior_epsilon", "mechanism", "mechanism_fingerprint"))
    rounded = {rounding: {f"{file}.json rounding": rounding for file in ("release", "mechanism")}
               for rounding in ("nearest", "randomized")}  # fmt: skip
    cases |= {
        f"missing labels of {kind}": Case(f"gaps.{kind}", MISSING, False, {"release.json missing_label": 3}, (), True)
        for kind in ("csv", "orc", "tfrecord")
    }
    poor = {"release.json missing_label": "poor", "mechanism.json prior.missing_label": "poor"}
    cases |= {
        f"missing classes of {log}": Case(log, {**SORTS, "missing_label": "poor"}, log == "gaps", poor, (), True)
        for log in ("gaps", "gaps.csv", "gaps.orc", "gaps.tfrecord")
    }
    cases |= {
        f"truth values, {name}": Case("lacking", {**TRUTH, **flags}, False, {}, (), True)
        for name, flags in (
            ("units", UNITS), ("several labels", {"label": "bought,z", "label_max": "1,4"}),
            ("linear", {"for": None, **LINEAR, "label_max": 4}),
            ("list", {**NO_GRID, "label_values": "values.txt"}), ("tfrecord", {"output_format": "tfrecord"}),
        )
    }  # fmt: skip
    for column in ("id", "wide"):
        cases[f"center column {column}, filtered"] = Case(
            "edges", {**EDGES, "center_column": column, "where": "wide=250"}, False, {"release.json records": 100}
        )
    around = (("c64", "parquet", 175), ("c32", "parquet", 175), ("single", "tfrecord", 175), ("whole", "parquet", 40),
              ("whole", "tfrecord", 40), ("wide", "parquet", 0), ("lists", "tfrecord", 201),
              ("truth", "parquet", 100), ("truth", "tfrecord", 100))  # fmt: skip
    for column, output, missing in around:
        left_out = "c64,wide" if output == "tfrecord" else None
        flags = {**EDGES, "center_column": column, "output_format": output, "leave_out": left_out}
        states = {"release.json center.missing": missing}
        cases[f"center column {column} to {output}"] = Case("edges", flags, False, states)
    return cases | {
        "auto": Case("csv", {"mechanism": "auto"}, states={
            **dict.fromkeys(("mechanism.json choice.mechanism", "release.json choice.mechanism"), CHOSEN),
            "release.json mechanism": "bias_limited", "release.json rounding": "randomized",
            "release.json center.linear.features": ["f", "k", "user", "p", "z"],
        }, said=(f"chosen     {CHOSEN}: ", "mechanism  bias_limited: ")),
        "gaussian": Case("csv", {"mechanism": "gaussian", "delta": 1e-5, "center": "none"}),
        "parameters": Case("csv", {"mechanism": "bias_limited:bias=0.2", "center": "none"}),
        "absolute loss": Case("csv", {"mechanism": "rr_on_bins", "loss": "absolute"}, laws=False),
        "values": Case("csv", {**LABELS, **NO_GRID, "label_values": "values.txt"}),
        "fine grid": Case("csv", {"mechanism": "unbiased", "center": "none", "label_step": "0.01"}),
        "gzip": Case("tfrecord", {**LABELS, "compression": "gzip"}, laws=False),
        "gzip parquet": Case("parquet", {**LABELS, "compression": "gzip"}, laws=False),
        "orc": Case("orc", LABELS),
        "center column": Case("parquet", {"mechanism": "unbiased", "center_column": "p"}, states={
            "release.json center.column": "p", "release.json center.missing": 0, "release.json rounding": "randomized",
            "release.json center.residuals": {"min": -4.0, "max": 4.0, "labels": 17},
            "release.json domain": {"min": 0.0, "max": 10.0, "labels": 21},
            "mechanism.json center.domain": [label / 2 for label in range(21)],
        }, said=("center     p: 0 missing; residuals clipped to -4..4,",)),
        "center column of tfrecords": Case("tfrecord", {"mechanism": "unbiased", "center_column": "p"}),
        "prior_epsilon": Case("csv", {**LABELS, "prior_epsilon": 0.25, "rounding": "randomized"}),
        "where": Case("parquet", {**LABELS, "where": "k=red"}),
        "missing labels": Case("lacking", MISSING, True, {"release.json missing_label": 3},
                               ("a missing label counts as 3",), True),
        "missing labels, linear": Case("gaps", {**LINEAR, "missing_label": 3}, laws=False, counts_as=True),
        "missing labels, fine grid": Case(
            "gaps", {**LABELS, "label_max": 1023.5, "missing_label": 0.5}, laws=False, counts_as=True,
        ),
        "records without a label": Case("lacking", SOME, states={"release.json missing_label": None}),
        "records without a label, linear": Case("gaps", {**LINEAR, "max_unusable_fraction": 0.3}, laws=False),
        "named by rows": Case("gaps", {**SOME, "id_column": None}),
        "named by rows, linear": Case("gaps", {**LINEAR, "max_unusable_fraction": 0.3, "id_column": None}),
        "records without a class": Case("gaps", {**SORTS, "max_unusable_fraction": 0.3, "other_class": "good"}, False, {
            "release.json classes": {"values": ["poor", "fair", "good"], "other": 2},
        }, ("classes    poor, fair, good; all other values count as good\n", "mechanism  rr: 3 classes to 3\n"), True),
        "ids of text": Case("csv", {**LABELS, "csv_types": "id=string", "num_shards": 3}, laws=False),
        "truth values": Case("lacking", TRUTH, counts_as=True),
        "labels between": Case("between", BETWEEN, False, rounded["randomized"]),
        "labels between, nearest": Case("between", {**BETWEEN, "rounding": "nearest"}, False, rounded["nearest"]),
        "a million labels": Case("between", MILLION, False, {
            "release.json domain": {"min": 0.0, "max": 1e6, "labels": 501},
            "release.json declared_grid.labels": 1_000_001,
            "mechanism.json labels": [2000.0 * place for place in range(501)],
        }),
        "units": Case("csv", {**LABELS, **UNITS}, states={
            "mechanism.json unit": {"column": "user", "max_records": 2},
        }, said=("units      user: 200, at most 2 records each, 200 left out",)),
        "units without a name": Case(
            "gaps", {**SOME, **UNITS}, False, {}, ("records without a unit in user: left out",)
        ),
        "units around a column": Case("parquet", {"mechanism": "unbiased", "center_column": "p", **UNITS}),
        "units, linear": Case("parquet", {**LINEAR, **UNITS}),
        "units, linear, fine grid": Case("parquet", {**LINEAR, **UNITS, "label_step": "0.001"}, False, {
            "release.json declared_grid.labels": 10_001, "release.json rounding": "randomized",
        }),
        "units of tfrecords": Case("tfrecord", {"mechanism": "debiased_rr", "center": "none", **UNITS}),
        "several labels": Case("csv", {**TWO, **LABELS}, said=("\nPrivacy   Epsilon 2: ", "\nlabel ")),
        "several labels, some missing": Case("gaps", {
            **SOME, "label": "y,z,p", "label_max": "10,4,10", "label_step": "0.5,1,0.5",
        }, False, {}, (" without a usable label in each of 3 columns left out",)),
        "several labels, linear": Case("tfrecord", {**TWO, **LINEAR}),
        "several labels, units": Case("parquet", {**TWO, **LABELS, **UNITS}),
        "several labels, units, all features": Case("parquet", {
            **TWO, **UNITS, "center": "linear", "mechanism": "unbiased", "epsilon": 8,
        }, False, {f"labels/{label}/release.json center.linear.features": ["f", "k", "p"] for label in "yz"}),
        "several labels, fine grid": Case("csv", {**TWO, **LABELS, "label_step": "0.001,1"}, False, {
            "labels/y/release.json domain.labels": 501, "labels/y/release.json declared_grid.labels": 10_001,
            "labels/z/release.json domain.labels": 5, "labels/z/release.json declared_grid": None,
        }),
        "classes": Case("csv", TEXTS, counts_as=True),
        "classes, units": Case("csv", {**TEXTS, **UNITS}),
        "classes, tfrecord": Case("tfrecord", {**TEXTS, "other_class": "green"}, counts_as=True),
        "classes, top": Case("parquet", {**NO_GRID, **LABELS, "label": "z", "label_classes": "4,3,2,1,0"}),
        "classes and a number": Case("parquet", {**LABELS, "label": "y,k", "label_classes": "k=blue,red,green"}),
        "cells": Case("many", {**CELLS, "output_format": "tfrecord"}),
        "units, cells": Case("many", {**CELLS, **UNITS}, laws=False),
        "marginals": Case("many", {**MARGINALS, "output_format": "tfrecord"}),
        "units, marginals": Case("many", {**MARGINALS, **UNITS}, laws=False),
        "log features, numbers": Case("many", {**OF_LOG, "center_features": "f,k"}, False, {
            "release.json center.linear.marginals": None,
        }),
        "log features, categories": Case("many", {**OF_LOG, "center_features": "k"}, True, {
            "release.json center.linear.marginals.sums": 4,
        }),
        "center of classes": Case("grades", CLASS_CENTER, True, nothing, (
            "center     grade_probabilities: probabilities of the classes, from ", "Use       The center is the model",
        )),
        "center of classes of csv": Case("grades.csv", CLASS_CENTER, laws=False),
        "center of classes of tfrecord": Case("grades.tfrecord", {**CLASS_CENTER, "output_format": "parquet"}, False),
        "center of classes and a number": Case("grades", {
            **GRID, **CLASS_CENTER, "label": "y,grade", "label_min": 0, "label_max": 10, "label_step": 0.5,
            "label_classes": "grade=low,mid,high", "epsilon": 6,
        }, False, {"labels/grade/release.json class_center.features": ["f", "k"]}),
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
    }  # fmt: skip


CASES = _cases()


def over(names: Any) -> pytest.MarkDecorator:
    """Parametrizes a test by cases; all tests of a case run in one worker, which makes its release once."""
    groups = [pytest.param(name, marks=pytest.mark.xdist_group(f"release: {name}")) for name in names]
    return pytest.mark.parametrize("name", groups)
