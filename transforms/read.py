"""Reading files into labelled batches: TFRecord of tf.Example, Parquet and CSV, on any Beam filesystem.

A file is read by one worker, from its first row on, so that row numbers are true; many files read in parallel, and of
a large Parquet file its row groups.
"""

from __future__ import annotations

import codecs
import csv
import dataclasses
import gzip
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import PBegin, PCollection

from .batches import LabelledBatch, only_values
from .errors import InputError, describe, guarded
from .example_wire import ValueFinder
from .noise_key import is_remote
from .tfrecord import read_records

FORMATS = ("tfrecord", "parquet", "csv")
CSV_TYPES = ("int64", "float64", "string")
BATCH_ROWS = 1 << 14
_CSV_BLOCK = 8 << 20
# What is held of a row whose end is not found, in bytes.
_CSV_ROW = 64_000_000
# How far before a chunk's last quote the search for a row's end begins, in bytes.
_CSV_WINDOW = 1 << 16
# Of a Parquet file, undone from its compression: enough work for a worker, and not too many segments to put together.
_PART_BYTES = 32 << 20
_MOST_PARTS = 64


@dataclass(frozen=True)
class Equals:
    """Keeps the records whose feature has this value, compared as text. The feature must not depend on the label."""

    column: str
    value: str


@dataclass(frozen=True)
class Format:
    """How files are laid out.

    name: one of tfrecord, parquet, csv. csv_types: column name to int64, float64 or string, for CSV columns whose
    first block of rows misleads; other columns' types are inferred.
    """

    name: str
    csv_types: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown format or type."""
        if self.name not in FORMATS:
            raise ValueError(f"unknown format {self.name!r}; known: {', '.join(FORMATS)}")
        for name, kind in (self.csv_types or {}).items():
            if kind not in CSV_TYPES:
                raise ValueError(f"csv_types of {name!r} must be one of {', '.join(CSV_TYPES)}, not {kind!r}")


@dataclass
class ReadRecordBatches(beam.PTransform):
    """Files to a PCollection of LabelledBatch.

    Takes a pipeline; gives batches of at most some ten thousand records, each with its file and row numbers. Rows
    of one file come in order, of a large Parquet file within each of its parts; files and parts in any order. The first
    file that matches sets the schema that all others must have.

    pattern: a path or glob; it is matched when the job runs. format: tfrecord, parquet or csv; .gz is seen through.
    columns: what to read; None reads all. where: a filter on a public feature. label_column: read as float64 from CSV.
    encoded: for TFRecords that become TFRecords: batches carry the records as they stand in the file, and the columns
    beside, with one value or none for each record; `WriteTFRecords` writes them once their labels are replaced.
    """

    pattern: str
    format: Format
    columns: Sequence[str] | None = None
    where: Equals | None = None
    label_column: str | None = None
    encoded: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for encoded records of another format, or whose columns or label nobody named, and for a
        filter that looks at the label, or may do so."""
        super().__init__()
        self.pattern = absolute(self.pattern)
        if self.encoded and (self.format.name != "tfrecord" or not self.columns or self.label_column is None):
            raise ValueError("encoded needs the format tfrecord, columns and a label_column")
        if self.where is not None and self.label_column is None:
            raise ValueError("where needs a label_column, which no filter may look at")
        if self.where is not None and self.where.column == self.label_column:
            raise ValueError("where must not look at the label: which records are released would depend on it")

    def expand(self, pbegin: PBegin) -> PCollection[LabelledBatch]:
        sources: Any = (
            pbegin
            | "Pattern" >> beam.Create([self.pattern])
            | "Match" >> beam.FlatMap(_sources).with_output_types(_Source)
            # Files spread over the workers here, and nothing that follows is read before it is needed.
            | "Spread" >> beam.Reshuffle()
        )
        if self.format.name == "parquet":
            sources = (
                sources
                | "Split" >> beam.FlatMap(_in_parts).with_output_types(_Source)
                | "SpreadParts" >> beam.Reshuffle()
            )
        reading = _ReadFile(self.format, self.columns, self.where, self.label_column, self.encoded)
        return sources | "Read" >> beam.ParDo(reading).with_output_types(LabelledBatch)


@dataclass(frozen=True)
class RowGroups:
    """A part of a Parquet file. first, stop: its row groups. start: the row that it begins with."""

    first: int
    stop: int
    start: int


@dataclass(frozen=True)
class _Source:
    path: str
    first: str
    part: RowGroups | None = None


def absolute(pattern: str) -> str:
    """Local patterns from the root, so that a record's identity does not depend on where the job was started."""
    return pattern if is_remote(pattern) else os.path.abspath(pattern)


def match(pattern: str) -> dict[str, int]:
    """The files that match, in order, with their sizes in bytes. Raises InputError when there are none."""
    try:
        files = FileSystems.match([pattern])[0].metadata_list
        found = {file.path: file.size_in_bytes for file in sorted(files, key=lambda file: file.path)}
    except Exception as error:
        raise InputError(f"--input {pattern} cannot be listed ({describe(error)}): check the path") from None
    if not found:
        raise InputError(f"--input {pattern} matches no file: check the path and quote the glob")
    return found


def _sources(pattern: str) -> list[_Source]:
    paths = list(match(pattern))
    return [_Source(path, paths[0]) for path in paths]


@guarded("reading")
def _in_parts(source: _Source) -> Iterator[_Source]:
    with _arrow_file(source.path) as file:
        metadata = _parquet_file(file, source.path).metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    enough = max(_PART_BYTES, sum(group.total_byte_size for group in groups) // _MOST_PARTS)
    first = start = size = row = 0
    for number, group in enumerate(groups, 1):
        row, size = row + group.num_rows, size + group.total_byte_size
        if size >= enough or number == len(groups):
            yield dataclasses.replace(source, part=RowGroups(first, number, start))
            first, start, size = number, row, 0
    if not groups:
        # It may be refused still.
        yield source


class _ReadFile(beam.DoFn):
    def __init__(
        self,
        format: Format,
        columns: Sequence[str] | None,
        where: Equals | None,
        label: str | None,
        encoded: bool,
    ):
        self._format = format
        self._columns = columns
        self._where = where
        self._label = label
        self._encoded = encoded

    def setup(self) -> None:
        self._learned = Learned()

    @guarded("reading")
    def process(self, source: _Source) -> Iterator[LabelledBatch]:
        yield from read_file(
            source.path,
            source.first,
            self._format,
            self._columns,
            self._where,
            self._label,
            self._encoded,
            self._learned,
            source.part,
        )


@dataclass
class Learned:
    """What files taught about those after them, for one set of columns. csv_types: by first file. finder: of TFRecords'
    values."""

    csv_types: dict[str, dict[str, pa.DataType]] = dataclasses.field(default_factory=dict)
    finder: ValueFinder | None = None


def read_file(
    path: str,
    first: str,
    format: Format,
    columns: Sequence[str] | None = None,
    where: Equals | None = None,
    label: str | None = None,
    encoded: bool = False,
    learned: Learned | None = None,
    part: RowGroups | None = None,
) -> Iterator[LabelledBatch]:
    """The batches of one file, in order. first: the file whose schema this one must have. learned: from files before,
    read with the same options. part: of a Parquet file; None for all of it. The rest is as for `ReadRecordBatches`.

    Raises InputError when the file is missing, damaged, of another schema, or lacks a column that is asked for.
    """
    wanted = None if columns is None else list(columns)
    if wanted is not None and where is not None and where.column not in wanted:
        wanted.append(where.column)
    learned = learned or Learned()
    if format.name == "tfrecord":
        batches = _read_tfrecord(path, wanted, label if encoded else None, learned)
    elif format.name == "parquet":
        batches = _read_parquet(path, first, wanted, part)
    else:
        batches = _read_csv(path, first, format, wanted, label, learned.csv_types)
    start = 0 if part is None else part.start
    for batch in batches:
        labelled = LabelledBatch.whole(path, start, batch)
        start = labelled.stop
        yield labelled if where is None else labelled.keep(_matches(labelled, where))


def _matches(batch: LabelledBatch, where: Equals) -> np.ndarray:
    column = batch.column(where.column)
    if column is None:
        return np.zeros(batch.batch.num_rows, bool)
    values, present = only_values(column)
    text = where.value
    if pa.types.is_boolean(values.type) or pa.types.is_null(values.type):
        values, text = pa.array([str(value).lower() for value in values.to_pylist()], pa.string()), text.lower()
    try:
        wanted = pa.scalar(text).cast(values.type if not pa.types.is_binary(values.type) else pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(
            f"--where {where.column}={where.value}: the column holds {values.type}, give a value of that type"
        ) from None
    mask = np.zeros(batch.batch.num_rows, bool)
    mask[present] = np.asarray(pa.compute.equal(values, wanted))
    return mask


def _open(path: str) -> BinaryIO:
    try:
        if path.endswith(".gz"):
            # Beam's own reader takes a file that ends too early for a whole one.
            return _GzipFile(fileobj=FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED))
        return FileSystems.open(path, compression_type=CompressionTypes.AUTO)
    except Exception:
        raise _not_opened(path) from None


def _not_opened(path: str) -> InputError:
    what = "is a folder: give a glob of the files in it" if os.path.isdir(path) else "cannot be opened"
    return InputError(f"{path}: {what}")


class _GzipFile(gzip.GzipFile):
    """Closes the file below as well."""

    def __init__(self, fileobj: BinaryIO):
        super().__init__(fileobj=fileobj, mode="rb")
        self._below = fileobj

    def close(self) -> None:
        super().close()
        self._below.close()


def _require(names: Sequence[str], wanted: Sequence[str] | None, path: str) -> None:
    for name in wanted or ():
        if name not in names:
            listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise InputError(f"{path}: there is no column {name!r}; it has: {listed}")


def _read_tfrecord(
    path: str, wanted: list[str] | None, replaced: str | None, learned: Learned
) -> Iterator[pa.RecordBatch]:
    """replaced: the label of records that are carried along as they stand in the file; None for columns alone."""
    # The extra `tfx`, loaded only where TFRecords are.
    from .example_columns import ExampleColumns
    from .tf_example import ExampleDecoder

    finder = learned.finder = learned.finder or ValueFinder(wanted or ())
    decoder, columns = ExampleDecoder(path), ExampleColumns(path, finder)
    with _open(path) as file:
        for frames in read_records(file, path, BATCH_ROWS):
            if replaced is not None:
                yield columns.read_encoded(frames, replaced)
            else:
                batch = decoder.decode(frames.records()) if wanted is None else columns.read(frames)
                yield _as_long_as(batch, len(frames))


def _as_long_as(batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    """A batch without columns forgets how many records it has; a column of nulls remembers."""
    if batch.num_columns:
        return batch
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], [""])


def _read_parquet(path: str, first: str, wanted: list[str] | None, part: RowGroups | None) -> Iterator[pa.RecordBatch]:
    with _arrow_file(path) as file:
        parquet = _parquet_file(file, path)
        if first != path:
            with _arrow_file(first) as sibling:
                _same_schema(parquet.schema_arrow, _parquet_file(sibling, first).schema_arrow, path, first)
        _check_unique(parquet.schema_arrow.names, path)
        _require(parquet.schema_arrow.names, wanted, path)
        groups = range(parquet.num_row_groups) if part is None else range(part.first, part.stop)
        try:
            yield from parquet.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=wanted)
        except (pa.ArrowException, OSError):
            raise InputError(f"{path}: the Parquet file is damaged") from None


def _arrow_file(path: str) -> pa.NativeFile:
    """A file that Arrow reads without Python where it can."""
    try:
        return pa.PythonFile(_open(path), "r") if is_remote(path) else pa.OSFile(path)
    except OSError:
        raise _not_opened(path) from None


def _parquet_file(file: pa.NativeFile, path: str) -> pa.parquet.ParquetFile:
    try:
        return pa.parquet.ParquetFile(file)
    except (pa.ArrowException, OSError):
        raise InputError(f"{path}: not a Parquet file, or truncated") from None


def _same_schema(schema: pa.Schema, other: pa.Schema, path: str, first: str) -> None:
    if schema.equals(other, check_metadata=False):
        return
    for field in schema:
        if other.get_field_index(field.name) < 0:
            raise InputError(f"{path}: column {field.name!r} is not in {first}: all files need one schema")
        if not other.field(field.name).type.equals(field.type):
            raise InputError(
                f"{path}: column {field.name!r} holds {field.type}, but {other.field(field.name).type} in {first}: "
                "all files need one schema"
            )
    raise InputError(f"{path}: another schema than {first}: all files need the same columns in the same order")


def _read_csv(
    path: str,
    first: str,
    format: Format,
    wanted: list[str] | None,
    label: str | None,
    known: dict[str, dict[str, pa.DataType]],
) -> Iterator[pa.RecordBatch]:
    if first not in known:
        known[first] = _csv_types(first, format, wanted, label)
    types = known[first]
    rows = 0
    for header, block in _csv_blocks(path):
        if rows == 0 and path != first:
            names = _csv_header(path, header)
            if sorted(names) != sorted(types):
                raise InputError(f"{path}: another header than {first}: all files need the same columns")
        for batch in _parse_csv(path, header, block, types, wanted, label, rows).to_batches(BATCH_ROWS):
            rows += batch.num_rows
            yield batch


def _csv_header(path: str, header: bytes) -> list[str]:
    """The column names. Raises InputError when there are none or they are no text."""
    try:
        names = next(csv.reader([header.decode("utf-8-sig")]), [])
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{path}: the header line is not UTF-8 text") from None
    if not names:
        raise InputError(f"{path}: the CSV file is empty: it needs a header line and rows")
    return names


def _check_unique(names: Sequence[str], path: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: column {name!r} occurs twice: give each a name of its own")


def _csv_blocks(path: str) -> Iterator[tuple[bytes, bytes]]:
    """The header line and blocks of whole rows, some megabytes each; at least one, which may be empty.

    Raises InputError for a quote that is never closed and for a row of more than `_CSV_ROW` bytes: that much is held.

    Arrow's own streaming reader would call back into Python from threads of its own, and can deadlock there.
    """
    with _open(path) as file:
        row_ends, header, held, lines = _RowEnds(), None, [], 0
        chunk = _read_some(file, path).removeprefix(codecs.BOM_UTF8)
        while chunk:
            end = row_ends.last(chunk)
            if end:
                whole, held = b"".join([*held, chunk[:end]]), []
                lines += np.count_nonzero(np.frombuffer(whole, np.uint8) == ord("\n"))
                if header is None:
                    start = _header_end(whole)
                    header, whole = whole[:start], whole[start:]
                if whole:
                    yield header, whole
            held.append(chunk[end:])
            if sum(map(len, held)) > _CSV_ROW:
                raise InputError(
                    f"{path}: line {lines + 1} begins a row of more than {_CSV_ROW / 1e6:,.0f} MB: most likely a quote "
                    '(") opens a field on that line and none closes it'
                )
            chunk = _read_some(file, path)
        # The last line may lack its newline. Of a quote left open, Arrow makes a cell of all that follows.
        if not row_ends.last(b"\n"):
            raise InputError(
                f'{path}: a quote (") opens a field in the row that begins on line {lines + 1} and none closes it: '
                "close it, or, if it is text, double it and quote the field"
            )
        rest = b"".join(held)
        if header is None:
            start = _header_end(rest)
            header, rest = rest[:start], rest[start:]
        yield header, rest


def _read_some(file: BinaryIO, path: str) -> bytes:
    try:
        return file.read(_CSV_BLOCK)
    except Exception:
        raise InputError(f"{path}: cannot be read or decompressed") from None


class _RowEnds:
    """Finds where the rows of a CSV file end, chunk by chunk: at newlines outside quotes, as Arrow's parser sees them.

    To Arrow a quote opens a field only where the field begins. Inside, two quotes are an escaped one, and a single one
    closes; up to the next field, quotes are text again. So of a run of quotes this is all that matters:
    - of even length: whoever was inside quotes still is, whoever was outside still is;
    - of odd length, after a comma or line break: it opens from outside, and closes from inside;
    - of odd length, after anything else: it closes from inside, and is text outside. Either way, outside follows.
    The third kind says where one is without knowing what came before. Therefore mostly a chunk's end is all that is
    looked at.
    """

    def __init__(self) -> None:
        # Of what came before: whether it ends inside quotes, and its last byte with the run of quotes that follows it,
        # which the next chunk may prolong. A file begins as a line does.
        self._inside = False
        self._before = b"\n"

    def last(self, chunk: bytes) -> int:
        """Where the last row that ends in this chunk ends, after its newline; 0 if none does. Chunks come in order."""
        text = self._before + chunk
        settled = text.rstrip(b'"')
        end, self._inside = _last_row_end(settled, self._inside)
        end -= len(self._before)
        run = len(text) - len(settled)
        # Only the run's parity counts.
        self._before = settled[-1:] + b'"' * (run and 2 - run % 2)
        return max(end, 0)


def _last_row_end(text: bytes, inside: bool) -> tuple[int, bool]:
    """Where the last row ends, 0 if none does; whether the text ends inside quotes.

    text: the first byte is none of it, it tells what follows; neither that nor the last byte is a quote. inside:
    whether it begins inside quotes. Cost O(length), however the quotes lie.
    """
    stop = text.rfind(b'"') + 1
    start = max(stop - _CSV_WINDOW, 0)
    while True:
        places, states = _quoting(text, start, stop, inside)
        borders = np.append(places, len(text))
        for place in np.flatnonzero(~states)[::-1]:
            end = text.rfind(b"\n", borders[place], borders[place + 1]) + 1
            if end:
                return end, bool(states[-1])
        if start == 0:
            return 0, bool(states[-1])
        start = 0


_ENDS_FIELD = np.isin(np.arange(256), list(b",\r\n"))


def _quoting(text: bytes, start: int, stop: int, inside: bool) -> tuple[np.ndarray, np.ndarray]:
    """(places, states): from each place to the next, the last one to the text's end, whether text is inside quotes.

    The first place is 1 if start is 0, else the first after start where that can be told; there may be none.
    stop: after the last quote. The rest is as for `_last_row_end`.
    """
    codes = np.frombuffer(text, np.uint8)
    quotes = codes[start : stop + 1] == ord('"')
    quotes[0] = False
    edges = np.flatnonzero(quotes[1:] != quotes[:-1]) + start + 1
    begins, ends = edges[::2], edges[1::2]
    if start:
        # The first run may have begun before.
        begins, ends = begins[1:], ends[1:]
    places = begins[(ends - begins) & 1 == 1]
    opens = _ENDS_FIELD[codes[places - 1]]
    if start == 0:
        # As if quotes had led there: text, and one that opens.
        led = [False, True] if inside else [False]
        places, opens = np.append([1] * len(led), places), np.append(led, opens)
    known = np.append(np.flatnonzero(~opens), len(opens))[0]
    places, opens = places[known:], opens[known:]
    flips = np.cumsum(opens)
    since = flips - np.maximum.accumulate(np.where(opens, 0, flips))
    return places, since & 1 == 1


_FIELD = rb'(?:"[^"]*(?:""[^"]*)*")?[^,\r\n]*'
_ROW = re.compile(rb"%b(?:,%b)*(?:\r\n?|\n)?" % (_FIELD, _FIELD))


def _header_end(text: bytes) -> int:
    """Where the first row ends, after its line break, in text whose quotes are closed."""
    return next(_ROW.finditer(text)).end()


def _parse_csv(
    path: str,
    header: bytes,
    block: bytes,
    types: Mapping[str, pa.DataType],
    wanted: list[str] | None,
    label: str | None,
    rows_before: int,
) -> pa.Table:
    """The records of a block. types: of the columns; those it lacks are inferred."""
    try:
        return pa.csv.read_csv(
            pa.BufferReader(header + block),
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=len(header) + len(block) + 1),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(column_types=types, include_columns=wanted),
        )
    except (pa.ArrowException, OSError) as error:
        names = next(csv.reader([header.decode(errors="replace")]), [])
        raise InputError(f"{path}: {_safe_csv_message(str(error), names, types, label, rows_before)}") from None


def _csv_types(first: str, format: Format, wanted: list[str] | None, label: str | None) -> dict[str, pa.DataType]:
    """The type of every column, from the first block of the first file."""
    header, block = next(_csv_blocks(first))
    names = _csv_header(first, header)
    for name in wanted or ([label] if label else []):
        if name not in names:
            # Names are not listed: a file without a header has its first record there.
            raise InputError(f"{first}: there is no column {name!r} in the header line")
    _check_unique(names, first)
    types = {}
    for field in _parse_csv(first, header, block, {}, None, label, 0).schema:
        kind = field.type
        # Dates have no place in tf.Example, and an empty first block says nothing.
        types[field.name] = pa.string() if pa.types.is_temporal(kind) or pa.types.is_null(kind) else kind
    for name, kind in (format.csv_types or {}).items():
        if name not in types:
            raise InputError(f"--csv_types names {name!r}, which is not in {first}")
        types[name] = pa.type_for_alias(kind)
    if label in types:
        types[label] = pa.float64()
    return types


def _safe_csv_message(
    message: str, names: Sequence[str], types: Mapping[str, Any], label: str | None, rows_before: int
) -> str:
    """What Arrow says of a bad CSV file, less the text that it quotes from the file."""
    # Only the beginning is Arrow's own; the rest may be text of the file that looks like it.
    fields = re.match(r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", message)
    if fields:
        line = f"line {int(fields[1]) + rows_before} has" if fields[1] else "a line has"
        return f"{line} {fields[3]} fields, where the header has {fields[2]}"
    column = re.match(r"In CSV column #(\d+): (?:Row #(\d+): )?", message)
    if column and int(column[1]) < len(names):
        name = names[int(column[1])]
        line = f"line {int(column[2]) + rows_before}" if column[2] else "a line"
        if name == label:
            return f"label column {name!r} holds text on {line}, not a number: name another with --label, or mend it"
        return f"column {name!r} on {line} is not a {types[name]}: mend it, or give --csv_types {name}=string"
    return "not a CSV file that can be read, or damaged"
