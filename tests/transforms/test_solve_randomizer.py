"""SolveRandomizer: one randomizer per release; refused parameters are reported as input errors."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import pytest
from labeldp.mechanisms import MECHANISMS, Prior, Randomizer, solve
from labeldp.mechanisms.core.budget import BudgetSplit
from labeldp.mechanisms.release.conclude import EarlierMechanism
from labeldp.mechanisms.release.drawing import Table
from labeldp.transforms import PriorRelease, SolveRandomizer

DOMAIN = (0.0, 1.0, 2.0, 5.0)


def release_of(*weights: float, epsilon: float = 1.5) -> PriorRelease:
    prior = Prior(np.array(DOMAIN), np.array(weights))
    return PriorRelease(7, "y", DOMAIN, BudgetSplit(0.25, epsilon), 100, 0, prior=prior)


@pytest.fixture
def solved(run):
    """(releases, arguments of SolveRandomizer) -> the randomizers."""
    return lambda releases, *args: [
        drawing.randomizer
        for drawing in run(lambda p: {"out": p | beam.Create(releases) | SolveRandomizer(*args)})["out"]
    ]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_release_gives_the_randomizer_of_its_prior_at_what_is_left(solved, mechanism):
    release = release_of(5, 1, 3, 2)
    parameters = {"delta": 1e-6} if mechanism == "gaussian" else {}
    (randomizer,) = solved([release], mechanism, parameters)
    assert randomizer == solve(mechanism, release.prior, 1.5, **parameters)
    assert randomizer.labels.tolist() == list(DOMAIN)
    assert randomizer.certificate().epsilon <= 1.5


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("nope",), "unknown mechanism 'nope'; known: "),
        (("rr", {"bins": 3}), "mechanism rr has no parameter 'bins'"),
        (("rr_on_bins", {"loss": "nope"}), "nope"),
    ],
)
def test_unknown_names_are_refused_before_the_job_runs(args, message):
    with pytest.raises(ValueError, match=message):
        SolveRandomizer(*args)


@dataclass(frozen=True)
class Fussy:
    """A mechanism that refuses all input."""

    name: ClassVar[str] = "fussy"

    def solve(self, prior, epsilon) -> Randomizer:
        raise ValueError(f"epsilon {epsilon:g} is too small for {len(prior.labels)} labels")


def test_what_a_solver_refuses_becomes_an_input_error(failure, monkeypatch):
    monkeypatch.setitem(MECHANISMS, "fussy", Fussy)
    text = failure(lambda p: {"out": p | beam.Create([release_of(1, 1, 1, 1)]) | SolveRandomizer("fussy")})
    assert "InputError: `mechanism` fussy: epsilon 1.5 is too small for 4 labels" in text


def test_what_a_solver_says_of_the_noised_histogram_is_not_said(failure, monkeypatch, caplog):
    """The ledger does not charge failed jobs, so their errors must not reveal the histogram of any labels."""

    class Telltale(Fussy):
        def solve(self, prior, epsilon):
            if prior.weights[0] == prior.weights[1]:
                return solve("rr", prior, epsilon)
            raise ValueError(f"the first weight is {prior.weights[0]:.17g}")

    monkeypatch.setitem(MECHANISMS, "fussy", Telltale)
    release = release_of(3, 1, 2, 1)
    with caplog.at_level("DEBUG"):
        text = failure(lambda p: {"out": p | beam.Create([release]) | SolveRandomizer("fussy")})
    assert "there is no randomizer for the noised histogram" in text
    assert f"{release.prior.weights[0]:.17g}" not in text + caplog.text


def test_how_many_outputs_there_are_is_not_logged(solved, caplog):
    """The number depends on the histogram, and the ledger has not been charged yet."""
    with caplog.at_level("DEBUG"):
        (randomizer,) = solved([release_of(5, 1, 3, 2)], "rr_top_k")
    lines = [record.getMessage() for record in caplog.records if record.name == "labeldp"]
    assert lines == ["solving rr_top_k", "solved rr_top_k"]
    assert len(randomizer.outputs) < len(DOMAIN)


# Mechanisms of earlier releases.


def earlier_of(release: PriorRelease, randomizer: Randomizer, digest: int = 7, **changed: Any) -> EarlierMechanism:
    table = Table(randomizer, prior=release.prior, prior_epsilon=release.budget.prior, rounding=release.rounding)
    return EarlierMechanism(digest, replace(table, **changed))


def test_the_mechanism_of_the_earlier_release_is_used_again(solved):
    """The earlier randomizer is the response of another prior, which the solver would not return."""
    release = release_of(5, 1, 3, 2)
    earlier = solve("rr_on_bins", Prior(np.array(DOMAIN), np.array([1.0, 2, 3, 4])), 1.5)
    assert earlier != solve("rr_on_bins", release.prior, 1.5)
    other = earlier_of(release, earlier, digest=8)
    assert solved([release], "rr_on_bins", {}, [other, earlier_of(release, earlier)]) == [earlier]


def test_a_mechanism_of_another_release_is_not_used(solved):
    release, prior = release_of(5, 1, 3, 2), Prior(np.array(DOMAIN), np.array([1.0, 2, 3, 4]))
    earlier, expected = solve("rr_on_bins", prior, 1.5), solve("rr_on_bins", release.prior, 1.5)
    weights = release.prior.weights.copy()
    weights[0] = np.nextafter(weights[0], 1)
    wider = Prior(np.array([0.0, 1, 2, 6]), np.array([1.0, 2, 3, 4]))
    others = [
        earlier_of(release, earlier, digest=8),
        earlier_of(release, earlier, prior_epsilon=0.5),
        earlier_of(release, earlier, rounding="randomized"),
        earlier_of(release, earlier, prior=Prior(np.array(DOMAIN), weights)),
        earlier_of(release, solve("rr", prior, 1.5)),
        earlier_of(release, solve("rr_on_bins", wider, 1.5)),
        earlier_of(release, solve("rr_on_bins", prior, 0.5)),
    ]
    assert not any(other.belongs_to(release, "rr_on_bins") for other in others)
    assert earlier_of(release, earlier).belongs_to(release, "rr_on_bins")
    assert solved([release], "rr_on_bins", {}, others) == [expected]
