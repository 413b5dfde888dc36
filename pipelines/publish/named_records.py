"""Records of a release that a file names: by id, by privacy unit, or by rows of its shards.

Errors name lines of the file and never what stands there: an id may identify a person.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...transforms.arrow_values import NotWholeError, is_text, plain_number_texts, single_ids
from ...transforms.errors import InputError
from ...transforms.io.filesystems import FileSystems, open_file
from ...transforms.progress_log import LOGGER, Progress
from ...transforms.shards.reduced_shards import ColumnBatch, read_column
from ..errors import FieldError
from ..spec.label_folders import DATA_NAME, MANIFEST_NAME

_BOM = b"\xef\xbb\xbf"
_INTEGER = re.compile(rb"0|-?[1-9][0-9]*")
_ROW = re.compile(r"[0-9]{1,15}", re.ASCII)
_SHOWN = 10


class Lines(NamedTuple):
    """File with one text on each line: the flag that named it, and the first line, from 1, of each distinct text."""

    field: str
    path: str
    of: dict[bytes, int]

    def error(self, problem: str, lines: Iterable[int]) -> FieldError:
        """Makes an error that names lines, the first ten of them."""
        return FieldError(f"{{{self.field}}} {{path}}: {{problem}}: {{lines}}", path=self.path, problem=problem,
                          lines=listed_lines(lines))  # fmt: skip


def listed_lines(lines: Iterable[int]) -> str:
    """Text that lists line numbers, the first ten of them."""
    numbers = sorted(lines)
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    return f"line{'' if len(numbers) == 1 else 's'} {shown}{', ...' if len(numbers) > _SHOWN else ''}"


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
    if texts == [b""]:
        raise FieldError(f"{{{field}}} {{path}} is empty: name at least one record", path=path)
    lines = Lines(field, path, {})
    for number, text in enumerate(texts, 1):
        lines.of.setdefault(text, number)
    if b"" in lines.of:
        raise lines.error("there is an empty line; delete it", [lines.of[b""]])
    if repeated := len(texts) - len(lines.of):
        LOGGER.info(
            "%s: %d of %d lines repeat%s", path, repeated, len(texts), "s another" if repeated == 1 else " others"
        )
    return lines


@dataclass(frozen=True)
class NamedRecords:
    """Records of a release that a file names.

    Attributes:
      rows: By shard that has any, the rows of these, ascending, int64.
      missing: Lines of the file whose text names no record of the release.
      names: Number of distinct texts of the file.
    """

    rows: dict[str, np.ndarray]
    missing: tuple[int, ...]
    names: int

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(map(len, self.rows.values()))


def find_values(data: str, shards: Mapping[str, int], column: str, lines: Lines, units: bool = False) -> NamedRecords:
    """Finds the records of a release whose value in a column is one of some lines.

    `shards` has the number of records by shard. Integers are written in their plain form, bytes as they are, and of
    `units` text may spell a number in several ways. Raises FieldError if the column holds integers, and a line does
    not; InputError if no shard has the column, it holds something else, or a shard is damaged.
    """
    progress, rows, known = Progress("looked at"), {}, False
    texts = pa.array(list(lines.of), pa.large_binary())
    wanted, found = plain_number_texts(texts) if units else texts, np.zeros(len(texts), bool)
    for name in shards:
        matches = [np.zeros(0, np.int64)]
        for first, batch in _batches(data, name, shards, column):
            progress.add(batch.rows)
            if batch.values is None:
                continue
            known = True
            values, present = _values(batch.values, column, FileSystems.join(data, name), lines)
            values = plain_number_texts(values) if units else values
            places: pa.Array = pc.index_in(values, value_set=wanted)  # type: ignore[attr-defined]
            found[places.drop_null().to_numpy()] = True
            matches.append(first + present[np.asarray(places.is_valid())])
        if len(chosen := np.concatenate(matches)):
            rows[name] = chosen
    if not known:
        raise InputError(f"{data}: no shard has the column {column!r}; name records by their rows (--rows)")
    numbers = np.array(list(lines.of.values()))
    return NamedRecords(rows, tuple(numbers[~found].tolist()), len(lines.of))


def _batches(data: str, name: str, shards: Mapping[str, int], column: str | None) -> Iterator[tuple[int, ColumnBatch]]:
    """Reads a column of a shard, in batches with the row of their first record; it must have its number of records."""
    first, path = 0, FileSystems.join(data, name)
    for batch in read_column(path, column):
        yield first, batch
        first += batch.rows
    if first != shards[name]:
        raise InputError(f"{path} does not hold as many records as {MANIFEST_NAME} says: restore the release")


def _values(column: pa.Array, name: str, path: str, lines: Lines) -> tuple[pa.Array, np.ndarray]:
    """Ids or units of a batch as lines write them, and the rows that have one."""
    try:
        values, present = single_ids(column)
    except NotWholeError as error:
        problem = error.problem(f"a value in {name!r}")
        raise InputError(f"{path}: {problem}; name records by their rows (--rows)") from None
    if pa.types.is_integer(values.type):
        if wrong := [line for text, line in lines.of.items() if not _INTEGER.fullmatch(text)]:
            raise lines.error(
                f"{len(wrong)} of the lines are not integers in their plain form, as {name!r} holds", wrong
            )
        values = values.cast(pa.large_string())
    elif not is_text(values.type) and not pa.types.is_null(values.type):
        raise InputError(
            f"{path}: column {name!r} holds {values.type}, not integers or text; name records by their rows (--rows)"
        )
    return values.cast(pa.large_binary()), np.flatnonzero(present)


def find_rows(data: str, shards: Mapping[str, int], lines: Lines) -> NamedRecords:
    """Finds the records of a release by lines SHARD,ROW, as CSV, with rows from 0 on.

    `shards` has the number of records by shard. Raises FieldError if a line is something else, or names no row of the
    shards, and InputError if a shard is damaged.
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
    for name in shards:
        for _ in _batches(data, name, shards, None):
            pass
    if wrong := [line for name, row, line in places if row >= shards.get(name, 0)]:
        problem = (
            f"{len(wrong)} of the lines name no row of the shards: write part-NNNNN-of-NNNNN.FORMAT,ROW, not a row of "
            "the input"
        )
        raise lines.error(problem, wrong)
    chosen: dict[str, list[int]] = {}
    for name, row, _ in places:
        chosen.setdefault(name, []).append(row)
    rows = {name: np.unique(np.array(numbers, np.int64)) for name, numbers in chosen.items()}
    return NamedRecords(rows, (), len(lines.of))
