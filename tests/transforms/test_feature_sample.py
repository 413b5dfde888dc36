"""Sample of features that a center is designed for: merged in any order, decoded for records that may be in it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that, equal_to
from labeldp.mechanisms.center.feature_rows import Categories
from labeldp.mechanisms.center.linear_center import MOST_SAMPLE
from labeldp.mechanisms.release.feature_sample import CenterFeatures, FeatureSample, identifying, smallest
from labeldp.transforms.batches import LabelledBatch, LabelledBatchCoder
from labeldp.transforms.center import feature_sample
from labeldp.transforms.center.feature_columns import chosen_features
from labeldp.transforms.center.feature_sample import MergeSamples
from labeldp.transforms.errors import InputError
from labeldp.transforms.io.input_format import Equals, FilePart, Format, file_parts
from labeldp.transforms.readers.file_reader import FileReader
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from labeldp.transforms.tfrecord.framing import frame

RECORDS = 300
NAMES = ("f", "k", "part", "rare")


def records() -> list[bytes]:
    place = np.arange(RECORDS)
    columns = {
        "f": pa.array(place / 4, mask=place % 7 == 0),
        "id": pa.array(place + 1000),
        "k": pa.array([f"t{each}" for each in place % 5]),
        "rare": pa.array(place, mask=place != 150),
        "y": pa.array(place % 11 / 2),
    }
    return encode_examples(pa.RecordBatch.from_pydict(columns), with_nulls=False)


def written(folder: Path, records: list[bytes]) -> FilePart:
    folder.mkdir(exist_ok=True)
    path = folder / "log.tfrecord"
    path.write_bytes(frame(records))
    (part,) = file_parts([str(path)], Format("tfrecord"))
    return part


def read(part: FilePart, columns: list[str], undecoded: tuple[str, ...] = (), where: Any = None) -> list[LabelledBatch]:
    reader = FileReader(Format("tfrecord"), columns, where, "y", undecoded=undecoded)
    return list(reader.read(part))


def sample(drawn: list[int], **columns: Any) -> FeatureSample:
    return smallest(np.array(drawn, np.uint64), columns, len(drawn), MOST_SAMPLE)


def same(one: FeatureSample, other: FeatureSample) -> bool:
    def plain(column: Any) -> Any:
        return (
            [None if code < 0 else column.values[code] for code in column.codes]
            if isinstance(column, Categories)
            else [None if np.isnan(value) else value for value in column]
        )

    return (
        one.words.tolist() == other.words.tolist()
        and one.records == other.records
        and {name: plain(column) for name, column in one.columns.items()}
        == {name: plain(column) for name, column in other.columns.items()}
    )


def values(batch: LabelledBatch, names: Any) -> dict[str, Any]:
    columns = {name: batch.column(name) for name in names}
    return {name: column.to_pylist() for name, column in columns.items() if column is not None}


@pytest.mark.parametrize("columns", [[], ["id"], ["id", "part"]])
@pytest.mark.parametrize("where", [None, Equals("k", "t3"), Equals("part", "A")])
def test_kept_records_have_the_features_that_they_have_when_all_are_decoded(
    tmp_path: Path, columns: list[str], where: Any
) -> None:
    part = written(tmp_path / "part=A", records())
    (whole,), (batch,) = read(part, [*columns, *NAMES], where=where), read(part, columns, NAMES, where)
    assert batch.rows.tolist() == whole.rows.tolist()
    assert {"f", "k", "rare"}.isdisjoint(batch.batch.schema.names)
    coder = LabelledBatchCoder()
    kept = batch.rows % 10 == 3
    for each in (batch, coder.decode(coder.encode(batch))):
        found = feature_sample.with_features(each.keep(kept), NAMES)
        assert found.rows.tolist() == whole.rows[kept].tolist()
        expected = values(whole.keep(kept), [*columns, *NAMES])
        # A column in which no kept record has a value is left out.
        assert values(found, [*columns, *NAMES]) == {name: each for name, each in expected.items() if any(each)}


def test_records_that_are_not_sampled_are_not_decoded(tmp_path: Path, key: Any, monkeypatch: Any) -> None:
    whole = records()
    (batch,) = read(written(tmp_path, whole), [], NAMES)

    def sampled(batch: LabelledBatch) -> Any:
        stage: Any = feature_sample._Sample(CenterFeatures(NAMES, most=20), key)
        stage.setup()
        return next(iter(stage.process(batch)))

    decoded: list[np.ndarray] = []
    with_features = feature_sample.with_features

    def watched(batch: LabelledBatch, names: Any) -> LabelledBatch:
        decoded.append(batch.rows)
        return with_features(batch, names)

    monkeypatch.setattr(feature_sample, "with_features", watched)
    sample = sampled(batch)
    assert sample.records == RECORDS
    assert len(sample.words) == 20
    assert len(decoded[0]) == 20

    changed = [each if row in decoded[0] else b"no tf.Example" for row, each in enumerate(whole)]
    (damaged,) = read(written(tmp_path, changed), [], NAMES)
    assert sampled(damaged).columns.keys() == sample.columns.keys()
    changed[decoded[0][0]] = b"no tf.Example"
    (damaged,) = read(written(tmp_path, changed), [], NAMES)
    with pytest.raises(InputError, match=r"a record is not a tf\.Example"):
        sampled(damaged)


@pytest.mark.parametrize("settings", [{"columns": None}, {"columns": ["y"], "encoded": True}])
def test_undecoded_needs_columns_and_other_output(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="undecoded needs columns"):
        FileReader(Format("tfrecord"), label_column="y", undecoded=("f",), **settings)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_other_formats_read_all_columns(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"log.{format}"
    table = pa.table({"f": [1.5, 2.5], "id": [1, 2], "y": [0.0, 1.0]})
    if format == "csv":
        path.write_text("f,id,y\n1.5,1,0\n2.5,2,1\n")
    else:
        pq.write_table(table, path)
    (batch,) = FileReader(Format(format), ["id"], None, "y", undecoded=("f",)).read(FilePart(str(path), str(path)))
    assert batch.encoded is None
    assert values(batch, ["f", "id"]) == {"f": [1.5, 2.5], "id": [1, 2]}
    assert batch.column("y") is None


def test_samples_merge_in_any_order() -> None:
    merge = MergeSamples(4)
    parts = [
        sample([5, 1, 9], a=np.array([0.5, 0.1, 0.9])),
        sample([2, 8], a=np.array([0.2, 0.8]), w=Categories(np.array([0, 1]), ("x", "y"))),
        merge.extract_output(merge.create_accumulator()),
        sample([3], w=Categories(np.array([-1]), ())),
        sample([7, 4, 6, 0, 11], a=np.array([0.7, 0.4, 0.6, 0.0, np.nan]), w=Categories(np.zeros(5, int), ("y",))),
    ]
    whole = merge.extract_output(merge.merge_accumulators([parts]))
    assert whole.words.tolist() == [0, 1, 2, 3]
    assert (whole.records, np.asarray(whole.columns["a"])[:3].tolist()) == (11, [0.0, 0.1, 0.2])
    for order in itertools.permutations(range(5)):
        first, *others = ([parts[place]] for place in order[:4])
        found = merge.add_input(merge.merge_accumulators([merge.compact(first), *others]), parts[order[4]])
        assert same(merge.extract_output(found), whole)
    assert same(merge.extract_output(merge.merge_accumulators([])), merge.extract_output(merge.create_accumulator()))


def test_samples_that_wait_to_be_merged_are_few() -> None:
    merge = MergeSamples(2)
    held = merge.create_accumulator()
    for word in range(100):
        held = merge.add_input(held, sample([99 - word], a=np.array([word / 100])))
        assert sum(len(part.words) for part in held) < 8
    found = merge.extract_output(held)
    assert (found.words.tolist(), found.records) == ([0, 1], 100)


def test_a_mixture_is_refused_even_if_no_such_record_is_sampled(labelled, failure, key) -> None:
    """Otherwise the error would depend on how records come together in bundles."""
    batches = [labelled({"a": [1.0] * 40, "y": [1.0] * 40}), labelled({"a": ["x"], "y": [1.0]}, "/logs/b")]
    features = CenterFeatures(("a",), most=1)

    def build(pipeline):
        return {"sample": pipeline | beam.Create(batches) | feature_sample.SampleFeatures(features, key)}

    assert "feature 'a' holds numbers in some records and text in others" in failure(build)


def test_a_worker_passes_on_what_may_be_in_the_sample(labelled, key) -> None:
    """Records are behind a whole sample of all that the worker has seen, of which a retried bundle counts once."""
    batches = [labelled({"a": np.arange(400.0) + 400 * place}, f"/logs/{place}") for place in range(3)]

    def sampled(batches):
        stage: Any = feature_sample._Sample(CenterFeatures(("a",), most=50), key)
        stage.setup()
        return [next(iter(stage.process(batch))) for batch in batches]

    thinned, whole = sampled(batches), [sampled([batch])[0] for batch in batches]
    assert [len(part.words) for part in whole] == [50, 50, 50]
    assert sum(len(part.words) for part in thinned) < 150
    assert same(feature_sample.merged(thinned, 50), feature_sample.merged(whole, 50))
    failed = sampled([batches[0], batches[0], *batches])[2:]
    assert same(feature_sample.merged(failed, 50), feature_sample.merged(whole, 50))


def test_a_rare_column_is_in_its_place_whatever_comes_first(labelled, key) -> None:
    batches = [labelled({"b": [1.0, 2.0]}, "/logs/0"), labelled({"a": [3.0, 4.0], "b": [5.0, 6.0]}, "/logs/1")]
    for order in (batches, batches[::-1]):
        with beam.Pipeline() as pipeline:
            found = pipeline | beam.Create(order) | feature_sample.SampleFeatures(CenterFeatures(("a", "b")), key)
            assert_that(found | beam.Map(lambda sample: list(sample.columns)), equal_to([["a", "b"]]))


def texts(numbers: np.ndarray) -> Categories:
    values, codes = np.unique(numbers, return_inverse=True)
    return Categories(codes, tuple(map(str, values)))


@pytest.mark.parametrize("records", [1000, 4000])
def test_columns_of_ids_are_left_out_unless_they_are_named(records: int, caplog: pytest.LogCaptureFixture) -> None:
    draw, counter = np.random.default_rng(5), np.arange(records)
    order = draw.permutation(2 * records)[:records]
    ids = {
        "row": counter.astype(float),
        "user": np.where(counter % 9 == 0, np.nan, order + 1e6),
        "click": texts(order),
        "visitor": texts(np.minimum(order, 1.9 * records)),
    }
    features = {
        "cents": draw.integers(0, 10**7, records).astype(float),
        "word": draw.integers(0, 2**52, records).astype(float),
        "share": (order + 0.5) / 8,
        "age": draw.integers(0, 2 * records, records).astype(float),
        "town": texts(draw.integers(0, records, records)),
        "empty": np.full(records, np.nan),
    }
    whole = sample([*range(records)], **features, **ids)
    few = records <= 1000
    assert identifying(whole.columns) == ([] if few else [*ids])
    names = (*ids, *features)
    with caplog.at_level("INFO", "labeldp"):
        unnamed = chosen_features(whole, CenterFeatures(names, all_columns=True))
    assert [*unnamed.columns] == [*(names if few else features)]
    assert few or "not from row, user, click, visitor: nearly all values differ" in caplog.text
    assert [*chosen_features(whole, CenterFeatures(names)).columns] == [*names]
