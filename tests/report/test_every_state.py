"""A page, an audit and an announcement of every state that a release or a mechanism file may have.

Releases are made in memory; centers that few data sets lead to are made from another center, by leaving parts out.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jinja2", reason="the extra evaluation is not installed")

from labeldp import LabelPrivatizer
from labeldp.audit.audit_release import audit_path
from labeldp.audit.class_audit import class_center_lines
from labeldp.audit.class_center_document import read_class_center
from labeldp.mechanisms.center.boosting import ObliviousTrees
from labeldp.mechanisms.center.class_center import ReleasedClassCells
from labeldp.mechanisms.center.class_logit import LinearClasses
from labeldp.pipelines.cli.announcement import announce
from labeldp.pipelines.publish.job_result import JobResult
from labeldp.pipelines.publish.manifest import released_facts
from labeldp.pipelines.publish.release_steps import ReleasedLabel
from labeldp.pipelines.spec.center_statement import ClassStatement
from labeldp.pipelines.spec.mechanism_file import MechanismFile
from labeldp.report.report_input import ReportInput
from labeldp.report.report_page import report_page

pytestmark = pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")

GRID = {"label_min": 0, "label_max": 20, "label_step": 1}
CLASSES = {"label_classes": ["a", "b", "c"]}
UNITS = {"unit_column": "user", "max_records_per_unit": 2}


@dataclass
class State:
    """Parameters of a release, its number of records, and what is given beside the labels."""

    parameters: dict[str, Any]
    rows: int = 600
    given: tuple[str, ...] = ()
    labels: Callable[[np.ndarray], Any] = np.asarray

    def releases(self, folder: Path, key_file: Path) -> Iterator[LabelPrivatizer]:
        """Gives an estimator after each of fit, transform and fit_transform."""
        rng = np.random.default_rng(3)
        feature = rng.normal(size=self.rows)
        labels = np.clip(np.rint(10 + 5 * feature + rng.normal(size=self.rows)), 0, 20)
        if "label_classes" in self.parameters:
            labels = np.array(["a", "b", "c"])[np.digitize(np.abs(feature), [0.4, 1.0])]
        beside = {
            "features": {"f": feature, "g": rng.integers(0, 3, self.rows)},
            "center": np.clip(10 + 5 * feature, 0, 20),
            "units": np.arange(self.rows) // 3,
            "ids": np.arange(self.rows),
        }
        given = {name: beside[name] for name in self.given}
        parameters: dict[str, Any] = {
            "epsilon": 1,
            "noise_key_file": key_file,
            "ledger": folder / "ledger.jsonl",
        } | self.parameters
        privatizer = LabelPrivatizer(**parameters)
        for step in (privatizer.fit, privatizer.transform, privatizer.fit_transform):
            step(self.labels(labels), **given)
            yield privatizer


def missing(labels: np.ndarray) -> list[Any]:
    return [None if place % 5 == 0 else label for place, label in enumerate(labels.tolist())]


STATES = {
    "numbers": State(GRID),
    "numbers, few": State(GRID, rows=30),
    "two labels": State(GRID | {"label_max": 1}),
    "one value": State(GRID, labels=lambda drawn: np.full(len(drawn), 7.0)),
    "biased": State(GRID | {"mechanism": "rr_on_bins"}),
    "not pure": State(GRID | {"mechanism": "gaussian", "delta": 1e-6}),
    "poisson": State(GRID | {"loss": "poisson"}),
    "negative labels": State(GRID | {"label_min": -5}),
    "coarse grid": State(GRID | {"label_step": 0.01, "mechanism": "rr_on_bins"}),
    "missing labels": State(GRID | {"missing_label": 0}, labels=missing),
    "units": State(GRID | UNITS, given=("units",)),
    "units with delta": State(GRID | UNITS | {"mechanism": "gaussian", "delta": 1e-6}, given=("units",)),
    "ids": State(GRID | {"id_column": "id"}, given=("ids",)),
    "center column": State(GRID | {"center_column": "c"}, given=("center",)),
    "linear center": State(GRID | {"epsilon": 4}, given=("features",)),
    "linear center of units": State(GRID | UNITS | {"epsilon": 8}, given=("features", "units")),
    "cells": State(GRID, rows=6000, given=("features",)),
    "classes": State(CLASSES),
    "classes, few": State(CLASSES, rows=20),
    "top k": State(CLASSES | {"for_": "labels"}),
    "unseen classes": State({"label_classes": ["x", "y", "z"]}),
    "many classes": State({"label_classes": [f"{place:02} a class with a long name" for place in range(40)]}),
    "class of missing labels": State(CLASSES | {"missing_label": "b"}, labels=missing),
    "classes of units": State(CLASSES | UNITS, given=("units",)),
    "center of classes": State(CLASSES, rows=600, given=("features",)),
    "center of unseen classes": State({"label_classes": ["x", "y"]}, given=("features",)),
    "center of many classes": State(
        {"label_classes": [f"{place}" for place in range(40)]}, rows=3000, given=("features",)
    ),
    "center of classes of units": State(CLASSES | UNITS, rows=900, given=("features", "units")),
    "center and missing classes": State(CLASSES | {"missing_label": "b"}, given=("features",), labels=missing),
}


@pytest.mark.parametrize("name", STATES)
def test_a_release(name: str, tmp_path: Path, key_file: Path, capsys: Any, read_page: Any) -> None:
    for privatizer in STATES[name].releases(tmp_path, key_file):
        privatizer.report(tmp_path / "page.html")
        page, mechanism = read_page((tmp_path / "page.html").read_text()), privatizer.mechanism_
        assert "Audit passed" in page.text
        assert not {"nan", "inf", "None"} & set(page.text.replace(",", " ").split())
        assert ("of a unit" in page.text) == (mechanism.unit is not None)
        assert [each.name for each in privatizer.warnings_ if each.text.split("--")[0][1:30] not in page.text] == []
        assert "\nverdict    " in announced(privatizer, mechanism, capsys)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, key_file: Path) -> LabelPrivatizer:
    """A release from a center of classes that has all parts."""
    folder = tmp_path_factory.mktemp("center")
    state = State(CLASSES | {"epsilon": 2, "center": "cells"}, rows=6000, given=("features",))
    return list(state.releases(folder, key_file))[-1]


@pytest.mark.parametrize("counts", ["noised", "below zero", "one class"])
@pytest.mark.parametrize("cells", ["trees", "no trees", None])
@pytest.mark.parametrize("sums", [True, False])
def test_a_center_of_classes(
    sums: bool, cells: str | None, counts: str, whole: LabelPrivatizer, tmp_path: Path, capsys: Any
) -> None:
    """The audit is that of the whole center: it would refuse most others, which do not follow from such counts."""
    file, path = whole.mechanism_, tmp_path / "mechanism.json"
    assert file.class_center is not None
    center = file.class_center.center
    assert center.linear.sums
    assert center.cells is not None
    assert len(center.cells.trees.leaves)
    found: ReleasedClassCells | None = center.cells if cells else None
    if found is not None and cells == "no trees":
        found = replace(found, trees=ObliviousTrees(*(each[:0] for each in vars(found.trees).values())))
    linear = center.linear
    if not sums:
        linear = LinearClasses.fit(replace(linear.design, epsilon=0.0), ())
    noised = {"noised": center.counts, "below zero": [6050, -60, 10], "one class": [6000, 0, 0]}[counts]
    own = replace(center, linear=linear, cells=found, counts=np.array(noised))
    statement = ClassStatement(file.class_center.column, own)
    mechanism = replace(file, class_center=statement, prior=statement.prior)
    path.write_text(file.to_text())
    audit = audit_path(str(path))
    page = report_page(ReportInput("center", audit, mechanism, None, ()))
    assert ("by the noised counts of the same cells" in page) == (cells is not None)
    audited = read_class_center(json.loads(mechanism.to_text()))
    assert audited is not None
    assert ("cells        none" in class_center_lines(audited)) == (cells is None)
    assert announced(whole, mechanism, capsys).count("for the class sums") == sums


def announced(privatizer: LabelPrivatizer, mechanism: MechanismFile, capsys: Any) -> str:
    """Lines that a job prints of a release by this mechanism."""
    release = vars(privatizer)["_release"]
    facts = released_facts(mechanism, release.binding.records, 2)
    result = JobResult(release.binding, release.binding.digest, {}, units=release.counts)
    label: Any = SimpleNamespace(name="y", budget=SimpleNamespace(epsilon=1.0))
    request: Any = SimpleNamespace(output="out", budget=label.budget, validation=None)
    announce(request, [ReleasedLabel(label, result, mechanism, facts)])
    return str(capsys.readouterr().out)
