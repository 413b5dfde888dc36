"""Values of CSV files are released as they are, or the job stops before anything is charged, by the command line."""

import gzip
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

ROWS = 300


def write(path: Path, header: str, rows: list[str], kind: str = "plain") -> Path:
    newline = "\r\n" if kind == "crlf" else "\n"
    if kind == "quoted":
        rows = [",".join(f'"{cell}"' for cell in row.split(",")) for row in rows]
    content = newline.join([header, *rows, ""]).encode()
    content = b"\xef\xbb\xbf" + content if kind == "bom" else content
    path = path.with_name(f"{path.name}.gz") if kind == "gz" else path
    path.write_bytes(gzip.compress(content) if kind == "gz" else content)
    return path


def released(outputs: Path) -> dict[str, list[Any]]:
    return pq.read_table(outputs / "released" / "data").to_pydict()


@pytest.mark.parametrize("kind", ["plain", "gz", "quoted", "crlf", "bom"])
def test_texts_that_look_like_numbers_stay_text(job, invoke, outputs, tmp_path, kind):
    cells = [[str(2**64 - 1 - i), f"{10000 + i}e{i % 100:02}", f"{i:05}"] for i in range(ROWS)]
    path = write(
        tmp_path / "a.csv", "id,hash,zip,y", [",".join([*row, str(i % 5)]) for i, row in enumerate(cells)], kind
    )
    outcome = invoke(job(input=path, center="none")).ok()
    table = released(outputs)
    assert list(map(list, zip(table["id"], table["hash"], table["zip"], strict=True))) == cells
    assert "column 'id' is text: some of its numbers have more digits than int64" in outcome.err


@pytest.mark.parametrize("several", [False, True])
def test_a_late_value_stops_the_job_before_the_charge(job, invoke, outputs, tmp_path, several):
    rows = [f"{i},{i % 5}" for i in range(70_000)]
    rows[69_000] = "00501,1"
    if several:
        write(tmp_path / "a.csv", "zip,y", rows[:100])
    path = write(tmp_path / "b.csv", "zip,y", rows)
    outcome = invoke(job(input=tmp_path / "*.csv", center="none"))
    assert outcome.code == 1
    assert f"{path}: column 'zip' on line 69002 is a number that int64 does not keep as it is written" in outcome.error
    assert "give --csv_types zip=string" in outcome.error
    assert list(outputs.iterdir()) == []


def test_decimal_commas_and_thousands(job, invoke, outputs, tmp_path):
    rows = [f"{i % 7},{i % 100:02};1.{i % 900 + 100},50;{i % 4},50" for i in range(ROWS)]
    path = write(tmp_path / "a.csv", "v;w;y", rows)
    outcome = invoke(job(input=path, csv_dialect="delimiter=;", center="none"))
    assert outcome.code == 1
    assert "in column 'v': to read it as numbers, give --csv_dialect decimal=,\n" in outcome.err
    assert "in column 'w': to read it as numbers, give --csv_dialect decimal=, thousands=.\n" in outcome.err
    assert "label column 'y' holds text on line 2" in outcome.error
    assert "give --csv_dialect decimal=," in outcome.error
    marks = {"csv_dialect": ["delimiter=;", "decimal=,", "thousands=."]}
    invoke(job(input=path, center="none", **marks)).ok()
    table = released(outputs)
    assert table["v"] == [float(f"{i % 7}.{i % 100:02}") for i in range(ROWS)]
    assert table["w"] == [1000.5 + i % 900 + 100 for i in range(ROWS)]


def test_a_file_without_a_header(job, invoke, outputs, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{i},{i % 5}\n" for i in range(ROWS)))
    assert "name the columns with --csv_dialect columns=" in invoke(job(input=path)).error
    (tmp_path / "job.yaml").write_text("csv_dialect: {columns: [f, y]}\n")
    invoke([*job(input=path), f"--config={tmp_path / 'job.yaml'}"]).ok()
    assert released(outputs)["f"] == list(range(ROWS))
    outcome = invoke(job(input=path, csv_dialect="columns=f,z", output=outputs / "other"))
    assert "there is no column 'y' among the columns of --csv_dialect: f, z" in outcome.error
