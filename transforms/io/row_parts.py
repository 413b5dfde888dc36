"""Parts of local files whose rows must be found first: TFRecord and CSV. Parts are whole batches or whole shards."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from apache_beam.io.filesystem import CompressionTypes

from .filesystems import is_remote
from .input_format import BATCH_ROWS, FilePart

# Rows of a part, at least, and most parts of a file.
_PART_ROWS, _MOST_PARTS = 1 << 17, 64
# Where there are as many files, workers are busy with whole ones; and with whole shards of a file that has as many.
ENOUGH_FILES = 8


def splits(file: FilePart, encoding: str = "utf-8") -> bool:
    """Tells whether a whole file of rows is split into parts.

    Of CSV files, only those in UTF-8 are split: offsets in other encodings are not those of the text.

    Only few files are split that are local and not compressed: for others, finding the rows costs as much as it saves.
    """
    plain = CompressionTypes.detect_compression_type(file.path) == CompressionTypes.UNCOMPRESSED
    return encoding == "utf-8" and file.files < ENOUGH_FILES and plain and not is_remote(file.path)


def split_by_rows(file: FilePart, count: Callable[[], int], encoding: str = "utf-8") -> Iterator[FilePart]:
    """Splits a whole file into parts that workers read in parallel, by its number of rows.

    Yields parts in order, at least one. `count` counts the rows, with another pass over the file; `encoding` is that of
    a CSV file.
    """
    parts = min(max(count() // _PART_ROWS, 1), _MOST_PARTS) if splits(file, encoding) else 1
    for number in range(parts):
        yield dataclasses.replace(file, number=number, parts=parts)


def bounds_of_part(part: FilePart, batches: int) -> tuple[int, int | None]:
    """Rows of a part by `split_by_rows`, which are whole shards or whole batches of its file.

    `batches` is the number of batches of the file. Returns (first, stop): the first row, and the one after the last;
    None for the end of the file. They are equal for a part without a shard: those come last, so that workers which take
    parts by turns get equally many shards. Parts are whole batches if the file has too few shards to occupy workers.

    A shard of one part is written once, by one worker; the segments of several are copied.
    """
    starts, parts = (0, *part.cuts), part.parts
    if len(starts) < ENOUGH_FILES:
        starts = range(0, batches * BATCH_ROWS, BATCH_ROWS)
    else:
        parts = min(parts, len(starts))
    if part.number >= parts:
        return 0, 0
    first, stop = (len(starts) * number // parts for number in (part.number, part.number + 1))
    return starts[first], starts[stop] if part.number < parts - 1 else None
