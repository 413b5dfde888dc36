"""Integer weights satisfy epsilon exactly; of an alias table, every output gets exactly its share of the 2^64 words."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.core.budget import satisfies_epsilon
from labeldp.mechanisms.core.certificate import check_row_sums, likelihood_ratio
from labeldp.mechanisms.core.integer_weights import BITS, AliasTable, integer_weights

TOTAL = 1 << 62
WORDS = 1 << 64


@st.composite
def exact_rows(draw: st.DrawFn, m: int) -> list[int]:
    """m integers that sum to exactly 2^62: even, skewed, or with many zeros."""
    point = st.one_of(st.integers(0, TOTAL), st.integers(0, 3), st.integers(0, 62).map(lambda b: 1 << b))
    cuts = sorted(draw(st.lists(point, min_size=m - 1, max_size=m - 1)))
    row = [upper - lower for lower, upper in zip([0, *cuts], [*cuts, TOTAL], strict=True)]
    return draw(st.permutations(row))


def mass_of_outputs(table: AliasTable, label: int, outputs: int) -> list[int]:
    """Counts how many of the 2^64 words give each output, from the thresholds and aliases used for sampling."""
    capacity = WORDS // table.width
    mass = [0] * table.width
    for column in range(table.width):
        cell = label * table.width + column
        threshold = int(table.thresholds[cell])
        assert threshold <= capacity
        mass[column] += threshold
        mass[int(table.aliases[cell])] += capacity - threshold
    assert not any(mass[outputs:])
    return mass[:outputs]


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 40).flatmap(lambda m: st.lists(exact_rows(m), min_size=1, max_size=4)))
def test_every_output_gets_exactly_its_weights_share_of_the_words(rows):
    table = AliasTable(np.array(rows, np.uint64))
    for label, row in enumerate(rows):
        assert mass_of_outputs(table, label, len(row)) == [4 * weight for weight in row]


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 31, 32, 33, 64, 65])
def test_even_weights_are_shared_exactly(m):
    row = [TOTAL // m] * m
    row[-1] += TOTAL - sum(row)
    assert mass_of_outputs(AliasTable(np.array([row, row[::-1]], np.uint64)), 1, m) == [4 * w for w in row[::-1]]


@settings(deadline=None, max_examples=100)
@given(st.integers(2, 9), st.floats(1e-3, 20), st.floats(0, 1e-9))
def test_weights_satisfy_epsilon_though_probabilities_do_not(labels, epsilon, excess):
    """Columns are clipped to the largest integer below exp(epsilon) times their smallest weight."""
    odds = np.exp(epsilon * (1 + excess))
    rows = np.where(np.eye(labels) > 0, odds, 1.0) / (odds + labels - 1)
    weights = integer_weights(rows, epsilon)
    check_row_sums(weights, BITS)
    ratio = likelihood_ratio(weights)
    assert ratio is not None
    assert satisfies_epsilon(ratio, epsilon)
