"""Synthetic logs of records with an id, 8 floats and a label, as TFRecord or Parquet: the same files for the same seed.

A record takes about 100 bytes as a tf.Example in a TFRecord file. By default the order of its features varies, as in
files that protocol buffers in C++ wrote: readers cannot rely on one order.

With `--columns clicks`, each record has the user of a click as well, an integer: one user in ten records, the numbers
of records of users by Zipf's law with an exponent of 0.9, so that the first one has a fifth of all records.

With `--columns wide`, a record is as in logs of ads: 13 integers, 26 hashed texts and a float label, about 735 bytes as
a tf.Example. Integers have one to three bytes, so that records differ in length. With `--columns sequence`, it has a
sequence of 200 floats as well. A Parquet file of wide records has 300 columns. Feature orders are all different.

With `--columns conversions`, records are the sales of the log of `labeldp demo`, mostly hashed categories, with a
prediction of each label; also as CSV.
"""

from __future__ import annotations

import argparse
import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from log_schema import (
    COLUMNS,
    CONVERSION_LABEL,
    FLOATS,
    FORMATS,
    ID,
    LABEL,
    LABEL_MAX,
    ORDERS,
    PREDICTION,
    SEQUENCE,
    USER,
    WIDE_INTEGERS,
    WIDE_PARQUET,
    WIDE_TEXTS,
)

_BATCH_ROWS = 1 << 16
# One click in nine is a sale.
_BATCH_CLICKS = 9 * _BATCH_ROWS
_ORDERS_OF_CONVERSIONS = 6
# Standard deviation of the logarithm of a prediction over its label.
_PREDICTION_ERROR = 0.4
_WIDE_BATCH_ROWS = 1 << 13
# Distinct hashed texts of a column.
_CATEGORIES = 10_000


def write_log(folder: Path, format: str, records: int, files: int, seed: int = 1, order: str = "mixed") -> None:
    """Writes files of equal length, named part-00000.FORMAT and so on.

    Args:
      folder: Folder to make.
      format: tfrecord or parquet.
      records: Number of records.
      files: Number of files.
      seed: Seed of the random values.
      order: Order of the features of a tf.Example: mixed is random for each record, fixed is id, floats, label.
    """
    folder.mkdir(parents=True)
    for number in range(files):
        rows = range(records * number // files, records * (number + 1) // files)
        path = folder / f"part-{number:05d}.{format}"
        generator = np.random.default_rng([seed, number])
        if format == "parquet":
            _write_parquet(path, _columns(generator, rows))
        else:
            _write_tfrecord(path, _columns(generator, rows), np.random.default_rng([seed, number, 1]), order)


def write_clicks(folder: Path, format: str, records: int, files: int, seed: int = 1, order: str = "fixed") -> None:
    """Writes files of equal length with users by Zipf's law.

    Args:
      folder: Folder to make.
      format: tfrecord or parquet.
      records: Number of records.
      files: Number of files.
      seed: Seed of the random values.
      order: Has no effect: features are in one order.
    """
    folder.mkdir(parents=True)
    for number in range(files):
        rows = range(records * number // files, records * (number + 1) // files)
        generator = np.random.default_rng([seed, number])
        batches = _clicks(generator, rows, records // 10)
        path = folder / f"part-{number:05d}.{format}"
        if format == "parquet":
            first = next(batches)
            with pq.ParquetWriter(path, first.schema) as writer:
                for batch in itertools.chain([first], batches):
                    writer.write_batch(batch)
            continue
        from labeldp.transforms.tfrecord.example_encoder import encode_examples
        from labeldp.transforms.tfrecord.framing import frame

        with path.open("wb") as file:
            for batch in batches:
                file.write(frame(encode_examples(batch)))


def _clicks(generator: np.random.Generator, rows: range, users: int) -> Iterator[pa.RecordBatch]:
    for ids, floats, labels in _columns(generator, rows):
        # The inverse of the distribution function: of the first k of N users it is (k / N)^0.1.
        user = (users * generator.random(len(ids)) ** 10).astype(np.int64)
        columns = {ID: ids, USER: user, "x": floats[:, 0], "z": floats[:, 1], LABEL: labels}
        yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns.values()], list(columns))


def write_wide(
    folder: Path, format: str, records: int, files: int, seed: int = 1, order: str = "mixed", sequence: bool = False
) -> None:
    """Writes files of equal length with wide records.

    Args:
      folder: Folder to make.
      format: tfrecord, parquet or csv.
      records: Number of records.
      files: Number of files.
      seed: Seed of the random values.
      order: Order of the features of a tf.Example: mixed is a random permutation for each record, fixed is one order.
      sequence: Whether records have a sequence of floats as well; not for csv.
    """
    folder.mkdir(parents=True)
    for number in range(files):
        rows = range(records * number // files, records * (number + 1) // files)
        path = folder / f"part-{number:05d}.{format}"
        batches = _wide(np.random.default_rng([seed, number]), rows, format, sequence)
        if format == "tfrecord":
            _write_wide_examples(path, batches, np.random.default_rng([seed, number, 1]), order)
        else:
            _write_tables(path, format, batches)


def _write_tables(path: Path, format: str, batches: Iterator[pa.RecordBatch]) -> None:
    first = next(batches)
    writers = {"parquet": pq.ParquetWriter, "csv": pa_csv.CSVWriter}
    with writers[format](path, first.schema) as writer:
        for batch in itertools.chain([first], batches):
            writer.write_batch(batch)


def _wide(generator: np.random.Generator, rows: range, format: str, sequence: bool) -> Iterator[pa.RecordBatch]:
    # Hashes of eight hexadecimal digits, as in public logs of ads.
    categories = pa.array([f"{number:08x}" for number in generator.integers(1 << 32, size=_CATEGORIES).tolist()])
    texts, integers, floats = WIDE_TEXTS, WIDE_INTEGERS, 0
    if format == "parquet" and not sequence:
        texts = integers = (WIDE_PARQUET - 1) // 3
        floats = WIDE_PARQUET - 1 - texts - integers
    for start in range(rows.start, rows.stop, _WIDE_BATCH_ROWS):
        size = min(_WIDE_BATCH_ROWS, rows.stop - start)
        columns: dict[str, pa.Array] = {}
        for place in range(integers):
            values = np.exp(generator.exponential(1 + place % 13 / 4, size))
            columns[f"I{place + 1}"] = pa.array(np.minimum(values, 1 << 20).astype(np.int64))
        for place in range(floats):
            columns[f"F{place + 1}"] = pa.array(generator.standard_normal(size, np.float32))
        for place in range(texts):
            chosen = (_CATEGORIES * generator.random(size) ** 3).astype(np.int64)
            columns[f"C{place + 1}"] = categories.take(pa.array(chosen))
        if sequence:
            columns["sequence"] = _lists(generator.standard_normal((size, SEQUENCE), np.float32))
        labels = 60 * np.exp(generator.standard_normal(size))
        columns[LABEL] = pa.array(np.minimum(np.round(labels, 2), LABEL_MAX).astype(np.float32))
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _write_wide_examples(
    path: Path, batches: Iterator[pa.RecordBatch], generator: np.random.Generator, order: str
) -> None:
    from labeldp.transforms.tfrecord.encoded_batches import binary_array
    from labeldp.transforms.tfrecord.example_encoder import encode_examples
    from labeldp.transforms.tfrecord.example_values import content_offsets, list_entries, varint
    from labeldp.transforms.tfrecord.framing import Frames, frame

    with path.open("wb") as file:
        for batch in batches:
            if order == "fixed":
                file.write(frame(encode_examples(batch)))
                continue
            frames = Frames.of(encode_examples(batch))
            stops = list_entries(frames.content, frames.starts, frames.stops)[1].stops
            starts = np.append(0, stops[:-1])
            starts[:: batch.num_columns] = content_offsets(frames.octets, frames.starts)
            # Every second part of the content is an entry, those of one record after the other. Each record's are
            # shuffled.
            parts = binary_array(pa.py_buffer(frames.content), np.stack([starts, stops], axis=1).ravel())
            places = np.argsort(generator.random((batch.num_rows, batch.num_columns)), axis=1)
            places += batch.num_columns * np.arange(batch.num_rows)[:, None]
            shuffled = parts.take(pa.array(2 * places.ravel()))
            offsets = np.frombuffer(shuffled.buffers()[1], np.int64)[: len(shuffled) + 1 : batch.num_columns].tolist()
            content = shuffled.buffers()[2].to_pybytes()
            bodies = [content[start:stop] for start, stop in itertools.pairwise(offsets)]
            file.write(frame([b"\x0a" + varint(len(body)) + body for body in bodies]))


def write_conversions(folder: Path, format: str, records: int, files: int, seed: int = 1, order: str = "mixed") -> None:
    """Writes files of equal length with the sales of generated clicks and a prediction of each label.

    Args:
      folder: Folder to make.
      format: tfrecord, parquet or csv.
      records: Number of records.
      files: Number of files.
      seed: Seed of the random values.
      order: Order of the features of a tf.Example: mixed is one of six at random for each record, fixed is one.
    """
    folder.mkdir(parents=True)
    for number in range(files):
        rows = records * (number + 1) // files - records * number // files
        path = folder / f"part-{number:05d}.{format}"
        batches = _conversions(np.random.default_rng([seed, number]), rows, seed * files + number)
        if format == "tfrecord":
            _write_conversion_examples(path, batches, np.random.default_rng([seed, number, 1]), order)
        else:
            _write_tables(path, format, batches)


def _conversions(generator: np.random.Generator, rows: int, seed: int) -> Iterator[pa.RecordBatch]:
    """Batches of sales with a prediction (float32); `rows` records together."""
    from labeldp.pipelines.cli.demo_command import CONVERTED, click_batches

    # More clicks than are needed: batches are made one after the other, until there are enough sales.
    for clicks in click_batches(100 * (rows + _BATCH_ROWS), seed, min(_BATCH_CLICKS, 10 * rows + 1000)):
        sales = pa.Table.from_batches([clicks]).filter(pc.equal(clicks[CONVERTED], 1)).slice(0, rows)  # type: ignore[attr-defined]
        labels = sales[CONVERSION_LABEL].to_numpy()
        predictions = labels * np.exp(_PREDICTION_ERROR * generator.standard_normal(len(labels), np.float32))
        (batch,) = sales.append_column(PREDICTION, pa.array(predictions)).combine_chunks().to_batches()
        yield batch
        rows -= len(labels)
        if not rows:
            return


def _write_conversion_examples(
    path: Path, batches: Iterator[pa.RecordBatch], generator: np.random.Generator, order: str
) -> None:
    from labeldp.transforms.tfrecord.example_encoder import encode_examples
    from labeldp.transforms.tfrecord.framing import frame

    with path.open("wb") as file:
        for batch in batches:
            names = batch.schema.names
            orders = [generator.permutation(names).tolist() for _ in range(_ORDERS_OF_CONVERSIONS)]
            orders = orders if order == "mixed" else [names]
            chosen = generator.integers(len(orders), size=batch.num_rows)
            examples = np.empty(batch.num_rows, object)
            for place, permutation in enumerate(orders):
                rows = np.flatnonzero(chosen == place)
                columns = [batch.column(names.index(name)).take(pa.array(rows)) for name in permutation]
                examples[rows] = encode_examples(pa.RecordBatch.from_arrays(columns, permutation))
            file.write(frame(examples.tolist()))


def _columns(generator: np.random.Generator, rows: range) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Batches of ids (n,) int64, floats (n, 8) float32 and labels (n,) float32 in [0, 400]."""
    for start in range(rows.start, rows.stop, _BATCH_ROWS):
        ids = np.arange(start, min(start + _BATCH_ROWS, rows.stop))
        floats = generator.standard_normal((len(ids), FLOATS), np.float32)
        values = 60 * np.exp(generator.standard_normal(len(ids)) + 0.3 * floats[:, 0])
        yield ids, floats, np.minimum(np.round(values, 2), LABEL_MAX).astype(np.float32)


def _write_parquet(path: Path, batches: Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
    names = [ID, *(f"float_{place}" for place in range(FLOATS)), LABEL]
    schema = pa.schema(
        [pa.field(name, kind) for name, kind in zip(names, [pa.int64()] + [pa.float32()] * 9, strict=True)]
    )
    with pq.ParquetWriter(path, schema) as writer:
        for ids, floats, labels in batches:
            columns = [ids, *np.ascontiguousarray(floats.T), labels]
            writer.write_table(pa.Table.from_arrays([pa.array(column) for column in columns], schema=schema))


def _write_tfrecord(
    path: Path,
    batches: Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]],
    generator: np.random.Generator,
    order: str,
) -> None:
    from labeldp.transforms.tfrecord.example_encoder import encode_examples
    from labeldp.transforms.tfrecord.framing import frame

    names = [ID, "floats", LABEL]
    orders = list(itertools.permutations(range(3))) if order == "mixed" else [(0, 1, 2)]
    with path.open("wb") as file:
        for ids, floats, labels in batches:
            columns = [pa.array(ids), _lists(floats), pa.array(labels)]
            chosen = generator.integers(len(orders), size=len(ids))
            examples = np.empty(len(ids), object)
            for place, permutation in enumerate(orders):
                rows = np.flatnonzero(chosen == place)
                batch = pa.RecordBatch.from_arrays(
                    [columns[column].take(pa.array(rows)) for column in permutation],
                    [names[column] for column in permutation],
                )
                examples[rows] = encode_examples(batch)
            file.write(frame(examples.tolist()))


def _lists(table: np.ndarray) -> pa.Array:
    offsets = np.arange(0, table.size + 1, table.shape[1])
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(table.ravel()))


def main(argv: Sequence[str] | None = None) -> None:
    """Writes a log.

    Args:
      argv: Arguments; default those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="folder to make")
    parser.add_argument("--format", required=True, choices=[*FORMATS, "csv"], help="csv for conversions and wide only")
    parser.add_argument("--records", required=True, type=int, metavar="N")
    parser.add_argument("--files", type=int, default=8, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--feature_order", choices=ORDERS, default="mixed", help="order of features (default: mixed)")
    parser.add_argument(
        "--columns", choices=COLUMNS, default="synthetic", help="synthetic: an id, 8 floats and a label (default)"
    )
    args = parser.parse_args(argv)
    write = {
        "conversions": write_conversions,
        "clicks": write_clicks,
        "synthetic": write_log,
        "wide": write_wide,
        "sequence": functools.partial(write_wide, sequence=True),
    }[args.columns]
    write(args.output, args.format, args.records, args.files, args.seed, args.feature_order)


if __name__ == "__main__":
    main()
