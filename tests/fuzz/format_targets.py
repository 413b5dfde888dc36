"""Targets of the input formats: TFRecord framing, tf.Examples, CSV and Parquet, beside slow reference decoders."""

import contextlib
import csv
import io
import itertools
import math
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from commands_in_process import CANARY
from harness import Case, Target
from hypothesis import strategies as st
from labeldp.transforms import Format, InputError, Limits
from labeldp.transforms.batches import label_values
from labeldp.transforms.io.csv_dialect import Dialect
from labeldp.transforms.io.input_format import FilePart
from labeldp.transforms.readers.file_reader import FileReader
from labeldp.transforms.tfrecord import framing, wire
from labeldp.transforms.tfrecord.encoded_batches import EncodedRecords
from labeldp.transforms.tfrecord.example_columns import ExampleColumns
from labeldp.transforms.tfrecord.example_decoder import ExampleDecoder
from labeldp.transforms.tfrecord.framing import Frames
from mutations import lengths, mutated_bytes, varint
from parquet_process import ParquetProcess
from references import Features, batch_lengths, canonical_features, libraries_differ, parsed_examples, records_of
from seeds import CSV, CSV_TOKENS, examples, parquets, tfrecords, workspace

from tests.transforms.tfrecord import wire_reference

# TFRecord framing.


def _header(length: int) -> bytes:
    octets = length.to_bytes(8, "little")
    return octets + framing.checksums([octets]).astype("<u4").tobytes()


@st.composite
def framings(draw: st.DrawFn) -> Case:
    content = draw(mutated_bytes(tfrecords(), [bytes(12), _header(0) + _header(0)]))
    if draw(st.booleans()):  # a length with a right checksum
        at = draw(st.integers(0, len(content)))
        content = content[:at] + _header(draw(lengths())) + content[at + 12 * draw(st.integers(0, 1)) :]
    numbers = {
        "chunk": st.integers(1, 300),
        "batch": st.integers(1, 30),
        "most": st.integers(1, 200) | st.just(1 << 24),
    }
    drawn = {name: b"%d" % draw(strategy) for name, strategy in numbers.items()}
    return {"file": content, **drawn, "drips": draw(st.sampled_from([b"", b"", b"yes"]))}


class _Dripping(io.BytesIO):
    """A file that returns fewer bytes than requested, as sockets do."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(3 if size else 0)


def _check_framing(case: Case) -> bool:
    content, batch, most = case["file"], int(case["batch"]), int(case["most"])
    expected, problem = records_of(content)
    limits = Limits(chunk_bytes=int(case["chunk"]), frames_bytes=most)
    file = (_Dripping if case["drips"] else io.BytesIO)(content)
    batches: list[Frames] = []
    refused = None
    try:
        # The sizes are those of features: the bytes of the records themselves decide nothing.
        for frames in framing.read_records(
            file, "/logs/a", batch, lambda each: (each.stops - each.starts) // 2, None, limits
        ):
            batches.append(frames)
    except InputError as error:
        refused = str(error)
    assert refused == (problem and f"/logs/a: {problem}")
    found = [record for frames in batches for record in frames]
    lengths = batch_lengths([len(record) // 2 for record in expected], batch, most)
    assert list(map(len, batches)) == lengths[: len(batches)]
    assert found == expected[: len(found)], "records of a batch with a bad one"
    if problem is not None:
        return False
    assert found == expected
    assert framing.frame(found) == content
    return True


# The wire format of tf.Examples.

_WANTED = ("y", "x")


def _field(number: int, content: bytes, padding: int = 0, length: int | None = None) -> bytes:
    return varint(number << 3 | 2) + varint(len(content) if length is None else length, padding) + content


@st.composite
def _lists(draw: st.DrawFn) -> bytes:
    """A Feature: one list, mostly, in one of the many ways of the wire format."""
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return b""
    if kind <= 2:
        number, floats = 2, draw(st.lists(st.floats(width=32), max_size=2))
        packed = struct.pack(f"<{len(floats)}f", *floats)
        single = b"".join(b"\x0d" + packed[at : at + 4] for at in range(0, len(packed), 4))
    elif kind <= 4:
        number = 3
        integers = draw(st.lists(st.integers(0, (1 << 64) - 1) | st.integers(0, 300), max_size=2))
        octets = [varint(integer, draw(st.integers(0, 2))) for integer in integers]
        packed, single = b"".join(octets), b"".join(b"\x08" + each for each in octets)
    else:
        return _field(1, b"".join(_field(1, text) for text in draw(st.lists(st.binary(max_size=9), max_size=2))))
    items = draw(st.sampled_from([_field(1, packed), _field(1, packed), single, _field(1, packed) + single]))
    return _field(number, items, draw(st.sampled_from([0, 0, 0, 1, 4])))


@st.composite
def _wire_records(draw: st.DrawFn) -> bytes:
    """A tf.Example of entries that a protocol buffer library would not write, but may have to read."""
    entries = []
    for _ in range(draw(st.integers(0, 4))):
        key = _field(
            1, draw(st.sampled_from([b"y", b"y", b"x", b"f", b"", b"\xc3\xa9", b"\xff", b"long name of a feature"]))
        )
        value = _field(2, draw(_lists()) + draw(st.sampled_from([b"", b"", b"", b"\x12\x00", _field(4, b"\0\0zF")])))
        parts = draw(
            st.sampled_from([[key, value], [key, value], [value, key], [key], [value], [key, value, value], []])
        )
        entries.append(_field(1, b"".join(parts), draw(st.sampled_from([0, 0, 0, 1]))))
    cut = draw(st.integers(0, len(entries)))
    several = draw(st.integers(0, 5)) == 0
    example = b"".join(_field(1, b"".join(part)) for part in ([entries[:cut], entries[cut:]] if several else [entries]))
    after = [b"", b"", b"", b"\x10\x01", b"\x13\x14", _field(2, b"hidden"), _field(15, b"hidden"), b"\x0a\x00"]
    return example + draw(st.sampled_from(after))


@st.composite
def wires(draw: st.DrawFn) -> Case:
    tokens = [
        b"\x0a\x01y",
        b"\x12\x06\x12\x04\x0a\x04",
        b"\x0d",
        b"\x08",
        b"\x1a",
        b"\x0a\x00",
        b"\x0b\x0c",
        b"\xff" * 10,
    ]
    record = mutated_bytes(examples(), tokens) | _wire_records()
    records = draw(st.lists(record, min_size=1, max_size=4))
    records += records[:1] * draw(st.integers(0, 5))
    return {f"{place}": record for place, record in enumerate(records)}


def _check_wire(case: Case) -> bool:
    records = [case[f"{place}"] for place in range(len(case))]
    odd = any(map(libraries_differ, records))
    parsed = None if odd else parsed_examples(records)
    if not odd:
        _check_decoder(records, parsed)
    frames = Frames.of(records)
    _compare_walks(frames)
    try:
        found = ExampleColumns("/logs/a", _WANTED).read(frames)
    except InputError as error:
        _check_refusal(error)
        found = None
    try:
        columns, encoded = ExampleColumns("/logs/a", _WANTED).read_encoded(frames, ["y"])
    except InputError:
        assert found is None
        columns = encoded = None
    if found is None or columns is None or encoded is None:
        assert encoded is None
        assert parsed is None or _kinds_change(parsed), "refused"
        return False
    _check_replaced(columns, encoded, parsed)
    if odd:
        return True
    assert parsed is not None, "accepted"
    for name in _WANTED:
        expected = [_single(features.get(name)) for features in parsed]
        for batch in (found, columns):
            place = batch.schema.get_field_index(name)
            got = [None] * len(records) if place < 0 else batch.column(place).to_pylist()
            assert list(map(_comparable, got)) == list(map(_comparable, expected))
    return True


def _check_refusal(error: InputError) -> None:
    assert str(error).startswith("/logs/a: ")
    assert CANARY not in str(error)


def _compare_walks(frames: Frames) -> None:
    """The compiled walk finds what the reference finds."""
    answers = []
    for walk in (wire.walk_examples, wire_reference.walk_examples):
        canonical, found = np.empty(len(frames), bool), np.zeros((len(_WANTED), 3, len(frames)), np.int64)
        names = tuple(name.encode() for name in _WANTED)
        listed = walk(frames.content, frames.starts, frames.stops, names, canonical, found, True, bytes(range(16)))
        answers.append((canonical.tolist(), found.tolist(), listed))
    assert answers[0] == answers[1]


# Arguments of the compiled functions.

_POWERS = [sign * (1 << bits) + more for sign in (1, -1) for bits in (31, 32, 33, 48, 62) for more in (-1, 0, 1)]
_NUMBERS = st.integers(-20, 80) | st.sampled_from(_POWERS) | st.sampled_from([-1 << 63, (1 << 63) - 1])


@st.composite
def wire_arguments(draw: st.DrawFn) -> Case:
    records = draw(st.lists(_wire_records(), max_size=3))
    bounds = [0, *itertools.accumulate(len(record) + 16 for record in records)]
    numbers = draw(st.lists(_NUMBERS, max_size=6)) if draw(st.booleans()) else bounds
    for at in draw(st.lists(st.integers(0, 5), max_size=2)):
        numbers[at : at + 1] = [draw(_NUMBERS)]
    return {"file": framing.frame(records), "numbers": np.array(numbers, np.int64).tobytes()}


def _check_arguments(case: Case) -> bool:
    """The compiled functions refuse the arguments that those of the reference refuse, and do the same with others."""
    numbers = np.frombuffer(case["numbers"], np.int64)
    starts = numbers[: len(numbers) // 2]
    answers = []
    for functions in (wire, wire_reference):
        octets, checksums = np.frombuffer(case["file"], np.uint8).copy(), np.arange(len(numbers), dtype=np.uint32)
        canonical, found = np.empty(len(starts), bool), np.zeros((1, 3, len(starts)), np.int64)
        stops = numbers[len(starts) : 2 * len(starts)]
        listed = functions.walk_examples(octets, starts, stops, (b"y",), canonical, found, True, bytes(range(16)))
        answers.append([
            listed, canonical.tolist(), found.tolist(),
            _unless_refused(functions.write_footers, octets, numbers),
            _unless_refused(functions.shift_checksums, checksums, numbers),
            *_read_places(functions, case["file"], starts, stops),
            *_of_texts(functions, case["file"], numbers), *_of_frames(functions, case["file"], numbers),
        ])  # fmt: skip
    assert answers[0] == answers[1]
    for position, stop in itertools.pairwise(numbers.tolist()):
        ends = np.zeros(3, np.int64)
        try:
            assert 0 <= wire.follow_frames(case["file"], position, stop, ends)[0] <= 3
        except ValueError:
            assert not (position >= 0 and 0 <= stop <= len(case["file"]))
    return answers[0][3] is not None


def _of_texts(functions: Any, content: bytes, numbers: np.ndarray) -> list[Any]:
    """Checksum of the content, hashes of texts, and records without an entry; None where they are refused."""
    results: list[Any] = [functions.crc32c(content), None, None]
    hashes, ends = np.full(max(len(numbers) - 1, 0), -1), np.zeros(len(numbers), np.int64)
    with contextlib.suppress(ValueError):
        functions.hash_texts(content, numbers, hashes)
        results[1] = hashes.tolist()
    with contextlib.suppress(ValueError):
        results[2] = functions.drop_entries(content, numbers, (b"y", b"\xc3\xa9"), ends), ends.tolist()
    return results


def _of_frames(functions: Any, content: bytes, numbers: np.ndarray) -> list[Any]:
    """Frames that are written, skimmed and followed, of a file of which one byte may be changed."""
    changed = bytearray(content)
    if content and len(numbers) % 3:
        changed[int(numbers.sum()) % len(content)] ^= 1 << len(numbers) % 8
    starts, ends = np.zeros(3, np.int64), np.zeros(3, np.int64)
    skimmed, followed = (
        functions.skim_frames(bytes(changed), starts),
        functions.follow_frames(bytes(changed), 0, len(changed), ends),
    )
    return [functions.frame([content, b"", content[:9]]), skimmed, starts.tolist(), followed, ends.tolist()]


def _unless_refused(function: Callable[..., None], changed: np.ndarray, numbers: np.ndarray) -> bytes | None:
    try:
        function(changed, numbers)
    except ValueError:
        return None
    return changed.tobytes()


def _read_places(functions: Any, content: bytes, starts: np.ndarray, stops: np.ndarray) -> list[Any]:
    """Varints and texts at places, None where they are refused."""
    results: list[Any] = [None, None]
    numbers, bounds = np.zeros(len(starts), np.int64), np.zeros(len(starts) + 1, np.int64)
    with contextlib.suppress(ValueError):
        functions.read_varints(content, starts, stops, numbers)
        results[0] = numbers.tolist()
    with contextlib.suppress(ValueError):
        results[1] = functions.join_texts(content, starts, stops, bounds), bounds.tolist()
    return results


def _check_decoder(records: list[bytes], parsed: list[Features] | None) -> None:
    try:
        decoded = ExampleDecoder("/logs/a").decode(records).to_pylist()
        assert repr(ExampleDecoder("/logs/a").decode_frames(Frames.of(records)).to_pylist()) == repr(decoded)
    except InputError as error:
        _check_refusal(error)
        assert parsed is None or _kinds_change(parsed), "refused"
        return
    assert parsed is not None, "accepted"
    for row, features in zip(decoded or [{}] * len(parsed), parsed, strict=True):
        got = {name: list(map(_comparable, values)) for name, values in row.items() if values}
        assert got == {name: list(map(_comparable, values)) for name, (_, values) in features.items() if values}


def _check_replaced(columns: pa.RecordBatch, encoded: EncodedRecords, parsed: list[Features] | None) -> None:
    """Every record with a number as label holds its features and the new label, and nothing else."""
    place = columns.schema.get_field_index("y")
    if place < 0 or not (
        pa.types.is_floating(columns.column(place).type) or pa.types.is_integer(columns.column(place).type)
    ):
        return
    rows = np.flatnonzero(np.asarray(columns.column(place).is_valid()))
    if not len(rows):
        return
    replaced = encoded.take(rows).with_label("y", np.full(len(rows), 48613.75))
    written, problem = records_of(replaced.framed().to_pybytes())
    assert problem is None
    for record, row in zip(written, rows.tolist(), strict=True):
        found = _with_values(canonical_features(record))
        assert found["y"] == ("float", [(48613.75, 1.0)])
        if parsed is not None:
            assert found == _with_values({**parsed[row], "y": ("float", [48613.75])})


def _with_values(features: Features) -> dict[str, Any]:
    return {name: (kind, list(map(_comparable, values))) for name, (kind, values) in features.items() if values}


def _single(feature: tuple[str | None, list[Any]] | None) -> Any:
    return feature[1][0] if feature is not None and len(feature[1]) == 1 else None


def _comparable(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return "nan" if math.isnan(value) else (value, math.copysign(1, value))


def _kinds_change(parsed: list[Features]) -> bool:
    kinds: dict[str, str] = {}
    return any(
        kind is not None and kinds.setdefault(name, kind) != kind
        for features in parsed
        for name, (kind, _) in features.items()
    )


# CSV.

_NULLS = {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA",
          "NULL", "NaN", "n/a", "nan", "null"}  # fmt: skip
"""Texts that Arrow takes for a missing number."""


@st.composite
def csvs(draw: st.DrawFn) -> Case:
    content, encoding = (
        draw(mutated_bytes(CSV, CSV_TOKENS)),
        draw(st.sampled_from(["utf-8", "utf-8", "cp1252", "utf-16-le"])),
    )
    delimiter = draw(st.sampled_from([",", ";", "\t", "|"]))
    content = content.replace(b",", delimiter.encode())
    if encoding == "utf-16-le":
        # Mutations may leave half a character at the end.
        content = content.decode("latin-1").encode(encoding) + draw(st.sampled_from([b"", b"", b"\xd8", b"\0\xd8"]))
    return {
        "file": content,
        "block": b"%d" % draw(st.integers(1, 200)),
        "window": b"%d" % draw(st.sampled_from([1, 2, 5, 20, 1 << 16])),
        "delimiter": delimiter.encode(),
        "encoding": encoding.encode(),
        "newlines": draw(st.sampled_from([b"", b"yes"])),
    }


def _check_csv(case: Case) -> bool:
    path = workspace() / "fuzzed.csv"
    path.write_bytes(case["file"])
    newlines = bool(case["newlines"])
    dialect = Dialect(case["delimiter"].decode(), case["encoding"].decode(), newlines=newlines)
    limits = Limits(block_bytes=int(case["block"]), window_bytes=int(case["window"]))
    format = Format("csv", {"f": "string", "g": "string"}, dialect=dialect, limits=limits)
    reader = FileReader(format, label_column="y")
    try:
        batches = list(reader.read(FilePart(str(path), str(path))))
        labels = [label for batch in batches for label in label_values(batch, "y").tolist()]
    except InputError as error:
        _check_message(error, case["file"])
        return False
    # The reader takes two byte order marks for one, as joined files have them.
    text = case["file"].decode(dialect.encoding).lstrip("\ufeff")
    assert _in_step(dialect.delimiter, newlines).fullmatch(text), "a quote is out of place"
    header, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=dialect.delimiter, strict=True)
    rows = [row for row in rows if row]
    assert [batch.start for batch in batches] == [0, *(batch.stop for batch in batches)][: len(batches)]
    for name in ("f", "g"):
        got = [value for batch in batches for value in (batch.column(name) or pa.array([])).to_pylist()]
        assert got == [row[header.index(name)] for row in rows], name
    expected = [row[header.index("y")].strip(" \t") for row in rows]
    for got, cell in zip(labels, expected, strict=True):
        number = math.nan if cell in _NULLS else float(cell)
        assert got == number or (math.isnan(got) and not math.isfinite(number)), "another label"
    return True


def _in_step(delimiter: str, newlines: bool) -> re.Pattern[str]:
    """Texts without a quote that is out of place, which the csv module reads, too."""
    inside = '[^"]' if newlines else r'[^"\r\n]'
    field = rf'(?:"(?:{inside}|"")*"|[^"\r\n{re.escape(delimiter)}]*)'
    return re.compile(rf"{field}(?:[\r\n{re.escape(delimiter)}]{field})*")


def _check_message(error: InputError, content: bytes) -> None:
    assert "\n" not in str(error)
    if CANARY.encode() in content:
        # A mutated header may name a column so.
        assert CANARY not in str(error) or CANARY.encode() in content.splitlines()[0]


# Parquet, in a process of its own: pyarrow may crash on a corrupt file.


def _check_parquet(case: Case) -> bool:
    return ParquetProcess.shared().accepts(case["file"])


_PARQUET_TOKENS = (
    b"PAR1",
    b"\0",
    b"\xff\xff\xff\xff\x0f",
    b"\x15\x00",
    b"\x15\x80\x80\x80\x80\x10",
    b"\x19\xfc",
    b"y",
    b"f",
)


@st.composite
def parquet_files(draw: st.DrawFn) -> Case:
    content = draw(mutated_bytes(parquets(), _PARQUET_TOKENS))
    if draw(st.booleans()) and len(content) > 12:
        # Most of what can go wrong is in the metadata at the end.
        size = min(int.from_bytes(content[-8:-4], "little"), len(content) - 8)
        metadata = draw(mutated_bytes([content[len(content) - 8 - size : -8]], _PARQUET_TOKENS, 1))
        content = content[: len(content) - 8 - size] + metadata + len(metadata).to_bytes(4, "little") + b"PAR1"
    return {"file": content}


FORMATS = ("tfrecord", "tf_example", "wire", "csv", "parquet")


def format_targets(names: Sequence[str] = FORMATS) -> list[Target]:
    """Targets of this module.

    Args:
      names: Those that are wanted.

    Returns:
      The targets.
    """
    # Loads TensorFlow before memory is limited.
    parsed_examples([])
    tfrecords()
    if "parquet" in names:
        # Starts the process, which takes some seconds.
        ParquetProcess.shared().accepts(parquets()[0])
    targets = (
        Target("tfrecord", framings(), _check_framing, 400),
        Target("tf_example", wires(), _check_wire, 400),
        Target("wire", wire_arguments(), _check_arguments, 300),
        Target("csv", csvs(), _check_csv, 400),
        Target("parquet", parquet_files(), _check_parquet, 200),
    )
    return [target for target in targets if target.name in names]
