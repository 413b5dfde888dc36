"""Releases whose records, or bytes of shards, are others than those that were drawn: the audit names it."""

import gzip
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.audit.written_files import Row, change_records, change_table, law, plant, planted, shards
from tests.release_cases import TABLES

SHARD = {name: f"data/part-00000-of-0000{count}.{ending}" for name, count, ending in (
    ("days to parquet", 2, "parquet"), ("days to tfrecord", 2, "tfrecord"), ("days to gzip", 2, "tfrecord.gz"),
    ("ill to parquet", 2, "parquet"), ("level to parquet", 1, "parquet"), ("visits to parquet", 1, "parquet"),
    ("ill to tfrecord", 1, "tfrecord.gz"), ("level to tfrecord", 2, "tfrecord"),
    ("bought to tfrecord", 1, "tfrecord"), ("visits to tfrecord", 1, "tfrecord"),
)}  # fmt: skip
FORMATS = ("parquet to parquet", "parquet to tfrecord", "tfrecord to tfrecord")
DAYS = ("days to parquet", "days to tfrecord", "days to gzip")
Numbers = Callable[[np.ndarray], Any]


def number(name: str) -> re.Pattern[bytes]:
    """A feature of one float in a record."""
    return re.compile(rb"(\x0a%c%s\x12\x08\x12\x06\x0a\x04)(....)" % (len(name), name.encode()), re.DOTALL)


def of_column(name: str, change: Numbers, only: int | None = None) -> Callable[[Path], None]:
    """Changes the numbers of a column in all shards, or in the first ones; fewer numbers drop the last records."""

    def edit(folder: Path) -> None:
        for path in shards(folder)[:only]:
            if path.suffix == ".parquet":
                change_table(path, lambda table: in_table(table, name, change(table[name].to_numpy())))
            else:
                change_records(path, lambda records: in_records(records, name, change))

    return edit


def in_table(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.slice(0, len(values)).set_column(
        table.schema.get_field_index(name), name, pa.array(values, table.schema.field(name).type)
    )


def in_records(records: list[bytes], name: str, change: Numbers) -> list[bytes]:
    form, found = number(name), []
    for record in records:
        kept = form.search(record)
        assert kept
        found.append(struct.unpack("<f", kept[2])[0])
    values = change(np.array(found))
    return [
        form.sub(lambda kept, value=value: kept[1] + struct.pack("<f", value), record)
        for record, value in zip(records[: len(values)], values, strict=True)
    ]


def at(place: int, value: float) -> Numbers:
    def change(values: np.ndarray) -> np.ndarray:
        values = np.array(values, float)
        values[place] = value
        return values

    return change


def next_to(place: int) -> Numbers:
    """Half a step, that of the domain, towards its middle."""
    return lambda values: at(place, values[place] + (0.5 if values[place] < 5 else -0.5))(values)


def both(*changes: Callable[[Path], None]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for each in changes:
            each(folder)

    return change


def true_center(folder: Path) -> None:
    """A center column of true labels; what was drawn is added to these."""
    change_table(shards(folder)[0], lambda table: in_table(
        in_table(table, "y", table["y"].to_numpy() - table["y_center"].to_numpy() + true_labels(len(table))),
        "y_center", true_labels(len(table)),
    ))  # fmt: skip


def true_labels(records: int) -> np.ndarray:
    return np.round(2 * TABLES["folders"]()["y"].to_numpy()[:records]) / 2


def true_days(folder: Path) -> None:
    parts = iter(np.split(TABLES["kinds"]()["days"].to_numpy(), 2))
    of_column("days", lambda labels: next(parts))(folder)


def with_bytes(records: list[bytes]) -> list[bytes]:
    return [*records[:5], records[5] + b"\x15" + struct.pack("<f", 3.0), *records[6:]]


NO_OUTPUT = "1 labels that are no output of the mechanism"
NO_CLASS = "1 labels that are no class that the mechanism releases"
THIRD = f"has {NO_CLASS}, first in record 2"
NOT_DRAWN = "the labels were not drawn from the channel for the noised histogram"
PREDICTED = "1 centers that the linear center does not predict from the record's features, first in record 17"
UNLIKE_FLOATS = (0.5, 5.0, -0.0, float(np.nextafter(np.float32(1), np.float32(2))), np.nan, np.inf)
NUMBERS: list[Row] = [
    *((name, "", of_column("days", lambda labels: labels), "") for name in DAYS),
    *((name, "", of_column("days", at(3, value), 1), f"{SHARD[name]} has {NO_OUTPUT}, first in record 3")
      for name in DAYS for value in UNLIKE_FLOATS),
    *((name, "", of_column("days", lambda labels: labels[:-1]),
       f"{SHARD[name]} holds 1499 records, but release.shards says 1500") for name in DAYS),
    *((name, "shard", lambda content: content[:-7], f"{SHARD[name]} ") for name in DAYS),
    # An empty stream after the records, and a time in the header.
    ("days to gzip", "shard", lambda content: content + gzip.compress(b""), "has more than one gzip stream"),
    ("days to gzip", "shard", lambda content: content[:4] + b"true" + content[8:],
     "has a name, a time or a comment in its gzip header"),
    ("days to tfrecord", "shard", lambda content: content[:-1] + bytes([content[-1] ^ 1]),
     "has a wrong checksum of the record at byte "),
    ("days to tfrecord", "records", with_bytes,
     f"= {SHARD['days to tfrecord']} record 5 has bytes that readers of tf.Examples do not see"),
    *((name, "", of_column("days", change), NOT_DRAWN) for name in DAYS for change in (
        lambda labels: np.zeros(len(labels)),
        lambda labels: np.arange(len(labels)) * 7919 % 5,
        lambda labels: 4 - labels,
    )),
    *((name, "", both(of_column("y", next_to(17), 1), of_column("y_center", next_to(17), 1)), PREDICTED)
      for name in (*(f"{formats}, linear" for formats in FORMATS), "cells")),
    ("parquet to parquet, linear", "", true_center, "centers that the linear center does not predict"),
    *((name, "", true_days, NOT_DRAWN) for name in DAYS),
    ("days to parquet", "table", {"days": lambda labels: [*TABLES["kinds"]()["days"].to_pylist()[:300], *labels[300:]]},
     "the labels of a part of the records were not drawn from the channel"),
    ("units, linear", "table", {"user": lambda users: [users[0]] * 3 + users[3:]},
     "1 units have more than 2 records, the unit.max_records of mechanism.json"),
]  # fmt: skip


# Columns of labels that are classes.


def third(value: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda values: [*values[:2], value, *values[3:]]


def cast(kind: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    return lambda values: pa.array(values).cast(kind)


TYPE, SEVERAL, MISSING = (
    "has labels of a type that does not hold the classes",
    "labels have several types",
    "has labels that are missing",
)
COLUMNS: list[Row] = [
    *(("ill to parquet", "table", {"ill": third(value)}, f"= {SHARD['ill to parquet']} {THIRD}")
      for value in ("none ", " none", "None", "none\0", "healthy", "", "0", "n\u043ene")),
    *((f"{label} to parquet", "table", {label: third(value)}, f"= {SHARD[f'{label} to parquet']} {THIRD}")
      for label, value in (("level", 0), ("level", 4), ("visits", -0.0), ("visits", np.nan), ("visits", 1.5))),
    # The mechanism never releases it.
    ("visits, top", "table", {"visits": third(2.0)}, f"= {SHARD['visits to parquet']} {THIRD}"),
    ("ill to parquet", "table", {"ill": third(None)}, MISSING),
    ("ill to parquet", "table", {"ill": lambda values: pa.array([[value] for value in values])}, SEVERAL),
    ("ill to parquet", "table", {"ill": cast(pa.large_string())}, f"{SEVERAL}: large_string, string"),
    ("ill to parquet", "table", {"ill": cast(pa.binary())}, f"{SEVERAL}: binary, string"),
    ("ill to parquet", "table", {"ill": lambda values: pa.array([["cold", "flu"], *([value] for value in values[1:])])},
     "has a record whose label is not one value"),
    ("ill to parquet", "table", {"ill": lambda values: pa.array(values).dictionary_encode()}, TYPE),
    ("ill to parquet", "table", {"ill": lambda values: pa.nulls(len(values))}, MISSING),
    ("ill to parquet", "table", {"ill": lambda values: pa.array([1.0] * len(values))}, TYPE),
    ("level to parquet", "table", {"level": third(None)}, MISSING),
    ("level to parquet", "table", {"level": lambda values: pa.array([True] * len(values))}, TYPE),
    ("bought to parquet", "table", {"bought": third(None)}, MISSING),
    ("bought to parquet", "table", {"bought": cast(pa.int64())}, TYPE),
    ("visits to parquet", "table", {"visits": third(None)}, MISSING),
    *((f"{label} to parquet", "tables", {label: lambda values: values[:1] * len(values)}, NOT_DRAWN)
      for label in ("ill", "bought")),
    ("classes and a number", "table", {"k": third("red ")}, f"label k: data/part-00000-of-00002.parquet {THIRD}"),
]  # fmt: skip


# Records of labels that are classes.


def feature_of(kind: int, content: bytes) -> bytes:
    """A Feature of one list, whose only field has this content."""
    return bytes([kind << 3 | 2, len(content)]) + content


def field(content: bytes) -> bytes:
    return b"\x0a" + bytes([len(content)]) + content


def relabelled(label: str, feature: bytes | None) -> Callable[[list[bytes]], list[bytes]]:
    """Replaces the Feature of a label in the third record, or removes its entry."""

    def change(records: list[bytes]) -> list[bytes]:
        record, key = records[2], b"\x0a" + bytes([len(label)]) + label.encode()
        start = record.index(key)
        end = record[start - 1] + start
        entry = b"" if feature is None else key + b"\x12" + bytes([len(feature)]) + feature
        entry = entry and b"\x0a" + bytes([len(entry)]) + entry
        content = body(record)[: start - 2 - head(record)] + entry + record[end:]
        return [*records[:2], whole(content), *records[3:]]

    return change


def head(record: bytes) -> int:
    """Bytes before the entries: a tag and a length of one or two bytes."""
    return 2 if record[1] < 0x80 else 3


def body(record: bytes) -> bytes:
    return record[head(record) :]


def whole(content: bytes) -> bytes:
    size = len(content)
    return b"\x0a" + (bytes([size]) if size < 0x80 else bytes([size & 0x7F | 0x80, size >> 7])) + content


def with_second_entry(records: list[bytes]) -> list[bytes]:
    entry = field(field(b"ill") + b"\x12" + field(feature_of(1, field(b"cold")))[1:])
    return [*records[:2], whole(body(records[2]) + entry), *records[3:]]


FEATURES: list[tuple[str, bytes | None, bool]] = [
    ("ill", feature_of(1, field(b"cold")), True),
    ("ill", feature_of(1, field(b"cold ")), False),
    ("ill", feature_of(1, field(b"cold") + field(b"flu")), False),
    ("ill", feature_of(1, field(b"")), False),
    ("ill", feature_of(1, b""), False),
    ("ill", b"", False),
    ("ill", None, False),
    ("ill", feature_of(3, field(b"\x01")), False),
    ("level", feature_of(3, field(b"\x02")), True),
    ("level", feature_of(3, field(b"\xfd" + b"\xff" * 8 + b"\x01")), True),
    ("level", feature_of(3, field(b"\x82\x00")), False),
    ("level", feature_of(3, b"\x08\x02"), False),
    ("level", feature_of(3, field(b"\x02") + b"\x0a\x00"), False),
    ("level", feature_of(3, field(b"\x01\x02")), False),
    ("level", feature_of(3, field(b"\x04")), False),
    ("bought", feature_of(3, field(b"\x01")), True),
    ("bought", feature_of(3, field(b"\x02")), False),
    ("visits", feature_of(2, field(struct.pack("<f", 1.0))), True),
    ("visits", feature_of(2, field(struct.pack("<f", -0.0))), False),
    ("visits", feature_of(2, field(struct.pack("<f", np.nan))), False),
    ("visits", feature_of(2, b"\x0d" + struct.pack("<f", 1.0)), False),
]
KINDS = [
    ("level", feature_of(1, field(b"2")), "int64, bytes"),
    ("level", feature_of(2, field(struct.pack("<f", 2.0))), "int64, float"),
    ("bought", feature_of(1, field(b"true")), "int64, bytes"),
    ("visits", feature_of(3, field(b"\x01")), "float, int64"),
]
CLASSES: list[Row] = [
    *((f"{label} to tfrecord", "records", lambda records: records, "")
      for label in ("ill", "level", "bought", "visits")),
    *((f"{label} to tfrecord", "records", relabelled(label, feature), "" if accepted else THIRD)
      for label, feature, accepted in FEATURES),
    *((f"{label} to tfrecord", "records", relabelled(label, feature), f"= labels have several types: {types}")
      for label, feature, types in KINDS),
    ("ill to tfrecord", "records", with_second_entry, "record 2 has bytes that readers of tf.Examples do not see"),
]  # fmt: skip


# Draws from a center of classes.

GRADES = ("low", "mid", "high")
UNIT = 1 / (1 << 16)
"""Probabilities are multiples of it."""
FOLLOW = "follow the noised counts of the cells"
UNPREDICTED = "1 probabilities that the center does not predict from the record's"


def chances(edit: Callable[[list[Any]], object]) -> dict[str, Any]:
    """Edits the probabilities of the records."""

    def change(lists: list[Any]) -> list[Any]:
        edit(lists)
        return lists

    return {"grade_probabilities": change}


def moved(first: int, second: int) -> Callable[[list[Any]], None]:
    def edit(lists: list[Any]) -> None:
        lists[7][first] -= UNIT
        lists[7][second] += UNIT

    return edit


def true_grades(records: int) -> Callable[[Path], None]:
    """True classes in place of the first draws."""
    true = TABLES["grades"]()["grade"].to_pylist()[:records]
    return lambda folder: plant(folder, "table", {"grade": lambda drawn: [*true, *drawn[records:]]})


def likeliest(table: pa.Table) -> pa.Table:
    places = np.array(table["grade_probabilities"].to_pylist()).argmax(axis=1)
    return in_table(table, "grade", np.array(GRADES)[places].tolist())


def flipped(content: bytes) -> bytes:
    """Without checksums that fit, no change of a record gets as far as its probabilities."""
    place = content.index(b"grade_probabilities", 12) + len(b"grade_probabilities") + 6
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DRAWN: list[Row] = [
    *(("center of classes", "table", chances(edit), words) for edit, words in (
        (moved(0, 1), UNPREDICTED),
        (moved(1, 2), "first in record 7"),
        (lambda lists: lists[7].__setitem__(0, lists[7][0] + UNIT), UNPREDICTED),
        (lambda lists: lists.__setitem__(7, [1 / 2, 1 / 4, 1 / 4]), UNPREDICTED),
        (lambda lists: lists[7].pop(), "has a record without exactly 3 probabilities"),
        (lambda lists: lists.__setitem__(7, None), "has a record without exactly 3 probabilities"),
        (lambda lists: lists[7].__setitem__(0, None), "has a record without exactly 3 probabilities"),
    )),
    ("center of classes", "table", {"grade_probabilities": lambda lists: pa.array(lists, pa.list_(pa.float64()))},
     "has probabilities that are not float32"),
    ("center of classes", "table", lambda table: table.set_column(
        table.schema.get_field_index("grade_probabilities"), "grade_probabilities", table["f"]),
     "has probabilities that are not lists"),
    ("center of classes", "table", {"f": lambda values: [25 - values[0], *values[1:]]}, UNPREDICTED),
    ("center of classes", "table", {"grade": lambda values: ["other", *values[1:]]}, f"{NO_CLASS}, first in record 0"),
    ("center of classes", "", true_grades(3000), f"the classes {FOLLOW}, as true classes do"),
    ("center of classes", "", true_grades(600), f"the classes of a run of records {FOLLOW}"),
    ("center of classes", "table", likeliest, "the classes were not drawn from their probabilities"),
    ("center of classes to tfrecord", "shard", flipped, "wrong checksum"),
]  # fmt: skip


# Dead letters.

UNUSABLE = 120
LINE = b'{"source": "~.csv", "row": 9, "stage": "privatize", "error": "unusable label"}\n'


def in_second(before: str, after: str) -> Callable[[bytes], bytes]:
    """Changes the second line."""

    def change(content: bytes) -> bytes:
        first, second, rest = content.split(b"\n", 2)
        return b"\n".join([first, re.sub(before.encode(), after.encode(), second), rest])

    return change


LINES: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda content: content[content.index(b"\n") + 1 :], "does not have as many lines"),
    (lambda content: content + LINE, "does not have as many lines"),
    (in_second(r'"row": \d+,', '"row": 0,'), "lists records twice or in another order: line 2"),
    (in_second(r'"row": ', '"row": -'), "not a dead letter: line 2"),
    (in_second(r'("row": \d+),', r"\1.0,"), "not a dead letter: line 2"),
    (in_second(r'"row": ', '"row": 17, "row": '), "not a dead letter: line 2"),
    (in_second(r'"row": ', '"row":  '), "not a dead letter: line 2"),
    (in_second(r'("row": \d+),', r'\1, "label": 3,'), "not a dead letter: line 2"),
    (lambda content: content.replace(b"unusable label", b"0110", 1), "not a dead letter: line 1"),
    (lambda content: content.replace(b"privatize", b"0110", 1), "not a dead letter: line 1"),
    (lambda content: content[:-1], f"not a dead letter: line {UNUSABLE}"),
    (lambda content: content + b"[" * 100_000, f"not a dead letter: line {UNUSABLE + 1}"),
    (lambda content: content + b"\xff\n", f"not a dead letter: line {UNUSABLE + 1}"),
    (lambda content: b"", "does not have as many lines"),
]
FILES: list[tuple[Any, str]] = [
    ({"dead_letters.jsonl": UNUSABLE - 1}, "do not add up to release.records_without_label"),
    ({"dead_letters.jsonl": float(UNUSABLE)}, "is not of type integer"),
    ({"../dead_letters.jsonl": UNUSABLE}, "does not name the files of dead letters"),
    ({"dead_letters.jsonl": UNUSABLE - 1, "dead_letters-00000-of-00001.jsonl": 1}, "does not name the files of"),
    ({"dead_letters-00001-of-00001.jsonl": UNUSABLE}, "does not name the files of"),
    ({"dead_letters-00000-of-00002.jsonl": UNUSABLE}, "dead_letters.jsonl is not one of release.dead_letters"),
    ({"dead_letters-00000-of-00002.jsonl": UNUSABLE}, "dead_letters-00000-of-00002.jsonl is missing"),
    ({}, "does not name the files of dead letters"),
    ([], "is not of type object"),
]
LETTERS: list[Row] = [
    *(("records without a label", "dead_letters.jsonl", change, words) for change, words in LINES),
    *(("records without a label", "release", {"dead_letters": stated}, words) for stated, words in FILES),
]


@planted([*NUMBERS, *COLUMNS, *CLASSES, *DRAWN, *LETTERS])
def test_the_audit_names_what_was_planted(name: str, file: str, change: Any, words: str, copied: Any) -> None:
    law(copied(name), file, change, words, data=True)
