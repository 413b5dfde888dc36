"""`labeldp attack --features`: planted copies of the label are named, honest features are not."""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.attack import feature_leaks

IsotonicRegression: Any = pytest.importorskip("sklearn.isotonic").IsotonicRegression

RECORDS = 2000


def columns() -> dict[str, list[Any]]:
    """Two features that tell a part of the label, which has a heavy tail, and one that tells nothing."""
    rng = np.random.default_rng(7)
    x, kind = rng.normal(size=RECORDS), rng.integers(0, 3, RECORDS)
    spent = np.round(np.exp(1 + 0.5 * x + 0.3 * kind + 0.7 * rng.normal(size=RECORDS)), 2)
    return {
        "x": np.round(x, 4).tolist(),
        "kind": [f"k{place}" for place in kind],
        "w": np.round(rng.random(RECORDS), 5).tolist(),
        "spent": spent.tolist(),
        "bought": np.where(spent > 5, "yes", "no").tolist(),
    }


def leak(spent: list[float], kind: str) -> list[Any]:
    labels, rng = np.array(spent), np.random.default_rng(8)
    return {
        "copy": labels,
        "with tax": np.round(labels * 1.19 + 3, 2),
        "falling": np.round(-np.sqrt(labels), 4),
        "step": np.floor(labels * 2),
        "logarithm": np.round(np.log(labels) + 0.01 * rng.normal(size=len(labels)), 4),
    }[kind].tolist()


@pytest.fixture
def attack(invoke: Any, write_csv: Any, tmp_path: Path) -> Callable[..., Any]:
    """Function (columns, flag, ...) -> outcome."""

    def run(found: dict[str, list[Any]], *flags: str) -> Any:
        rows = [",".join(map(str, row)) for row in zip(*found.values(), strict=True)]
        path = write_csv(tmp_path / "log.csv", rows, ",".join(found))
        return invoke(["attack", "--features", f"--input={path}", "--input_format=csv", *flags])

    return run


def test_honest_features_pass(attack: Any) -> None:
    outcome = attack(columns(), "--label=spent", "--exclude=bought").ok()
    lines = outcome.out.splitlines()
    assert lines[0].startswith("NOT FOR RELEASE")
    assert "label 'spent' of 2,000 records, 3 features and the place of the record" in lines[1]
    assert 0.1 < float(lines[2].split("explains ")[1].split()[0]) < 0.5
    alone = [line[19:].split("'")[1] for line in lines if "determines" in line]
    assert alone[:2] == ["x", "kind"]
    assert {*alone[2:]} == {"w", "row of all"}
    assert lines[-1] == "PASS"


@pytest.mark.parametrize("kind", ["copy", "with tax", "falling", "step", "logarithm"])
def test_a_copy_of_the_label_is_named(attack: Any, kind: str) -> None:
    """Among innocent columns, under an innocent name."""
    found = columns()
    outcome = attack({"v17": leak(found["spent"], kind), **found}, "--label=spent", "--exclude=bought")
    assert outcome.code == 1
    *lines, verdict = outcome.out.splitlines()
    assert verdict == ("FAIL: 'v17' is nearly the label: it reveals labels, whatever epsilon is; leave the column out")
    (alone,) = (line for line in lines if line.startswith("each alone"))
    assert "'v17': explains " in alone
    assert alone.endswith(", nearly the label")


@pytest.mark.parametrize(("huge", "sold"), [(5e6, 1.0), (-1.7e308, 1.0), (1e300, 0.03)])
def test_one_huge_label_hides_no_copy(attack: Any, huge: float, sold: float) -> None:
    """Nor if most labels are equal; nothing but progress is on stderr."""
    found = columns()
    found["spent"] = np.where(np.random.default_rng(11).random(RECORDS) < sold, found["spent"], 0.0).tolist()
    found["spent"][17] = huge
    copy = (0.5 * np.array(found["spent"]) + 1).tolist()
    outcome = attack({"v17": copy, **found}, "--label=spent", "--exclude=bought")
    assert outcome.code == 1
    assert outcome.out.splitlines()[-1].startswith("FAIL: 'v17' is nearly the label")
    assert "'x' is" not in outcome.out
    assert "nan" not in outcome.out
    assert outcome.errors == []
    assert attack(found, "--label=spent", "--exclude=bought").ok().out.splitlines()[-1] == "PASS"


def test_features_may_be_any_floats(attack: Any) -> None:
    found = columns()
    found["large"] = (1.7e308 * np.random.default_rng(12).choice([-1, 1, 1e-300, 0], RECORDS)).tolist()
    # 1e-300, without a decimal point, is text.
    found["close"] = (1e-300 * np.array(found["spent"])).tolist()
    outcome = attack(found, "--label=spent", "--exclude=bought")
    assert outcome.out.splitlines()[-1] == (
        "FAIL: 'close' is nearly the label: it reveals labels, whatever epsilon is; leave the column out"
    )
    assert "nan" not in outcome.out


def test_a_figure_that_is_not_finite_fails(attack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IsotonicRegression, "predict", lambda self, numbers: numbers + np.nan)
    monkeypatch.setattr(feature_leaks, "cross_fitted_predictions", lambda matrix, labels, folds, seed: labels * np.inf)
    outcome = attack(columns(), "--label=spent", "--exclude=bought")
    assert outcome.code == 1
    assert outcome.out.splitlines()[-1] == (
        "FAIL: how much 'row of all' explains is not a finite number, so that nothing is known of it; how much 'w' "
        "explains is not a finite number, so that nothing is known of it; how much 'x' explains is "
        "not a finite number, so that nothing is known of it; how much the features explain together is not a finite "
        "number, so that nothing is known of it"
    )


@pytest.mark.parametrize("classes", ["no,yes", None])
def test_labels_that_are_all_equal_are_explained_by_nothing(attack: Any, classes: str | None) -> None:
    found = {**columns(), "constant": [1] * RECORDS, "bought": ["no" if classes else 0.1] * RECORDS}
    flags = [] if classes is None else [f"--label_classes={classes}"]
    lines = attack(found, "--label=bought", *flags).ok().out.splitlines()
    assert lines[-1] == "PASS"
    explained = [line.split("explains ")[1].split()[0] for line in lines if "explains " in line]
    assert explained == ["0"] * 7


def test_a_copy_of_classes_is_named(attack: Any) -> None:
    found = columns()
    flags = "--label=bought", "--label_classes=no,yes"
    outcome = attack(found, *flags)
    assert outcome.code == 1
    assert outcome.out.splitlines()[-1].startswith("FAIL: 'spent' is nearly the label")
    outcome = attack(found, *flags, "--exclude=spent").ok()
    area = float(outcome.out.split("area under the ROC curve ")[1].split()[0].rstrip(","))
    assert 0.65 < area < 0.85


def test_a_status_of_some_labels_determines_them(attack: Any) -> None:
    """Returned goods cost nothing: a status that is set after the sale tells a fifth of the labels, and few others."""
    found, rng = columns(), np.random.default_rng(9)
    returned = rng.random(RECORDS) < 0.2
    found["spent"] = np.where(returned, 0.0, 3 + np.array(found["spent"])).tolist()
    found["status"] = np.where(returned, "r", "s").tolist()
    outcome = attack(found, "--label=spent", "--exclude=bought", "--within=0.1")
    assert (outcome.code, outcome.out.splitlines()[-1]) == (
        3, "WARN: 'status' determines 19 % of the labels: it reveals them, whatever epsilon is; leave the column out",
    )  # fmt: skip
    line = next(line for line in outcome.out.splitlines() if "'status'" in line)
    determined = float(line.split("determines ")[1].split()[0])
    assert determined == pytest.approx(returned.mean(), abs=0.001)
    assert f"{determined:.4g} of the labels are known within 0.1" in outcome.out
    assert ", 0 without\n" in outcome.out


def test_a_missing_value_can_tell_the_label(attack: Any) -> None:
    found = columns()
    flags = "--label=bought", "--label_classes=no,yes", "--exclude=spent"
    when = [f"2026-01-{1 + row % 28:02}" if text == "yes" else "" for row, text in enumerate(found["bought"])]
    outcome = attack({**found, "shipped": when}, *flags)
    assert outcome.code == 1
    assert outcome.out.splitlines()[-1].startswith("FAIL: 'shipped' is nearly the label")


def test_features_that_reveal_the_label_together(attack: Any) -> None:
    """A total and a part of it: the label is their difference, and neither is nearly the label."""
    rng = np.random.default_rng(10)
    label, part = rng.integers(0, 2, RECORDS), rng.integers(0, 2, RECORDS)
    found = {"total": (label ^ part).tolist(), "part": part.tolist(), "y": label.tolist()}
    outcome = attack(found, "--label=y", "--label_classes=0,1")
    assert outcome.code == 1
    assert outcome.out.splitlines()[-1].startswith("FAIL: the features together are nearly the label")


KINDS: dict[str, tuple[Any, Any]] = {
    "duration": (lambda y: dt.timedelta(days=y), None),
    "bytes": (lambda y: bytes([y, 0]), pa.binary(2)),
    "struct": (lambda y: {"a": {"v": y}}, None),
    "structs": (lambda y: [{"v": 0}, {"v": y}], None),
    "map": (lambda y: [("k", y), ("l", 1)], pa.map_(pa.string(), pa.int64())),
    "map of numbers": (lambda y: [(7, str(y))], pa.map_(pa.int64(), pa.string())),
    "fixed": (lambda y: [0, y], pa.list_(pa.int64(), 2)),
    "two": (lambda y: [y, y], None),
    "lengths": (lambda y: [1] * y, pa.list_(pa.int64())),
    "lists": (lambda y: [[0, y]], None),
    "json": (lambda y: json.dumps({"a": [{"b": f"{y}"}]}), None),
}


@pytest.mark.parametrize("output", ["features", "truth"])
def test_a_column_that_is_not_read_is_named(
    output: str, invoke: Any, tmp_path: Path, key_file: Path, command: Any
) -> None:
    """No bare PASS, of inputs and of releases."""
    path, y = tmp_path / "log.parquet", np.random.default_rng(3).integers(0, 10, 500)
    kind = pa.list_(pa.int8())
    pq.write_table(pa.table({"x": range(500), "c": pa.array([[*range(70)]] * 500, kind), "y": y}), path)
    flags = [f"--{'input' if output == 'features' else 'truth'}={path}", "--input_format=parquet"]
    if output == "truth":
        settings = {"input": path, "input_format": "parquet", "label": "y", "label_min": 0, "label_max": 9,
                    "label_step": 1, "epsilon": 1, "output": tmp_path / "out", "noise_key_file": key_file,
                    "mechanism": "rr"}  # fmt: skip
        invoke(command("privatize", settings)).ok()
        outcome = invoke(["attack", str(tmp_path / "out"), *flags])
    else:
        outcome = invoke(["attack", "--features", "--label=y", *flags])
    assert "\nnot examined       c[64:] (list<" in outcome.out
    assert outcome.out.splitlines()[-1].startswith("WARN: not examined: c[64:] (list<")
    assert outcome.code == 3


@pytest.mark.parametrize("kind", [*KINDS])
def test_a_copy_of_the_label_within_a_column_is_named(kind: str, invoke: Any, tmp_path: Path) -> None:
    y = np.random.default_rng(3).integers(0, 10, 500).tolist()
    values, form = pa.array([KINDS[kind][0](label) for label in y], KINDS[kind][1]), tmp_path / "log.parquet"
    pq.write_table(pa.table({"x": range(500), "c": values, "c.v": [1] * 500, "y": y}), form)
    outcome = invoke(["attack", "--features", f"--input={form}", "--input_format=parquet", "--label=y"])
    assert outcome.code == 1
    assert outcome.out.splitlines()[-1].startswith("FAIL: 'c")


@pytest.mark.parametrize("place", ["files", "file", "sorted", "parts"])
def test_the_place_of_a_record_is_a_feature(place: str, invoke: Any, write_csv: Any, tmp_path: Path) -> None:
    """Files named pos and neg, a log that is sorted by its label, and files that are."""
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2 if place == "files" else 10, 1000)
    names = {"files": np.where(y, "pos", "neg"), "file": np.full(1000, "all"), "sorted": np.full(1000, "all"),
             "parts": rng.permutation(["a", "b"] * 500)}[place]  # fmt: skip
    for name in np.unique(names):
        own = y[names == name] if place in ("files", "file") else np.sort(y[names == name])
        write_csv(tmp_path / f"{name}.csv", [f"{rng.random()},{label}" for label in own], "x,y")
    classes = ["--label_classes=0,1"] if place == "files" else []
    outcome = invoke(["attack", "--features", f"--input={tmp_path}/*.csv", "--input_format=csv", "--label=y", *classes])
    verdict = outcome.out.splitlines()[-1]
    assert outcome.code == (0 if place == "file" else 1)
    named = {"files": "'file of the record'", "sorted": "'row of all'", "parts": "'row in its file'", "file": ""}[place]
    assert f"{named} is nearly the label" in verdict or (place, verdict) == ("file", "PASS")
    assert place == "file" or "write the log again in one order" in verdict


@pytest.mark.parametrize(
    ("flags", "code", "expected"),
    [
        ([], 2, "--label is missing"),
        (["--label=sent"], 2, "has no column 'sent'; did you mean spent?"),
        (["--label=spent", "--exclude=bougt"], 2, "no column 'bougt'; did you mean bought?"),
        (["--label=spent", "--exclude=spent"], 2, "--exclude names the label 'spent'"),
        (["--label=spent", "--show_rows=5"], 2, "--show_rows needs --truth"),
        (["--label=spent", "--label_min=0"], 2, "the public label domain is missing"),
        (["--label=bought"], 1, "not a number"),
        (["--label=spent", "--exclude", "x", "kind,w", "bought"], 1, "has no feature beside the label 'spent'"),
        (["--label=spent", "--where=bought=maybe"], 1, "has no record with a usable label"),
        (["--label=bought", "--label_classes=no,yes", "--within=1"], 2, "--within is for labels that are numbers"),
    ],
)
def test_errors(attack: Any, flags: list[str], code: int, expected: str) -> None:
    outcome = attack(columns(), *flags)
    assert (outcome.code, outcome.out) == (code, "")
    assert expected in outcome.error


def test_a_release_is_no_input(attack: Any, invoke: Any) -> None:
    assert "--features is for an input before its release: leave out released" in (
        attack(columns(), "--label=spent", "released").error
    )
    missing = "name the files with the true labels of a release: --truth FILES; or give --features"
    assert missing in invoke(["attack"]).error


def test_too_few_records(attack: Any) -> None:
    outcome = attack({name: column[:99] for name, column in columns().items()}, "--label=spent")
    assert outcome.code == 1
    assert "there are 99 records with a label; a predictor needs at least 100" in outcome.error


def test_a_large_input_is_thinned(attack: Any) -> None:
    outcome = attack(columns(), "--label=spent", "--most_records=700").ok
    assert "label 'spent' of 500 records" in outcome().out
