"""True labels of released records, read from the files that were released: by their order, or by ids.

Errors name files, rows, columns and ids' numbers, and hold no label.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute
from labeldp import InputError, LabelClasses, LabelledBatch, UsageError

from ..mechanisms.center.feature_rows import Columns
from ..pipelines.errors import did_you_mean
from ..pipelines.publish.released import Released
from ..pipelines.spec.fields import Fields
from ..pipelines.spec.input_spec import input_spec
from ..pipelines.spec.release import InputSpec
from ..transforms.arrow_values import NotWholeError, is_text, single_ids
from ..transforms.batches import has_label, label_values
from ..transforms.errors import listed
from ..transforms.readers.file_reader import FileReader
from .record_features import first_difference, places_of, read_columns, read_features
from .released_records import ReleasedRecords

# Its functions are made when it is imported: type checkers do not know them.
pc: ModuleType = pyarrow.compute

_MOST_COMPARED = 8  # columns by which an order of records is checked


def truth_input(fields: Fields, files: Released) -> InputSpec:
    """Finds the files of true labels, with the filter of the release; `fields` have their pattern as the input.

    Raises UsageError if a flag is wrong or missing, there is no file, or it is a shard of the release.
    """
    where = files.stated.where if fields.where is None else fields.where
    if fields.where is None and where is not None and where.partition("=")[0] in files.stated.left_out:
        raise UsageError(f"the release left out {where.partition('=')[0]!r}, by which it was filtered: give --where")
    found = input_spec(dataclasses.replace(fields, label=files.label, where=where))
    if any(Path(files.data) in Path(part.path).resolve().parents for part in found.parts):
        raise UsageError("--truth names shards of the release: name the files that were released, with true labels")
    return found


def true_labels(
    input: InputSpec, files: Released, records: ReleasedRecords, id_column: str | None
) -> tuple[np.ndarray, str]:
    """Reads the true label of each record of a release, and says how records were matched.

    With an id column, records are matched by ids; otherwise the records with a usable label must be those of the
    release, in the same order, and have the same public features. A missing label is what it counted as there. Labels
    that were released together have the classes of their mechanism files.

    Returns labels, shape (n,), float64; of classes, their places; and a text. Raises UsageError if a column is missing,
    or the id column after records were removed, and InputError if the records cannot be matched.
    """
    if files.stated.removed and id_column is None:
        raise UsageError(
            f"{files.stated.removed:,} records were removed from {files.name} since its release, so that its records "
            "do not have the order of --truth: give --id_column, the only way to match them"
        )
    together = {label.label: label for label in files.together}
    classes = {name: label.classes for name, label in together.items() if label.classes is not None}
    format = dataclasses.replace(input.format, classes=classes)
    missing = files.mechanism.missing
    if missing is not None:
        format = dataclasses.replace(format, missing={files.label: missing})
    names = FileReader(format, label_column=files.label).schema(input.parts[0]).names
    for flag, name in (("label", files.label), ("id_column", id_column)):
        if name is not None and name not in names:
            raise UsageError(
                f"--{flag}: there is no column {name!r} in {input.parts[0].path}; it has: "
                f"{listed(names)}{did_you_mean(name, names)}"
            )
    compared = [name for name in records.columns if name in names][:_MOST_COMPARED] if id_column is None else []
    others = [name for name in (*together, files.unit_column, id_column) if name is not None and name in names]
    wanted = list(dict.fromkeys([files.label, *others, *compared]))
    private = [name for name in together if name in names and name != files.label]
    reader = FileReader(format, wanted, input.where, files.label, other_labels=private)
    batches = (batch for part in input.parts for batch in reader.read(part))
    if id_column is not None:
        return _by_id(batches, files, records, id_column), f"matched by the column {id_column!r}"
    usable = (_usable(batch, files, private, names) for batch in batches)
    return _by_order(usable, files, records, compared)


def _usable(batch: LabelledBatch, files: Released, private: Sequence[str], names: Sequence[str]) -> LabelledBatch:
    """The records that a release keeps: those with all labels, and with a unit."""
    mask = np.isfinite(files.labels_in(batch))
    for name in private:
        mask &= has_label(batch, name)
    unit = None if files.unit_column not in names else batch.column(str(files.unit_column))
    return batch.keep(mask if unit is None else mask & single_ids(unit)[1])


def _by_order(
    batches: Iterator[LabelledBatch], files: Released, records: ReleasedRecords, compared: Sequence[str]
) -> tuple[np.ndarray, str]:
    kept, found = [], 0
    for batch in batches:
        start, stop = np.searchsorted(records.rows, [found, found + batch.batch.num_rows])
        mask = np.zeros(batch.batch.num_rows, bool)
        mask[records.rows[start:stop] - found] = True
        found += len(mask)
        kept.append(batch.keep(mask))
    if found != files.stated.records:
        raise InputError(
            f"--truth has {found:,} records with a usable label, and the release {files.stated.records:,}: name the "
            "files that were released, or match records with --id_column"
        )
    _check_order(kept, records, compared)
    labels = np.concatenate([files.labels_in(batch) for batch in kept])
    agree = f"{len(compared)} public columns agree" if compared else "there is no public column to compare"
    return labels, f"matched by the order of the records; {agree}"


def _check_order(kept: Sequence[LabelledBatch], records: ReleasedRecords, compared: Sequence[str]) -> None:
    columns = read_columns(kept, compared)
    for name in compared:
        if name not in columns:
            continue
        row = first_difference(records.columns[name], columns[name])
        if row is not None:
            raise InputError(
                f"--truth does not have the records of the release in its order: record {int(records.rows[row]):,} has "
                f"another value of the public column {name!r}. Name the files that were released, or match records "
                "with --id_column"
            )


def _by_id(batches: Iterator[LabelledBatch], files: Released, records: ReleasedRecords, id_column: str) -> np.ndarray:
    assert records.ids is not None
    wanted = _id_texts(records.ids.combine_chunks(), "the release", id_column)
    if len(wanted.unique()) < len(wanted):
        raise InputError(f"the release has an id twice in {id_column!r}: match records by another --id_column")
    labels, seen = np.full(len(wanted), np.nan), np.zeros(len(wanted), np.int64)
    for batch in batches:
        column = batch.column(id_column)
        if column is None or not batch.batch.num_rows:
            continue
        places = pc.index_in(_id_texts(column, batch.source, id_column), value_set=wanted)
        known = np.asarray(places.is_valid())
        own = places.drop_null().to_numpy(zero_copy_only=False)
        labels[own] = files.labels_in(batch)[known]
        seen += np.bincount(own, minlength=len(seen))
    for problem, wrong in (("is not in --truth", seen == 0), ("is in --truth twice", seen > 1),
                           ("has no usable label in --truth", ~np.isfinite(labels))):  # fmt: skip
        if wrong.any():
            raise InputError(
                f"the id of record {int(records.rows[wrong.argmax()]):,} of the release {problem}, as "
                f"{int(wrong.sum()):,} in all: name the files that were released"
            )
    return labels


def _id_texts(column: pa.Array, source: str, name: str) -> pa.Array:
    """Ids as bytes: integers in decimal digits. Raises InputError if a record has not exactly one, or it is another."""
    try:
        values, present = single_ids(column)
    except NotWholeError as error:
        raise InputError(f"{source}: {error.problem(f'an id in {name!r}')}: match by another --id_column") from None
    if not present.all():
        raise InputError(f"{source}: a record has not exactly one id in {name!r}: match by another --id_column")
    if is_text(values.type) or pa.types.is_fixed_size_binary(values.type):
        return values.cast(pa.large_binary())
    if pa.types.is_integer(values.type):
        return values.cast(pa.large_string()).cast(pa.large_binary())
    raise InputError(f"{source}: id column {name!r} holds {values.type}, not integers, text or bytes")


def labelled_records(
    input: InputSpec, label: str, classes: LabelClasses | None, without: Sequence[tuple[str, str]], most: int
) -> tuple[Columns, np.ndarray, list[str]]:
    """Reads features and true labels of an input, before any release of it. The place of a record is a feature, too.

    Of more than `most` records, every second one is kept, or every fourth, and so on. `without` are columns that are
    no features, each after the flag that names it. Returns features; labels, shape (n,), float64, of classes their
    places; and columns that are not read, as text. Records without a usable label are left out. Raises UsageError if a
    column is missing, and InputError if a file cannot be read.
    """
    format = input.format
    if classes is not None:
        format = dataclasses.replace(format, classes={label: classes})
    reader = FileReader(format, None, input.where, label)
    schema = reader.schema(input.parts[0])
    for flag, name in (("label", label), *without):
        if name not in schema.names:
            raise UsageError(
                f"--{flag}: {input.parts[0].path} has no column {name!r}{did_you_mean(name, schema.names)}"
            )
    numbers, batches = _thinned((batch for part in input.parts for batch in reader.read(part)), label, classes, most)
    if not batches:
        raise InputError(f"--input {input.pattern} has no record with a usable label")
    labels = np.concatenate([label_values(batch, label, classes) for batch in batches])
    columns, unread = read_features(batches, {label, *(name for _, name in without)})
    files = np.repeat([batch.source for batch in batches], [len(batch.rows) for batch in batches])
    places = places_of(files, np.concatenate([batch.rows for batch in batches]), np.concatenate(numbers))
    named = {f"column {name}" if name in places else name: column for name, column in columns.items()}
    return {**named, **places}, labels, unread


def _thinned(
    batches: Iterator[LabelledBatch], label: str, classes: LabelClasses | None, most: int
) -> tuple[list[np.ndarray], list[LabelledBatch]]:
    """Records with a usable label, at most `most` of them: every m-th one, for a power m of two; and their numbers."""
    kept: list[tuple[np.ndarray, LabelledBatch]] = []
    stride, rows, held = 1, 0, 0
    for batch in batches:
        usable = batch.keep(np.isfinite(label_values(batch, label, classes)))
        numbers = rows + np.arange(usable.batch.num_rows)
        rows += len(numbers)
        kept.append(_every(numbers, usable, stride))
        held += len(kept[-1][0])
        while held > most:
            stride *= 2
            kept = [_every(*each, stride) for each in kept]
            held = sum(len(each) for each, _ in kept)
    kept = [(numbers, batch) for numbers, batch in kept if len(numbers)]
    return [numbers for numbers, _ in kept], [batch for _, batch in kept]


def _every(numbers: np.ndarray, batch: LabelledBatch, stride: int) -> tuple[np.ndarray, LabelledBatch]:
    mask = numbers % stride == 0
    return numbers[mask], batch.keep(mask)
