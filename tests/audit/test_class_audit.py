"""Audit of releases of classes: correct ones pass, and lists, losses, warnings and types of columns are checked."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from labeldp.audit.audit_mechanism import audit_mechanism
from labeldp.audit.audit_release import audit_path, audit_report
from labeldp.audit.class_audit import class_statement_problems
from labeldp.audit.class_columns import ClassLabels
from labeldp.audit.documents import RefusedDocument
from labeldp.audit.manifest_audit import warning_problems
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.analysis.release_warnings import release_warnings
from labeldp.mechanisms.analysis.utility import ClassCounts, ReleasedFacts
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.mechanisms.core.losses import ZERO_ONE

from tests.audit.mechanism_files import resigned
from tests.audit.written_files import law, plant


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


# Correct releases.


def test_the_report_speaks_of_classes(release: Callable[[str], Path]) -> None:
    lines = audit_report(audit_path(str(release("ill to tfrecord")))).splitlines()
    assert lines[0].startswith("mechanism    rr_top_k: 4 classes, ")
    assert "classes      'none', 'cold', 'flu', 'covid, severe'; all other values count as 'none'" in lines
    assert not any(line.startswith("bias") for line in lines)
    data, *_, distribution = audit_path(str(release("ill to tfrecord")), data=True).data_lines
    assert "every label, a class in one type and spelling, is an output of the mechanism" in data
    assert "agree with the channel and the noised histogram" in distribution
    parts = audit_path(str(release("classes and a number"))).parts
    assert [bool(part.classes_line) for _, part in parts] == [False, True]


def test_a_histogram_of_another_list(copied: Callable[[str], Path]) -> None:
    """The noise of a histogram is bound to the list: with another one, it is not that of these records."""
    folder = copied("ill to parquet")
    for document in ("mechanism", "release"):
        plant(folder, document, {"classes.other": 1})
    audit = audit_path(str(folder), data=True)
    assert audit.problems == ()
    assert audit.data_lines[-1].startswith("distribution not checked: the prior was counted from other records")


@pytest.mark.parametrize("around", [{"center": "none", "prior_epsilon": 1}, {"center": None}])
def test_misspelled_classes_are_named(
    around: dict[str, Any], base: Any, tmp_path: Path, invoke: Any, command: Any
) -> None:
    flags = {"label_classes": "None, cold,other", "other_class": "other", "epsilon": 2, "prior_epsilon": None}
    flags = {**base("ill to parquet").flags, **flags, **around, "output": tmp_path / "misspelled"}
    outcome = invoke(command("privatize", flags)).ok()
    assert "warning: 'None', ' cold': by the released counts" in outcome.err
    assert read(tmp_path / "misspelled", "release.json")["warnings"] == ["unseen_classes"]
    assert audit_path(str(tmp_path / "misspelled"), data=True).problems == ()
    law(tmp_path / "misspelled", "release", {"warnings": []}, "= release.warnings lacks unseen_classes")


# Members of mechanism files.


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        *(
            ({"values": [f"{i}" for i in range(size)], "other": 0}, "mechanism.classes.values does not have 2 to 1000")
            for size in (1, 1001)
        ),
        ({"values": ["a", "b", "a"], "other": 0}, "classes.values has a class twice"),
        ({"values": ["a", "b", "\ud800"], "other": 0}, "classes.values has a class that is not Unicode text"),
        ({"values": ["a", "b", "c"], "other": 3}, "classes.other is not the place of a class"),
        ({"values": ["a", "b", "c", "d"], "other": 0}, "labels are not the places of the classes"),
    ],
)
def test_malformed_classes_are_refused(member: Any, problem: str) -> None:
    (found,) = audit_mechanism(document_of("rr", [1, 1, 1]) | {"classes": member}).problems
    assert found.startswith(problem)


def document_of(name: str, weights: list[float], epsilon: float = 1.0, **more: Any) -> dict[str, Any]:
    """A mechanism file of classes a, b, ..., whose prior is public."""
    prior = Prior(np.arange(float(len(weights))), np.array(weights))
    released = {"weights": prior.weights.tolist(), "epsilon": 0.0}
    classes = {"values": [chr(ord("a") + place) for place in range(len(weights))], "other": 0}
    members = {"prior": released, "classes": classes, "rounding": "nearest"} | more
    return json.loads(solve(name, prior, epsilon).to_json(**members))


@pytest.mark.parametrize(
    ("labels", "outputs", "problem"),
    [
        ([-0.0, 1.0, 2.0], None, "labels are not the places of the classes"),
        ([0.0, 1.0, 3.0], None, "labels are not the places of the classes"),
        (None, [-0.0, 1.0, 2.0], "outputs are not places of the classes"),
        (None, [0.0, 1.0, 2.5], "outputs are not places of the classes"),
    ],
)
def test_labels_and_outputs_are_places(labels: list[float] | None, outputs: list[float] | None, problem: str) -> None:
    document = document_of("rr", [1, 1, 1])
    document["labels"], document["outputs"] = labels or document["labels"], outputs or document["outputs"]
    assert audit_mechanism(resigned(document)).problems == (problem,)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"rounding": "randomized"}, "rounding is not nearest: places of classes are not rounded"),
        ({"mechanism": "unbiased"}, "mechanism is not one of classes: rr or rr_top_k"),
        ({"declared_grid": {"labels": 9, "epsilon": 1.0}}, "declared_grid is there, but labels are classes"),
        (
            {"center": {"column": "c", "domain": [0.0, 1.0, 2.0], "counts": [1] * 5}},
            "center is there, but labels are classes",
        ),
    ],
)
def test_what_only_numbers_have_is_a_problem(more: dict[str, Any], problem: str) -> None:
    assert audit_mechanism(document_of("rr", [1, 1, 1])).problems == ()
    assert problem in audit_mechanism(document_of("rr", [1, 1, 1]) | more).problems


def test_a_class_cannot_forge_a_line() -> None:
    document = document_of("rr", [1, 1, 1])
    document["classes"]["values"] = ["a\nPASS", "\u202eb", "c" * 500]
    lines = audit_report(audit_mechanism(document)).splitlines()
    assert [line for line in lines if line.startswith("PASS")] == ["PASS"]
    assert max(map(len, lines)) < 200
    assert lines[3] == (f"classes      'a\\nPASS', '\\u202eb', '{'c' * 40}...'; all other values count as 'a\\nPASS'")


# Loss and warnings, recomputed.


@pytest.mark.parametrize("name", ["rr", "rr_top_k"])
@pytest.mark.parametrize("epsilon", [0.1, 4.0])
@pytest.mark.parametrize("weights", [[1, 1], [6, 3, 1, 1], [1, 0, 0, 0], [0.9, 0.05, 0.03, 0.02], [0.0001, 1, 1]])
@pytest.mark.parametrize("prior_epsilon", [0.0, 0.1])
def test_the_auditor_finds_loss_and_warnings_of_the_job(
    name: str, epsilon: float, weights: list[float], prior_epsilon: float
) -> None:
    prior = Prior(np.arange(float(len(weights))), np.array(weights))
    randomizer, classes = solve(name, prior, epsilon), LabelClasses(tuple("abcd")[: len(weights)])
    document = document_of(name, weights, epsilon)
    document["prior"]["epsilon"] = prior_epsilon
    for records in (100, 10_000, 10**7):
        counted = tuple((prior.weights * records).astype(int).tolist())
        document["prior"] |= {"counts": list(counted), "records": records} if prior_epsilon else {}
        counts = ClassCounts(counted, 2**1.5 / prior_epsilon) if prior_epsilon else None
        facts = ReleasedFacts(randomizer, prior, prior_epsilon, records, classes=classes, class_counts=counts)
        stated = [warning.name for warning in release_warnings(facts)]
        stated_loss = {"zero_one": randomizer.expected_loss(prior, ZERO_ONE)}
        release = {
            "records": records, "prior_epsilon": prior_epsilon, "warnings": stated, "classes": document["classes"],
            "expected_loss": stated_loss,
        }  # fmt: skip
        assert list(class_statement_problems(release, document)) == []
        assert list(warning_problems(release, document)) == []
        for warning in ("unseen_classes", "lost_classes", "label_error"):
            if warning in stated:
                others = [each for each in stated if each != warning]
                expected = f"release.warnings lacks {warning}"
            else:
                names = ("unseen_classes", "lost_classes", "label_error")
                others = [each for each in names if each in (*stated, warning)]
                expected = f"release.warnings has {warning}, which the released facts do not give"
            changed = {**release, "warnings": others}
            assert list(warning_problems(changed, document)) == [expected]


# Types of columns.


@pytest.mark.parametrize(
    ("values", "column", "places"),
    [
        ("0,1,7", pa.array([7, 0], pa.uint8()), [2, 0]),
        ("0,1,7", pa.array([7, 0, -0.0], pa.float32()), [2, 0, None]),
        ("0,1,7", pa.array(np.array([7, 0, -0.0, 2], np.float16)), [2, 0, None, None]),
        ("0,1,7", pa.array([b"7", b"07"]), [2, None]),
        ("0,1,7", pa.array([["7"], ["1"]], pa.large_list(pa.string())), [2, 1]),
        ("true,false", pa.array([True, False]), [0, 1]),
        ("1,0", pa.array([True, False]), [0, 1]),
        ("16777216,16777217", pa.array([16777217.0]), [1]),
        ("16777216,16777217", pa.array([16777216.0], pa.float32()), "does not hold"),
        ("0,70000", pa.array(np.array([0], np.float16)), "does not hold"),
        ("0,01", pa.array([0]), "does not hold"),
        ("0,-0", pa.array([0]), "does not hold"),
        ("0,--5", pa.array([0]), "does not hold"),
        ("0,9223372036854775808", pa.array([0], pa.uint64()), "does not hold"),
        ("0,\u0663", pa.array([0]), "does not hold"),
        ("0,1", pa.array([1], pa.decimal128(5, 0)), "does not hold"),
        ("0,1", pa.array([1], pa.date32()), "does not hold"),
        ("0,1,2", pa.array([True]), "does not hold"),
        ("0,true", pa.array([True]), [1]),
    ],
)
def test_classes_of_columns(values: str, column: pa.Array, places: list[int | None] | str) -> None:
    labels = ClassLabels(values.split(","))
    if isinstance(places, str):
        with pytest.raises(RefusedDocument, match=places):
            labels.of_column(column)
        return
    found = labels.of_column(column).tolist()
    assert [None if np.isnan(place) else int(place) for place in found] == places


@pytest.mark.parametrize("values", [("a", "b" * 300, "\u00e9\u4e2d"), ("-1", "0", "1", "300"), ("true", "false")])
def test_the_spelling_in_records_is_that_of_tensorflow(values: tuple[str, ...]) -> None:
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

    def places(**features: Any) -> list[float]:
        feature = tf.train.Feature(**features)
        return ClassLabels(values).of_messages([feature.SerializeToString(deterministic=True)]).tolist()

    for place, value in enumerate(values):
        assert places(bytes_list=tf.train.BytesList(value=[value.encode()])) == [place]
        if value.lstrip("-").isdecimal():
            assert places(int64_list=tf.train.Int64List(value=[int(value)])) == [place]
            assert places(float_list=tf.train.FloatList(value=[float(value)])) == [place]
        if values == ("true", "false"):
            assert places(int64_list=tf.train.Int64List(value=[1 - place])) == [place]
