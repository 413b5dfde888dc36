"""Reads ORC files into record batches.

A stripe ends where its bytes, those of the labels among them, reach a size. So nothing follows from stripes: a file is
read in one part, and its records are cut into batches of the same numbers of rows as those of other formats. One stripe
at a time is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ..errors import InputError, unreadable
from ..io.filesystems import archive_in
from ..io.hive_partitions import check_no_clash
from ..io.input_format import BATCH_ROWS, FilePart, check_unique_columns
from .arrow_files import PlainLayout, open_arrow_file, open_part, pieces, read_schema

_DAMAGED = "not an ORC file, or damaged"
_CORRUPT = "the ORC file is corrupt, or has a time that nanoseconds cannot hold (before 1677 or after 2262)"
# Earlier versions do not check whether nanoseconds hold a time.
_CHECKED_TIMES = 25


class ORCReader:
    """Reads ORC files, one after the other."""

    def __init__(self, columns: Sequence[str] | None, hidden: Sequence[str] = ()):
        """Prepares for a set of columns; None reads all but those that are hidden."""
        self._columns, self._hidden = columns, hidden

    def first_row(self, part: FilePart) -> int:
        """Row of the file at which a part begins: a file has one part."""
        return 0

    def read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        """Reads the records of one file in order, in pieces of any size, without metadata.

        Raises InputError if the file cannot be opened, is not ORC or damaged, has another schema than the first file,
        or lacks a column.
        """
        with open_part(part) as file:
            orc = _open_orc_file(file, part.path)
            schema = orc.schema
            check_unique_columns(schema.names, part.path)
            check_no_clash(part.partitions, schema.names, part.path)
            layout = PlainLayout.of(self._columns, schema, part, _arrow_schema, self._hidden)
            rows = 0
            try:
                for number in range(orc.nstripes):
                    stripe = _stripe(orc, number, layout.columns)
                    rows += stripe.num_rows
                    for start in range(0, stripe.num_rows, BATCH_ROWS):
                        yield from pieces(layout, stripe.slice(start, BATCH_ROWS))
            except (pa.ArrowException, OSError) as error:
                raise unreadable(part.path, error, _CORRUPT) from None
            if rows != orc.nrows:
                raise InputError(f"{part.path}: {_CORRUPT}")


def _stripe(orc: Any, number: int, columns: Sequence[str] | None) -> pa.RecordBatch:
    if columns is None:
        return orc.read_stripe(number)
    wanted = [name for name in orc.schema.names if name in columns]
    # A name with a dot would be taken for that of a field within a column.
    stripe = orc.read_stripe(number, None if any("." in name for name in wanted) else wanted)
    return stripe.select(wanted)


def orc_schema(path: str) -> tuple[pa.Schema, int]:
    """Reads the schema of a file from its footer, without its metadata, and its number of records.

    No value is read. Raises InputError if the file cannot be opened or is not ORC.
    """
    with open_arrow_file(path) as file:
        orc = _open_orc_file(file, path)
        return read_schema(orc.schema, 1), orc.nrows


def _arrow_schema(path: str) -> pa.Schema:
    with open_arrow_file(path) as file:
        return _open_orc_file(file, path).schema


def _open_orc_file(file: pa.NativeFile, path: str) -> Any:
    try:
        from pyarrow import orc
    except ImportError:
        raise InputError(f"{path}: this build of pyarrow reads no ORC: install the one of PyPI") from None
    try:
        opened = orc.ORCFile(file)
        schema = opened.schema
    except (pa.ArrowException, UnicodeDecodeError, OSError, ValueError) as error:
        raise unreadable(path, error, archive_in(file) or _DAMAGED) from None
    for field in schema:
        if pa.types.is_union(field.type):
            raise InputError(f"{path}: column {field.name!r} is a union, which labeldp does not read: split it")
        if _has_times(field.type) and int(str(pa.__version__).partition(".")[0]) < _CHECKED_TIMES:
            raise InputError(
                f"{path}: column {field.name!r} has times of ORC, whose range only pyarrow {_CHECKED_TIMES} and later "
                "check: pip install -U pyarrow"
            )
    return opened


def _has_times(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return True
    return any(_has_times(kind.field(place).type) for place in range(kind.num_fields))
