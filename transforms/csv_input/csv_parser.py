"""Parses rows of CSV files into tables. Error messages name column and line, and never quote a cell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as pa_csv

from ...mechanisms.core.label_classes import LabelClasses
from ..arrow_values import ENCODE_CLASSES
from ..class_values import from_texts
from ..errors import InputError
from ..io.csv_blocks import column_names, row_ends
from ..io.csv_dialect import Dialect
from .csv_numbers import MISSING, read_numbers, with_truth_numbers

# Its functions are made when it is imported: type checkers do not know them.
pc: ModuleType = pyarrow.compute

NUMBERS = (pa.int64(), pa.uint64(), pa.float64())
"""Types of numbers."""

# 0 and 1 are numbers: beside true and false, they would be other texts for the same.
_TRUE, _FALSE = ["True", "TRUE", "true"], ["False", "FALSE", "false"]
_SHOWN = {pa.int64(): "an int64", pa.uint64(): "a uint64", pa.float64(): "a float64"}
_UNREADABLE = "cannot be parsed as CSV: not a CSV file, or corrupt"


@dataclass(frozen=True)
class ColumnTypes:
    """Types of the columns of CSV files.

    Attributes:
      kinds: Type of each column.
      rounded: Columns declared float64, of which any decimal text becomes the nearest double.
      notes: Texts on columns of numbers that became text.
      classes: Classes of private columns, as which their fields are read, whatever they are.
    """

    kinds: Mapping[str, pa.DataType]
    rounded: frozenset[str] = frozenset()
    notes: tuple[str, ...] = field(default=(), compare=False)
    classes: Mapping[str, LabelClasses] = field(default_factory=dict)


@dataclass(frozen=True)
class Parser:
    """Parses rows of one file.

    Types of columns that have none in `types` are inferred by Arrow. `columns` are those to parse, None for all;
    `labels` are the private ones.
    """

    path: str
    header: bytes
    types: ColumnTypes
    columns: Sequence[str] | None
    labels: Sequence[str]
    dialect: Dialect

    def __call__(self, rows: bytes, before: int) -> pa.Table:
        """Parses some rows, which `before` rows of the file precede.

        Raises InputError, which names the first row with an error.
        """
        classes = self.types.classes
        texts = {name for name in self.types.kinds if self._is_checked(name)} | set(classes)
        kinds = {name: pa.binary() if name in texts else kind for name, kind in self.types.kinds.items()}
        try:
            table = self._read(rows, kinds)
        except (pa.ArrowException, OSError) as error:
            table = self._with_truth_values(rows, kinds)
            if table is None:
                raise self._error(self._parse_problem(str(error), before)) from None
        columns: list[Any] = []
        for name, column in zip(table.column_names, table.columns, strict=True):
            if name in classes:
                columns.append(from_texts(one_array(column), MISSING, classes[name]))
            else:
                columns.append(self._numbers(name, column, before) if self._is_checked(name) else column)
        return pa.Table.from_arrays(columns, table.column_names)

    def _read(self, rows: bytes, kinds: Mapping[str, pa.DataType]) -> pa.Table:
        return pa_csv.read_csv(
            pa.BufferReader(self.header + rows),
            read_options=pa_csv.ReadOptions(use_threads=False, block_size=len(self.header) + len(rows) + 1),
            parse_options=pa_csv.ParseOptions(delimiter=self.dialect.delimiter, newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(
                column_types=kinds, include_columns=self.columns, true_values=_TRUE, false_values=_FALSE
            ),
        )

    def _with_truth_values(self, rows: bytes, kinds: Mapping[str, pa.DataType]) -> pa.Table | None:
        """As `_read`, with labels of true and false as numbers; None for rows with another problem."""
        labels = [name for name in self.labels if kinds.get(name) == pa.float64()]
        try:
            table = self._read(rows, {**kinds, **dict.fromkeys(labels, pa.string())})
            for name in labels:
                if (place := table.schema.get_field_index(name)) >= 0:
                    numbers = with_truth_numbers(table.column(place))
                    table = table.set_column(place, name, pc.ascii_trim_whitespace(numbers).cast(pa.float64()))
        except (pa.ArrowException, OSError):
            return None
        return table

    def _is_checked(self, name: str) -> bool:
        """Tells whether a column is numbers whose texts are looked at. Those of labels are not, unless marks differ."""
        if name in self.types.classes:
            return False
        return self.types.kinds.get(name) in NUMBERS and (name not in self.labels or self.dialect.marked)

    def _numbers(self, name: str, column: pa.ChunkedArray, before: int) -> pa.Array:
        texts, rounded = one_array(column), name in self.types.rounded or name in self.labels
        try:
            if name in self.labels:
                texts = with_truth_numbers(texts.cast(pa.string())).cast(pa.binary())
            return read_numbers(texts, self.types.kinds[name], self.dialect, rounded)
        except pa.ArrowInvalid:
            if name in self.labels:
                raise self._error(self._label_problem(name, before)) from None
            raise self._error(self._problem(name, texts[:1], before)) from None

    def before_error(self, rows: bytes, before: int) -> tuple[pa.Table, InputError]:
        """Parses the records before the first row that cannot be parsed, of rows that cannot be parsed together.

        Returns them, and the error of the row after them; `before` rows of the file precede `rows`.

        Arrow itself names the first error of the first column that has one, or the first row with too many fields:
        which one that is depends on the rows that are parsed together.
        """
        ends = np.append(0, row_ends(rows))
        # All rows before `good` can be parsed, but not all before `bad`.
        good, bad = 0, len(ends) - 1
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                self(rows[ends[good] : ends[middle]], 0)
                good = middle
            except InputError:
                bad = middle
        records = self(rows[: ends[good]], before)
        try:
            self(rows[ends[good] : ends[bad]], before + good)
        except InputError as error:
            return records, error
        return records, self._error(_UNREADABLE)

    def _error(self, problem: str) -> InputError:
        return InputError(f"{self.path}: {problem}")

    def _parse_problem(self, message: str, before: int) -> str:
        """Arrow's message on a bad row, without the text that it quotes from the file."""
        line, names = line_of(before, self.dialect), column_names(self.header, self.dialect) or []
        # Only the beginning is certain to be Arrow's own text; the rest may be content of the file that looks like it.
        fields = re.match(r"CSV parse error: (?:Row #\d+: )?Expected (\d+) columns, got (\d+)", message)
        if fields:
            wanted = (
                f"`csv_dialect` columns names {fields[1]}" if self.dialect.columns else f"the header has {fields[1]}"
            )
            return f"line {line} has {fields[2]} fields, where {wanted}"
        column = re.match(r"In CSV column #(\d+): ", message)
        if not column or int(column[1]) >= len(names):
            return _UNREADABLE
        name = names[int(column[1])]
        if name in self.labels:
            return self._label_problem(name, before)
        if self.types.kinds.get(name) == pa.string():
            return (
                f"column {name!r} on line {line} is not text in {self.dialect.encoding}: give `csv_dialect` "
                "encoding=NAME, such as latin-1 or cp1252, or correct it"
            )
        return self._problem(name, None, before)

    def _label_problem(self, name: str, before: int) -> str:
        """Problem of a label that is no number. It does not depend on its text."""
        line, advice = line_of(before, self.dialect), ""
        if self.dialect.decimal == ".":
            advice = "; if a comma is its decimal mark, give `csv_dialect` decimal=,"
        if self.dialect.columns and line == 1:
            advice += "; if line 1 is a header line, leave columns out of `csv_dialect`"
        return (
            f"label column {name!r} holds text on line {line}, not a number: correct it, name another column with "
            f"`label`, or {ENCODE_CLASSES}{advice}"
        )

    def _problem(self, name: str, text: pa.Array | None, before: int) -> str:
        """Problem of a feature that is not of its type. text: that of the row, of columns of numbers."""
        line, kind = line_of(before, self.dialect), self.types.kinds[name]
        shown = _SHOWN.get(kind, f"a {kind}")
        if text is None or not is_numbers(text, pa.float64(), self.dialect, rounded=True):
            return f"column {name!r} on line {line} is not {shown}: correct it, or give `csv_types` {name}=string"
        problem = f"column {name!r} on line {line} is a number that {shown.split()[1]} does not keep as it is written"
        for other, flag in ((pa.float64(), "float64"), (pa.uint64(), "uint64")):
            if is_numbers(text, other, self.dialect):
                return f"{problem}: give `csv_types` {name}={flag}, or {name}=string to keep the text"
        return (
            f"{problem} (leading zeros, a plus sign, too many digits, or an exponent without a decimal point): give "
            f"`csv_types` {name}=string to keep the text, or {name}=float64 for the nearest number"
        )


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Joins the chunks of a column; the only chunk as it is."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def is_numbers(texts: pa.Array, kind: pa.DataType, dialect: Dialect, rounded: bool = False) -> bool:
    """Tells whether all texts are numbers of a type, which keeps them; arguments as for `read_numbers`."""
    try:
        read_numbers(texts, kind, dialect, rounded)
    except pa.ArrowInvalid:
        return False
    return True


def line_of(row: int, dialect: Dialect) -> int:
    """Line, from 1, of a row, from 0, for messages, where each row is one line below the header line."""
    return row + (1 if dialect.columns else 2)
