"""Releases of classes drawn from a center under audit: correct ones pass, and what is seen of draws and encodings."""

import json
import struct
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.audit.audit_release import audit_path, audit_report
from labeldp.audit.center_replay import PublishedSplits
from labeldp.audit.class_center_document import sum_zero_variance
from labeldp.audit.class_columns import probabilities_of_column, probabilities_of_messages
from labeldp.audit.class_predictions import coded_probabilities
from labeldp.audit.documents import RefusedDocument
from labeldp.audit.drawn_classes import DrawnClasses
from labeldp.mechanisms.center.cell_partition import CellTree
from labeldp.mechanisms.noise import sum_zero_laplace
from labeldp.mechanisms.noise.discrete_laplace import ByteStream

from tests.release_cases import over

RELEASES = ("center of classes", "center of classes, far", "center of classes without sums")


@over(RELEASES)
def test_a_correct_release_passes(name: str, release: Callable[[str], Path]) -> None:
    center = json.loads((release(name) / "mechanism.json").read_text())["class_center"]["center"]
    assert bool(center["linear"]["sums"]) == (name != RELEASES[2])
    assert len(center["cells"]["trees"]["leaves"]) >= (30 if name == RELEASES[0] else 0)
    started = time.process_time()
    audit = audit_path(str(release(name)), data=True)
    assert audit.problems == ()
    assert time.process_time() - started < 15
    report = audit_report(audit)
    cells, epsilon = center["cells"], center["cells"]["epsilon"]
    scale = float(1 / Fraction(epsilon))
    trees = f"{len(cells['trees']['leaves'])} trees"
    assert "\nreplayed     with the program's own code: " in report
    assert (
        f"partition of the sample, coefficients and {trees} from the counts of {len(cells['counts'])} cells" in report
    )
    noise = f"counts of the classes with noise of scale {scale!r} for epsilon {epsilon!r}"
    assert f"cells        {len(cells['counts'])} cells of features: {noise}; {trees}" in report
    assert "all probabilities are those that the published center predicts" in report
    assert "the center was made from as many records, with the same cells and sums of features" in report
    assert ("from features before they were rounded to float32" in report) == (name == RELEASES[1])
    assert ("class sums   none" in report) == (name == RELEASES[2])
    told = "would pass, too" if name == RELEASES[2] else "would have about"
    assert f"true classes in place of all draws {told}" in report
    assert "not shown    that draws depend on nothing else" in report


def test_a_center_of_other_records(base: Any, log: Any, invoke: Any, command: Any, tmp_path: Path) -> None:
    """What was counted is compared with the records it was counted from, and the report says if these are others."""
    made = base(RELEASES[0])
    pq.write_table(pq.read_table(log("grades")).slice(0, 1500), tmp_path / "log.parquet")
    own = {key: made.flags[key] for key in ("input_format", "noise_key_file", "id_column", "label")}
    own |= {"input": tmp_path / "log.parquet", "output": tmp_path / "applied"}
    invoke(command("apply", own | {"mechanism_file": made.folder / "mechanism.json"})).ok()
    audit = audit_path(str(tmp_path / "applied"), data=True)
    assert audit.problems == ()
    assert "the center was made from other records" in audit_report(audit)
    assert "not shown    that draws are independent of true classes" in audit_report(audit)


def test_split_columns_are_the_widest_under_some_scales():
    """Two splits that compare two columns in opposite ways contradict each other, whatever the scales are."""
    ranks = np.array([[0.0, 0.0], [1.0, 1.2], [3.0, 0.0], [4.0, 0.9]])
    for columns, exist in (([0, 0], True), ([0, 1], False), ([1, 1], False)):
        tree = CellTree(np.array(columns), np.array([1, 1]), np.array([1, 1]))
        splits = PublishedSplits(tree, ranks, 2)
        for node, members in enumerate((np.array([0, 1]), np.array([2, 3]))):
            assert splits.column(node, members, np.array([True, True])) == columns[node]
        assert splits.widest_under_some_scales() == exist


def encoded(multiples, kind=0x12):
    """Feature of a packed list of floats, multiples of 1 / 65,536."""
    packed = struct.pack(f"<{len(multiples)}f", *(each / (1 << 16) for each in multiples))
    own = bytes([0x0A, len(packed)]) + packed
    return bytes([kind, len(own)]) + own


def test_encodings_of_probabilities():
    wanted = [[1 << 15, (1 << 15) - 1], [1, 65535], [65536, 0]]
    assert probabilities_of_messages([encoded(each) for each in wanted], 2).tolist() == wanted
    assert probabilities_of_messages([], 2).shape == (0, 2)
    many = list(range(1, 101))
    own = struct.pack("<100f", *(each / (1 << 16) for each in many))
    long = bytes([0x12, 0x93, 0x03, 0x0A, 0x90, 0x03]) + own
    assert probabilities_of_messages([long], 100).tolist() == [many]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        encoded([40000]),
        encoded([40000, 40000, 40000]),
        encoded([40000, 40000], kind=0x1A),
        encoded([40000, 40000]) + b"\x80",
        bytes([0x12, 0x8A, 0x00]) + encoded([40000, 40000])[2:],
        bytes([0x12, 0x0A, 0x0D, 0, 0, 0, 0x3F, 0x0D, 0, 0, 0, 0x3F]),  # not packed
    ],
)
def test_other_encodings_of_probabilities_are_refused(message):
    with pytest.raises(RefusedDocument, match="has a record whose probabilities are not"):
        probabilities_of_messages([message], 2)


@pytest.mark.parametrize("value", [-0.0, np.nan, np.inf, -0.5, 0.5 + 2.0**-20, 1.5, 1e-30])
def test_floats_that_are_no_probabilities(value):
    """More bits than a multiple of the unit has could hold a label; none of them is taken as the multiple."""
    column = pa.array([[0.5, value]], pa.list_(pa.float32()))
    assert probabilities_of_column(column, 2).tolist() == [[1 << 15, -1]]
    message = encoded([1 << 15, 0])[:-4] + struct.pack("<f", value)
    assert probabilities_of_messages([message], 2).tolist() == [[1 << 15, -1]]


@pytest.mark.parametrize("classes", [2, 3, 7, 100])
@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(7, 2), Fraction(10**6)])
def test_variance_of_the_noise(classes, scale):
    expected = sum_zero_laplace.sum_zero_variance(scale, classes)
    assert sum_zero_variance(scale, classes) == pytest.approx(expected, rel=1e-9)


def test_probabilities_add_up_and_are_never_0():
    logits = np.array([[0, 0, 0], [1 << 24, 0, -(1 << 24)], [-5, 3, 1]])
    found = coded_probabilities(logits)
    assert found.sum(axis=1).tolist() == [1 << 16] * 3
    assert found[1].tolist() == [65534, 1, 1]
    assert found[0].tolist() == [21846, 21845, 21845]


@pytest.fixture
def random():
    return np.random.default_rng(5)


def center_of(counts, epsilon) -> Any:
    return SimpleNamespace(
        counts=[0] * counts.shape[1], cells=SimpleNamespace(counts=counts.tolist(), epsilon=Fraction(epsilon))
    )


@pytest.mark.parametrize("classes", [2, 5])
def test_draws_pass_and_what_they_must_not_know_is_found(random, classes):
    """True classes are told from draws, though their probabilities are right; what is expected of them is found."""
    cells = random.integers(0, 1500, 12_000)
    chances = coded_probabilities((random.normal(0, 1, (12_000, classes)) * (1 << 16)).astype(np.int64))
    drawn, true = (
        (chances.cumsum(axis=1) <= random.integers(0, 1 << 16, (12_000, 1))).sum(axis=1).astype(float) for _ in range(2)
    )
    counts = np.bincount(cells * classes + true.astype(int), minlength=1500 * classes).reshape(-1, classes)
    counts += sum_zero_laplace.sum_zero_laplace(ByteStream(bytes(32), b"test"), Fraction(1), classes, 1500)
    for labels, problem in ((drawn, ""), (true, "follow the noised counts of the cells")):
        tallies = DrawnClasses(center_of(counts, 1))
        for part in np.array_split(np.arange(12_000), 3):
            tallies.add(chances[part], labels[part], cells[part])
        assert problem in " | ".join(tallies.problems(True))
        assert bool(list(tallies.problems(True))) == bool(problem)
        assert list(tallies.problems(False)) == []
        draws = tallies.cell_draws()
        assert draws is not None
        if problem:
            assert draws.deviation == pytest.approx(draws.expected, rel=0.5)
            assert draws.expected > 2 * draws.bound
