"""CSV in other dialects, and large files of CSV, by the command line."""

import datetime
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.pipelines.cli import announcement
from labeldp.pipelines.spec import input_spec
from labeldp.transforms import Format, Limits
from labeldp.transforms.csv_input.csv_reader import split_csv
from labeldp.transforms.io.input_format import BATCH_ROWS, FilePart
from labeldp.transforms.readers import file_reader

ROWS = 200


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "a.csv"
    path.write_bytes("".join(["f;name;y\n", *(f"{i};José {i};{i % 5}\n" for i in range(ROWS))]).encode("latin-1"))
    return path


def released(outputs: Path) -> dict[str, list[Any]]:
    return pq.read_table(outputs / "released" / "data").to_pydict()


def test_delimiter_and_encoding(job, invoke, outputs, log):
    invoke(job(input=log, csv_dialect=["delimiter=;", "encoding=latin-1"])).ok()
    table = released(outputs)
    assert table["name"] == [f"José {i}" for i in range(ROWS)]
    assert table["f"] == list(range(ROWS))


@pytest.fixture(scope="module")
def dated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "dated.csv"
    rows = [f"2024-01-{i % 28 + 1:02},2024-01-01 00:00:{i % 60:02},{i % 5}" for i in range(ROWS)]
    path.write_text("\n".join(["d,t,y", *rows, "2024-02-29,,0"]))
    return path


def test_dates_are_dates_in_parquet_and_text_in_tfrecords(job, invoke, outputs, dated, read_examples):
    invoke(job(input=dated)).ok()
    table = pq.read_table(outputs / "released" / "data")
    assert [str(kind) for kind in table.schema.types] == ["date32[day]", "timestamp[ms]", "double"]
    assert table["d"].to_pylist()[-1] == datetime.date(2024, 2, 29)
    assert table["t"].to_pylist()[1] == datetime.datetime(2024, 1, 1, 0, 0, 1)
    assert table["t"].null_count == 1

    invoke(job(input=dated, output=outputs / "examples", output_format="tfrecord", where="d=2024-02-29")).ok()
    (shard,) = (outputs / "examples" / "data").iterdir()
    assert read_examples(shard, {"d": bytes})["d"].tolist() == [b"2024-02-29"]


@pytest.mark.parametrize("output_format", ["parquet", "tfrecord"])
@pytest.mark.parametrize("fraction", ["", ".25"])
def test_timestamps_of_a_fitted_center_are_categories_in_every_output(
    job, invoke, outputs, tmp_path, output_format, fraction
):
    """Fitted to texts, applied to times. Their category is the released text, which the audit reads as well."""
    path, texts = tmp_path / "a.csv", tmp_path / "texts.csv"
    for file, digits in ((path, fraction), (texts, fraction.ljust(7, "0") if fraction else "")):
        rows = [f"2024-01-0{i % 4 + 1} 10:00:0{i % 2}{digits},{i % 4}" for i in range(4 * ROWS)]
        file.write_text("\n".join(["t,y", *rows]))
    invoke(job("fit", input=texts, csv_types="t=string", center="linear", mechanism="rr", epsilon=8)).ok()
    invoke(job("apply", input=path, output_format=output_format)).ok()
    (center,) = json.loads((outputs / "released" / "mechanism.json").read_text())["center"]["linear"]["encoders"]
    assert center["values"][0] == f"2024-01-01 10:00:00{fraction and '.250000'}"
    (shard,) = (outputs / "released" / "data").iterdir()
    if output_format == "parquet":
        assert pa.types.is_timestamp(pq.read_schema(shard).field("t").type)
        assert len(set(pq.read_table(shard)["y_center"].to_pylist())) > 2
    audited = invoke(["audit", str(outputs / "released"), "--data"]).ok()
    assert "every center is the one that the published map predicts" in audited.out


@pytest.mark.parametrize(
    ("output_format", "shards", "parts"), [("tfrecord", 2, 3), ("parquet", 2, 1), ("parquet", 8, 3), ("tfrecord", 9, 3)]
)
def test_a_large_file_is_read_in_parts_for_tfrecords_or_many_shards(
    command, invoke, outputs, key_file, tree, monkeypatch, tmp_path, output_format, shards, parts
):
    """The parts of a file do not show: the shards are those of the file as a whole. That it has none is logged."""
    found: list[int] = []
    monkeypatch.setattr(announcement, "LARGE_FILE", 1)

    def watched(*arguments: Any) -> Iterator[FilePart]:
        for part in split_csv(*arguments):
            found.append(part.parts)
            yield part

    monkeypatch.setattr(file_reader, "split_csv", watched)
    log, rows = tmp_path / "large.csv", 3 * BATCH_ROWS + 5
    log.write_text("".join(["f,y\n", *(f'"{i},\n",{i % 5}\n' for i in range(rows))]))
    flags = {"input": log, "input_format": "csv", "label": "y", "noise_key_file": key_file, "num_shards": shards}
    flags |= {"label_min": 0, "label_max": 4, "label_step": 1, "epsilon": 1, "output_format": output_format}
    released = []
    for name, rows_of_part in (("whole", 1 << 20), ("parts", BATCH_ROWS)):
        monkeypatch.setattr(input_spec, "Format", partial(Format, limits=Limits(part_rows=rows_of_part)))
        outcome = invoke(
            [
                *command("privatize", flags | {"output": outputs / name, "direct_num_workers": 2}),
                "--csv_dialect=newlines=true",
            ]
        ).ok()
        advice = "one worker read the records of the input file: with --num_shards 8, several can"
        assert (advice in outcome.err) == (parts == 1)
        released.append(tree(outputs / name / "data"))
    assert released[0] == released[1]
    assert max(found, default=1) == parts
