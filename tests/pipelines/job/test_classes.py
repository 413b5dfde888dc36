"""`--label_classes` in whole jobs: types, formats, values that are not listed, several labels, units, fit and apply."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.mechanisms.core.randomizer import Randomizer

from tests.false_alarms import share_bound
from tests.written_logs import write_parts

ROWS = 3000
GRADES = ("poor", "fair", "good")
RANDOM = np.random.default_rng(8)
GRADE = RANDOM.choice(GRADES, ROWS, p=[0.2, 0.5, 0.3])
CLICK = RANDOM.random(ROWS) < 0.3
UNLISTED = "an unlisted grade of some length"


def log_table() -> pa.Table:
    """A log of classes of three types, of which some are missing or not listed, and a number."""
    grades: list[str | None] = GRADE.tolist()
    grades[5], grades[50], grades[500] = None, UNLISTED, UNLISTED
    columns: dict[str, Any] = {
        "x": np.arange(ROWS) / 7,
        "grade": grades,
        "click": CLICK.astype(np.int64),
        "bought": CLICK,
        "weeks": np.arange(ROWS) % 53,
        "user": np.arange(ROWS) // 3,
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log in each format."""
    return write_parts(tmp_path_factory.mktemp("logs"), log_table(), ROWS, ("parquet", "csv", "tfrecord"))


Release = Callable[..., pa.Table]


@pytest.fixture
def run(logs: Path, outputs: Path, key_file: Path, invoke: Any, command: Any) -> Callable[..., Any]:
    """Function (output, kind="parquet", command="privatize", flag=value, ...) -> the outcome of the command."""

    def call(place: str | None, kind: str = "parquet", name: str = "privatize", **flags: Any) -> Any:
        standard: dict[str, Any] = {"input": logs / f"log-0.{kind}", "input_format": kind, "noise_key_file": key_file}
        standard |= {"label": "grade", "max_unusable_fraction": 0.01, "output": place and outputs / place}
        if name != "apply":
            standard |= {"label_classes": ",".join(GRADES), "epsilon": 3, "mechanism": "rr"}
        return invoke(command(name, standard | flags))

    return call


@pytest.fixture
def released(run: Callable[..., Any], outputs: Path) -> Release:
    """Function as `run` -> the released records."""

    def call(output: str, *args: Any, **flags: Any) -> pa.Table:
        run(output, *args, **{"output_format": "parquet"} | flags).ok()
        return pq.read_table(outputs / output / "data")

    return call


def kept_share(release: Path) -> float:
    """Probability that randomized response releases a class as it is."""
    return float(Randomizer.from_json((release / "mechanism.json").read_text()).probabilities()[0, 0])


def texts(column: pa.ChunkedArray) -> list[str]:
    """Values of flat columns or lists of one, as text."""
    values = [value[0] if isinstance(value, list) else value for value in column.to_pylist()]
    return [value.decode() if isinstance(value, bytes) else str(value).lower() for value in values]


@pytest.mark.parametrize(
    ("kind", "label", "classes", "expected"),
    [
        ("parquet", "grade", "poor,fair,good", pa.string()),
        ("csv", "grade", "poor,fair,good", pa.string()),
        ("tfrecord", "grade", "poor,fair,good", pa.large_list(pa.large_binary())),
        ("parquet", "click", "0,1", pa.int64()),
        ("csv", "click", "0,1", pa.int64()),
        ("tfrecord", "click", "0,1", pa.large_list(pa.int64())),
        ("parquet", "bought", "false,true", pa.bool_()),
        ("csv", "bought", "false,true", pa.bool_()),
        ("parquet", "bought", "1,0", pa.bool_()),
    ],
)
def test_classes_keep_their_type(
    released: Release, outputs: Path, kind: str, label: str, classes: str, expected: pa.DataType
) -> None:
    table, log = released("released", kind, label=label, label_classes=classes), log_table()
    assert str(table.schema.field(label).type).replace("element", "item") == str(expected)
    usable = [value is not None for value in log[label].to_pylist()]
    assert table.num_rows == sum(usable)
    # Other columns stay as they are, and so does the order of the records.
    if kind != "tfrecord":
        np.testing.assert_allclose(np.asarray(table["x"]), np.asarray(log["x"])[usable])
    drawn, true = texts(table[label]), np.array(texts(log[label]))[usable]
    assert set(drawn) == set(texts(pa.chunked_array([log[label].filter(pa.array(usable)).unique()]))) - {UNLISTED}
    # Of epsilon 3, of which the histogram takes a part, e^epsilon / (e^epsilon + K - 1) of the labels are kept.
    kept = kept_share(outputs / "released")
    true[true == UNLISTED] = classes.split(",")[0]
    assert kept > 0.85
    assert np.mean(drawn == true) == pytest.approx(kept, abs=share_bound(np.full(len(true), kept)))
    manifest = json.loads((outputs / "released" / "release.json").read_text())
    assert manifest["classes"] == {"values": classes.split(","), "other": 0}
    assert manifest["expected_loss"].keys() == {"zero_one"}
    assert UNLISTED not in (outputs / "released" / "release.json").read_text()


def test_shards_of_tfrecords_have_the_kind_of_feature(
    run: Callable[..., Any], outputs: Path, read_examples: Any
) -> None:
    for label, classes, kind in (("grade", "poor,fair,good", bytes), ("click", "0,1", int)):
        run(label, "tfrecord", label=label, label_classes=classes).ok()
        (shard,) = (outputs / label / "data").iterdir()
        found = read_examples(shard, {label: kind, "x": float})
        values = {value.decode() if isinstance(value, bytes) else str(value) for value in found[label].tolist()}
        assert values == set(classes.split(","))


def test_a_file_of_classes_is_the_list(released: Release, tmp_path: Path) -> None:
    path = tmp_path / "grades.txt"
    path.write_bytes(b"\xef\xbb\xbfpoor\r\nfair\ngood\n")
    assert released("one", label_classes=path).equals(released("two"))


def test_values_that_are_not_listed_count_as_the_other_class(
    released: Release, outputs: Path, logs: Path, tmp_path: Path
) -> None:
    """The release is, bit for bit, that of a log which has the other class there."""
    log = log_table()
    for other in ("poor", "good"):
        tables = []
        grades = [other if value == UNLISTED else value for value in log["grade"].to_pylist()]
        # The same file name: without ids, it is the name of the records.
        folder = tmp_path / other
        folder.mkdir()
        for listed in (log["grade"].to_pylist(), grades):
            pq.write_table(log.set_column(1, "grade", pa.array(listed)), folder / "log.parquet")
            name = f"{other}{len(list(outputs.iterdir()))}"
            given = None if other == "poor" else other
            tables.append(released(name, input=folder / "log.parquet", other_class=given))
        assert tables[0].equals(tables[1])


def test_several_labels_of_classes_and_a_number(released: Release, outputs: Path) -> None:
    flags = {
        "label": "grade,weeks,bought",
        "label_classes": "grade=poor,fair,good;bought=false,true",
        "label_min": 0, "label_max": 52, "label_step": 1, "mechanism": None, "center": "none",
    }  # fmt: skip
    table = released("released", **flags, other_class="grade=good")
    assert [str(table.schema.field(name).type) for name in ("grade", "weeks", "bought")] == ["string", "double", "bool"]
    whole = json.loads((outputs / "released" / "release.json").read_text())
    assert [part["mechanism"] for part in whole["labels"]][::2] == ["rr", "rr"]
    assert [part["epsilon"] for part in whole["labels"]] == [1.0, 1.0, 1.0]
    grade = json.loads((outputs / "released" / "labels" / "grade" / "mechanism.json").read_text())
    assert grade["classes"] == {"values": ["poor", "fair", "good"], "other": 2}


def test_classes_without_the_flag_are_refused_with_advice(run: Callable[..., Any]) -> None:
    numbers = {"label_classes": None, "label_min": 0, "label_max": 2, "label_step": 1}
    outcome = run("released", **numbers)
    assert outcome.code == 1
    assert "label column 'grade' holds string, not numbers" in outcome.error
    assert "--label_classes" in outcome.error


def test_the_summary_names_the_classes(run: Callable[..., Any], outputs: Path) -> None:
    out = run("released").ok().out
    assert "classes    poor, fair, good; all other values count as poor\n" in out
    assert "mechanism  rr: 3 classes to 3\n" in out
    assert "largest bias" not in out


def test_nothing_tells_of_a_value_that_is_not_listed(
    run: Callable[..., Any], outputs: Path, tree: Any, tmp_path: Path
) -> None:
    """Neither output, nor log, nor any file has it; nor does a text that every record has."""
    log = log_table()
    path = tmp_path / "log.parquet"
    pq.write_table(log.set_column(1, "grade", pa.array([UNLISTED] * ROWS)), path)
    outcome = run("released", input=path).ok()
    for content in [outcome.out.encode(), outcome.err.encode(), *tree(outputs).values()]:
        assert UNLISTED.encode() not in content
