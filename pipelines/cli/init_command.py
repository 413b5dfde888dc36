"""`labeldp init`: writes a commented job file for an input file, from its format and the names of its columns."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import yaml

from ...transforms.arrow_values import value_type
from ...transforms.csv_input.csv_columns import are_names, delimiter_advice, missing_column, spaced_names
from ...transforms.errors import InputError, listed
from ...transforms.io.csv_blocks import column_names, first_rows
from ...transforms.io.csv_dialect import CANDIDATES, Dialect
from ...transforms.io.filesystems import absolute, match, open_input
from ...transforms.io.input_format import Format, file_parts
from ...transforms.readers.file_reader import FileReader
from ..errors import UsageError, did_you_mean, one_line
from ..spec.fields import format_of_name
from ..spec.input_spec import csv_dialect
from ..spec.machine import check_file, check_tfrecord
from ..spec.written_files import NEW, write_file
from .exit_codes import run_command

_TABS = (".tsv", ".tab")
_PARQUET_MAGIC = b"PAR1"
_WIDTH = 100
# Names of columns that look like those of ids of records, and of persons. All are plain YAML.
_ENDING = "[._-]?(id|uuid|guid|key|hash)"
_RECORD = re.compile(
    rf"(click|event|impression|order|record|request|row|transaction){_ENDING}|uuid|guid|id|click", re.I
)
_PERSON = re.compile(
    rf"(account|client|cookie|customer|device|household|member|patient|person|user|visitor){_ENDING}"
    "|customer|patient|person|user",
    re.I,
)
_TRUTH_VALUES = {"label_min": 0, "label_max": 1, "label_step": 1}

_TEMPLATE = """\
# A job of labeldp. Fill in the empty lines, then try it without reading a label or spending budget, and run it:
#
#   labeldp privatize --config {file} --dry_run
#   labeldp privatize --config {file}
#
# Every flag of `labeldp privatize --help` can be here, without its dashes; flags on the command line win. Paths are
# relative to the folder in which the command runs. Never write the secret key here, only the name of its file.

# ---- Input: a glob in quotes takes several files that have the same columns.
{input}

# ---- Label: the private column, of numbers or classes. The columns of the file:
{columns}
{label}

# ---- Label domain: a public grid of labels. Labels outside are clamped to it, others go to a grid point.
# Choose it from what is known in general: the limits of a form or a product, published figures, an earlier release.
# Never take it from this file: the smallest and the largest label of the data would be revealed.
#   whole numbers (visits, weeks):  label_step 1, label_max what few labels exceed
#   prices, durations:              label_max what few labels exceed; label_step for 50 to 500 labels
#   ratings, numbers of a list:     the values themselves, in a file: label_values instead of the three lines below
#   clicked or not, grades:         classes, without an order: label_classes: 0,1 instead of the three lines below
# A long tail is better cut: noise grows with the range, and a step below the noise gains nothing.
{domain}

# ---- Budget: how much one released label may reveal. The odds between any two labels change by at most
# exp(epsilon): 1 is a common choice, 0.5 protects well, above 8 there is little protection.
epsilon:

# ---- Recipients: do those who train have features that this file lacks? Then keep the default. If they train on these
# columns alone, log_features gives better models up to epsilon 2, by labels that say nothing else. For single labels
# that are looked at, labels gives the least error of each.
# for: log_features

# ---- Output: the folder must be new or empty.
output: released
output_format: {output_format}
# num_shards: 4

# ---- Choices whose defaults are good; remove the # to change them.
# mechanism: unbiased          # instead of for
# center: none                 # no model of the features; the input is then read twice instead of four times
# {id_column}# unique ids, if records can move to another file or row between runs
# where: NAME=VALUE            # only the records whose public feature has this value
# {unit_column}# epsilon holds for all labels of a user instead of each label
# max_records_per_unit: 2      # with unit_column: so many records of each user are kept
# {leave_out}# columns that are not released, nor features of the center
# validate: true               # compare features and output with a schema; needs the extra validation
# noise_key_file: noise.key    # 32 secret bytes, mode 0600; default ~/.config/labeldp/noise.key
# ledger: ledger.jsonl         # record of the budget spent; default beside the output
# epsilon_cap: 4               # refuse a release that would raise the ledger's epsilon above this
# cap_window: 30d              # the cap is for any time of this length; default all time together
"""


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
        raise UsageError(str(error).replace("`input` ", "", 1)) from None
    kind = args.input_format or _format_of(path)
    if kind == "tfrecord":
        check_tfrecord("a TFRecord file", "name a Parquet or CSV file")
    dialect = _dialect(args, kind)
    if kind == "csv" and dialect.delimiter == Dialect().delimiter:
        delimiter = _delimiter(path, args.label, dialect)
        if delimiter != dialect.delimiter:
            args.csv_dialect = [*(args.csv_dialect or ()), f"delimiter={delimiter}"]
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
        comment = names and names[0].startswith("#")
        raise UsageError(
            f"{path}: the first line begins with '#': if it is a comment, it is not a header line: remove it; if "
            "column names follow the '#', remove that"
            if comment
            else f"{path}: the first line does not look like column names: add a header line, name the columns with "
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
    write_file(args.output, job_template(args.output, input, columns, args.label, boolean), NEW, "--output")
    print(f"job        {one_line(args.output)}: {kind}, {len(names)} columns; fill in the empty lines")
    print(f"try it     labeldp privatize --config {one_line(args.output)} --dry_run")


def _given_dialect(args: argparse.Namespace) -> dict[str, Any]:
    """The CSV dialect as a flag of the job file."""
    settings = dict(text.partition("=")[::2] for text in args.csv_dialect or ())
    return {"csv_dialect": settings} if settings else {}


def _dialect(args: argparse.Namespace, kind: str) -> Dialect:
    if args.csv_dialect and kind != "csv":
        raise UsageError(f"--csv_dialect is for CSV, but {args.file} is {kind}: leave it out")
    return csv_dialect(args.csv_dialect)


def _delimiter(path: str, label: str | None, dialect: Dialect) -> str:
    """The delimiter that divides the header line into column names, and most of them; the given one if none does.

    Where the file name ends in .tsv or .tab, it is a tab.
    """
    if os.path.splitext(path.lower().removesuffix(".gz"))[1] in _TABS:
        return "\\t"
    if dialect.columns:
        return dialect.delimiter
    columns = {}
    for mark in CANDIDATES:
        tried = dataclasses.replace(dialect, delimiter=mark)
        names: list[str] = []
        # The reader says what is wrong with the file.
        with contextlib.suppress(InputError):
            names = column_names(first_rows(path, (), tried)[0], tried) or []
        if are_names(names) and (label is None or label in names):
            columns[mark] = len(names)
    mark = max(columns, key=lambda mark: columns[mark], default=dialect.delimiter)
    return mark.replace("\t", "\\t") if columns.get(mark, 0) > 1 else dialect.delimiter


def _format_of(path: str) -> str:
    """Format by the ending of the name, without .gz, or by the first bytes."""
    kind = format_of_name(path)
    if kind is not None:
        return kind
    with contextlib.suppress(OSError, pa.ArrowException), open_input(path) as file:
        if file.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC:
            return "parquet"
    raise UsageError(f"{path}: the name does not tell the format: give --input_format tfrecord, parquet, csv or orc")


def job_template(
    file: str, input: Mapping[str, Any], columns: Sequence[tuple[str, str]], label: str | None, boolean: bool = False
) -> str:
    """Text of a job file for an input. It holds no value of any record.

    `file` is the name of the job file, for its comments, and `input` the flags of the input, as the user gave them,
    with input and input_format. Columns are names and types; a type is empty where it is not known without reading
    values. Without a label, it is left open. A boolean label is true or false, which are 1 and 0; its domain is filled
    in then.
    """
    named = [f"{one_line(name)} ({kind})" if kind else one_line(name) for name, kind in columns]
    return _TEMPLATE.format(
        file=one_line(file),
        input=_lines(input),
        columns=_comment(named),
        domain="\n".join(
            f"{name}: {value}" if boolean or name != "label_max" else f"{name}:"
            for name, value in _TRUTH_VALUES.items()
        ),
        label="label:" if label is None else _lines({"label": label}),
        output_format="tfrecord" if input["input_format"] == "tfrecord" else "parquet",
        **_proposals([name for name, _ in columns if name != label]),
    )


def _proposals(names: Sequence[str]) -> dict[str, str]:
    """Flags of ids and units with the columns whose names look like them."""
    ids, units = ([name for name in names if pattern.fullmatch(name)] for pattern in (_RECORD, _PERSON))
    given = {
        "id_column": ids[0] if ids else "NAME",
        "unit_column": units[0] if units else "user",
        "leave_out": ",".join([*ids, *units]) or "user",
    }
    return {flag: f"{flag}: {value}".ljust(27) + "  " for flag, value in given.items()}


def _lines(values: Mapping[str, Any]) -> str:
    """Lines of YAML, with values in quotes where they need them."""
    return yaml.safe_dump(dict(values), allow_unicode=True, sort_keys=False, width=1 << 20).rstrip("\n")


def _comment(names: Sequence[str]) -> str:
    """A comment of several lines; a name is never cut."""
    lines = ["#  "]
    for number, name in enumerate(names, 1):
        text = f" {name}{',' if number < len(names) else ''}"
        if len(lines[-1]) > 3 and len(lines[-1]) + len(text) > _WIDTH:
            lines.append("#  ")
        lines[-1] += text
    return "\n".join(lines)
