"""`--missing_label`: a missing label counts as a public one, and a release does not tell which labels were missing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp import LabelPrivatizer, privatize

from tests.written_logs import write_log

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


@pytest.fixture
def run(tmp_path: Path, outputs: Path, key_file: Path, invoke: Any, command: Any) -> Run:
    """Function (output, table, kind="csv", switch, ..., flag=value, ...) -> outcome of `privatize` on the one log."""

    def call(output: str, table: pa.Table, kind: str = "csv", *switches: str, **flags: Any) -> Any:
        path, classes = write_log(tmp_path / f"log.{kind}", table), "grade" in table.schema.names
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


def test_center_of_all_records(run: Run, outputs: Path, invoke: Any):
    """Records without a label are among those that a center is fitted to, and the audit computes it again."""
    table = log_table("weeks", known=False)
    flags: dict[str, Any] = {"center": "linear", "mechanism": "unbiased", "label_max": 8}
    out = run("around", table, "parquet", **flags).ok().out
    assert "in 1 shard; a missing label counts as 0\n" in out
    invoke(["audit", str(outputs / "around"), "--data"]).ok()


def test_a_label_of_a_fine_grid(run: Run, outputs: Path, invoke: Any):
    """A missing label may count as any label of the declared grid, also if the mechanism has a coarser one."""
    fine: dict[str, Any] = {"label_max": 1023.5, "label_step": 0.5, "epsilon": 1, "center": "none", "for": "labels"}
    run("out", log_table("weeks", known=False), "csv", **fine, missing_label=0.5).ok()
    assert manifest(outputs / "out")["missing_label"] == 0.5
    invoke(["audit", str(outputs / "out"), "--data"]).ok()


@pytest.mark.parametrize("label", ["weeks", "grade"])
def test_apply_counts_missing_labels_as_fit_does(
    tmp_path: Path, outputs: Path, key_file: Path, invoke: Any, command: Any, label: str
):
    """The mechanism file states it, and so does that of the release, which passes the audit."""
    value = 1 if label == "weeks" else "fair"
    path = write_log(tmp_path / "log.csv", log_table(label, known=False))
    log = {"input": path, "input_format": "csv", "label": label, "noise_key_file": key_file, "missing_label": value}
    log |= {"max_unusable_fraction": 1, "mechanism_file": tmp_path / "m.json"}
    domain = {"label_min": 0, "label_max": 4, "label_step": 1, "for": "labels", "center": "none"}
    if label == "grade":
        domain = {"label_classes": "poor,fair,good", "mechanism": "rr"}
    invoke(command("fit", log | domain | {"epsilon": 2})).ok()
    invoke(command("apply", log | {"output": outputs / "out"})).ok()
    document = json.loads((outputs / "out" / "mechanism.json").read_text())
    assert document["prior"]["missing_label"] == manifest(outputs / "out")["missing_label"] == value
    invoke(["audit", str(outputs / "out"), "--data"]).ok()
    document["prior"]["missing_label"] = "bad"
    (outputs / "out" / "mechanism.json").write_text(json.dumps(document))
    assert "prior.missing_label is not " in invoke(["audit", str(outputs / "out")]).out


def test_a_public_prior_goes_with_any_missing_label(
    tmp_path: Path, outputs: Path, key_file: Path, invoke: Any, command: Any
):
    """No label was counted for it, so its file says nothing of missing ones."""
    (tmp_path / "prior.csv").write_text("label,weight\n0,3\n1,1\n2,1\n3,1\n4,1\n")
    solve = {"prior": tmp_path / "prior.csv", "epsilon": 1, "mechanism": "rr", "output": tmp_path / "m.json"}
    invoke(command("solve", solve)).ok()
    write_log(tmp_path / "log.csv", log_table("weeks", known=False))
    log = {"input": tmp_path / "log.csv", "input_format": "csv", "label": "weeks", "max_unusable_fraction": 1}
    log |= {"mechanism_file": tmp_path / "m.json", "noise_key_file": key_file}
    for value in (None, 2):
        invoke(command("apply", log | {"missing_label": value, "output": outputs / f"with_{value}"})).ok()
        invoke(["audit", str(outputs / f"with_{value}"), "--data"]).ok()


def test_no_message_tells_which_tfrecords_lack_labels(run: Run):
    """If the first records of a file have no label, what is printed is that of a log with the public one."""
    lacking = log_table("weeks", known=True).set_column(1, "weeks", pa.nulls(ROWS, pa.float64()))
    said = []
    for table in (lacking, log_table("weeks", known=True)):
        # The warning about the ids names all columns.
        outcome = run("out", table, "tfrecord", "--dry_run", id_column="wekes")
        said.append((outcome.code, outcome.out, outcome.err))
    assert said[0] == said[1]
    assert "there is no column 'wekes' in the first records" in said[0][2]
    assert "did you mean weeks?" in said[0][2]
    outcome = run("out", lacking, "tfrecord", **{"for": "labels"}, center="none").ok()
    assert "there is no column" not in outcome.err


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
    fitted = LabelPrivatizer(**parameters).fit(series)
    assert list(fitted.transform(series)) == wanted.tolist()
    fitted.write_mechanism(tmp_path / "saved.json")
    assert json.loads((tmp_path / "saved.json").read_text())["prior"]["missing_label"] == 0
    with pytest.raises(ValueError, match="missing_label is not that of fit"):
        fitted.set_params(missing_label=1).transform(series)
    frame = privatize(table, **parameters).frame
    assert frame["weeks"].to_pylist() == wanted.tolist()


@pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")
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
