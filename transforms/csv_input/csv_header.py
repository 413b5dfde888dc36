"""Header lines of CSV files: column names, and messages on columns that are missing there."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import InputError
from ..io.csv_blocks import column_names
from ..io.csv_dialect import CANDIDATES, COMMA, Dialect
from ..io.input_format import listed

# A label is a number. A unit before it would not make it one, so a digit may follow a letter.
_NAME = re.compile(r"[^\W\d].*")
_NO_NAMES = {"nan", "inf", "infinity", "null", "none", "na", "true", "false"}
# A field may be a whole line, if the file has another delimiter.
_DIVIDES = re.compile("|".join(map(re.escape, CANDIDATES)))


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
            return f", which {shown!r} divides into columns: use --csv_delimiter '{shown}'"
    if len(names) == 1:
        return f", which has only one, because it has no {dialect.delimiter!r}: --csv_delimiter names another delimiter"
    return ""


def spaced_names(name: str, names: Sequence[str]) -> list[str]:
    """Finds the names that are `name` with spaces around it, or in quotes that follow a space."""
    return [other for other in names if other != name and other.strip(' \t"') == name]


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
        return f"there is no column {name!r} among the columns of --csv_columns: {listed(names)}"
    advice = delimiter_advice(name, names, dialect)
    if advice:
        whole = are_names(names) and not _DIVIDES.search("".join(names))
        shown = f"; it has: {listed(names)}" if whole else ""
        return f"there is no column {name!r} in the header line{advice}{shown}"
    if are_names(names):
        return f"there is no column {name!r} in the header line; it has: {listed(names)}"
    return (
        f"there is no column {name!r} in the header line, which does not look like column names: add a header line, "
        "or name the columns with --csv_columns"
    )


def column_names_of(path: str, header: bytes, dialect: Dialect = COMMA) -> list[str]:
    """Reads the column names of a header line in UTF-8, at least one.

    Raises InputError, which names `path`, if there are none, or one is not a line of text.
    """
    names = column_names(header, dialect)
    if names is None:
        raise InputError(
            f"{path}: the header line is not text in {dialect.encoding}: give --csv_encoding, such as latin-1"
        )
    if any("\0" in name for name in names):
        raise InputError(
            f"{path}: the header line has zero bytes, as UTF-16 without a byte order mark has: give --csv_encoding "
            "utf-16-le or utf-16-be"
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
