"""The main job with a mechanism of every family: output frequencies agree with the certified probabilities."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import binom

from tests.false_alarms import FALSE_ALARM

MECHANISMS: dict[str, dict[str, Any]] = {
    "rr_on_bins": {},
    "unbiased": {},
    "bias_limited:bias=0.2": {},
    "debiased_rr": {},
    "rp_with_prior": {},
    "rr_top_k": {},
    "laplace": {},
    "staircase:clip=false": {},
    "gaussian": {"delta": 1e-6},
    "quantizer": {},
}


@pytest.fixture(scope="module", params=MECHANISMS)
def released(
    request: pytest.FixtureRequest, census: Path, key_file: Path, invoke: Any, command: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:  # fmt: skip
    """Release of the census at epsilon 1 under one mechanism."""
    output = tmp_path_factory.mktemp(request.param.partition(":")[0]) / "released"
    flags = {
        "input": census,
        "input_format": "csv",
        "label": "work",
        "label_min": 0,
        "label_max": 52,
        "label_step": 1,
        "epsilon": 1,
        "mechanism": request.param,
        "output": output,
        "output_format": "parquet",
        "noise_key_file": key_file,
    }
    invoke(command("privatize", flags | MECHANISMS[request.param])).ok()
    return output


@pytest.fixture(scope="module")
def weeks(census: Path, read_csv: Any) -> np.ndarray:
    """(n,) float64: the labels of the census, in order."""
    return np.array(read_csv(census)["work"], float)


@pytest.mark.xdist_group("census mechanisms")
def test_every_transition_is_as_frequent_as_certified(
    released: Path, weeks: np.ndarray, mechanism_of: Any, invoke: Any
) -> None:
    """Each count is binomial; by the union bound, any of them fails with probability at most FALSE_ALARM.

    The key is fixed, but the path of the census, which names records, is not.
    """
    assert invoke(["audit", str(released)]).ok().out.splitlines()[-1] == "PASS"
    labels, outputs, probabilities = mechanism_of(released)
    came_out = pq.read_table(released / "data").column("work").to_numpy()
    places = np.searchsorted(outputs, came_out)
    assert np.array_equal(outputs[places], came_out)
    observed = np.zeros(probabilities.shape)
    np.add.at(observed, (np.searchsorted(labels, weeks), places), 1)
    records = observed.sum(axis=1, keepdims=True)
    # Rounding of floats can make a probability slightly larger than 1.
    likely = np.minimum(probabilities, 1)
    below, above = binom.cdf(observed, records, likely), binom.sf(observed - 1, records, likely)

    assert records.sum() == len(weeks) == 254_654
    assert min(below.min(), above.min()) >= FALSE_ALARM / (2 * observed.size)
    # The sum over labels detects an output that is slightly too likely for each of them.
    expected, deviation = (records * likely).sum(axis=0), np.sqrt((records * likely * (1 - likely)).sum(axis=0))
    bound = np.sqrt(2 * np.log(2 * len(outputs) / FALSE_ALARM))
    assert np.all(np.abs(observed.sum(axis=0) - expected) <= bound * deviation + bound**2)  # Bernstein's inequality
