"""Warnings in release.json: the auditor finds the same as the job, with code of its own, and refuses any others."""

import json
from itertools import product
from typing import Any

import numpy as np
import pytest
from labeldp.audit.manifest_audit import warning_problems
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.analysis.release_warnings import release_warnings
from labeldp.mechanisms.analysis.utility import ReleasedFacts

PRIORS = {
    "tail": np.exp(-np.arange(12.0) / 3),
    "end": np.append(np.full(11, 0.02), 0.78),
    "even": np.ones(12),
}


def documents(facts: ReleasedFacts) -> tuple[dict[str, Any], dict[str, Any]]:
    prior = {"weights": facts.prior.weights.tolist(), "epsilon": facts.prior_epsilon}
    mechanism = json.loads(facts.randomizer.to_json(prior=prior))
    release = {
        "records": facts.records, "prior_epsilon": facts.prior_epsilon, "loss": facts.loss,
        "features": facts.features, "expected_loss": {"squared": facts.utility.squared_error},
        "warnings": [warning.name for warning in release_warnings(facts)],
    }  # fmt: skip
    return release, mechanism


@pytest.mark.parametrize("name", ["rr_on_bins", "unbiased", "rr", "laplace", "bias_limited"])
@pytest.mark.parametrize("shape", PRIORS)
def test_the_auditor_finds_the_warnings_of_the_job(name: str, shape: str) -> None:
    prior, seen = Prior(np.arange(12.0) - 2 * (name == "rr"), PRIORS[shape]), set()
    for epsilon, records, features, loss in product(
        (0.2, 1.0, 5.0), (50, 5_000, 10**6), (None, 3, 300), (None, "squared", "poisson")
    ):
        facts = ReleasedFacts(solve(name, prior, epsilon), prior, epsilon / 4, records, features, loss)
        release, mechanism = documents(facts)
        assert list(warning_problems(release, mechanism)) == []
        stated = release["warnings"]
        seen.update(stated)
        for omitted in stated:
            release["warnings"] = [each for each in stated if each != omitted]
            assert list(warning_problems(release, mechanism)) == [f"release.warnings lacks {omitted}"]
        for added in {"high_end", "label_error", "negative_outputs"} - set(stated):
            release["warnings"] = [*stated, added]
            assert any(added in problem for problem in warning_problems(release, mechanism)) or added == "high_end"
            assert list(warning_problems(release, mechanism)) != []
    assert "label_error" in seen
