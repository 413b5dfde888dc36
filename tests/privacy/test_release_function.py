"""The default sampler releases what a job releases."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from labeldp import Prior, Randomizer, solve

from tests.privacy.release_function import COLUMN, ID_COLUMN, KeyedRelease


@pytest.mark.parametrize("mechanism", ["rr_on_bins", "rr"])
def test_it_is_what_a_job_releases(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, secret: bytes, shard_paths: Any, mechanism: str
) -> None:
    """`privatize` over a file with ids; labels and noised histogram are equal bit for bit."""
    labels, ids = np.arange(1000) ** 2 % 7 % 5, np.arange(1000)[::-1] * 5 - 99
    log = tmp_path / "log.csv"
    log.write_text("id,label\n" + "".join(f"{i},{y}\n" for i, y in zip(ids, labels, strict=True)))
    flags = {
        "input": log,
        "label": COLUMN,
        "id_column": ID_COLUMN,
        "mechanism": mechanism,
    }
    invoke(job(**flags)).ok()

    shards = [pyarrow.parquet.read_table(path).to_pydict() for path in shard_paths(outputs / "released")]
    released = {i: y for shard in shards for i, y in zip(shard["id"], shard["label"], strict=True)}
    text = (outputs / "released" / "mechanism.json").read_text()
    noised = json.loads(text)["prior"]
    ours, prior = KeyedRelease(Randomizer.from_json(text), noised["epsilon"])(labels.astype(float), ids, secret)
    assert dict(zip(ids.tolist(), ours.tolist(), strict=True)) == released
    assert prior is not None
    assert prior.tolist() == Prior.from_counts(np.arange(len(prior)), noised["counts"]).weights.tolist()


def test_duplicate_ids_are_refused() -> None:
    randomizer = solve("rr", Prior(np.arange(2.0), np.ones(2)), 1.0)
    with pytest.raises(ValueError, match="two records have the same id"):
        KeyedRelease(randomizer, 0.0)(np.zeros(3), np.array([4, 5, 4]), bytes(32))


def test_a_public_prior_is_not_released() -> None:
    randomizer = solve("rr", Prior(np.arange(2.0), np.ones(2)), 1.0)
    assert KeyedRelease(randomizer, 0.0)(np.zeros(3), np.arange(3), bytes(32))[1] is None
