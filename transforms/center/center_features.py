"""Features of a linear center, which are public: as numbers and categories of each batch, and as a uniform sample."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection

from ...mechanisms.center.feature_rows import Categories, Columns, HashedTexts
from ...mechanisms.center.linear_center import MOST_SAMPLE
from ...mechanisms.noise.keyed_words import words
from ..arrow_values import (
    float_values,
    is_binary,
    is_number,
    is_string,
    is_text,
    is_time,
    single_values,
    time_texts,
    value_type,
)
from ..batches import LabelledBatch, record_identities
from ..errors import InputError, redact_errors
from ..noise_key_file import NoiseKeyFile
from ..progress_log import Progress
from ..tfrecord.wire import hash_texts

# Records and samples that an accumulator holds before they are merged.
_MOST_HELD, _MOST_PARTS = 4 * MOST_SAMPLE, 256


@dataclass(frozen=True)
class CenterFeatures:
    """Features of a linear center; text columns are categories.

    Without `id_column`, the column of unique ids, records are identified by file and row.
    """

    names: tuple[str, ...]
    id_column: str | None = None

    @property
    def columns(self) -> list[str]:
        """Names of all columns to read."""
        return list(dict.fromkeys([*self.names, *([self.id_column] if self.id_column else [])]))


def feature_columns(
    batch: LabelledBatch, names: Sequence[str], categories: Iterable[str] | None = None
) -> dict[str, np.ndarray | Categories]:
    """Extracts features of n records.

    `categories` are the columns that are categories, whatever they hold; all others are numbers. It is None where this
    is not known yet: text columns are categories then, and columns without a type, which have no value, are left out.
    Raises InputError, which names the column, if one holds neither numbers nor text, or text where there must be
    numbers.

    Text is a category. Numbers and booleans are numbers, except in the columns that are named as categories. A record
    without exactly one value has none. A column that the batch does not have, or that has no value at all, is missing
    in all records.
    """
    known = None if categories is None else set(categories)
    found: dict[str, np.ndarray | Categories] = {}
    for name in names:
        values, present = _values(batch, name)
        kind = values.type
        if known is not None and not len(values):
            found[name] = _missing(batch.batch.num_rows, name in known)
        elif pa.types.is_null(kind):
            continue
        elif pa.types.is_nested(kind):
            raise InputError(
                f"{batch.source}: feature {name!r} holds {kind}, neither numbers nor text: "
                "leave it out of --center_features"
            )
        elif name in known if known is not None else is_text(kind):
            found[name] = _categories(values, present)
        elif is_number(kind):
            found[name] = _numbers(values, present)
        elif known is None:
            raise InputError(
                f"{batch.source}: feature {name!r} holds {kind}, neither numbers nor text: "
                "name the features to use with --center_features"
            )
        else:
            raise InputError(
                f"{batch.source}: feature {name!r} holds {kind}, but numbers in other files: make it numbers in all of "
                "them, or leave it out of --center_features"
            )
    return found


def _values(batch: LabelledBatch, name: str) -> tuple[pa.Array, np.ndarray]:
    column = batch.column(name)
    if column is None:
        return pa.nulls(0), np.zeros(batch.batch.num_rows, bool)
    return single_values(column)


def _missing(rows: int, category: bool) -> np.ndarray | Categories:
    return Categories(np.full(rows, -1), ()) if category else np.full(rows, np.nan)


def hashed_texts(batch: LabelledBatch, name: str) -> HashedTexts | None:
    """Hashes the texts of a column, missing where a record has not exactly one; None if it holds no text in UTF-8."""
    values, present = _values(batch, name)
    if not (is_string(values.type) or is_binary(values.type)):
        return None
    try:
        # It checks UTF-8, and copies no text.
        values = values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return None
    _, bounds, content = values.buffers()
    if content is None:
        return HashedTexts(np.full(len(present), -1))
    ends = np.frombuffer(bounds, np.int64)[values.offset : values.offset + len(values) + 1]
    own, hashes = np.empty(len(values), np.int64), np.full(len(present), -1)
    hash_texts(content, ends, own)
    hashes[present] = own
    return HashedTexts(hashes)


def _categories(values: pa.Array, present: np.ndarray) -> Categories:
    encoded = values.dictionary_encode()
    codes = np.full(len(present), -1)
    codes[present] = encoded.indices.to_numpy()
    return Categories(codes, _texts(encoded.dictionary))


def _texts(values: pa.Array) -> tuple[str, ...]:
    if is_binary(values.type):
        # Arrow decodes all at once, if all are UTF-8.
        with contextlib.suppress(pa.ArrowInvalid):
            values = values.cast(pa.large_string())
    if is_time(values.type):
        # As in TFRecords.
        values = time_texts(values)
    if is_string(values.type):
        return tuple(values.to_pylist())
    return tuple(_text(each) for each in values.to_pylist())


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    # Integers are floats in files where some are missing.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _numbers(values: pa.Array, present: np.ndarray) -> np.ndarray:
    numbers = np.full(len(present), np.nan)
    numbers[present] = float_values(values)
    numbers[~np.isfinite(numbers)] = np.nan
    return numbers


def is_feature(kind: pa.DataType) -> bool:
    """Tests whether a column can be a feature: numbers, booleans and text, and lists of them."""
    kind = value_type(kind)
    return is_text(kind) or is_number(kind)


def concatenated(parts: Sequence[Columns], sizes: Sequence[int]) -> dict[str, np.ndarray | Categories]:
    """Joins the features of consecutive batches of `sizes` records; the order of the records is that of the parts.

    The result has the columns that any part has; a column that a part does not have is missing there. Raises
    InputError, which names the column, if one has numbers in one part and text in another.
    """
    names = list(dict.fromkeys(name for part in parts for name in part))
    found: dict[str, np.ndarray | Categories] = {}
    for name in names:
        columns = [part.get(name) for part in parts]
        kinds = {type(column) for column in columns if column is not None}
        if len(kinds) > 1:
            raise InputError(
                f"feature {name!r} holds numbers in some records and text in others: make it one of them in all files, "
                "or leave it out of --center_features"
            )
        category = kinds == {Categories}
        filled = [
            _missing(size, category) if column is None else column for column, size in zip(columns, sizes, strict=True)
        ]
        found[name] = _joined(filled) if category else np.concatenate([np.asarray(each) for each in filled])
    return found


def _joined(parts: Sequence[np.ndarray | Categories]) -> Categories:
    places: dict[str, int] = {}
    codes = []
    for part in parts:
        assert isinstance(part, Categories)
        own = [places.setdefault(value, len(places)) for value in part.values]
        codes.append(np.array([*own, -1])[part.codes])
    return Categories(np.concatenate(codes) if codes else np.zeros(0, np.int64), tuple(places))


@dataclass(frozen=True, eq=False)
class FeatureSample:
    """Sample of some records: those with the smallest words.

    Attributes:
      words: Words of the sampled records, shape (s,), uint64, ascending.
      columns: Their features, in the same order.
      records: Number of records that were sampled from.
    """

    words: np.ndarray
    columns: Columns
    records: int


class MergeSamples(beam.CombineFn):
    """Keeps the `MOST_SAMPLE` records with the smallest words.

    Samples are merged once they have `_MOST_HELD` records together, or are sent: each merge looks at all records.
    """

    def create_accumulator(self) -> list[FeatureSample]:
        return []

    def add_input(self, accumulator: list[FeatureSample], element: FeatureSample) -> list[FeatureSample]:
        accumulator.append(element)
        held = sum(len(part.words) for part in accumulator)
        return accumulator if held < _MOST_HELD and len(accumulator) < _MOST_PARTS else [merged(accumulator)]

    def merge_accumulators(self, accumulators: Iterable[list[FeatureSample]]) -> list[FeatureSample]:
        return [merged([part for parts in accumulators for part in parts])]

    def compact(self, accumulator: list[FeatureSample]) -> list[FeatureSample]:
        return [merged(accumulator)]

    def extract_output(self, accumulator: list[FeatureSample]) -> FeatureSample:
        return merged(accumulator)


def merged(parts: Sequence[FeatureSample]) -> FeatureSample:
    """Merges samples of disjoint sets of records."""
    columns = concatenated([part.columns for part in parts], [len(part.words) for part in parts])
    drawn = np.concatenate([np.zeros(0, np.uint64), *(part.words for part in parts)])
    return smallest(drawn, columns, sum(part.records for part in parts))


def smallest(drawn: np.ndarray, columns: Columns, records: int) -> FeatureSample:
    """Keeps at most `MOST_SAMPLE` records with the smallest words, in the order of their words.

    `drawn` is the word of each record, shape (n,), uint64; `records` is the number of records that they were sampled
    from.
    """
    order = np.argsort(drawn, kind="stable")[:MOST_SAMPLE]
    kept: dict[str, np.ndarray | Categories] = {}
    for name, column in columns.items():
        kept[name] = _picked(column, order) if isinstance(column, Categories) else column[order]
    return FeatureSample(drawn[order], kept, records)


def _picked(column: Categories, order: np.ndarray) -> Categories:
    """Categories of some records, without the values that none of them has: they may be far more than the records."""
    codes = column.codes[order]
    used, place = np.unique(codes, return_inverse=True)
    missing = int(len(used) > 0 and used[0] < 0)
    return Categories(place - missing, tuple(column.values[code] for code in used[missing:]))


@dataclass
class SampleFeatures(beam.PTransform):
    """Samples features: a PCollection of LabelledBatch to exactly one FeatureSample, also for empty input.

    The label column is not looked at. Which records are sampled depends on their identities and the secret key alone.
    """

    features: CenterFeatures
    key: NoiseKeyFile

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[FeatureSample]:
        return (
            batches
            | "Sample" >> beam.ParDo(_Sample(self.features, self.key)).with_output_types(FeatureSample)
            | "Merge" >> beam.CombineGlobally(MergeSamples())
        )


class _Sample(beam.DoFn):
    def __init__(self, features: CenterFeatures, key: NoiseKeyFile):
        self._features = features
        self._key = key

    def setup(self) -> None:
        self._secret = self._key.load()
        self._progress = Progress("sampled")

    def start_bundle(self) -> None:
        # Of this bundle only: what a failed bundle has seen is not in the sample.
        self._smallest = np.zeros(0, np.uint64)

    @redact_errors("sampling features")
    def process(self, batch: LabelledBatch) -> Iterator[FeatureSample]:
        features, records = self._features, batch.batch.num_rows
        drawn = words(self._secret, b"center sample", record_identities(batch, features.id_column))
        if len(self._smallest) == MOST_SAMPLE:
            # All others are behind a whole sample of this bundle.
            kept = drawn <= self._smallest[-1]
            batch, drawn = batch.keep(kept), drawn[kept]
        self._smallest = np.sort(np.concatenate([self._smallest, drawn]))[:MOST_SAMPLE]
        # The order of the columns decides on that of the encoders: it is that of the names in every file.
        yield smallest(drawn, feature_columns(batch, features.names), records)
        self._progress.add(records)
