"""Records of a release that a file names: by id, by privacy unit, or by rows of its shards.

Errors name lines of the file and never what stands there: an id may identify a person.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...transforms.arrow_values import NotWholeError, is_text, plain_number_texts, single_ids
from ...transforms.errors import InputError
from ...transforms.io.filesystems import FileSystems, open_file
from ...transforms.progress_log import LOGGER, Progress
from ...transforms.shards.reduced_shards import read_column
from ..errors import FieldError
from .output_folder import DATA_NAME

_BOM = b"\xef\xbb\xbf"
_INTEGER = re.compile(rb"0|-?[1-9][0-9]*")
_ROW = re.compile(r"[0-9]{1,15}", re.ASCII)
_SHOWN = 10


class Lines(NamedTuple):
    """A file of lines.

    Attributes:
      field: Name of the flag.
      path: The file.
      of: Number of the first line, from 1, of each distinct text.
    """

    field: str
    path: str
    of: dict[bytes, int]

    def error(self, problem: str, lines: Iterable[int]) -> FieldError:
        """Makes an error that names lines, the first ten of them."""
        return FieldError(f"{{{self.field}}} {{path}}: {{problem}}: {{lines}}", path=self.path, problem=problem,
                          lines=listed_lines(lines))  # fmt: skip


def read_lines(field: str, path: str) -> Lines:
    """Reads a file with one text on each line, in bytes; the end of a line is a line feed, with or without a return.

    Raises FieldError, which names the flag, if the file is empty or has an empty line, and InputError if it cannot be
    read.
    """
    try:
        with open_file(path) as file:
            content = file.read()
    except InputError:
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or "check the path"
        raise FieldError(f"{{{field}}} {{path}} cannot be read: {{reason}}", path=path, reason=reason) from None
    texts = [line.removesuffix(b"\r") for line in content.removeprefix(_BOM).removesuffix(b"\n").split(b"\n")]
    found: dict[bytes, int] = {}
    for number, text in enumerate(texts, 1):
        found.setdefault(text, number)
    if texts == [b""]:
        raise FieldError(f"{{{field}}} {{path}} is empty: name at least one record", path=path)
    lines = Lines(field, path, found)
    if b"" in found:
        raise lines.error("there is an empty line; delete it", [found[b""]])
    if repeated := len(texts) - len(found):
        LOGGER.info(
            "%s: %d of %d lines repeat%s", path, repeated, len(texts), "s another" if repeated == 1 else " others"
        )
    return lines


@dataclass(frozen=True)
class Found:
    """Records to remove.

    Attributes:
      rows: By shard that loses any, the rows of these, ascending, int64.
      counts: Number of records of each shard.
      missing: Lines of the file whose text names no record of the release.
      names: Number of distinct texts of the file.
    """

    rows: dict[str, np.ndarray]
    counts: dict[str, int]
    missing: tuple[int, ...]
    names: int

    @property
    def records(self) -> int:
        """Number of records to remove."""
        return sum(map(len, self.rows.values()))


def find_values(data: str, shards: Sequence[str], column: str, lines: Lines, units: bool = False) -> Found:
    """Finds the records of a release whose value in a column is one of some lines.

    Args:
      data: Folder of the shards.
      shards: Their names.
      column: Column of ids or units, of integers or text.
      lines: The values. Integers are written in their plain form; bytes as they are.
      units: Whether the values are units, of which text may spell a number in several ways.

    Returns:
      The records.

    Raises:
      FieldError: If the column holds integers, and a line does not.
      InputError: If no shard has the column, it holds something else, or a shard is damaged.
    """
    progress, search = Progress("looked at"), _Search(column, lines, units)
    rows, counts, known = {}, {}, False
    for name in shards:
        first, matches = 0, [np.zeros(0, np.int64)]
        for batch in read_column(FileSystems.join(data, name), column):
            if batch.values is not None:
                known = True
                matches.append(first + search.rows(batch.values, FileSystems.join(data, name)))
            first += batch.rows
            progress.add(batch.rows)
        counts[name] = first
        if len(chosen := np.concatenate(matches)):
            rows[name] = chosen
    if not known:
        raise InputError(f"{data}: no shard has the column {column!r}; name records by their rows (--rows)")
    return Found(rows, counts, search.missing(), len(lines.of))


class _Search:
    """Values that were found so far."""

    def __init__(self, column: str, lines: Lines, units: bool):
        self._column, self._lines = column, lines
        self._spelled = plain_number_texts if units else lambda texts: texts.cast(pa.large_binary())
        self._texts = list(lines.of)
        self._found = np.zeros(len(self._texts), bool)
        self._sets: dict[pa.DataType, tuple[pa.Array, np.ndarray]] = {}

    def rows(self, column: pa.Array, path: str) -> np.ndarray:
        """Rows of a batch that have one of the values."""
        try:
            values, present = single_ids(column)
        except NotWholeError as error:
            problem = error.problem(f"a value in {self._column!r}")
            raise InputError(f"{path}: {problem}; name records by their rows (--rows)") from None
        if pa.types.is_null(values.type):
            return np.zeros(0, np.int64)
        if is_text(values.type):
            values = self._spelled(values)
        elif not pa.types.is_integer(values.type):
            raise InputError(
                f"{path}: column {self._column!r} holds {values.type}, not integers or text; name records by their "
                "rows (--rows)"
            )
        if values.type not in self._sets:
            self._sets[values.type] = self._set(values.type)
        wanted, places = self._sets[values.type]
        index: pa.Array = pc.index_in(values, value_set=wanted)  # type: ignore[attr-defined]
        hits = np.asarray(index.is_valid())
        self._found[places[index.filter(pa.array(hits)).to_numpy(zero_copy_only=False)]] = True
        return np.flatnonzero(present)[hits]

    def _set(self, kind: pa.DataType) -> tuple[pa.Array, np.ndarray]:
        """The values that a type holds, and their places among the lines."""
        if not pa.types.is_integer(kind):
            return self._spelled(pa.array(self._texts, pa.large_binary())), np.arange(len(self._texts))
        wrong = [line for text, line in self._lines.of.items() if not _INTEGER.fullmatch(text)]
        if wrong:
            problem = f"{len(wrong)} of the lines are not integers in their plain form, as {self._column!r} holds"
            raise self._lines.error(problem, wrong)
        low, high = (0, 1 << kind.bit_width) if str(kind).startswith("u") else _signed(kind.bit_width)
        # Forty digits are beyond every type, and Python refuses to read some thousands.
        fits = [(int(text), place) for place, text in enumerate(self._texts) if low <= int(text[:40]) < high]
        return pa.array([number for number, _ in fits], kind), np.array([place for _, place in fits], np.intp)

    def missing(self) -> tuple[int, ...]:
        """Lines whose values were not found."""
        texts = [text for text, found in zip(self._texts, self._found.tolist(), strict=True) if not found]
        return tuple(self._lines.of[text] for text in texts)


def _signed(bits: int) -> tuple[int, int]:
    return -(1 << (bits - 1)), 1 << (bits - 1)


def find_rows(data: str, shards: Sequence[str], lines: Lines) -> Found:
    """Finds the records of a release by lines SHARD,ROW, as CSV, with rows from 0 on.

    Args:
      data: Folder of the shards.
      shards: Their names.
      lines: The file that names rows of them.

    Returns:
      The records; none is missing.

    Raises:
      FieldError: If a line is something else, or names no row of the shards.
      InputError: If a shard is damaged.
    """
    places, wrong = [], []
    for text, line in lines.of.items():
        try:
            ((file, row),) = csv.reader(io.StringIO(text.decode()), strict=True)
        except (ValueError, csv.Error):
            file, row = "", ""
        if not file or not _ROW.fullmatch(row):
            wrong.append(line)
        else:
            places.append((file.removeprefix(f"{DATA_NAME}/"), int(row), line))
    if wrong:
        raise lines.error(f"{len(wrong)} of the lines are not SHARD,ROW with a number from 0 on", wrong)
    counts = {name: sum(each.rows for each in read_column(FileSystems.join(data, name), None)) for name in shards}
    if wrong := [line for name, row, line in places if row >= counts.get(name, 0)]:
        problem = (
            f"{len(wrong)} of the lines name no row of the shards: write part-NNNNN-of-NNNNN.FORMAT,ROW, not a row of "
            "the input"
        )
        raise lines.error(problem, wrong)
    chosen: dict[str, list[int]] = {}
    for name, row, _ in places:
        chosen.setdefault(name, []).append(row)
    rows = {name: np.unique(np.array(found, np.int64)) for name, found in chosen.items()}
    return Found(rows, counts, (), len(lines.of))


def listed_lines(lines: Iterable[int]) -> str:
    """Text that lists line numbers, the first ten of them."""
    numbers = sorted(lines)
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    return f"line{'' if len(numbers) == 1 else 's'} {shown}{', ...' if len(numbers) > _SHOWN else ''}"
