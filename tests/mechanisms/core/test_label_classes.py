"""Lists of classes: their checks, their places, the type that their texts suggest; and the loss of classes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.mechanisms import Prior
from labeldp.mechanisms.core.label_classes import BOOLEAN, INTEGER, MOST_CLASSES, TEXT, LabelClasses
from labeldp.mechanisms.core.losses import LOSSES, ZERO_ONE, loss_named
from labeldp.mechanisms.response.randomized_response import RandomizedResponse
from labeldp.mechanisms.response.rr_top_k import RRTopK


@given(st.lists(st.text(min_size=1), min_size=2, max_size=20, unique=True))
def test_places(values):
    classes = LabelClasses.of(values, values[-1])
    assert classes.domain == tuple(range(len(values)))
    assert classes.values[classes.other] == values[-1]
    assert LabelClasses.of(values).other == 0


@pytest.mark.parametrize(
    ("values", "other", "problem"),
    [
        (["a"], None, "2 to 1,000 classes, not 1"),
        ([str(i) for i in range(MOST_CLASSES + 1)], None, "2 to 1,000 classes, not 1,001"),
        (["a", ""], None, "must not be empty"),
        (["a", "b", "a"], None, "'a' is there twice"),
        (["a", "b"], "c", "'c' is not listed"),
        (["a", "\ud800"], None, "a class is not text in Unicode"),
    ],
)
def test_lists_that_are_refused(values, other, problem):
    with pytest.raises(ValueError, match=problem):
        LabelClasses.of(values, other)


@pytest.mark.parametrize(
    ("values", "kind", "integers", "booleans"),
    [
        (["0", "1"], INTEGER, (0, 1), (False, True)),
        (["1", "0"], INTEGER, (1, 0), (True, False)),
        (["-5", "7", "0"], INTEGER, (-5, 7, 0), None),
        (["false", "true"], BOOLEAN, None, (False, True)),
        (["true", "false"], BOOLEAN, None, (True, False)),
        (["a", "b"], TEXT, None, None),
        (["01", "1"], TEXT, None, None),
        (["+1", "1"], TEXT, None, None),
        (["--5", "1"], TEXT, None, None),
        (["1.0", "0"], TEXT, None, None),
        (["-0", "0"], TEXT, None, None),
        (["\u0661", "1"], TEXT, None, None),
        ([str(1 << 63), "1"], TEXT, None, None),
        ([str(-(1 << 63)), "1"], INTEGER, (-(1 << 63), 1), None),
        (["9" * 5000, "1"], TEXT, None, None),
        (["True", "False"], TEXT, None, None),
        (["true", "1"], TEXT, None, None),
    ],
)
def test_types(values, kind, integers, booleans):
    classes = LabelClasses.of(values)
    assert (classes.kind, classes.integers, classes.booleans) == (kind, integers, booleans)


def test_the_loss_of_classes_is_the_probability_of_another_class():
    prior = Prior(np.arange(3.0), np.array([0.2, 0.5, 0.3]))
    randomizer = RandomizedResponse().solve(prior, 1.0)
    chances = randomizer.probabilities()
    assert randomizer.expected_loss(prior, ZERO_ONE) == pytest.approx(1 - prior.weights @ np.diag(chances))
    assert loss_named("zero_one") is ZERO_ONE
    assert "zero_one" not in LOSSES


@given(st.lists(st.integers(0, 100), min_size=2, max_size=6).filter(any), st.sampled_from([0.25, 1.0, 3.0]))
def test_rr_top_k_has_the_least_loss_of_the_randomized_responses_over_some_classes(counts, epsilon):
    """RR-Top-k is optimal for this loss (Ghazi et al. 2021, Theorem 3): no other set of as many classes is better."""
    prior = Prior(np.arange(len(counts), dtype=float), np.array(counts, float))
    best = RRTopK().solve(prior, epsilon).expected_loss(prior, ZERO_ONE)
    weights = np.sort(prior.weights)[::-1]
    for k in range(1, len(counts) + 1):
        growth = np.exp(epsilon)
        kept = weights[:k].sum() * growth / (growth + k - 1)
        assert best <= 1 - kept + 1e-9
