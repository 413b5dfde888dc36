"""Speed of each stage of the job in one process, beside simple implementations of the same work.

A stage and its baselines process the same records, in batches as in the job, in turns; the median turn counts. CPU time
is that of all threads, so records per second of CPU time are records per second and core.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
from labeldp.mechanisms.core.label_grid import ROUNDINGS
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.core.randomizer import Randomizer
from labeldp.mechanisms.noise.keyed_words import words
from labeldp.mechanisms.registry import solve
from labeldp.mechanisms.release.drawing import drawing_of
from labeldp.mechanisms.release.label_column import LabelColumn
from labeldp.mechanisms.release.plan import Histogram
from labeldp.transforms.batches import LabelledBatch, label_values, replace_label
from labeldp.transforms.io.input_format import BATCH_ROWS, FilePart, Format
from labeldp.transforms.privatize_labels import privatize_batch
from labeldp.transforms.readers.file_reader import FileReader
from labeldp.transforms.release_passes import summarize
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from labeldp.transforms.tfrecord.example_values import find_values
from labeldp.transforms.tfrecord.framing import frame, read_records
from log_schema import EPSILON, LABEL, ORDERS
from result_line import print_result, progress
from stage_records import Records, read_batches
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder, RecordBatchToExamplesEncoder
from workspace import open_workspace

_KEY = bytes(range(32))
_HISTOGRAM = Histogram(1.0)
_ID = "user"


@dataclass(frozen=True)
class Stage:
    """Stage of the job.

    Attributes:
      name: Its name in the results.
      work: Processes all records once.
      baselines: Other implementations of the same work, or a lower bound of its cost, by name.
      target: Records per second of CPU time; None for no target.
    """

    name: str
    work: Callable[[], object]
    baselines: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    target: float | None = None


def main(argv: Sequence[str] | None = None) -> None:
    """Times all stages and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--records", type=int, default=1 << 18, metavar="N", help="number of records (default: 262144)")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="CPU time of each program (default: 3)")
    parser.add_argument("--feature_order", choices=ORDERS, default="mixed", help="order of features (default: mixed)")
    args = parser.parse_args(argv)
    with open_workspace() as space:
        log = space.log("tfrecord", args.records, files=1, order=args.feature_order)
        records = Records.read(next(log.folder.iterdir()))
        measured = {}
        for stage in _stages(records):
            measured[stage.name] = measure(stage, args.records, args.seconds)
            progress(f"{stage.name}: {measured[stage.name]}")
    print_result("stages", {"records": args.records, "feature_order": args.feature_order, "stages": measured})


def measure(stage: Stage, records: int, seconds: float) -> dict[str, Any]:
    """Times a stage and its baselines in turns.

    Args:
      stage: The stage.
      records: Number of records that one turn processes.
      seconds: CPU time to spend on each implementation.

    Returns:
      In JSON types: records per second of CPU time, the target, and the ratios of the baselines' times to the stage's.
    """
    implementations = {"": stage.work, **stage.baselines}
    turns: dict[str, list[float]] = {name: [] for name in implementations}
    spent = dict.fromkeys(implementations, 0.0)
    while min(spent.values()) < seconds:
        # The one with the least time so far: turns alternate, and a fast implementation has more of them.
        name = min(spent, key=lambda name: spent[name])
        started = time.process_time()
        implementations[name]()
        turns[name].append(time.process_time() - started)
        spent[name] += turns[name][-1]
    # Not the minimum: the CPU clock of a virtual machine sometimes jumps back.
    typical = {name: statistics.median(taken) for name, taken in turns.items()}
    return {
        "records_per_cpu_second": records / typical[""],
        **({} if stage.target is None else {"target": stage.target}),
        "speed_over": {name: typical[name] / typical[""] for name in stage.baselines},
    }


def _randomizer(column: LabelColumn, mechanism: str) -> Randomizer:
    return solve(mechanism, Prior(column.labels, np.exp(-column.labels / 100)), EPSILON)


def _stages(records: Records) -> Iterator[Stage]:
    for some in (_rounding, _sampling, _noise, _codecs, _files):
        yield from some(records)


def _rounding(records: Records) -> Iterator[Stage]:
    """Rounding of labels to those of the domain."""
    midpoints = (records.column.labels[1:] + records.column.labels[:-1]) / 2

    def search() -> None:
        for values in records.values:
            np.searchsorted(midpoints, values, side="right")

    for rounding in ROUNDINGS:
        column = dataclasses.replace(records.column, rounding=rounding)

        def rounded(column: LabelColumn = column) -> None:
            for values, names in zip(records.values, records.names, strict=True):
                column.indices(values, names, _KEY)

        yield Stage(f"label of the domain, {rounding}", rounded, {"numpy searchsorted": search})


def _sampling(records: Records) -> Iterator[Stage]:
    """Sampling of outputs, with few outputs and with many."""
    generator = np.random.default_rng(1)
    pairs = [
        (records.column.indices(values, names, _KEY), generator.integers(1 << 64, size=len(values), dtype=np.uint64))
        for values, names in zip(records.values, records.names, strict=True)
    ]
    for mechanism in ("rr_on_bins", "laplace"):
        randomizer = _randomizer(records.column, mechanism)
        # The alias table is made on first use, once per worker.
        randomizer.sample(*pairs[0])
        cumulated = np.cumsum(randomizer.probabilities(), axis=1)
        flat = (cumulated + np.arange(len(cumulated))[:, None]).ravel()

        def sample(randomizer: Randomizer = randomizer) -> None:
            for indices, drawn in pairs:
                randomizer.sample(indices, drawn)

        def search(randomizer: Randomizer = randomizer, flat: np.ndarray = flat) -> None:
            outputs = len(randomizer.outputs)
            for indices, drawn in pairs:
                uniform = (drawn >> np.uint64(11)) * 2.0**-53
                places = np.searchsorted(flat, indices + uniform, side="right") - outputs * indices
                np.take(randomizer.outputs, np.minimum(places, outputs - 1))

        name = f"sampling, {mechanism}, {len(randomizer.outputs)} outputs"
        yield Stage(name, sample, {"numpy searchsorted": search}, 20e6)


def _noise(records: Records) -> Iterator[Stage]:
    """Keyed words, counts and digest, from the identities of records."""
    randomizer = _randomizer(records.column, "rr_on_bins")

    def keyed_words() -> None:
        for names in records.names:
            words(_KEY, randomizer.fingerprint, names)

    def blake2b_words() -> None:
        for batch in records.batches:
            # Copying a keyed state is cheaper than keying.
            keyed = hashlib.blake2b(batch.source.encode(), key=_KEY, digest_size=8)
            for row in batch.rows.tolist():
                state = keyed.copy()
                state.update(row.to_bytes(8, "little"))
                state.digest()

    yield Stage("keyed words", keyed_words, {"hashlib blake2b loop": blake2b_words})

    def count_and_digest() -> None:
        for batch in records.batches:
            summarize(_HISTOGRAM, batch, records.column, True, None, _KEY)

    def blake2b_digest() -> None:
        total = 0
        for batch, values in zip(records.batches, records.values, strict=True):
            keyed = hashlib.blake2b(batch.source.encode(), key=_KEY, digest_size=32)
            for row, label in zip(batch.rows.tolist(), values.view(np.int64).tolist(), strict=True):
                state = keyed.copy()
                state.update(row.to_bytes(8, "little") + label.to_bytes(8, "little", signed=True))
                total += int.from_bytes(state.digest(), "little")

    yield Stage("count and digest", count_and_digest, {"hashlib blake2b loop": blake2b_digest}, 1.5e6)

    for name, text in {
        "of at most 15 bytes": "user-{:09d}",
        "of 36 bytes": "{:08x}-0000-4000-8000-000000000000",
    }.items():
        named = [_with_ids(batch, text) for batch in records.batches]
        column = dataclasses.replace(records.column, id_column=_ID)

        def count_and_digest_ids(named: Sequence[LabelledBatch] = named, column: LabelColumn = column) -> None:
            for batch in named:
                summarize(_HISTOGRAM, batch, column, True, None, _KEY)

        yield Stage(f"count and digest, records named by text {name}", count_and_digest_ids, {}, 1.5e6)

    drawing = drawing_of(randomizer, records.column)

    def randomize() -> None:
        for usable in records.usable:
            privatize_batch(usable, drawing, _KEY, _KEY)

    yield Stage("randomize: label, word, output, its bytes and checksum", randomize)


def _with_ids(batch: LabelledBatch, text: str) -> LabelledBatch:
    """The labels of the batch and a column of text ids. text: format of an id, for a row number."""
    ids = pa.array([text.format(row) for row in batch.rows.tolist()])
    labels = pa.array(label_values(batch, LABEL))
    return dataclasses.replace(batch, batch=pa.RecordBatch.from_arrays([labels, ids], [LABEL, _ID]), encoded=None)


def _codecs(records: Records) -> Iterator[Stage]:
    """Codecs of tf.Examples and of frames, in memory."""

    def walk() -> None:
        for frames in records.frames:
            find_values(frames.content, frames.starts, frames.stops, [LABEL])

    def decode() -> None:
        decoder = ExamplesToRecordBatchDecoder()
        for examples in records.examples:
            decoder.DecodeBatch(examples)

    def relabel() -> None:
        for batch, values in zip(records.batches, records.values, strict=True):
            replace_label(batch, LABEL, values)

    def encode() -> None:
        for batch in records.decoded:
            encode_examples(batch)

    def tfx_encode() -> None:
        encoder = RecordBatchToExamplesEncoder()
        for batch in records.decoded:
            encoder.encode(batch)

    def framing() -> None:
        for examples in records.examples:
            frame(examples)

    def checksums() -> None:
        for examples in records.examples:
            for example in examples:
                google_crc32c.value(example)

    def checksum() -> None:
        google_crc32c.value(records.raw)

    def copy() -> None:
        bytearray(records.raw)

    yield Stage("find the label on the wire", walk, {"tfx_bsl decoder": decode, "memcpy": copy})
    yield Stage("write the label back, with checksums", relabel, {"tfx_bsl encoder": tfx_encode, "memcpy": copy})
    yield Stage("encode all features (from Parquet, CSV)", encode, {"tfx_bsl encoder": tfx_encode, "memcpy": copy})
    yield Stage("frame records, with checksums", framing, {"google_crc32c loop": checksums, "memcpy": copy})
    yield Stage("google_crc32c loop", checksums, {"google_crc32c of all at once": checksum, "memcpy": copy})


def _files(records: Records) -> Iterator[Stage]:
    """Reading of a file that is in the page cache."""

    def split() -> None:
        with open(records.path, "rb") as file:
            for _ in read_records(file, records.path, BATCH_ROWS):
                pass

    def read_labels() -> None:
        for _ in FileReader(Format("tfrecord"), [LABEL]).read(FilePart(records.path, records.path)):
            pass

    def read() -> None:
        for _ in read_batches(records.path):
            pass

    def bare_read() -> None:
        with open(records.path, "rb") as file:
            file.read()

    baselines = {"bare read": bare_read}
    yield Stage("split a file into records, with checksums", split, baselines)
    yield Stage("read a file: first pass, labels alone", read_labels, baselines)
    yield Stage("read a file: second pass, records undecoded", read, baselines)


if __name__ == "__main__":
    main()
