"""Columns of CSV files: their names in the header line, and their types, declared or inferred from the first records.

Labels take no part in the types. Messages name columns, lines and flags; they quote no cell, and the header line only
where it looks like column names, because a file without one has its first record there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ..errors import InputError, listed
from ..io.csv_blocks import column_names, first_rows
from ..io.csv_dialect import CANDIDATES, COMMA, Dialect
from ..io.input_format import FilePart, check_unique_columns
from ..io.limits import Limits
from .csv_numbers import MISSING, plain_texts
from .csv_parser import ColumnTypes, Parser, is_numbers, line_of, one_array

# Its functions are made when it is imported: type checkers do not know them.
pc: ModuleType = pyarrow.compute
# A label is a number. A unit before it would not make it one, so a digit may follow a letter.
_NAME = re.compile(r"[^\W\d].*")
_NO_NAMES = {"nan", "inf", "infinity", "null", "none", "na", "true", "false"}
# A field may be a whole line, if the file has another delimiter.
_DIVIDES = re.compile("|".join(map(re.escape, CANDIDATES)))
_DECLARED = {"date": pa.date32(), "timestamp": pa.timestamp("ms")}
# Texts that show whether a column of text seems to be one of numbers; their share, and that of all, then.
_HEAD, _MOST, _NEARLY_ALL = 1000, 0.5, 0.9
_NUMBER = r"^[ \t]*-?(0|[1-9][0-9]*)(\.[0-9]*)?[ \t]*$"
# Numbers with a decimal comma, and those with commas between thousands. Some are both.
_DECIMAL_COMMA = r"^[ \t]*[+-]?([0-9]+|[1-9][0-9]{0,2}(\.[0-9]{3})+)(,[0-9]+)?[ \t]*$"
_COMMAS = r"^[ \t]*[+-]?([0-9]+|[1-9][0-9]{0,2}(,[0-9]{3})+)(\.[0-9]*)?[ \t]*$"


def column_names_of(path: str, header: bytes, dialect: Dialect = COMMA) -> list[str]:
    """Reads the column names of a header line in UTF-8, at least one.

    Raises InputError, which names `path`, if there are none, or one is not a line of text.
    """
    names = column_names(header, dialect)
    if names is None:
        raise InputError(
            f"{path}: the header line is not text in {dialect.encoding}: give `csv_dialect` encoding=NAME, such as "
            "latin-1"
        )
    if any("\0" in name for name in names):
        raise InputError(
            f"{path}: the header line has zero bytes, as UTF-16 without a byte order mark has: give `csv_dialect` "
            "encoding=utf-16-le or utf-16-be"
        )
    if not names:
        raise InputError(f"{path}: the CSV file is empty: it needs a header line and rows")
    if any("\n" in name or "\r" in name for name in names):
        # Where a quote is not closed, the name holds records, and messages show names.
        raise InputError(
            f'{path}: a quote (") opens a name in the header line that goes on over a line break: close the quote, or '
            "write the name on one line"
        )
    return names


def missing_column(name: str, names: Sequence[str], dialect: Dialect = COMMA) -> str:
    """Text that a header line lacks a column.

    It names the delimiter that the file seems to have, or lists the columns, unless they may be a record.
    """
    spaced = spaced_names(name, names)
    if spaced:
        return (
            f"there is no column {name!r} in the header line, but {spaced[0]!r}, with a space that is part of the "
            "name: give it with the space, in quotes, or remove the spaces from the header line"
        )
    if dialect.columns:
        return f"there is no column {name!r} among the columns of `csv_dialect`: {listed(names)}"
    if names and names[0].startswith("#"):
        # It may be a record, too, and is not shown.
        return (
            f"there is no column {name!r} in the first line, which begins with '#': if it is a comment, it is not a "
            "header line: remove it; if column names follow the '#', remove that"
        )
    advice = delimiter_advice(name, names, dialect)
    if advice:
        whole = are_names(names) and not _DIVIDES.search("".join(names))
        shown = f"; it has: {listed(names)}" if whole else ""
        return f"there is no column {name!r} in the header line{advice}{shown}"
    if are_names(names):
        return f"there is no column {name!r} in the header line; it has: {listed(names)}"
    return (
        f"there is no column {name!r} in the header line, which does not look like column names: add a header line, "
        "or name the columns with `csv_dialect` columns=..."
    )


def are_names(names: Sequence[str]) -> bool:
    """Tells whether the fields of a header line look like column names, so that a message may show them.

    A file without a header line has its first record there, and a label in it. True if each begins, after spaces, with
    a letter or an underscore and is not a word for a number, a truth value or nothing; and so do its parts, if another
    delimiter divides it.
    """
    parts = [part.strip() for name in names for part in _DIVIDES.split(name)]
    return all(_NAME.fullmatch(part) and part.lower() not in _NO_NAMES for part in parts)


def delimiter_advice(name: str, names: Sequence[str], dialect: Dialect = COMMA) -> str:
    """Advises on a header line without a column, if another delimiter than the declared one seems right.

    `names` are the fields of the header line. Returns the end of a sentence about it; empty if it has several fields
    and no other delimiter gives the column. It quotes nothing: a file without a header has its first record there.
    """
    header = dialect.delimiter.join(names).encode()
    for mark in CANDIDATES:
        if mark != dialect.delimiter and name in (column_names(header, Dialect(mark)) or []):
            shown = "\\t" if mark == "\t" else mark
            return f", which {shown!r} divides into columns: use `csv_dialect` delimiter='{shown}'"
    if len(names) == 1:
        return (
            f", which has only one, because it has no {dialect.delimiter!r}: `csv_dialect` delimiter= names another "
            "delimiter; if it is a title above the header line, remove it"
        )
    return ""


def spaced_names(name: str, names: Sequence[str]) -> list[str]:
    """Finds the names that are `name` with spaces around it, or in quotes that follow a space."""
    return [other for other in names if other != name and other.strip(' \t"') == name]


@dataclass(frozen=True)
class _Sample:
    """Texts of a column in the first rows of a file, and their type by Arrow's rules. texts: None for other types."""

    path: str
    guess: pa.DataType
    texts: pa.Array | None


def find_types(
    part: FilePart,
    columns: Sequence[str] | None,
    labels: Sequence[str],
    declared: Mapping[str, str],
    dialect: Dialect,
    limits: Limits,
) -> ColumnTypes:
    """Finds the type of every column, with notes on columns of numbers that became text.

    The first rows of `part.first` decide, those of its other `samples` for columns without a value there. `columns` are
    those that the files must have, None for the labels alone; `labels`, the private columns, are float64. Raises
    InputError if the first file cannot be read, or lacks a column.
    """
    header, rows = first_rows(part.first, labels, dialect, limits)
    names = column_names_of(part.first, header, dialect)
    for name in columns or labels:
        if name not in names:
            raise InputError(f"{part.first}: {missing_column(name, names, dialect)}")
    check_unique_columns(names, part.first)
    for name in declared:
        if name not in names:
            raise InputError(f"`csv_types` names {name!r}, which is not in {part.first}")
    inferred = [name for name in names if name not in declared and name not in labels]
    samples = _samples(part.first, header, rows, inferred, labels, dialect)
    for path in part.samples[1:]:
        empty = [name for name in inferred if pa.types.is_null(samples[name].guess)]
        if not empty:
            break
        samples |= _later_samples(path, empty, labels, dialect, limits)
    kinds = dict.fromkeys(names, pa.string())
    kinds |= {name: _kind(sample, dialect) for name, sample in samples.items()}
    kinds |= {name: _DECLARED.get(kind) or pa.type_for_alias(kind) for name, kind in declared.items()}
    kinds |= {name: pa.float64() for name in labels if name in kinds}
    rounded = frozenset(name for name, kind in declared.items() if kind == "float64")
    texts = {name: sample for name, sample in samples.items() if kinds[name] == pa.string()}
    return ColumnTypes(kinds, rounded, tuple(_notes(texts, dialect)))


def _samples(
    path: str, header: bytes, rows: bytes, names: Sequence[str], labels: Sequence[str], dialect: Dialect
) -> dict[str, _Sample]:
    if not names:
        return {}
    parser = Parser(path, header, ColumnTypes({}), names, labels, dialect)
    guessed = _readable(parser, rows)
    kinds = dict(zip(guessed.column_names, guessed.schema.types, strict=True))
    numbers = [name for name, kind in kinds.items() if kind in (pa.int64(), pa.float64())]
    texts = {name: guessed.column(name) for name, kind in kinds.items() if pa.types.is_string(kind)}
    if numbers:
        as_text = ColumnTypes(dict.fromkeys(numbers, pa.binary()))
        read = _readable(replace(parser, types=as_text, columns=numbers), rows)
        texts |= {name: read.column(name) for name in numbers}
    binary = {name: one_array(column).cast(pa.binary()) for name, column in texts.items()}
    return {name: _Sample(path, kind, binary.get(name)) for name, kind in kinds.items()}


def _later_samples(
    path: str, names: Sequence[str], labels: Sequence[str], dialect: Dialect, limits: Limits
) -> dict[str, _Sample]:
    """Samples of a further file. Its reader finds what is wrong with it, in its place."""
    try:
        header, rows = first_rows(path, labels, dialect, limits)
        if {*names} - {*column_names_of(path, header, dialect)}:
            return {}
        return _samples(path, header, rows, names, labels, dialect)
    except InputError:
        return {}


def _readable(parser: Parser, rows: bytes) -> pa.Table:
    """The records before the first error, which the reader of the file finds in its place."""
    try:
        return parser(rows, 0)
    except InputError:
        return parser.before_error(rows, 0)[0]


def _kind(sample: _Sample, dialect: Dialect) -> pa.DataType:
    """Type of a column: the first of int64 and float64 that keeps all texts, a type of times, bool, or text."""
    kind, texts = sample.guess, sample.texts
    if texts is not None:
        # Arrow reads marked numbers as text, or as other numbers; and -0, which a writer of doubles writes, as 0.
        tried = () if pa.types.is_string(kind) and not dialect.marked else (pa.int64(), pa.float64())
        return next((each for each in tried if is_numbers(texts, each, dialect)), pa.string())
    # A column without a value has no type to infer. Text that is not in the encoding is refused where it stands.
    if pa.types.is_null(kind) or pa.types.is_binary(kind):
        return pa.string()
    # Parquet has no times in seconds, and fractions do not fit them.
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("ms", kind.tz)
    return pa.time32("ms") if kind == pa.time32("s") else kind


def _notes(samples: Mapping[str, _Sample], dialect: Dialect) -> list[str]:
    """Notes on columns of text that seem to be columns of numbers."""
    notes: list[str] = []
    marked: dict[str, list[str]] = {}
    for name, sample in samples.items():
        if sample.texts is None or not len(sample.texts):
            continue
        texts = sample.texts.cast(pa.string())
        flags = _marks(texts, dialect)
        if flags:
            marked.setdefault(flags, []).append(name)
        elif _share(texts[:_HEAD], _NUMBER, dialect) >= _MOST:
            notes += _note_on_numbers(name, sample.path, texts, dialect)
    for flags, names in marked.items():
        which = listed([repr(name) for name in names])
        notes.append(f"text that looks like numbers, in column {which}: to read it as numbers, give {flags}")
    return notes


def _note_on_numbers(name: str, path: str, texts: pa.Array, dialect: Dialect) -> list[str]:
    matches, missing = _matches(texts, _NUMBER, dialect)
    if matches.sum() < _MOST * (~missing).sum():
        return []
    others = np.flatnonzero(~matches & ~missing)
    if not len(others):
        return [
            f"column {name!r} is text: some of its numbers have more digits than int64 or float64 keeps; `csv_types` "
            f"{name}=float64 rounds them, {name}=uint64 reads whole numbers below 2^64"
        ]
    return [
        f"column {name!r} is text because of line {line_of(int(others[0]), dialect)} of {path}, which holds no plain "
        f"number there: if that is a footer, remove it; `csv_types` {name}=float64 reads numbers alone"
    ]


def _marks(texts: pa.Array, dialect: Dialect) -> str:
    """Flags of marks with which nearly all texts are numbers; empty if there are none."""
    head = texts[:_HEAD]
    if dialect.thousands or not pc.any(pc.match_substring(head, "," if dialect.decimal == "." else ".")).as_py():
        return ""
    decimal = _share(head, _DECIMAL_COMMA) >= _NEARLY_ALL and _share(texts, _DECIMAL_COMMA) >= _NEARLY_ALL
    if dialect.decimal == ",":
        return "`csv_dialect` thousands=." if decimal else ""
    commas = _share(head, _COMMAS) >= _NEARLY_ALL and _share(texts, _COMMAS) >= _NEARLY_ALL
    points = " thousands=." if pc.any(pc.match_substring(texts, ".")).as_py() else ""
    found = [f"`csv_dialect` decimal=,{points}"] if decimal else []
    return " or ".join(found + (["`csv_dialect` thousands=,"] if commas else []))


def _share(texts: pa.Array, pattern: str, dialect: Dialect | None = None) -> float:
    """Share of the texts that match, of those that are not missing."""
    matches, missing = _matches(texts, pattern, dialect)
    return float(matches.sum() / max((~missing).sum(), 1))


def _matches(texts: pa.Array, pattern: str, dialect: Dialect | None) -> tuple[np.ndarray, np.ndarray]:
    """(matches, missing): the texts that match a pattern once marks are as usual, and those that are missing."""
    missing = np.asarray(pc.is_in(texts, MISSING))
    plain = plain_texts(texts, dialect) if dialect is not None and dialect.marked else texts
    return np.asarray(pc.match_substring_regex(plain, pattern)) & ~missing, missing
