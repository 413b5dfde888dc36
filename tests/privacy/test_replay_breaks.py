"""Record and replay of whole releases: releases as they are pass, and breaks of 10 % and others are found."""

import dataclasses
import itertools
import math
import re
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labeldp.mechanisms.center import cell_center, class_center, class_logit, linear_center
from labeldp.mechanisms.core.integer_weights import TOTAL, AliasTable
from labeldp.mechanisms.core.randomizer import Randomizer
from labeldp.mechanisms.noise import discrete_laplace, noisy_histogram, sum_zero_laplace
from labeldp.mechanisms.noise.keyed_words import keyed_hash
from labeldp.mechanisms.release import center_passes, drawing, prior_release
from labeldp.mechanisms.release.bound_noise import NoiseBinding
from labeldp.mechanisms.release.center_passes import CenterPass, Moments
from labeldp.mechanisms.release.unit_bound import UnitCounts
from labeldp.pipelines.api import memory_release

from tests.privacy.exact_samplers import UnknownSampler, exact_row, largest_log_ratio, noise_fits
from tests.privacy.findings import Finding, Setting
from tests.privacy.noise_recorder import LAPLACE, SUM_ZERO, NoiseRecorder, recorded_noise
from tests.privacy.replay_checks import check_replays
from tests.privacy.whole_releases import CASES, Case

KEY = bytes(range(32))
KINDS = {case.name: case for case in CASES}


@pytest.fixture
def replay() -> Callable[..., Finding]:
    """Function (name of a kind, number of pairs) -> the finding on the kind."""

    def run(name: str, pairs: int = 2) -> Finding:
        return next(check_replays((KINDS[name],), pairs, Setting(0, 1e-6), lambda text: None))

    return run


@pytest.mark.parametrize("name", KINDS)
def test_release_spends_its_claim_and_no_more(name: str, replay: Callable[..., Any]) -> None:
    kind = replay(name, 3)
    assert kind.passed, kind.text
    # Corner cases use nearly all of the claim, so that an excess of a thousandth would be found.
    assert 0.999 < kind.epsilon <= 1 + 1e-12


@pytest.mark.parametrize("name", KINDS)
def test_neighbors_differ_in_all_labels_of_one_record_or_unit(name: str) -> None:
    """Otherwise a neighbor could differ in records alone that are not released, and rightly have the same noise."""
    case, rng = KINDS[name], np.random.default_rng(7)
    base, neighbors = case.pairs(case.make(rng), rng)
    for neighbor in itertools.islice(neighbors, 200):
        for column, one, two in zip(case.columns, base.labels, neighbor.labels, strict=True):
            changed = np.flatnonzero(one != two)
            assert np.array_equal(changed, case.rows_of(base, int(changed[0])))
            assert 0 <= two.min() <= two.max() <= column.most


def less(scale: Callable[..., Fraction]) -> Callable[..., Fraction]:
    return lambda *arguments: scale(*arguments) * Fraction(9, 10)


def test_noise_of_center_sums_ten_percent_too_small(
    monkeypatch: pytest.MonkeyPatch, replay: Callable[..., Any]
) -> None:
    monkeypatch.setattr(linear_center, "noise_scale", less(linear_center.noise_scale))
    kind = replay("linear center")
    assert not kind.passed
    assert "center sums has epsilon 0.55" in kind.text


def test_noise_of_cell_sums_ten_percent_too_small(monkeypatch: pytest.MonkeyPatch, replay: Callable[..., Any]) -> None:
    monkeypatch.setattr(cell_center, "noise_scale", less(cell_center.noise_scale))
    kind = replay("cells", 1)
    assert not kind.passed
    assert "cell sums has epsilon 0.8, claimed 0.72" in kind.text


def test_noise_of_histogram_ten_percent_too_small(monkeypatch: pytest.MonkeyPatch, replay: Callable[..., Any]) -> None:
    monkeypatch.setattr(noisy_histogram, "HISTOGRAM_SENSITIVITY", Fraction(9, 5))
    kind = replay("linear center")
    assert "histogram has epsilon 0.0694444, claimed 0.0625" in kind.text
    assert not kind.passed


@pytest.mark.parametrize(("module", "part"), [(class_center, "cells"), (class_logit, "sums")])
def test_noise_of_classes_ten_percent_too_small(
    monkeypatch: pytest.MonkeyPatch, replay: Callable[..., Any], module: Any, part: str
) -> None:
    monkeypatch.setattr(module, "Fraction", lambda value: Fraction(value) * Fraction(10, 9))
    kind = replay("center of classes", 1)
    assert not kind.passed
    assert f"class {part} has epsilon" in kind.text


def farther(weights: np.ndarray) -> np.ndarray:
    """Rows whose log-ratios are 10 % larger."""
    powers = (weights / TOTAL) ** 1.1
    rows = np.rint(powers / powers.sum(axis=1, keepdims=True) * 2.0**53).astype(np.int64).astype(
        np.uint64
    ) << np.uint64(9)
    rows[:, 0] += np.uint64(TOTAL) - rows.sum(axis=1, dtype=np.uint64)
    return rows


@pytest.mark.parametrize("name", ["classes", "single labels"])
def test_rows_of_the_sampler_ten_percent_too_far(
    monkeypatch: pytest.MonkeyPatch, replay: Callable[..., Any], name: str
) -> None:
    monkeypatch.setattr(Randomizer, "_alias", property(lambda self: AliasTable(farther(self.weights))))
    kind = replay(name)
    assert not kind.passed
    stated = {"classes": 0.96875, "single labels": 0.834169}[name]
    assert kind.epsilon == pytest.approx(1 + 0.1 * stated, rel=1e-4)
    assert "labels has epsilon" in kind.text


@pytest.mark.parametrize("name", ["units", "units of classes"])
@pytest.mark.parametrize("kept", [1, 100])
def test_bound_of_units_is_not_enforced(
    monkeypatch: pytest.MonkeyPatch, replay: Callable[..., Any], name: str, kept: int
) -> None:
    honest = memory_release.bounded

    def bounded(unit: Any, *arguments: Any) -> Any:
        return honest(dataclasses.replace(unit, max_records=unit.max_records + kept), *arguments)

    monkeypatch.setattr(memory_release, "bounded", bounded)
    kind = replay(name, 1)
    assert not kind.passed
    assert "the release has epsilon" in kind.text


def test_records_of_units_are_chosen_by_their_labels(
    monkeypatch: pytest.MonkeyPatch, replay: Callable[..., Any]
) -> None:
    def bounded(unit: Any, units: Any, present: np.ndarray, records: Any, secret: bytes) -> Any:
        # Rows of a unit follow each other.
        kept = np.arange(len(present)) % (2 * unit.max_records) < unit.max_records
        return np.where(labels[0] > 1, kept, ~kept), UnitCounts()

    labels: list[np.ndarray] = []
    honest = memory_release.read_classes

    def read_classes(given: Any, *arguments: Any) -> Any:
        read = honest(given, *arguments)
        labels[:] = [read.values]
        return read

    monkeypatch.setattr(memory_release, "read_classes", read_classes)
    monkeypatch.setattr(memory_release, "bounded", bounded)
    kind = replay("units of classes")
    assert not kind.passed
    assert "the records of illness tells the labels apart" in kind.text


def test_design_that_saw_labels(monkeypatch: pytest.MonkeyPatch, replay: Callable[..., Any]) -> None:
    honest = memory_release.feature_sample

    def sample(features: Any, chosen: Any, records: Any, secret: bytes) -> Any:
        return honest(features, chosen, dataclasses.replace(records, sampled=records.released.values > 3), secret)

    monkeypatch.setattr(memory_release, "feature_sample", sample)
    kind = replay("linear center")
    assert not kind.passed
    assert "the mechanism of weeks tells the labels apart" in kind.text


def test_scale_that_depends_on_labels(monkeypatch: pytest.MonkeyPatch, replay: Callable[..., Any]) -> None:
    def noised(sums: list[int], norm: int, labels: int, epsilon: float, noise_key: bytes) -> tuple[int, ...]:
        scale = linear_center.noise_scale(norm, labels, epsilon) + abs(sums[0]) % 7
        noise = linear_center.discrete_laplace_integers(
            discrete_laplace.ByteStream(noise_key, b"center"), scale, len(sums)
        )
        return tuple(each + more for each, more in zip(sums, noise, strict=True))

    monkeypatch.setattr(center_passes, "noised_sums", noised)
    kind = replay("linear center")
    assert not kind.passed
    assert "the scale of the noise of noised depends on labels" in kind.text


@pytest.mark.parametrize(
    ("drawn", "found"),
    [
        (
            lambda sums, draw: [
                s + n for s, n in zip(sums, [*draw(len(sums) - hash(tuple(sums)) % 2), 0], strict=False)
            ],
            "size",
        ),
        (lambda sums, draw: [s + n // 2 for s, n in zip(sums, draw(len(sums)), strict=True)], "not added"),
        (lambda sums, draw: [s + n for s, n in zip(sums, draw(1) * len(sums), strict=True)], "added to two numbers"),
        (lambda sums, draw: list(sums), "fewer|mechanism of weeks tells"),
    ],
)
def test_noise_that_is_left_out_changed_or_shared(
    monkeypatch: pytest.MonkeyPatch, replay: Callable[..., Any], drawn: Callable[..., list[int]], found: str
) -> None:
    def noised_sums(sums: list[int], norm: int, labels: int, epsilon: float, noise_key: bytes) -> tuple[int, ...]:
        stream, scale = (
            discrete_laplace.ByteStream(noise_key, b"center"),
            linear_center.noise_scale(norm, labels, epsilon),
        )
        return tuple(drawn(sums, lambda count: linear_center.discrete_laplace_integers(stream, scale, count)))

    monkeypatch.setattr(center_passes, "noised_sums", noised_sums)
    kind = replay("linear center")
    assert not kind.passed
    assert re.search(found, kind.text), kind.text


def test_two_vectors_with_one_stream(monkeypatch: pytest.MonkeyPatch, replay: Callable[..., Any]) -> None:
    for module in (linear_center, cell_center):
        # The noise of both depends on the data, in the same way.
        monkeypatch.setattr(module, "ByteStream", lambda key, purpose: discrete_laplace.ByteStream(keys[-1], b"one"))
    honest, keys = Moments.noise_key, []

    def noise_key(*arguments: Any) -> bytes:
        keys.append(honest(*arguments))
        return keys[-1]

    monkeypatch.setattr(Moments, "noise_key", noise_key)
    kind = replay("cells", 1)
    assert not kind.passed
    assert "two vectors have the same noise" in kind.text
    assert "changed data" not in kind.text


@pytest.mark.parametrize(
    ("name", "drawn"), [("cells", "noised_cell_sums"), ("center of classes", "noised_class_counts")]
)
def test_noise_of_centers_is_not_bound_to_the_data(
    monkeypatch: pytest.MonkeyPatch, replay: Callable[..., Any], name: str, drawn: str
) -> None:
    monkeypatch.setattr(CenterPass, "noise_key", lambda self, sums, *others: keyed_hash(KEY, self.purpose, b""))
    kind = replay(name, 1)
    assert not kind.passed
    assert f"{drawn} reuses its noise for changed data" in kind.text


def test_noise_of_labels_is_not_bound_to_the_data(monkeypatch: pytest.MonkeyPatch, replay: Callable[..., Any]) -> None:
    monkeypatch.setattr(NoiseBinding, "noise_key", lambda self, secret: secret)
    kind = replay("classes")
    assert not kind.passed
    assert "noisy_counts reuses its noise for changed data" in kind.text
    assert "labels are drawn with the same words for changed data" in kind.text


def test_words_that_records_share(monkeypatch: pytest.MonkeyPatch, replay: Callable[..., Any]) -> None:
    honest = drawing.words
    monkeypatch.setattr(drawing, "words", lambda *arguments: np.repeat(honest(*arguments)[::2], 2))
    kind = replay("classes")
    assert not kind.passed
    assert "two labels are drawn with the same word" in kind.text


def test_release_that_labels_refuse(monkeypatch: pytest.MonkeyPatch, replay: Callable[..., Any]) -> None:
    honest = prior_release.noisy_counts

    def noisy_counts(counts: np.ndarray, *arguments: Any) -> np.ndarray:
        if counts[0] < first:
            raise ValueError("a label of 7")
        return honest(counts, *arguments)

    first = 0
    monkeypatch.setattr(prior_release, "noisy_counts", noisy_counts)
    assert replay("classes", 1).passed
    rng = np.random.default_rng([0, 0])
    base, _ = KINDS["classes"].pairs(KINDS["classes"].make(rng), rng)
    first = int((base.labels[0] == 0).sum())
    kind = replay("classes", 1)
    assert not kind.passed
    assert "the neighbor is not released (ValueError)" in kind.text
    assert "7" not in kind.text.partition(";")[0]


def test_labels_of_others_depend_on_a_label(monkeypatch: pytest.MonkeyPatch, replay: Callable[..., Any]) -> None:
    honest = memory_release.draw_labels

    def draw_labels(records: Any, *arguments: Any) -> Any:
        drawn = honest(records, *arguments)
        return drawn[::-1] if records.released.values[0] > 1 else drawn

    monkeypatch.setattr(memory_release, "draw_labels", draw_labels)
    kind = replay("single labels")
    assert not kind.passed
    assert "released weeks depend on labels beyond the draw" in kind.text


@pytest.mark.parametrize("name", ["labels", "center of classes"])
def test_a_label_that_passes_as_it_is(monkeypatch: pytest.MonkeyPatch, replay: Callable[..., Any], name: str) -> None:
    honest = memory_release.draw_labels

    def draw_labels(records: Any, *arguments: Any) -> np.ndarray:
        return np.concatenate([records.labels.values[:1], honest(records, *arguments)[1:]])

    monkeypatch.setattr(memory_release, "draw_labels", draw_labels)
    kind = replay(name)
    assert not kind.passed
    assert "depend on labels beyond the draw" in kind.text


@pytest.mark.parametrize(("sampler", "classes"), [(LAPLACE, 1), (SUM_ZERO, 2), (SUM_ZERO, 4)])
@pytest.mark.parametrize("scale", [Fraction(2, 3), Fraction(40), Fraction(9000)])
def test_sampler_with_ten_percent_less_noise(
    monkeypatch: pytest.MonkeyPatch, sampler: str, classes: int, scale: Fraction
) -> None:
    # The noise as it is fails with a probability of 1e-6 by chance; the key is fixed.
    assert noise_fits(sampler, scale, classes, KEY, 1e-6)
    name, module = "discrete_laplace_integers", discrete_laplace
    if sampler == SUM_ZERO:
        name, module = "sum_zero_laplace_integers", sum_zero_laplace
    honest = getattr(module, name)
    monkeypatch.setattr(module, name, lambda stream, scale, *rest: honest(stream, scale * Fraction(9, 10), *rest))
    assert not noise_fits(sampler, scale, classes, KEY, 1e-6)


def test_exact_rows_are_the_weights() -> None:
    rng = np.random.default_rng(3)
    weights = rng.integers(1, 1 << 40, (3, 11)).astype(np.uint64)
    weights[1] = weights[0]
    weights[:, -1] += np.uint64(TOTAL) - weights.sum(axis=1, dtype=np.uint64)
    randomizer = Randomizer(np.arange(3.0), np.arange(11.0), weights, 30.0, "test")
    for row in range(3):
        counted = exact_row(Randomizer.draw, randomizer, row)
        assert counted == [4 * int(weight) for weight in weights[row]]
    assert largest_log_ratio([1, 3], [2, 2]) == pytest.approx(math.log(1.5))
    assert largest_log_ratio([1, 3], [4, 0]) == math.inf


def test_a_sampler_that_cannot_be_counted_is_not_passed() -> None:
    randomizer = Randomizer(np.arange(2.0), np.arange(2.0), np.full((2, 2), TOTAL // 2, np.uint64), 1.0, "test")
    with pytest.raises(UnknownSampler):
        exact_row(lambda of, rows, words: (words % np.uint64(3) == 0).astype(int), randomizer, 0)


def test_a_record_is_the_release_as_it_is(tmp_path: Path) -> None:
    """The recorder changes nothing of a release, leaves no function behind, and is not seen by other threads."""
    functions = [(linear_center, "discrete_laplace_integers"), (class_center, "draw_classes"), (Randomizer, "draw")]
    held = [getattr(owner, name) for owner, name in functions]
    for name in ("linear center", "center of classes"):
        _compare_runs(KINDS[name], tmp_path)
    assert [getattr(owner, name) for owner, name in functions] == held


def _compare_runs(case: Case, folder: Path) -> None:
    records, recorder = case.make(np.random.default_rng(1)), NoiseRecorder()
    plain = case.release(records, KEY, str(folder))
    others: list[Any] = []
    with recorded_noise(recorder):
        recorded = case.release(records, KEY, str(folder))
        before = len(recorder.noise), len(recorder.labels)
        thread = threading.Thread(target=lambda: others.append(case.release(records, KEY, str(folder))))
        thread.start()
        thread.join()
        assert before == (len(recorder.noise), len(recorder.labels))
    assert min(before) > 0
    assert not recorder.problems
    for release in (recorded, others[0]):
        assert release.facts() == plain.facts()
        assert all(np.array_equal(one, two) for one, two in zip(release.labels, plain.labels, strict=True))
