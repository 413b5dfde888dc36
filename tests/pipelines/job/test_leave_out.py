"""`--leave_out`: columns that the job uses and that no file of the release has, in any format."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from labeldp.pipelines.ledger.ledger import Ledger
from labeldp.transforms.tfrecord.example_encoder import encode_examples
from labeldp.transforms.tfrecord.wire import frame

from tests.written_logs import write_log

ROWS = 700
LEFT_OUT = "user,rec,kind,place,extra"
MARKS = (b"usr~", b"rec~", b"knd~", b"plc~", b"ext~")
UNIT = {"unit_column": "user", "max_records_per_unit": 2}
USES = {"id_column": "rec", **UNIT, "where": "kind=knd~a", "max_unusable_fraction": 0.1}
CENTER = {"mechanism": "debiased_rr", "center": "linear", "center_features": "f"}


def columns_of(first: int) -> dict[str, list[Any]]:
    numbers = range(first, first + ROWS)
    return {
        "user": [f"usr~{i % 300}" for i in numbers],
        "f": [float(i % 7) for i in numbers],
        "kind": ["knd~b" if i % 5 == 0 else "knd~a" for i in numbers],
        # One without a usable label becomes a dead letter.
        "y": [None if i == 3 else float(i % 4) for i in numbers],
        "extra": [None if i % 3 else f"ext~{i}" for i in numbers],
        "rec": [f"rec~{i}" for i in numbers],
    }


def tfrecords(columns: dict[str, list[Any]]) -> bytes:
    """Records with keys in turns in canonical order and not, one of them with a feature without a value."""

    def record(row: dict[str, Any]) -> bytes:
        given = {name: value for name, value in row.items() if value is not None}
        return encode_examples(pa.RecordBatch.from_pydict({name: [value] for name, value in given.items()}))[0]

    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    records = [record(row) for row in rows]
    # A field that no reader knows: this record is decoded and encoded again.
    records[5] += b"\x12\x00"
    return frame(records)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Glob of two files by format, in folders place=plc~N."""
    root = tmp_path_factory.mktemp("log")
    for place in range(2):
        columns = columns_of(place * ROWS)
        for format in ("csv", "parquet", "tfrecord"):
            path = write_log(root / format / f"place=plc~{place}" / "log", columns, format)
            if format == "tfrecord":
                path.write_bytes(tfrecords(columns))
    return {format: f"{root}/{format}/*/log" for format in ("csv", "parquet", "tfrecord")}


def contents(release: Path) -> dict[str, bytes]:
    return {str(path.relative_to(release)): path.read_bytes() for path in sorted(release.rglob("*")) if path.is_file()}


def rows_of(release: Path) -> list[dict[str, Any]]:
    """The records of a release, as plain values."""
    from labeldp.transforms.io.input_format import Format, file_parts
    from labeldp.transforms.readers.file_reader import FileReader

    paths, rows = sorted(map(str, (release / "data").iterdir())), []
    format = Format("parquet" if paths[0].endswith(".parquet") else "tfrecord", partitions=False)
    for part in file_parts(paths, format):
        for batch in FileReader(format).read(part):
            rows += batch.batch.to_pylist()
    return rows


@pytest.mark.parametrize(
    ("format", "output_format", "center"),
    [
        ("csv", "parquet", CENTER),
        ("parquet", "tfrecord", CENTER),
        ("tfrecord", "parquet", CENTER),
        # Its records are copied, with a center appended or not.
        ("tfrecord", "tfrecord", {}),
        ("tfrecord", "tfrecord", CENTER),
    ],
)
def test_no_file_has_a_value_and_labels_are_those_of_the_whole_release(
    format: str, output_format: str, center: dict[str, Any], logs: Any, job: Any, invoke: Any, outputs: Path
) -> None:
    flags = {"input": logs[format], "input_format": format, "output_format": output_format, "num_shards": 2}
    flags |= {**USES, **center, "label_max": 3, "epsilon": 4}
    whole = invoke(job(**flags, output=outputs / "whole")).ok()
    assert "warning: user and rec are released with the labels: unless recipients need it, add" in whole.err
    planned = invoke([*job(**flags, leave_out=LEFT_OUT), "--dry_run"]).ok()
    assert "; not released: user, rec, kind, place, extra" in planned.out
    assert "are released" not in planned.err
    left = invoke(job(**flags, leave_out=LEFT_OUT)).ok()
    assert "are released" not in left.err
    invoke(job(**flags, leave_out=LEFT_OUT, output=outputs / "again", direct_num_workers=3)).ok()
    # The labels were released before: they cost nothing again.
    assert Ledger(str(outputs / "labeldp_ledger.jsonl")).spent().epsilon == 4

    files = contents(outputs / "released")
    assert all(any(mark in content for content in contents(outputs / "whole").values()) for mark in MARKS)
    assert not [name for name, content in files.items() for mark in MARKS if mark in content]
    assert files == contents(outputs / "again")
    names = {"f", "y", *(["y_center"] if center else [])}
    kept = [{name: value for name, value in row.items() if name in names} for row in rows_of(outputs / "whole")]
    assert rows_of(outputs / "released") == kept
    manifest, before = (json.loads((outputs / name / "release.json").read_text()) for name in ("released", "whole"))
    assert manifest["left_out"] == LEFT_OUT.split(",")
    assert manifest["features"] == 1
    assert manifest["where"] == "kind=..."
    changed = {"left_out", "features", "where", "output", "warnings"}
    assert {key: value for key, value in manifest.items() if key not in changed} == {
        key: value for key, value in before.items() if key not in changed
    }
    audited = invoke(["audit", str(outputs / "released"), "--data"]).ok().out
    assert "units        not counted: user is left out of the release" in audited
    assert "left out     user, rec, kind, place, extra: in no record" in audited
    assert "not counted" not in invoke(["audit", str(outputs / "whole"), "--data"]).ok().out


@pytest.mark.parametrize("output_format", ["parquet", "tfrecord"])
def test_the_audit_finds_a_column_that_is_said_to_be_left_out(
    output_format: str, logs: Any, job: Any, invoke: Any, outputs: Path
) -> None:
    flags = {"input": logs["tfrecord"], "input_format": "tfrecord", "output_format": output_format}
    flags |= {**USES, "label_max": 3}
    invoke(job(**flags)).ok()
    path = outputs / "released" / "release.json"
    manifest = json.loads(path.read_text())
    for members, problem in (
        ({"left_out": ["extra"]}, "that release.left_out says is left out" if output_format == "tfrecord" else "extra"),
        ({"left_out": ["place"]}, "release.left_out says is left out"),
        ({"left_out": ["kind"]}, "release.where states a value of a column of release.left_out"),
        ({"left_out": ["y"]}, "release.left_out has y, which the release needs"),
        ({"left_out": ["f", "f"]}, "release.left_out has a name twice"),
        ({"left_out": []}, "release.left_out does not have 1 to"),
    ):
        path.write_text(json.dumps(manifest | members))
        audited = invoke(["audit", str(outputs / "released"), "--data"])
        assert audited.code == 1
        assert problem in audited.out + audited.err


def test_a_center_and_the_statistics_know_nothing_of_it(logs: Any, job: Any, invoke: Any, outputs: Path) -> None:
    flags = {"input": logs["parquet"], "input_format": "parquet", "label_max": 8, "for": "models", "epsilon": 4}
    flags |= {**USES, "leave_out": LEFT_OUT}
    invoke([*job(**flags), "--validate"]).ok()
    files = contents(outputs / "released")
    assert json.loads(files["release.json"])["center"]["linear"]["features"] == ["f"]
    assert b'name: "f"' in files["validation/schema.pbtxt"]
    assert not [file for file, content in files.items() for mark in MARKS if mark in content]
    # The manifest states the names, and dead letters those of folders.
    named = [file for file, content in files.items() for name in (b"extra", b"place") if name in content]
    assert {*named} == {"release.json", "dead_letters.jsonl"}


def test_an_existing_release_with_the_column_is_not_verified(logs: Any, job: Any, invoke: Any, outputs: Path) -> None:
    flags = {"input": logs["csv"], "max_unusable_fraction": 0.1}
    invoke(job(**flags)).ok()
    outcome = invoke(job(**flags, leave_out="user", if_exists="verify"))
    assert outcome.code == 1
    assert "was released with another --leave_out: name another output" in outcome.error
    shutil.rmtree(outputs / "released")
    invoke(job(**flags, leave_out="user")).ok()
    invoke(job(**flags, leave_out="user", if_exists="verify")).ok()


def test_records_are_removed_by_their_rows(logs: Any, job: Any, invoke: Any, outputs: Path, tmp_path: Path) -> None:
    flags = {"input": logs["tfrecord"], "input_format": "tfrecord", **USES, "leave_out": LEFT_OUT}
    invoke(job(**flags, output_format="tfrecord")).ok()
    names, reduced = tmp_path / "names.txt", str(outputs / "reduced")
    names.write_text("rec~7\n")
    for flag, column in (("ids", "rec"), ("units", "user")):
        outcome = invoke(["remove", str(outputs / "released"), f"--{flag}", str(names), "--output", reduced])
        assert outcome.code == 2
        assert f"--{flag}: the column {column} was left out of this release" in outcome.error
        assert "name --rows" in outcome.error
    names.write_text("part-00000-of-00002.tfrecord,4\n")
    invoke(["remove", str(outputs / "released"), "--rows", str(names), "--output", reduced]).ok()
    invoke(["audit", reduced, "--data"]).ok()
    assert json.loads((outputs / "reduced" / "release.json").read_text())["left_out"] == LEFT_OUT.split(",")
