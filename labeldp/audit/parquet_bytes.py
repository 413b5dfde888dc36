"""Audit of the bytes of a Parquet shard: nothing in the file but what the records need.

The footer and the headers of pages are parsed with code of this module. Pages must tile the file from its first bytes
to the footer, row groups must have the lengths that follow from the manifest and the records, and members of the format
that the writer does not use are refused: metadata, bloom filters, encryption, indexes, sorting columns, other
statistics.

What remains is how values are encoded, such as the order of a dictionary or the cut of runs and pages. So the records
are written again with pyarrow, row group by row group, and every byte is compared. Where the file was written by
another version of pyarrow, statistics and encodings are compared instead, and the report says so.
"""

from __future__ import annotations

import base64
import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .documents import RefusedDocument, printable
from .manifest_statements import OutputStatement

_MAGIC = b"PAR1"
_WRITER = "parquet-cpp-arrow version "
_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){2}")
_SCHEMA_KEY = b"ARROW:schema"
_CODECS = {0: "none", 2: "gzip"}
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_MOST_BYTES = 1 << 28
_SAMPLED = 1 << 10
GROUP_BYTES = 1 << 26
"""A row group ends with the record with which its values reach this size."""

# Members of the structures of Parquet's Thrift definition that the writer uses: number and structure, {} for a value.
_Members = dict[int, Any]


def _values(*numbers: int) -> _Members:
    return {number: {} for number in numbers}


_STATISTICS: _Members = _values(1, 2, 3, 5, 6, 7, 8)
_UNIT: _Members = {1: {}, 2: {}, 3: {}}
_TIME: _Members = {1: {}, 2: _UNIT}
_LOGICAL: _Members = _values(1, 2, 3, 4, 6, 11, 12, 13, 14, 15) | {
    5: {1: {}, 2: {}},
    7: _TIME,
    8: _TIME,
    10: {1: {}, 2: {}},
}
_ELEMENT: _Members = _values(1, 2, 3, 4, 5, 6, 7, 8) | {10: _LOGICAL}
_COLUMN: _Members = _values(1, 2, 3, 4, 5, 6, 7, 9, 11) | {
    12: _STATISTICS,
    13: {1: {}, 2: {}, 3: {}},
    16: {1: {}, 2: {}, 3: {}},
}
_GROUP: _Members = {1: {2: {}, 3: _COLUMN}, 2: {}, 3: {}, 5: {}, 6: {}, 7: {}}
_FOOTER: _Members = {1: {}, 2: _ELEMENT, 3: {}, 4: _GROUP, 5: {1: {}, 2: {}}, 6: {}, 7: {1: {}}}
_PAGE: _Members = {1: {}, 2: {}, 3: {}, 5: _values(1, 2, 3, 4) | {5: _STATISTICS}, 7: {1: {}, 2: {}, 3: {}}}


class ParquetBytes:
    """Checks of the bytes of the shards of one release.

    Attributes:
      others: Versions of pyarrow, other than this one, that shards were written with.
    """

    def __init__(self, output: OutputStatement):
        """Prepares the checks of shards that a manifest states the columns and row groups of."""
        self._output = output
        self.others: set[str] = set()

    def problems(self, path: Path) -> Iterator[str]:
        """Compares a shard, whose records passed their audit, with what a writer makes of them; lines of problems."""
        try:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                version = _check_structure(content, self._output)
                parquet = pq.ParquetFile(path, pre_buffer=False)
                schema = _written_schema(parquet)
                types = [f"{field.type}{'' if field.nullable else ' not null'}" for field in schema]
                if tuple(zip(schema.names, types, strict=True)) != self._output.columns:
                    yield "does not have the columns that release.output states, in their types"
                    return
                same = version == pa.__version__
                sink = _Comparison(content if same else None)
                collected: list[pq.FileMetaData] = []
                _write_again(parquet, schema, self._output, sink, collected)
        except (pa.ArrowException, OSError, ValueError):
            raise RefusedDocument("cannot be read as Parquet: it is truncated or corrupt") from None
        if not same:
            self.others.add(version)
            if _values_of(parquet.metadata) != _values_of(collected[0]):
                yield "has other statistics or encodings in its footer than its records have"
        elif sink.differs or sink.written != path.stat().st_size:
            yield "does not have the bytes that pyarrow writes for its records"


class _Comparison:
    """A file to write to, which compares what is written with the same bytes of another one."""

    closed = False

    def __init__(self, content: mmap.mmap | None):
        self._content = content
        self.written = 0
        self.differs = False

    def write(self, data: bytes) -> int:
        size = memoryview(data).nbytes
        if self._content is not None:
            self.differs |= self._content[self.written : self.written + size] != bytes(data)
        self.written += size
        return size

    def tell(self) -> int:
        return self.written

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def _write_again(
    parquet: pq.ParquetFile, schema: pa.Schema, output: OutputStatement, sink: Any, collected: list[pq.FileMetaData]
) -> None:
    writer = None
    for group in range(parquet.num_row_groups):
        table = parquet.read_row_group(group)
        table = pa.table([table.column(number).cast(field.type) for number, field in enumerate(schema)], schema=schema)
        table = table.combine_chunks()
        _check_size(table, output.row_group, group == parquet.num_row_groups - 1)
        writer = writer or _writer(table, output, sink, collected)
        writer.write_table(table, row_group_size=output.row_group)
    (writer or _writer(schema.empty_table(), output, sink, collected)).close()


def _check_size(group: pa.Table, most: int, last: bool) -> None:
    """Row groups end early where their values are large, and only there: another end could say something."""
    sizes = np.zeros(group.num_rows, np.int64)
    for column in group.columns:
        sizes += np.concatenate([_size_of(chunk) for chunk in column.chunks] or [sizes])
    totals = np.cumsum(sizes)
    end = int(np.searchsorted(totals, GROUP_BYTES)) + 1
    if group.num_rows > end or (group.num_rows < min(end, most) and not last):
        raise RefusedDocument(f"has row groups that end neither at {most} records nor where these are large")


def _size_of(column: pa.Array) -> np.ndarray:
    """8 bytes of each value and of each within it, and those of texts, of which a category is one."""
    types, kind, sizes = pa.types, column.type, np.full(len(column), 8)
    if _is_text(kind):
        return sizes + pc.binary_length(column).fill_null(0).to_numpy()  # type: ignore[attr-defined]
    if types.is_dictionary(kind) and _is_text(kind.value_type):
        lengths = pc.binary_length(column.dictionary)  # type: ignore[attr-defined]
        return sizes + lengths.take(column.indices).fill_null(0).to_numpy()
    if types.is_fixed_size_binary(kind):
        return sizes + kind.byte_width
    if types.is_struct(kind):
        return sum((_size_of(member) for member in column.flatten()), sizes)
    if not types.is_nested(kind):
        return sizes
    if types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
    ends = np.cumsum(pc.list_value_length(column).fill_null(0).to_numpy())  # type: ignore[attr-defined]
    return sizes + np.diff(np.append(0, np.cumsum(_size_of(column.flatten())))[np.append(0, ends)])


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _writer(first: pa.Table, output: OutputStatement, sink: Any, collected: list[pq.FileMetaData]) -> pq.ParquetWriter:
    """A writer; whether a column has dictionaries follows from the first values of its first row group."""
    repeated = [path for number, field in enumerate(first.schema) for path in _repeated(field, first.column(number))]
    return pq.ParquetWriter(
        pa.PythonFile(sink, "w"), first.schema, compression=output.compression, use_dictionary=repeated,
        metadata_collector=collected,
    )  # fmt: skip


def _repeated(field: pa.Field, column: pa.ChunkedArray) -> Iterator[str]:
    """Paths of the Parquet columns of a column whose values get dictionaries."""
    kind, is_list = field.type, pa.types.is_list
    listed = any(test(kind) for test in (is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))
    if listed and not pa.types.is_nested(kind.value_type):
        flat = pc.list_flatten(column)  # type: ignore[attr-defined]
        yield from [f"{field.name}.list.element"] if _pays(flat) else []
    elif pa.types.is_nested(kind):
        yield from _leaves(field.name, kind)
    elif _pays(column):
        yield field.name


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_nested(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


def _pays(values: pa.ChunkedArray) -> bool:
    """True unless nearly all of the first values differ; for kinds of values whose numbers are not counted, too."""
    types, kind = pa.types, values.type
    numbers = types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind) or types.is_temporal(kind)
    if types.is_interval(kind) or not (_is_text(kind) or numbers):
        return True
    sample = values.slice(0, _SAMPLED)
    return 64 * pc.count_distinct(sample).as_py() <= 63 * len(sample)  # type: ignore[attr-defined]


def _values_of(metadata: pq.FileMetaData) -> list[Any]:
    """What the footer says of the values, without places in the file."""
    chunks = [
        metadata.row_group(group).column(number).to_dict()
        for group in range(metadata.num_row_groups)
        for number in range(metadata.num_columns)
    ]
    kept = ("path_in_schema", "num_values", "statistics", "encodings", "compression", "has_dictionary_page")
    # As text: NaN is not equal to itself, and -0.0 is not 0.0.
    return [str([chunk[name] for name in kept]) for chunk in chunks]


def _written_schema(parquet: pq.ParquetFile) -> pa.Schema:
    """Schema that the writer has stored; it has no metadata, and is serialized as pyarrow does."""
    stored = (parquet.metadata.metadata or {}).get(_SCHEMA_KEY, b"")
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored, validate=True)))
    if schema.metadata is not None or any(field.metadata is not None for field in schema):
        raise RefusedDocument("has metadata of columns, which labeldp does not write")
    if base64.b64encode(schema.serialize().to_pybytes()) != stored:
        raise RefusedDocument("has a schema that is not stored as pyarrow does")
    return schema


def _check_structure(content: mmap.mmap, output: OutputStatement) -> str:
    """Checks footer and page headers. Returns the version of pyarrow that the footer states."""
    size = len(content)
    if size < 12 or content[:4] != _MAGIC or content[-4:] != _MAGIC:
        raise RefusedDocument("cannot be read as Parquet: it is truncated or corrupt")
    length = int.from_bytes(content[-8:-4], "little")
    start = size - 8 - length
    if start < len(_MAGIC) or length > _MOST_BYTES:
        raise RefusedDocument("cannot be read as Parquet: it is truncated or corrupt")
    footer, end = _Compact(content, start, size - 8).struct(_FOOTER)
    if end != size - 8:
        raise RefusedDocument("has bytes after its footer")
    if [pair.get(1) for pair in footer.get(5, [])] != [_SCHEMA_KEY]:
        raise RefusedDocument("has metadata that labeldp does not write, or no schema")
    groups = footer.get(4, [])
    _check_lengths([group[3] for group in groups], footer[3], output.row_group)
    offset = len(_MAGIC)
    for number, group in enumerate(groups):
        offset = _check_group(content, group, number, offset, start, output.compression)
    if offset != start:
        raise RefusedDocument("has bytes between its last page and the footer")
    writer = footer.get(6, b"").decode(errors="replace")
    version = writer.removeprefix(_WRITER)
    if not writer.startswith(_WRITER) or not _VERSION.fullmatch(version):
        raise RefusedDocument(f"was written by another library than pyarrow: {printable(writer[:64])}")
    return version


def _check_lengths(lengths: list[int], records: int, most: int) -> None:
    """Row groups have some records, and no more than the most. `_check_size` tells which may have fewer."""
    if sum(lengths) != records or not all(0 < length <= most for length in lengths):
        raise RefusedDocument(f"has row groups without records, or of more than {most} each")


def _check_group(content: mmap.mmap, group: dict[int, Any], number: int, offset: int, end: int, codec: str) -> int:
    """Follows the pages of a row group from an offset in the file. Returns the offset after them."""
    first, plain = offset, 0
    for chunk in group[1]:
        column = chunk[3]
        if _CODECS.get(column[4]) != codec:
            raise RefusedDocument("has another compression than release.output states")
        stop = offset + column[7]
        if column.get(11, column[9]) != offset or stop > end or chunk.get(2, 0) not in (0, offset, stop):
            raise RefusedDocument("has bytes between its columns, or columns in another order than its schema")
        plain, values, data = plain + column[6], 0, None
        while offset < stop:
            kind, count, after = _page(content, offset, stop)
            if kind == _DICTIONARY_PAGE:
                if offset != column.get(11):
                    raise RefusedDocument("has a dictionary that its footer does not know")
            else:
                data, values = offset if data is None else data, values + count
            offset = after
        if offset != stop or data != column[9] or values != column[5]:
            raise RefusedDocument("has pages that are not those of its footer")
    if group[2] != plain or group.get(5, first) != first or group.get(6, offset - first) != offset - first:
        raise RefusedDocument("has a row group of another length than its footer states")
    if group.get(7, number) != number:
        raise RefusedDocument("has row groups that are not numbered in order")
    return offset


def _page(content: mmap.mmap, offset: int, stop: int) -> tuple[int, int, int]:
    """Kind and number of values of the page at an offset, and the offset after it."""
    header, after = _Compact(content, offset, stop).struct(_PAGE)
    kind = header[1]
    of_kind = {_DATA_PAGE: 5, _DICTIONARY_PAGE: 7}.get(kind)
    if of_kind is None or set(header) != {1, 2, 3, of_kind} or header[3] < 0:
        raise RefusedDocument("has a page of a kind that labeldp does not write")
    return kind, header[of_kind][1], after + header[3]


class _Compact:
    """Reader of Thrift's compact protocol that refuses members beyond the known ones, and longer forms than needed."""

    def __init__(self, content: mmap.mmap, offset: int, stop: int):
        self._content, self._offset, self._stop = content, offset, stop

    def struct(self, members: _Members) -> tuple[dict[int, Any], int]:
        """Members of a structure by number, and the offset after it."""
        try:
            return self._struct(members), self._offset
        except (IndexError, RecursionError):
            raise RefusedDocument("cannot be read as Parquet: it is truncated or corrupt") from None

    def _byte(self) -> int:
        if self._offset >= self._stop:
            raise IndexError
        self._offset += 1
        return self._content[self._offset - 1]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if shift and not byte:
                    break
                return value
        raise RefusedDocument("has a number in its footer that is longer than it needs to be")

    def _struct(self, members: _Members) -> dict[int, Any]:
        structure: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            if not head >> 4:
                raise RefusedDocument("has members in its footer that are not in order")
            number += head >> 4
            if number not in members:
                raise RefusedDocument("has a member in its footer or a page that labeldp does not write")
            structure[number] = self._value(head & 15, members[number])
        return structure

    def _value(self, kind: int, members: _Members) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            value = self._varint()
            return value >> 1 ^ -(value & 1)
        if kind == 8:
            size = self._varint()
            self._offset += size
            if self._offset > self._stop:
                raise IndexError
            return self._content[self._offset - size : self._offset]
        if kind == 9:
            head = self._byte()
            size = head >> 4 if head >> 4 < 15 else self._varint()
            if head >> 4 == 15 and size < 15:
                raise RefusedDocument("has a list in its footer whose length is longer than it needs to be")
            # A boolean in a list is one byte.
            return [self._byte() if head & 15 in (1, 2) else self._value(head & 15, members) for _ in range(size)]
        if kind == 12:
            return self._struct(members)
        raise RefusedDocument("has a value in its footer of a kind that labeldp does not write")
