"""`labeldp init`: writes a commented job file for an input file, from its format and the names of its columns."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
from typing import Any

import pyarrow as pa

from ...transforms.arrow_values import value_type
from ...transforms.csv_input.csv_columns import are_names, delimiter_advice, missing_column, spaced_names
from ...transforms.errors import InputError, listed
from ...transforms.io.csv_blocks import column_names, first_rows
from ...transforms.io.csv_dialect import CANDIDATES, Dialect
from ...transforms.io.filesystems import absolute, match, open_input
from ...transforms.io.input_format import Format, file_parts
from ...transforms.readers.file_reader import FileReader
from ..errors import UsageError, did_you_mean, one_line
from ..spec.fields import Fields
from ..spec.input_spec import csv_dialect
from ..spec.machine import check_file, check_tfrecord
from .exit_codes import run_command
from .job_template import job_template

_ENDINGS = {
    ".csv": "csv", ".tsv": "csv", ".tab": "csv",
    ".parquet": "parquet", ".pq": "parquet", ".orc": "orc",
    ".tfrecord": "tfrecord", ".tfrecords": "tfrecord", ".tfrec": "tfrecord",
}  # fmt: skip
_TABS = (".tsv", ".tab")
_PARQUET_MAGIC = b"PAR1"


def run(args: argparse.Namespace) -> int:
    """Writes the job file; returns the exit code."""
    return run_command("labeldp init", lambda: _init(args), (InputError, OSError))


def _init(args: argparse.Namespace) -> None:
    check_file("--output", args.output)
    if os.path.lexists(args.output):
        raise UsageError(f"--output {args.output} exists: name another file, or delete it")
    try:
        args.file.encode()
        path = next(iter(match(absolute(args.file))))
    except UnicodeEncodeError:
        raise UsageError(f"{args.file!a}: the file name is not UTF-8; rename the file") from None
    except InputError as error:
        raise UsageError(str(error).replace("--input ", "", 1)) from None
    kind = args.input_format or _format_of(path)
    if kind == "tfrecord":
        check_tfrecord("a TFRecord file")
    dialect = _dialect(args, kind)
    if kind == "csv" and dialect.delimiter == Dialect().delimiter:
        found = _delimiter(path, args.label, dialect)
        if found != dialect.delimiter:
            args.csv_dialect = [*(args.csv_dialect or ()), f"delimiter={found}"]
            dialect = _dialect(args, kind)
    format = Format(kind, dialect=dialect)
    # Without a label, no type of a CSV column is inferred: that would read values.
    (part,) = file_parts([path], format)
    schema = FileReader(format).schema(part)
    if args.label in [partition.name for partition in part.partitions]:
        raise UsageError(
            f"--label {args.label} is a folder of the file, whose name is public: name a column in the file"
        )
    names = schema.names
    if kind == "csv" and args.label not in names and not are_names(names):
        # They may be a record. A user who knows one of them knows that they are names.
        raise UsageError(
            f"{path}: the first line does not look like column names: add a header line, name the columns with "
            "--csv_dialect columns=..., or name one of them with --label"
        )
    if args.label is not None and names and args.label not in names:
        problem = f"there is no column {args.label!r} in {path}; it has: {listed(names)}"
        if kind == "csv" and spaced_names(args.label, names):
            raise UsageError(f"--label: {path}: {missing_column(args.label, names, dialect)}")
        if kind == "csv" and delimiter_advice(args.label, names, dialect):
            problem = f"{path}: {missing_column(args.label, names, dialect)}"
        raise UsageError(f"--label: {problem}{did_you_mean(args.label, names)}")
    # The types of a Parquet file are in its footer; those of other files are in the records.
    types = [str(field.type) if kind in ("parquet", "orc") else "" for field in schema]
    columns = list(zip(names, types, strict=True))
    boolean = args.label in names and pa.types.is_boolean(value_type(schema.field(args.label).type))
    input = {"input": args.file, "input_format": kind, **_given_dialect(args)}
    _write_new(args.output, job_template(args.output, input, columns, args.label, boolean))
    print(f"job        {one_line(args.output)}: {kind}, {len(names)} columns; fill in the empty lines")
    print(f"try it     labeldp privatize --config {one_line(args.output)} --dry_run")


def _given_dialect(args: argparse.Namespace) -> dict[str, Any]:
    """The CSV dialect as a flag of the job file."""
    settings = dict(text.partition("=")[::2] for text in args.csv_dialect or ())
    return {"csv_dialect": settings} if settings else {}


def _dialect(args: argparse.Namespace, kind: str) -> Dialect:
    if args.csv_dialect and kind != "csv":
        raise UsageError(f"--csv_dialect is for CSV, but {args.file} is {kind}: leave it out")
    return csv_dialect(Fields.of({**vars(args), "label": args.label or ""}))


def _delimiter(path: str, label: str | None, dialect: Dialect) -> str:
    """The delimiter that divides the header line into column names, and most of them; the given one if none does.

    Where the file name ends in .tsv or .tab, it is a tab.
    """
    if os.path.splitext(path.lower().removesuffix(".gz"))[1] in _TABS:
        return "\\t"
    if dialect.columns:
        return dialect.delimiter
    found = {}
    for mark in CANDIDATES:
        tried = dataclasses.replace(dialect, delimiter=mark)
        names = column_names(first_rows(path, (), tried)[0], tried) or []
        if are_names(names) and (label is None or label in names):
            found[mark] = len(names)
    mark = max(found, key=lambda mark: found[mark], default=dialect.delimiter)
    return mark.replace("\t", "\\t") if found and found[mark] > 1 else dialect.delimiter


def _format_of(path: str) -> str:
    """Format by the ending of the name, without .gz, or by the first bytes."""
    ending = os.path.splitext(path.lower().removesuffix(".gz"))[1]
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    with contextlib.suppress(OSError, pa.ArrowException), open_input(path) as file:
        if file.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC:
            return "parquet"
    raise UsageError(f"{path}: the name does not tell the format: give --input_format tfrecord, parquet, csv or orc")


def _write_new(path: str, text: str) -> None:
    """Writes a file that must not exist, also if another process writes it at the same time."""
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"--output {path} exists: name another file, or delete it") from None
