"""Checks of classes that are drawn from a center: honest noise passes, planted breaks are found."""

import dataclasses
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.mechanisms.center.class_center import draw_classes, noised_class_counts
from labeldp.mechanisms.center.class_logit import noised_class_sums

from tests.privacy.class_center_checks import CENTER_CHECKS, check_center
from tests.privacy.findings import Finding, Setting

from .claims import read_claim

ROWS = 4000
VALUES = ("none", "cold\nPASS", "fl\u00fc")
CHECKS = ["probabilities", "histogram", "class sums", "two sums", "class cells", "two cells", "whole center"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, invoke: Any, command: Any, key_file: Path) -> Path:
    """Releases of 4,000 records around a center: of `three` classes, of `two`, and of `units` of two records."""
    folder, rng = tmp_path_factory.mktemp("center"), np.random.default_rng(5)
    feature = rng.normal(size=ROWS)
    places = np.searchsorted([0.5, 1.5], feature + rng.normal(0, 0.5, ROWS))
    labels = [VALUES[place] for place in places]
    columns = {"id": np.arange(ROWS), "f": feature, "user": np.arange(ROWS) // 2, "ill": labels, "any": places > 1}
    pq.write_table(pa.table(columns), folder / "log.parquet")
    flags = {
        "input": folder / "log.parquet", "input_format": "parquet", "label": "ill", "label_classes": ",".join(VALUES),
        "epsilon": 1, "noise_key_file": key_file, "id_column": "id", "for": "models", "center_features": "f",
    }  # fmt: skip
    jobs: dict[str, dict[str, Any]] = {
        "three": {},
        "two": {"label": "any", "label_classes": "false,true"},
        "units": {"unit_column": "user", "max_records_per_unit": 2, "epsilon": 2},
    }
    for name, more in jobs.items():
        invoke(command("privatize", flags | more | {"output": folder / name})).ok()
    return folder


@pytest.fixture(scope="module")
def findings(folder: Path) -> Callable[..., dict[str, Finding]]:
    """Function (name of a release, draws, alpha, function=broken one, ...) -> the findings by check."""
    claims = {name: read_claim(str(folder / name), name) for name in ("two", "three")}

    def run(
        name: str = "three", number: int = 200_000, alpha: float = 1e-5, **broken: Callable[..., Any]
    ) -> dict[str, Finding]:
        center, draws = claims[name].center, broken.pop("draws", draw_classes)
        assert center is not None
        parts = [
            dataclasses.replace(part, add=partial(broken[kind], *([int(part.moved)] if kind == "sums" else [])))
            if (kind := part.name.split()[-1]) in broken
            else part
            for part in center.parts
        ]
        found = check_center(claims[name], Setting(number, alpha), parts, draws)
        return {finding.check: finding for finding in found}

    return run


def failed(found: dict[str, Finding]) -> set[str]:
    return {check for check, finding in found.items() if not finding.passed}


def test_bounds_of_honest_noise_are_close_to_the_claims(
    folder: Path, findings: Callable[..., dict[str, Finding]]
) -> None:
    found = findings("two", 600_000)
    assert list(found) == CHECKS
    assert len(CHECKS) <= CENTER_CHECKS
    assert failed(found) == set()
    budget = json.loads((folder / "two" / "mechanism.json").read_text())["class_center"]["center"]["budget"]
    claimed = {"histogram": budget["counts"], "class sums": budget["sums"], "class cells": budget["cells"]}
    for check, epsilon in [*claimed.items(), ("whole center", sum(claimed.values()))]:
        bound = found[check].epsilon
        assert bound is not None
        # The noise of two counts of the histogram is independent: an output shows all of its epsilon less often.
        assert (0.6 if check == "histogram" else 0.75) * epsilon < bound <= epsilon
        assert f"epsilon at least {bound:.6g}, claimed {epsilon:.6g}; " in found[check].text


def test_units(folder: Path) -> None:
    claim = read_claim(str(folder / "units"), "units")
    found = {finding.check: finding for finding in check_center(claim, Setting(20_000, 1e-6 / CENTER_CHECKS))}
    assert failed(found) == set()
    assert found["histogram"].text.endswith(" records moved to another class, 400 runs")


# Planted breaks.


def test_noise_of_nine_tenths_of_its_scale(findings: Callable[..., dict[str, Finding]]) -> None:
    found = findings(
        "two",
        1_000_000,
        1e-3,
        cells=lambda raw, epsilon, key: noised_class_counts(raw, epsilon / 0.9, key),
        sums=lambda norm, raw, epsilon, key: noised_class_sums(raw, norm, epsilon / 0.9, key),
    )
    assert failed(found) >= {"class sums", "class cells"}


def test_noise_that_leaves_out_the_last_class(findings: Callable[..., dict[str, Finding]]) -> None:
    def cells(raw: np.ndarray, epsilon: float, key: bytes) -> np.ndarray:
        return np.hstack([noised_class_counts(raw[:, :-1], epsilon, key), raw[:, -1:]])

    def sums(norm: int, raw: np.ndarray, epsilon: float, key: bytes) -> np.ndarray:
        return np.hstack([np.array(noised_class_sums(raw[:, :-1], norm, epsilon, key)), raw[:, -1:]])

    found = findings(cells=cells, sums=sums)
    assert failed(found) == {*CHECKS} - {"probabilities", "histogram", "two sums", "two cells"} | {
        check for check in ("two sums", "two cells") if not found[check].passed
    }


def test_noise_that_rows_share(findings: Callable[..., dict[str, Finding]]) -> None:
    def cells(raw: np.ndarray, epsilon: float, key: bytes) -> np.ndarray:
        return raw + noised_class_counts(0 * raw[:1], epsilon, key)

    def sums(norm: int, raw: np.ndarray, epsilon: float, key: bytes) -> np.ndarray:
        return raw + np.array(noised_class_sums(0 * raw[:1], norm, epsilon, key))

    assert failed(findings(cells=cells, sums=sums)) >= {"two sums", "two cells"}


def test_a_row_without_noise(findings: Callable[..., dict[str, Finding]]) -> None:
    def sums(norm: int, raw: np.ndarray, epsilon: float, key: bytes) -> np.ndarray:
        return np.vstack([np.array(noised_class_sums(raw[:-1], norm, epsilon, key)), raw[-1:]])

    assert failed(findings(sums=sums)) == {"class sums", "whole center"}


@pytest.mark.parametrize(
    "draws",
    [
        lambda probabilities, words: probabilities.argmax(axis=1),
        lambda probabilities, words: (words % np.uint64(3)).astype(np.int64),
        # As `draw_classes`, where the first class has what is left of the others.
        lambda probabilities, words: (
            2 - (np.cumsum(probabilities, axis=1) <= (words >> np.uint64(48)).astype(np.int64)[:, None]).sum(axis=1)
        ),
    ],
)
def test_draws_of_other_probabilities(draws: Any, findings: Callable[..., dict[str, Finding]]) -> None:
    found = findings("three", 20_000, draws=draws)
    assert failed(found) == {"probabilities"}
    assert "differ from those of the center" in found["probabilities"].text
