"""Reads ORC files into record batches.

A stripe ends where its bytes, those of the labels among them, reach a size. So nothing follows from stripes: a file is
read in one part, and its records are cut into batches of the same numbers of rows as those of other formats.

A stripe may be far larger than its bytes in the file, so it is read some records at a time, through Arrow's datasets.
How long texts and lists are is only known when they were read: the first records are read a few at a time, and where
records turn out to be longer, the file is read again from its beginning, fewer at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ..errors import InputError, unreadable
from ..io.filesystems import archive_in
from ..io.hive_partitions import check_no_clash
from ..io.input_format import BATCH_ROWS, FilePart, check_unique_columns
from ..io.limits import LIMITS, Limits
from .arrow_files import PlainLayout, open_arrow_file, open_part, pieces, read_schema

_DAMAGED = "not an ORC file, or damaged"
_CORRUPT = "the ORC file is corrupt, or has a time that nanoseconds cannot hold (before 1677 or after 2262)"
# Earlier versions do not check whether nanoseconds hold a time.
_CHECKED_TIMES = 25
# Bytes that records which are read at once may have, about. Records with texts or lists that are read first, to see how
# long they are, and at most at a time: longer ones may follow.
_READ_BYTES, _FIRST_ROWS, _MOST_ROWS = 16 << 20, 16, 256


class ORCReader:
    """Reads ORC files, one after the other."""

    def __init__(
        self,
        columns: Sequence[str] | None,
        hidden: Sequence[str] = (),
        numbers: Sequence[str] = (),
        limits: Limits = LIMITS,
    ):
        """Prepares for a set of columns; None reads all but those that are hidden. `numbers` are labels."""
        self._columns, self._hidden, self._numbers, self._limits = columns, hidden, numbers, limits

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
            layout = PlainLayout.of(self._columns, schema, part, _arrow_schema, self._hidden, self._numbers)
            rows = 0
            try:
                for batch in _joined(_batches(part, schema, layout.columns)):
                    rows += batch.num_rows
                    yield from pieces(layout, batch, self._limits.cast_bytes)
            except (pa.ArrowException, OSError, MemoryError) as error:
                raise unreadable(part.path, error, _CORRUPT) from None
            if rows != orc.nrows:
                raise InputError(f"{part.path}: {_CORRUPT}")


def _batches(part: FilePart, schema: pa.Schema, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    wanted = [name for name in schema.names if columns is None or name in columns]
    # A name with a dot would be taken for that of a field within a column.
    read = schema.names if any("." in name for name in wanted) else wanted
    if all(_is_fixed(schema.field(name).type) for name in read):
        yield from (batch.select(wanted) for batch in _scanned(part, read, BATCH_ROWS))
        return
    at_once, done, fewer = _MOST_ROWS, 0, True
    for batch in _scanned(part, read, _FIRST_ROWS):
        at_once = _fitting(batch)
        break
    while fewer:
        fewer, row = False, 0
        for batch in _scanned(part, read, at_once):
            row += batch.num_rows
            if row <= done:
                continue
            yield batch.slice(max(done - row + batch.num_rows, 0)).select(wanted)
            done, fits = row, _fitting(batch)
            fewer = 2 * fits <= at_once
            if fewer:
                at_once = fits
                break


def _fitting(batch: pa.RecordBatch) -> int:
    """Number of records like those of a batch that are read at once."""
    return max(min(_READ_BYTES * batch.num_rows // max(batch.nbytes, 1), _MOST_ROWS), 1)


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same records in larger batches, which cost less."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= BATCH_ROWS or size >= _READ_BYTES:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held, rows, size = [], 0, 0
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _scanned(part: FilePart, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Reads some columns of a file, at most so many records at a time."""
    # Not all builds of pyarrow read ORC.
    from pyarrow import dataset

    # A scan that is given up reads the rest of its file first, so that is closed before.
    with open_part(part) as file:
        # With threads, up to a gigabyte would be read ahead.
        batches = dataset.OrcFileFormat().make_fragment(file).scanner(
            columns={name: dataset.field(name) for name in columns}, batch_size=rows, use_threads=False,
            batch_readahead=0, fragment_readahead=0,
        ).to_batches()  # fmt: skip
        for batch in batches:  # noqa: UP028 - `yield from` would end the scan first
            yield batch


def _is_fixed(kind: pa.DataType) -> bool:
    """Tells whether all values of a type have the same size."""
    if pa.types.is_struct(kind):
        return all(_is_fixed(kind.field(place).type) for place in range(kind.num_fields))
    return pa.types.is_primitive(kind) or pa.types.is_decimal(kind)


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
