"""A page, an audit and an announcement of every state that a release or a mechanism file may have, as whole texts.

Centers that few data sets lead to are made from another center, by leaving parts out.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labeldp.audit.audit_release import audit_path
from labeldp.audit.class_audit import class_center_lines
from labeldp.audit.class_center_document import read_class_center
from labeldp.mechanisms.center.boosting import ObliviousTrees
from labeldp.mechanisms.center.class_center import ReleasedClassCells
from labeldp.mechanisms.center.class_logit import LinearClasses
from labeldp.mechanisms.center.class_model import ClassModel
from labeldp.mechanisms.release.drawing import FromCenter
from labeldp.mechanisms.release.unit_bound import SINGLE
from labeldp.pipelines.publish.released import Released
from labeldp.report.report_input import ReportInput
from labeldp.report.report_page import report_page

from tests.snapshots import file_name, names

from .release_states import STATES, announced

# States whose whole texts are kept: those of others have the same sentences, as the kinds (`snapshots/kinds`) have.
WHOLE = {"center of unseen classes", "linear center that clips", "many classes", "one value", "top k"}
pytestmark = pytest.mark.xdist_group("states")
# What is said of numbers alone, and of labels that a randomizer draws.
OF_NUMBERS = ("squared error", "standard deviation", "Largest bias", "mean of the released", "clamped", "True label")
OF_RANDOMIZED = (
    "Released class is the true one", "Worth of one released class", "corrected for the noise", "Largest bias",
    "Error of a corrected share", "noisy prior", "Needs none", "clamped",
)  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_a_release(name: str, shown: Any, snapshot: Any) -> None:
    found = shown(name)
    mechanism = found.privatizer.mechanism_
    text = "".join(f"{line}\n" for line in found.page.shown)
    if name in WHOLE:
        snapshot(f"releases/{name}", f"{found.announcement}\n{text}")
    assert "\nUse       " in found.announcement
    clipped = re.search(r"of clipping \S+, for (\S+) % of the records", found.announcement)
    clips = clipped is not None and float(clipped[1]) > 0
    assert ("from clipping" in found.page.text) == (clips and mechanism.drawing.name == "unbiased")
    if mechanism.drawing.solved:
        budget = next(rows for caption, rows in found.page.tables.items() if caption.startswith("Privacy budget"))
        *parts, total = (float(row[-2]) for row in budget[1:])
        assert sum(parts) == pytest.approx(total, rel=1e-3)
    for page, warned in zip(found.pages, found.warnings, strict=True):
        assert "Audit passed" in page.text
        assert not {"nan", "inf", "None"} & set(page.text.replace(",", " ").split())
        assert ("of a unit" in page.text) == (mechanism.unit != SINGLE)
        # The page after `fit` is that of a mechanism file, which does not know of records and features.
        said = [each for each in warned if page is not found.pages[0] or each.name != "few_records"]
        # Those that call for an act are shown, no others.
        made = mechanism.drawing.whole is not None and mechanism.drawing.made is not None
        ordinary = {"label_error", "wide_residuals"} if made else {"label_error"}
        hidden = {each.name for each in said if each.text.split("--")[0][1:30] not in page.text}
        assert hidden == ordinary & {each.name for each in said}
        assert not {"i", "script"} & {tag for tag, _ in page.elements}
        if mechanism.classes is not None:
            of_others = OF_RANDOMIZED if not mechanism.drawing.solved else OF_NUMBERS
            assert [text for text in of_others if text in page.text] == []


def test_no_snapshot_is_left_over() -> None:
    assert names("releases") == set(map(file_name, WHOLE)) <= set(map(file_name, STATES))


@pytest.mark.parametrize("counts", ["noised", "below zero", "one class"])
@pytest.mark.parametrize("cells", ["trees", "no trees", None])
@pytest.mark.parametrize("sums", [True, False])
def test_a_center_of_classes(sums: bool, cells: str | None, counts: str, shown: Any, tmp_path: Path) -> None:
    """The audit is that of the whole center: it would refuse most others, which do not follow from such counts."""
    whole = shown("center of classes").privatizer
    file, path = whole.mechanism_, tmp_path / "mechanism.json"
    model = file.drawing.model
    assert isinstance(model, ClassModel)
    center = model.center
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
    mechanism = replace(file, drawing=FromCenter.of(replace(model, center=own)))
    path.write_text(file.to_text())
    audit = audit_path(str(path))
    page = report_page(ReportInput(Released("center", mechanism), audit, ()))
    assert ("by the noised counts of the same cells" in page) == (cells is not None)
    audited = read_class_center(json.loads(mechanism.to_text()))
    assert audited is not None
    assert ("cells        none" in class_center_lines(audited)) == (cells is None)
    # In the block on privacy, and in the details.
    assert announced(whole, mechanism).count("for the class sums") == 2 * sums
