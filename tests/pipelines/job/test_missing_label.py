"""`--missing_label`: a missing label counts as a public one, and a release does not tell which labels were missing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
import pytest
from labeldp import LabelPrivatizer, privatize

ROWS = 400
WEEKS = np.random.default_rng(3).integers(0, 5, ROWS).astype(float)
MISSING = np.random.default_rng(4).random(ROWS) < 0.4
GRADES = np.array(["good", "poor", "fair"])[(WEEKS % 3).astype(int)]
FORMATS = ("csv", "parquet", "orc", "tfrecord")
Run = Callable[..., Any]


def log_table(label: str, known: bool) -> pa.Table:
    """A log whose missing labels are null; if they are `known`, the public label stands in their place."""
    values = WEEKS if label == "weeks" else GRADES
    instead = 0.0 if label == "weeks" else "poor"
    labels = [
        value if not lost else instead if known else None for value, lost in zip(values.tolist(), MISSING, strict=True)
    ]
    # In the order of their names the label is in the middle: its place in a record must not depend on it.
    return pa.table({"age": np.arange(ROWS) % 7, label: labels, "x": np.arange(ROWS) / 8})


def write_log(path: Path, table: pa.Table) -> None:
    """Writes a log in the format of the path's extension; tf.Examples without a label lack the feature."""
    if path.suffix == ".csv":
        pa_csv.write_csv(table, path)
    elif path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".orc":
        pa_orc.write_table(table, path)
    else:
        from labeldp.transforms.tfrecord.example_encoder import encode_examples
        from labeldp.transforms.tfrecord.framing import frame

        records = encode_examples(table.combine_chunks().to_batches()[0], with_nulls=False)
        path.write_bytes(b"".join(frame([record]) for record in records))


@pytest.fixture
def run(tmp_path: Path, outputs: Path, key_file: Path, invoke: Any, command: Any) -> Run:
    """Function (output, table, kind="csv", switch, ..., flag=value, ...) -> outcome of `privatize` on the one log."""

    def call(output: str, table: pa.Table, kind: str = "csv", *switches: str, **flags: Any) -> Any:
        path, classes = tmp_path / f"log.{kind}", "grade" in table.schema.names
        write_log(path, table)
        standard = {"input": path, "input_format": kind, "output": outputs / output, "noise_key_file": key_file}
        domain = {"label_min": 0, "label_max": 4, "label_step": 1, "label": "weeks", "missing_label": 0}
        if classes:
            domain = {"label_classes": "poor,fair,good", "label": "grade", "missing_label": "poor", "mechanism": "rr"}
        output_format = "tfrecord" if kind == "tfrecord" else "parquet"
        asked = {"epsilon": 2, **standard, "output_format": output_format, **domain, **flags}
        return invoke([*command("privatize", asked), *switches])

    return call


def shards(folder: Path) -> list[bytes]:
    """Bytes of the shards."""
    return [path.read_bytes() for path in sorted((folder / "data").iterdir())]


def manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a release."""
    return json.loads((folder / "release.json").read_text())


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("label", ["weeks", "grade"])
def test_missing_labels_leave_no_trace(run: Run, outputs: Path, label: str, kind: str):
    """The release is, byte by byte, that of the log with the public label in place of the missing ones."""
    run("missing", log_table(label, known=False), kind).ok()
    run("known", log_table(label, known=True), kind).ok()
    assert shards(outputs / "missing") == shards(outputs / "known")
    one, two = manifest(outputs / "missing"), manifest(outputs / "known")
    assert one == two
    assert one["records"] == ROWS
    assert one["records_without_label"] == 0
    assert one["missing_label"] == ("poor" if label == "grade" else 0)
    assert "which records have a label" not in one["adjacency"]


def test_without_the_flag_records_are_left_out(run: Run, outputs: Path):
    """The same log without the flag, whose adjacency says that missing labels are public."""
    flags: dict[str, Any] = {"missing_label": None, "max_unusable_fraction": 1}
    run("out", log_table("weeks", known=False), **flags).ok()
    found = manifest(outputs / "out")
    assert found["records"] == ROWS - MISSING.sum()
    assert "missing_label" not in found
    assert "which records have a label are public" in found["adjacency"]


def test_noise_is_bound_to_the_label(run: Run, outputs: Path):
    """Equal noise for two of them would tell that no label is missing, so it is fresh."""
    complete = log_table("weeks", known=True)
    digests = set()
    for value in (None, 0, 1):
        run(f"with_{value}", complete, missing_label=value).ok()
        digests.add(manifest(outputs / f"with_{value}")["input_digest"])
    assert len(digests) == 3
    assert len({*map(str, (shards(outputs / f"with_{value}") for value in (None, 0, 1)))}) == 3


def test_center_of_all_records(run: Run, outputs: Path, invoke: Any):
    """Records without a label are among those that a center is fitted to, and the audit computes it again."""
    table = log_table("weeks", known=False)
    flags: dict[str, Any] = {"center": "linear", "mechanism": "unbiased", "label_max": 8}
    out = run("around", table, "parquet", **flags).ok().out
    assert "400 in 1 shard; a missing label counts as 0\n" in out
    invoke(["audit", str(outputs / "around"), "--data"]).ok()


def test_audit_checks_what_missing_labels_count_as(run: Run, outputs: Path, invoke: Any):
    """Each forged statement fails, and the release as it was passes."""
    run("out", log_table("weeks", known=False)).ok()
    path = outputs / "out" / "release.json"
    text = path.read_text()
    invoke(["audit", str(outputs / "out"), "--data"]).ok()
    public = "label differential privacy: two inputs are adjacent when they differ in the label of one record; "
    public += "features, the number of records and which records have a label are public"
    forged: list[tuple[dict[str, Any], str]] = [
        ({"missing_label": 5}, "missing_label is not a number within"),
        ({"missing_label": "poor"}, "missing_label is not a number within"),
        ({"missing_label": True}, "missing_label is not a number within"),
        ({"records_without_label": 1}, "records_without_label is not 0"),
        ({"adjacency": public}, "adjacency is not that"),
        ({"missing_label": None}, "adjacency is not that"),
    ]
    for change, problem in forged:
        path.write_text(json.dumps(json.loads(text) | change))
        outcome = invoke(["audit", str(outputs / "out")])
        assert outcome.code == 1, change
        assert problem in outcome.out + outcome.err, change


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"missing_label": 5}, "--missing_label 5 is not within the label domain, 0 to 4"),
        ({"missing_label": "nan"}, "--missing_label nan is not within the label domain"),
        ({"missing_label": "none"}, "--missing_label must be a number of the label domain, not 'none'"),
        ({"label": "weeks,age"}, "--missing_label takes one label"),
    ],
)
def test_wrong_values_are_refused(run: Run, outputs: Path, flags: dict[str, Any], problem: str):
    """They are usage errors, and nothing is written."""
    outcome = run("out", log_table("weeks", known=False), **flags)
    assert outcome.code == 2
    assert problem in outcome.error
    assert not (outputs / "out").exists()


def test_a_class_that_is_not_listed_is_refused(run: Run):
    """Missing labels count as one of the public classes."""
    outcome = run("out", log_table("grade", known=False), missing_label="bad")
    assert outcome.code == 2
    assert "--missing_label bad is not one of the public classes" in outcome.error


def test_dry_run_says_it(run: Run):
    """The plan of the job has what a missing label counts as."""
    out = run("out", log_table("weeks", known=False), "csv", "--dry_run").ok().out
    assert "a missing label counts as 0; " in out


def test_memory_gives_the_labels_of_the_command(run: Run, outputs: Path, tmp_path: Path, key_file: Path):
    """As without the flag, and of every kind of column none is missing any more."""
    table = log_table("weeks", known=False)
    run("out", table).ok()
    wanted = pq.read_table(outputs / "out" / "data")["weeks"].to_numpy()
    parameters: dict[str, Any] = {
        "label_min": 0, "label_max": 4, "label_step": 1, "epsilon": 2, "for_": "labels", "missing_label": 0,
        "label": "weeks", "source": str(tmp_path / "log.csv"), "noise_key_file": key_file,
        "ledger": tmp_path / "ledger.jsonl",
    }  # fmt: skip
    plain = table["weeks"].to_numpy()
    series = table["weeks"].to_pandas()
    columns = [plain, table["weeks"], table["weeks"].to_pylist(), np.ma.MaskedArray(plain, MISSING)]
    for column in [*columns, series, series.astype("Float64")]:
        released = LabelPrivatizer(**parameters).fit_transform(column)
        found = released.to_pylist() if isinstance(released, pa.ChunkedArray) else list(released)
        assert found == wanted.tolist(), type(column)
    frame = privatize(table, **parameters).frame
    assert frame["weeks"].to_pylist() == wanted.tolist()


def test_classes_in_memory(tmp_path: Path):
    """A missing class counts as the given one, also a boolean."""
    labels = [True, None, False, None] * 50
    parameters: dict[str, Any] = {
        "label_classes": [False, True],
        "epsilon": 20,
        "mechanism": "rr",
    }
    released = LabelPrivatizer(
        **parameters, missing_label=False, noise_key=b"k" * 32, ledger=tmp_path / "ledger.jsonl"
    ).fit_transform(labels)
    assert released == [True, False, False, False] * 50
