"""What each stage of the job does in a second of CPU time, in this process, beside a simple rival that is real.

A stage and its rivals get the same records, in batches as the job has them, and take turns; the median turn of
each counts. CPU time is that of all threads: records per second of CPU time are records per second and core.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
from labeldp.mechanisms.core.label_rounding import ROUNDINGS
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.core.randomizer import Randomizer
from labeldp.mechanisms.noise.keyed_words import words
from labeldp.mechanisms.noise.record_identities import Identities
from labeldp.mechanisms.registry import solve
from labeldp.transforms.batches import LabelledBatch, label_values, record_identities
from labeldp.transforms.io.input_format import BATCH_ROWS, Format
from labeldp.transforms.io.read_files import read_file
from labeldp.transforms.label_column import LabelColumn
from labeldp.transforms.label_summary import summarize
from labeldp.transforms.privatize_labels import privatize_batch
from labeldp.transforms.tfrecord.encoded_batches import with_label
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from labeldp.transforms.tfrecord.example_wire import ValueFinder
from labeldp.transforms.tfrecord.framing import Frames, frame, read_records
from layout import EPSILON, LABEL, LABEL_MAX, ORDERS
from race import result, say
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder, RecordBatchToExamplesEncoder
from workspace import open_workspace

_KEY = bytes(range(32))
_ID = "user"


@dataclass(frozen=True)
class Stage:
    """name: what the job calls. work: does all records once. rivals: do the same, or its floor. target: records per
    second of CPU time."""

    name: str
    work: Callable[[], object]
    rivals: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    target: float | None = None


@dataclass(frozen=True, eq=False)
class Records:
    """The records of one TFRecord file, batch by batch. raw: its bytes; frames, examples: each record's; decoded: as
    Arrow; batches: as the job carries them, undecoded but for the label. values: (n,) float64, the labels. names: the
    records' identities."""

    path: str
    raw: bytes
    column: LabelColumn
    frames: list[Frames]
    examples: list[list[bytes]]
    decoded: list[pa.RecordBatch]
    batches: list[LabelledBatch]
    values: list[np.ndarray]
    names: list[Identities]

    @classmethod
    def of(cls, path: Path) -> Records:
        """Of a file."""
        with path.open("rb") as file:
            frames = list(read_records(file, str(path), BATCH_ROWS))
        examples = [list(batch) for batch in frames]
        batches = list(_carried(str(path)))
        return cls(
            path=str(path),
            raw=path.read_bytes(),
            column=LabelColumn(LABEL, tuple(float(label) for label in range(LABEL_MAX + 1))),
            frames=frames,
            examples=examples,
            decoded=[ExamplesToRecordBatchDecoder().DecodeBatch(batch) for batch in examples],
            batches=batches,
            values=[label_values(batch, LABEL) for batch in batches],
            names=[record_identities(batch, None) for batch in batches],
        )


def _carried(path: str) -> Iterator[LabelledBatch]:
    return read_file(path, path, Format("tfrecord"), [LABEL], label=LABEL, encoded=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs all stages and prints the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--records", type=int, default=1 << 18, metavar="N", help="default 262144")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="of CPU time for each; default 3")
    parser.add_argument("--feature_order", choices=ORDERS, default="mixed", help="in tf.Examples")
    args = parser.parse_args(argv)
    with open_workspace() as space:
        log = space.log("tfrecord", args.records, files=1, order=args.feature_order)
        records = Records.of(next(log.folder.iterdir()))
        facts = {}
        for stage in _stages(records):
            facts[stage.name] = measure(stage, args.records, args.seconds)
            say(f"{stage.name}: {facts[stage.name]}")
    result("stages", {"records": args.records, "feature_order": args.feature_order, "stages": facts})


def measure(stage: Stage, records: int, seconds: float) -> dict[str, Any]:
    """Records per second of CPU time of the stage, and how many times as fast as each rival that is."""
    contenders = {"": stage.work, **stage.rivals}
    turns: dict[str, list[float]] = {name: [] for name in contenders}
    spent = dict.fromkeys(contenders, 0.0)
    while min(spent.values()) < seconds:
        # Whoever had the least time so far: turns alternate, and a fast rival has more of them.
        name = min(spent, key=lambda name: spent[name])
        started = time.process_time()
        contenders[name]()
        turns[name].append(time.process_time() - started)
        spent[name] += turns[name][-1]
    # Not the least: a virtual machine's clock of CPU time jumps back now and then.
    typical = {name: statistics.median(taken) for name, taken in turns.items()}
    return {
        "records_per_cpu_second": records / typical[""],
        **({} if stage.target is None else {"target": stage.target}),
        "speed_over": {name: typical[name] / typical[""] for name in stage.rivals},
    }


def _randomizer(column: LabelColumn, mechanism: str) -> Randomizer:
    return solve(mechanism, Prior(column.labels, np.exp(-column.labels / 100)), EPSILON)


def _stages(records: Records) -> Iterator[Stage]:
    for some in (_rounding, _sampling, _noise, _codecs, _files):
        yield from some(records)


def _rounding(records: Records) -> Iterator[Stage]:
    """Labels to those of the domain."""
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
    """Labels and words to outputs: few outputs and many."""
    generator = np.random.default_rng(1)
    pairs = [
        (records.column.indices(values, names, _KEY), generator.integers(1 << 64, size=len(values), dtype=np.uint64))
        for values, names in zip(records.values, records.names, strict=True)
    ]
    for mechanism in ("rr_on_bins", "laplace"):
        randomizer = _randomizer(records.column, mechanism)
        # Its table is made on first use, once per worker.
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
    """All that is keyed, from records' names."""
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
            summarize(batch, records.column, _KEY)

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
                summarize(batch, column, _KEY)

        yield Stage(f"count and digest, records named by text {name}", count_and_digest_ids, {}, 1.5e6)

    def randomize() -> None:
        for batch, values, names in zip(records.batches, records.values, records.names, strict=True):
            privatize_batch(batch, values, names, records.column, randomizer, _KEY, _KEY)

    yield Stage("randomize: label, word, output, its bytes and checksum", randomize)


def _with_ids(batch: LabelledBatch, text: str) -> LabelledBatch:
    """The batch's labels, and ids of text. text: makes an id of a row's number."""
    ids = pa.array([text.format(row) for row in batch.rows.tolist()])
    labels = pa.array(label_values(batch, LABEL))
    return dataclasses.replace(batch, batch=pa.RecordBatch.from_arrays([labels, ids], [LABEL, _ID]))


def _codecs(records: Records) -> Iterator[Stage]:
    """tf.Examples and their frames, in memory."""

    def walk() -> None:
        finder = ValueFinder([LABEL])
        for frames in records.frames:
            finder.find(frames.octets, frames.starts, frames.stops)

    def decode() -> None:
        decoder = ExamplesToRecordBatchDecoder()
        for examples in records.examples:
            decoder.DecodeBatch(examples)

    def relabel() -> None:
        for batch, values in zip(records.batches, records.values, strict=True):
            with_label(batch.batch, LABEL, values)

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
    """A file, in the page cache, to batches."""

    def split() -> None:
        with open(records.path, "rb") as file:
            for _ in read_records(file, records.path, BATCH_ROWS):
                pass

    def read_labels() -> None:
        for _ in read_file(records.path, records.path, Format("tfrecord"), [LABEL]):
            pass

    def read() -> None:
        for _ in _carried(records.path):
            pass

    def bare_read() -> None:
        with open(records.path, "rb") as file:
            file.read()

    rivals = {"bare read": bare_read}
    yield Stage("split a file into records, with checksums", split, rivals)
    yield Stage("read a file: first pass, labels alone", read_labels, rivals)
    yield Stage("read a file: second pass, records undecoded", read, rivals)


if __name__ == "__main__":
    main()
