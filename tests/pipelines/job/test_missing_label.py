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
        ({"missing_label": 0.5}, "missing_label is not a label of"),
        ({"missing_label": 1}, "missing_label is not prior.missing_label of mechanism.json"),
        ({"missing_label": None, "adjacency": public}, "missing_label is not prior.missing_label of mechanism.json"),
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
        ({"missing_label": 0.5}, "--missing_label 0.5 is not a label of the domain: the nearest one is 0"),
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


def test_a_label_of_a_fine_grid(run: Run, outputs: Path, invoke: Any):
    """A missing label may count as any label of the declared grid, also if the mechanism has a coarser one."""
    fine: dict[str, Any] = {"label_max": 1023.5, "label_step": 0.5, "epsilon": 1, "center": "none", "for": "labels"}
    run("out", log_table("weeks", known=False), "csv", **fine, missing_label=0.5).ok()
    assert manifest(outputs / "out")["missing_label"] == 0.5
    invoke(["audit", str(outputs / "out"), "--data"]).ok()
    outcome = run("other", log_table("weeks", known=False), "csv", **fine, missing_label=0.6)
    assert outcome.code == 2
    assert "the nearest one is 0.5" in outcome.error


@pytest.fixture
def fit_then_apply(tmp_path: Path, outputs: Path, key_file: Path, invoke: Any, command: Any) -> Run:
    """Function (label, value of fit, value of apply, solved=False) -> outcome of `apply`; None leaves the flag out."""

    def call(label: str, fitted: Any, applied: Any, solved: bool = False) -> Any:
        path, fit, file = tmp_path / "log.csv", tmp_path / "fit.json", tmp_path / "m.json"
        write_log(path, log_table(label, known=False))
        log = {"input": path, "input_format": "csv", "label": label, "noise_key_file": key_file}
        log |= {"max_unusable_fraction": 1}
        domain = {"label_min": 0, "label_max": 4, "label_step": 1, "for": "labels", "center": "none"}
        if label == "grade":
            domain = {"label_classes": "poor,fair,good", "mechanism": "rr"}
        flags = {"epsilon": 2, "missing_label": fitted, "mechanism_file": fit if solved else file}
        invoke(command("fit", log | domain | flags)).ok()
        if solved:
            invoke(command("solve", {"prior": fit, "epsilon": 1, "mechanism": "rr", "output": file})).ok()
        applying = {"mechanism_file": file, "missing_label": applied, "output": outputs / "out"}
        return invoke(command("apply", log | applying))

    return call


@pytest.mark.parametrize("label", ["weeks", "grade"])
def test_apply_counts_missing_labels_as_fit_does(fit_then_apply: Run, outputs: Path, invoke: Any, label: str):
    """The mechanism file states it, and so does that of the release, which passes the audit."""
    value = 1 if label == "weeks" else "fair"
    fit_then_apply(label, value, value).ok()
    document = json.loads((outputs / "out" / "mechanism.json").read_text())
    assert document["prior"]["missing_label"] == manifest(outputs / "out")["missing_label"] == value
    invoke(["audit", str(outputs / "out"), "--data"]).ok()
    document["prior"]["missing_label"] = "bad"
    (outputs / "out" / "mechanism.json").write_text(json.dumps(document))
    outcome = invoke(["audit", str(outputs / "out")])
    assert outcome.code == 1
    assert "prior.missing_label is not " in outcome.out


@pytest.mark.parametrize("solved", [False, True])
@pytest.mark.parametrize(
    ("fitted", "applied", "problem"),
    [
        (None, 0, "--missing_label 0 cannot be used with --mechanism_file"),
        (0, None, "Give --missing_label 0"),
        (0, 1, "give --missing_label 0, or fit again"),
    ],
)
def test_apply_refuses_another_missing_label(
    fit_then_apply: Run, outputs: Path, fitted: Any, applied: Any, problem: str, solved: bool
):
    """A histogram of the labels that are there tells how many are missing, also after `solve`."""
    outcome = fit_then_apply("weeks", fitted, applied, solved)
    assert outcome.code == 2
    assert problem in outcome.error
    assert not (outputs / "out").exists()


@pytest.mark.parametrize(("fitted", "problem"), [(None, "cannot be used"), ("poor", "give --missing_label poor")])
def test_apply_refuses_another_class(fit_then_apply: Run, fitted: str | None, problem: str):
    """As for numbers; the message has the class."""
    outcome = fit_then_apply("grade", fitted, "fair")
    assert outcome.code == 2
    assert problem in outcome.error


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
    outcome = invoke(command("apply", log | {"missing_label": 0.5, "output": outputs / "half"}))
    assert outcome.code == 2
    assert "--missing_label 0.5 is not a label of the domain" in outcome.error


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
