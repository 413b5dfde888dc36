"""Checks of a sampler of classes: their places are attacked, and findings name them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp import Prior, Randomizer, solve
from labeldp.mechanisms.core.label_classes import LabelClasses

from tests.privacy.findings import Setting
from tests.privacy.release_function import COLUMN, ID_COLUMN, KeyedRelease, ReleaseFunction, SamplerError
from tests.privacy.unit_checks import check_sampler

from .claims import Claim, read_claim

VALUES = ("none", "cold\nPASS", "fl\u00fc", "x" * 300)
SETTING = Setting(50_000, 1e-6 / 7)


def uniform(labels: np.ndarray, ids: np.ndarray, key: bytes) -> np.ndarray:
    return np.random.default_rng(list(key)).integers(0, 4, len(ids)).astype(float)


def identity(labels: np.ndarray, ids: np.ndarray, key: bytes) -> np.ndarray:
    return labels


def beyond(labels: np.ndarray, ids: np.ndarray, key: bytes) -> np.ndarray:
    return np.full(len(ids), 4.0)


def named(labels: np.ndarray, ids: np.ndarray, key: bytes) -> list[str]:
    return ["none"] * len(ids)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory, invoke: Any, command: Any, key_file: Path) -> Path:
    """Release of 2,000 records with ids, of four classes."""
    folder = tmp_path_factory.mktemp("classes")
    ids, places = np.arange(2000)[::-1] * 3 - 7, np.arange(2000) ** 2 % 7 % 4
    labels = pa.array([VALUES[place] for place in places])
    pq.write_table(pa.table({ID_COLUMN: ids, COLUMN: labels}), folder / "log.parquet")
    flags = {
        "label_classes": ",".join(VALUES), "other_class": VALUES[2], "input": folder / "log.parquet",
        "input_format": "parquet", "label": COLUMN,
        "id_column": ID_COLUMN, "epsilon": 1, "mechanism": "rr", "noise_key_file": key_file, "output": folder / "out",
    }  # fmt: skip
    invoke(command("privatize", flags)).ok()
    return folder / "out"


@pytest.fixture(scope="module")
def claim(release: Path) -> Claim:
    """Claims of the release."""
    return read_claim(str(release), "release")


def test_an_honest_release_passes(claim: Claim) -> None:
    found = check_sampler(claim, SETTING)
    assert all(finding.passed for finding in found.values())
    assert list(found) == [
        "probabilities", "channel", "changed data", "other key", "duplicate ids", "histogram", "changed histogram",
    ]  # fmt: skip
    shown = ("'none'", "'cold\\nPASS'", "'fl\\xfc'", f"'{'x' * 40}...'")
    assert any(f"label {one} against {two}, " in found["channel"].text for one in shown for two in shown)


@pytest.mark.parametrize(
    ("sampler", "check", "text"),
    [
        (uniform, "probabilities", "differ from the file's, first label 'none' to "),
        (identity, "probabilities", "differ from the file's, first label 'none' to 'none'"),
        (identity, "channel", "epsilon at least "),
        (beyond, "probabilities", "released labels are not outputs of the mechanism"),
    ],
)
def test_a_broken_sampler_fails(sampler: ReleaseFunction, check: str, text: str, claim: Claim) -> None:
    found = check_sampler(claim, SETTING, sampler)
    assert not found[check].passed
    assert text in found[check].text


def test_a_sampler_returns_places(claim: Claim) -> None:
    with pytest.raises(SamplerError, match="must return released labels, one for each record, as numbers"):
        check_sampler(claim, SETTING, named)


def test_it_attacks_what_a_job_releases(release: Path, secret: bytes) -> None:
    log, text = pq.read_table(release.parent / "log.parquet"), (release / "mechanism.json").read_text()
    document, classes = json.loads(text), LabelClasses(VALUES, 2)
    sampler = KeyedRelease(Randomizer.from_json(text), document["prior"]["epsilon"], classes=classes)
    places = np.array([VALUES.index(value) for value in log[COLUMN].to_pylist()], float)
    ours, prior = sampler(places, np.array(log[ID_COLUMN]), secret)
    released = pq.read_table(next((release / "data").iterdir()))
    assert dict(zip(log[ID_COLUMN].to_pylist(), [VALUES[int(place)] for place in ours], strict=True)) == dict(
        zip(released[ID_COLUMN].to_pylist(), released[COLUMN].to_pylist(), strict=True)
    )
    assert prior is not None
    assert prior.tolist() == Prior.from_counts(np.arange(len(prior)), document["prior"]["counts"]).weights.tolist()


def test_the_noise_is_bound_to_the_classes() -> None:
    randomizer = solve("rr", Prior(np.arange(3.0), np.ones(3)), 1.0)
    lists = (LabelClasses(("a", "b", "c")), LabelClasses(("a", "b", "c"), 1), LabelClasses(("a", "b", "d")), None)
    labels, ids = np.arange(500) % 3.0, np.arange(500)
    released = [KeyedRelease(randomizer, 0.1, classes=each)(labels, ids, bytes(32))[0].tolist() for each in lists]
    assert len(set(map(tuple, released))) == len(lists)
