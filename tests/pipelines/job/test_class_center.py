"""Classes that are drawn from a center of the features, in whole jobs: formats, bytes, budget, units, memory."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import labeldp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.mechanisms.center.class_model import ClassModel
from labeldp.mechanisms.center.linear_center import MOST_SAMPLE

from tests.false_alarms import share_bound
from tests.written_logs import write_parts

ROWS = 4000
GRADES = ("poor", "fair", "good")
FEATURES = ("a", "b", "word")


def log_table(seed: int = 3) -> pa.Table:
    """A log whose classes depend on features: clicks on an interaction of two, grades nearly linearly."""
    random = np.random.default_rng(seed)
    a, b, word = random.normal(size=ROWS), random.normal(size=ROWS), random.integers(0, 3, ROWS)
    click = random.random(ROWS) < 1 / (1 + np.exp(2 - 2 * a - 2 * np.sign(a * b)))
    grade = np.searchsorted([-0.7, 0.9], 1.5 * a + (word == 1) + random.normal(0, 0.7, ROWS))
    return pa.table({
        "id": np.arange(ROWS), "a": a, "b": b, "word": [f"w{value}" for value in word.tolist()],
        "click": click.astype(np.int64), "grade": [GRADES[place] for place in grade.tolist()],
        "user": np.arange(ROWS) // 2,
    })  # fmt: skip


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_parts(tmp_path_factory.mktemp("logs"), log_table(), 2500, ("parquet", "csv", "tfrecord"))


@pytest.fixture
def run(logs: Path, outputs: Path, key_file: Path, invoke: Any, command: Any) -> Callable[..., Any]:
    """Function (output, kind="parquet", name="privatize", flag=value, ...) -> the outcome of the command."""

    def call(place: str | None, kind: str = "parquet", name: str = "privatize", **flags: Any) -> Any:
        standard: dict[str, Any] = {"input": logs / f"log-*.{kind}", "input_format": kind, "noise_key_file": key_file}
        standard |= {"label": "click", "id_column": "id", "output": place and outputs / place}
        if name != "apply":
            standard |= {"label_classes": "0,1", "epsilon": 2, "for": "models", "center_features": ",".join(FEATURES)}
        return invoke(command(name, standard | flags))

    return call


def flat(column: pa.ChunkedArray) -> np.ndarray:
    return np.array([value[0] if isinstance(value, list) else value for value in column.to_pylist()])


@pytest.mark.parametrize("kind", ["parquet", "csv", "tfrecord"])
def test_classes_are_drawn_from_probabilities(run: Callable[..., Any], invoke: Any, outputs: Path, kind: str) -> None:
    out = run("released", kind, output_format="parquet").ok().out
    assert "center     click_probabilities: probabilities of the classes, from " in out
    assert "Use       The center is the model" in out
    audited = invoke(["audit", str(outputs / "released")]).ok().out
    assert "drawn from a center; no label is read for a draw" in audited
    assert "ratio " not in audited
    table = pq.read_table(outputs / "released" / "data")
    probabilities = np.array(table["click_probabilities"].to_pylist())
    assert (probabilities.sum(axis=1) == 1).all()
    assert (probabilities * 65536 == np.rint(probabilities * 65536)).all()
    drawn, true = flat(table["click"]), np.asarray(log_table()["click"])
    assert abs(drawn.mean() - probabilities[:, 1].mean()) < share_bound(probabilities[:, 1])
    # Probabilities know the classes better than their share does: the share's log loss is the entropy, about 0.66.
    chosen = probabilities[np.arange(ROWS), true]
    share = true.mean()
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert -np.log(chosen).mean() < 0.85 * entropy
    model = ClassModel.from_json((outputs / "released" / "center.json").read_text())
    features = {name: log_table()[name].to_pylist() for name in FEATURES}
    if kind != "tfrecord":
        np.testing.assert_array_equal(model.predict(features), probabilities)


def test_features_of_few_values_leave_no_epsilon_unspent(
    run: Callable[..., Any], invoke: Any, outputs: Path, tmp_path: Path
) -> None:
    """Their sample is that of centers of classes, larger than of others: here, all records."""
    table = pa.concat_tables([log_table().select(["word", "click"])] * 5)
    pq.write_table(table.append_column("id", pa.array(np.arange(len(table)))), tmp_path / "log.parquet")
    run("few", epsilon=1, input=tmp_path / "log.parquet", center_features="word").ok()
    manifest = json.loads((outputs / "few" / "release.json").read_text())
    assert manifest["class_center"]["cells"] == 3
    assert Fraction(99, 100) < Fraction(manifest["certified_epsilon"]) <= 1
    center = json.loads((outputs / "few" / "center.json").read_text())["center"]
    assert len(center["cells"]["codes"][0]) == len(table) > MOST_SAMPLE
    invoke(["audit", str(outputs / "few")]).ok()


def test_the_budget(run: Callable[..., Any], outputs: Path, spent: Any) -> None:
    run("one", epsilon=1).ok()
    manifest = json.loads((outputs / "one" / "release.json").read_text())
    assert Fraction(99, 100) < Fraction(manifest["certified_epsilon"]) <= 1
    assert manifest["center_epsilon"] == manifest["certified_epsilon"]
    assert not manifest.keys() & {"prior_epsilon", "randomizer_epsilon", "mechanism", "mechanism_fingerprint"}
    before = spent(outputs)
    assert before == Fraction(manifest["certified_epsilon"])
    run("two", epsilon=1.5).ok()
    assert spent(outputs) > 2 * before


def test_frequent_classes_at_a_large_epsilon_are_warned_of(run: Callable[..., Any], outputs: Path, invoke: Any) -> None:
    for name, epsilon, expected in (("large", 2, ["frequent_classes"]), ("small", 1, [])):
        err = run(name, epsilon=epsilon).ok().err
        assert ("say more than the center: --center none" in err) == bool(expected)
        file = outputs / name / "release.json"
        manifest = json.loads(file.read_text())
        assert manifest["warnings"] == expected
        invoke(["audit", str(outputs / name)]).ok()
        file.write_text(json.dumps(manifest | {"warnings": [] if expected else ["frequent_classes"]}))
        assert "frequent_classes" in invoke(["audit", str(outputs / name)]).out


def test_labels_in_memory_are_those_of_the_command(run: Callable[..., Any], outputs: Path, key_file: Path) -> None:
    run("released", num_shards=1, epsilon=1).ok()
    table, log = pq.read_table(outputs / "released" / "data"), log_table()
    given: dict[str, Any] = {"id_column": "id", "noise_key_file": key_file, "ledger": outputs / "memory.jsonl"}
    frame = log.select(["id", *FEATURES, "click"])
    released = labeldp.privatize(frame, label="click", epsilon=1, label_classes=[0, 1], **given)
    assert released.frame["click"].to_pylist() == table["click"].to_pylist()
    assert released.frame["click_probabilities"].to_pylist() == table["click_probabilities"].to_pylist()
    assert released.center_column == "click_probabilities"
    again = released.privatizer.transform(log["click"], features=frame.drop_columns("click"), ids=log["id"])
    assert again.equals(released.frame["click"])
    np.testing.assert_array_equal(released.predict_center(frame), released.center)


def test_several_labels_and_units(run: Callable[..., Any], outputs: Path) -> None:
    flags = {
        "label": "click,grade,user", "label_classes": "click=0,1;grade=poor,fair,good", "epsilon": 6,
        "label_min": 0, "label_max": 2000, "label_step": 200,
    }  # fmt: skip
    run("several", **flags).ok()
    table = pq.read_table(outputs / "several" / "data")
    assert {"click_probabilities", "grade_probabilities"} <= {*table.schema.names}
    assert set(table["grade"].to_pylist()) == set(GRADES)
    for name in ("click", "grade"):
        features = json.loads((outputs / "several" / "labels" / name / "release.json").read_text())["class_center"]
        assert features["features"] == [*FEATURES]
    run("none", **flags, center="none", center_features=None).ok()
    assert "click_probabilities" not in pq.read_schema(next((outputs / "none" / "data").iterdir())).names
    run("units", unit_column="user", max_records_per_unit=1, epsilon=1).ok()
    manifest = json.loads((outputs / "units" / "release.json").read_text())
    assert manifest["records"] == ROWS // 2
    assert manifest["unit"]["record_epsilon"] <= 1


def test_too_few_records_are_refused(run: Callable[..., Any], outputs: Path) -> None:
    outcome = run("released", epsilon=0.01)
    assert outcome.code == 1
    assert "4,000 records are too few for a center of 2 classes at this epsilon" in outcome.error
    assert not (outputs / "released").exists()
    assert not (outputs / "labeldp_ledger.jsonl").exists()
