"""The transform reads all files of a glob, from any working directory, and reports errors through Beam."""

from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue
from labeldp.transforms import Carried, Format, LabelledBatch, ReadRecordBatches

SENTINEL = "SENTINEL123"
FORMATS = ["tfrecord", "parquet", "csv"]


@pytest.mark.parametrize("format", FORMATS)
def test_neighbors_are_read_together(tmp_path, format, run, write, records_of):
    paths = [write(tmp_path / f"part-{part}", format, {"y": [float(part), 0.5]}) for part in range(5)]
    source = ReadRecordBatches(f"{tmp_path}/part-*", Format(format), together=2)
    found = run(
        lambda p: {
            "read": p | source,
            # The elements of a bundle come in the order in which they were read.
            "bundles": p | "Again" >> source | beam.Map(lambda batch: batch.source) | beam.ParDo(_Bundles()),
        }
    )
    assert sorted(records_of(found["read"])) == [(path, row) for path in paths for row in (0, 1)]
    order = [source for bundle in found["bundles"] for source in bundle]
    assert sorted(order) == paths
    assert [order[order.index(first) + 1] for first in (paths[0], paths[2])] == [paths[1], paths[3]]


class _Bundles(beam.DoFn):
    """Gathers the elements of each bundle."""

    def start_bundle(self):
        self._found = []

    def process(self, element):
        self._found.append(element)

    def finish_bundle(self) -> Any:
        yield WindowedValue(self._found, MIN_TIMESTAMP, (GlobalWindow(),))


def test_at_least_one_file_is_read_at_a_time():
    with pytest.raises(ValueError, match="together must be at least 1, not 0"):
        ReadRecordBatches("in", Format("csv"), together=0)


@pytest.mark.parametrize("kind", ["one", "two of one type", "two types"])
def test_batches_carry_side_inputs(tmp_path, run, write, columns, kind):
    """The values arrive with every batch, also after a shuffle, which encodes batches."""
    values = {"one": [(1, 2)], "two of one type": ["a", "b"], "two types": [1.5, "b"]}[kind]
    for name in ("a", "b"):
        write(tmp_path / f"{name}.csv", "csv", columns)

    def build(pipeline):
        carried = [Carried(f"v{i}", pipeline | f"V{i}" >> beam.Create([value])) for i, value in enumerate(values)]
        found = pipeline | ReadRecordBatches(f"{tmp_path}/*.csv", Format("csv"), carried=carried)
        shuffled: Any = found | beam.Reshuffle()
        return {"found": found, "shuffled": shuffled}

    for batches in run(build).values():
        assert [dict(batch.carried) for batch in batches] == [{f"v{i}": value for i, value in enumerate(values)}] * 2


def test_no_match_is_an_error_that_says_what_to_do(tmp_path, failure):
    text = failure(lambda p: {"out": p | ReadRecordBatches(f"{tmp_path}/*.csv", Format("csv"))})
    assert f"`input` {tmp_path}/*.csv matches no file: check the path and quote the glob" in text


def test_files_that_cannot_be_listed(failure):
    """A filesystem unknown to Beam, such as s3:// without its package, must not be treated as an empty folder."""
    text = failure(lambda p: {"out": p | ReadRecordBatches("nowhere://log/*.csv", Format("csv"))})
    assert "`input` nowhere://log/*.csv cannot be listed (ValueError" in text


def test_a_relative_pattern_does_not_depend_on_where_the_job_starts(tmp_path, monkeypatch, run, write, columns):
    path = write(tmp_path / "logs" / "a.csv", "csv", columns)
    monkeypatch.chdir(tmp_path)
    one = run(lambda p: {"out": p | ReadRecordBatches("logs/*.csv", Format("csv"))})["out"]
    monkeypatch.chdir(tmp_path / "logs")
    two = run(lambda p: {"out": p | ReadRecordBatches("../logs/a.csv", Format("csv"))})["out"]
    assert {batch.source for batch in one + two} == {path}


def test_the_label_column_is_read_as_a_number(tmp_path, run, write):
    write(tmp_path / "a.csv", "csv", {"y": [1, 2, 3]})
    write(tmp_path / "b.csv", "csv", {"y": [0.5, 1.5]})
    build = ReadRecordBatches(f"{tmp_path}/*.csv", Format("csv"), label_column="y")
    found = run(lambda p: {"out": p | build})["out"]
    assert [batch.batch.schema.field("y").type for batch in found] == [pa.float64()] * 2


def test_beam_knows_that_batches_come_out(tmp_path):
    """Otherwise Beam would pickle batches, with the whole buffers of their parents, to store or shuffle them."""
    read_batches: Any = beam.Pipeline() | ReadRecordBatches(str(tmp_path / "a.csv"), Format("csv"))
    assert read_batches.element_type is LabelledBatch


@pytest.mark.parametrize("format", FORMATS)
def test_errors_come_through_beam_as_they_are(tmp_path, format, failure):
    (tmp_path / "a").write_bytes(b"y,x\n1,2\n" + SENTINEL.encode() * 3 + b",3,4\n")
    text = failure(lambda p: {"out": p | ReadRecordBatches(str(tmp_path / "a"), Format(format))})
    assert "InputError" in text
    assert str(tmp_path / "a") in text
    assert SENTINEL not in text
