"""Certificate: valid bounds, exact ratios and biases, and row sums without integer overflow."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.core.budget import exp_below
from labeldp.mechanisms.core.certificate import (
    Certificate,
    certify,
    check_row_sums,
    exact_biases,
    hockey_stick,
    likelihood_ratio,
)


def matrix(*rows: list[int]) -> np.ndarray:
    return np.array(rows, np.uint64)


# Row sums.


def test_exact_row_sums_pass():
    check_row_sums(matrix([8, 0], [3, 5]), 3)
    check_row_sums(matrix([1 << 62, 0, 0], [(1 << 32) - 1, 1, (1 << 62) - (1 << 32)]), 62)
    check_row_sums(matrix(*([(1 << 61) - 1] * 2 + [2],) * 3), 62)


@pytest.mark.parametrize(
    "row",
    [
        # Sums to 2^62 modulo 2^64 only.
        [1 << 63, 1 << 63, 1 << 62],
        [(1 << 64) - 1, 1, 1 << 62],
        [(1 << 64) - (1 << 61), (1 << 62) + (1 << 61), 0],
        [(1 << 62) - 1, 0, 0],
        [1 << 62, 1, 0],
        [0, 0, 0],
    ],
)
def test_a_wrong_row_sum_is_refused_also_where_it_is_right_modulo_the_word(row):
    good = [1 << 62, 0, 0]
    with pytest.raises(ValueError, match="label index 1 do not sum to 2\\^62"):
        check_row_sums(matrix(good, row), 62)
    with pytest.raises(ValueError, match="label index 0"):
        certify(np.array([0.0, 1.0]), np.arange(3.0), matrix(row, good), 62)


def test_many_columns_cannot_wrap_the_sum_of_halves():
    columns = 1 << 16
    row = np.full((1, columns), (1 << 62) // columns, np.uint64)
    check_row_sums(row, 62)
    row[:] = np.uint64((1 << 64) - 1)
    row[0, 0] = (1 << 62) + columns - 1
    assert sum(row[0].tolist()) % (1 << 64) == 1 << 62
    with pytest.raises(ValueError, match="do not sum"):
        check_row_sums(row, 62)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, (1 << 64) - 1), min_size=4, max_size=4), min_size=1, max_size=5), st.data())
def test_row_sums_agree_with_python_integers(rows, data):
    repaired = data.draw(st.booleans())
    if repaired:
        rows = [[weight >> 4 for weight in row[:3]] for row in rows]
        rows = [[*row, (1 << 62) - sum(row)] for row in rows]
    right = [sum(row) == 1 << 62 for row in rows]
    if all(right):
        check_row_sums(matrix(*rows), 62)
    else:
        with pytest.raises(ValueError, match=f"label index {right.index(False)} do"):
            check_row_sums(matrix(*rows), 62)


# Ratios.


@pytest.mark.parametrize(
    ("weights", "ratio"),
    [
        (matrix([3, 5], [5, 3]), Fraction(5, 3)),
        (matrix([4, 4], [4, 4]), Fraction(1)),
        (matrix([8], [8]), Fraction(1)),
        (matrix([1, 6, 1], [2, 5, 1], [2, 2, 4]), Fraction(4)),
        # An output that never occurs does not affect the ratio.
        (matrix([3, 0, 5], [5, 0, 3]), Fraction(5, 3)),
        # An output that only some of the labels can have: no finite epsilon holds.
        (matrix([3, 5], [8, 0]), None),
        (matrix([8, 0], [0, 8]), None),
        (matrix([1 << 62, 1], [(1 << 62) - 1, 2]), Fraction(2)),
    ],
)
def test_likelihood_ratio_of_matrices_done_by_hand(weights, ratio):
    assert likelihood_ratio(weights) == ratio


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_likelihood_ratio_agrees_with_every_pair_of_labels(labels, outputs, data):
    weight = st.one_of(st.integers(0, 3), st.integers(1, (1 << 64) - 1))
    rows = data.draw(
        st.lists(st.lists(weight, min_size=outputs, max_size=outputs), min_size=labels, max_size=labels).filter(
            lambda table: any(map(any, table))
        )
    )
    pairs = [(row[c], other[c]) for row in rows for other in rows for c in range(outputs) if row[c]]
    expected = None if any(other == 0 for _, other in pairs) else max(Fraction(*pair) for pair in pairs)
    assert likelihood_ratio(matrix(*rows)) == expected


# Certificates.


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=9))
def test_ratios_that_no_float_tells_apart_are_compared_exactly(near):
    pairs = [(scale * (3 << 56) + more, scale * (1 << 56) + less) for scale, more, less in near]
    found = likelihood_ratio(np.array(pairs, np.uint64).T)
    assert found == max(Fraction(top, bottom) for top, bottom in pairs)


def test_a_certificate_done_by_hand():
    certificate = certify(np.array([0.0, 1.0]), np.array([-1.0, 2.0]), matrix([5, 3], [3, 5]), 3)
    assert certificate.ratio == Fraction(5, 3)
    assert certificate.biases == (Fraction(1, 8), Fraction(-1, 8))
    assert certificate.max_bias == 0.125
    assert math.log(5 / 3) <= certificate.epsilon <= math.nextafter(math.log(5 / 3), 1)
    assert certificate.to_dict() == {
        "epsilon": certificate.epsilon,
        "ratio": ["5", "3"],
        "bias": [0.125, -0.125],
        "max_bias": 0.125,
        "row_sum": "8",
    }


def test_an_output_of_one_label_only_has_no_epsilon():
    certificate = certify(np.array([0.0, 1.0]), np.array([0.0, 1.0]), matrix([8, 0], [3, 5]), 3)
    assert certificate.ratio is None
    assert certificate.epsilon == math.inf
    with pytest.raises(ValueError, match="no finite epsilon"):
        certificate.to_dict()


def test_max_bias_is_rounded_up_and_never_minus_zero():
    assert Fraction(Certificate(Fraction(1), (Fraction(-1, 3), Fraction(0)), 62).max_bias) > Fraction(1, 3)
    none = Certificate(Fraction(1), (Fraction(0),), 62).max_bias
    assert none == 0
    assert math.copysign(1, none) == 1


def test_biases_of_many_labels_and_outputs_are_exact():
    """Weights and outputs have all bits set, so that the sums of their digits are the largest."""
    k, m = 300, 1023
    shifts = np.arange(k, dtype=np.uint64) % 7
    labels, weights = np.arange(k) / 3, np.full((k, m), (1 << 62) - 1, np.uint64) >> shifts[:, None]
    outputs = np.ldexp(2 - 2.0**-52, np.arange(m) % 40 - 20)
    for sign in (1, -1, np.where(np.arange(m) % 5, 1, -1)):
        exact = [Fraction(output) for output in (sign * outputs).tolist()]
        by_shift = [sum(int(weight) * output for weight, output in zip(row, exact, strict=True)) for row in weights[:7]]
        expected = tuple(by_shift[y % 7] / (1 << 62) - Fraction(label) for y, label in enumerate(labels.tolist()))
        assert exact_biases(labels, sign * outputs, weights, 62) == expected


FINITE = st.floats(-1e200, 1e200)


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.data())
def test_biases_agree_with_brute_force_fractions(k, m, data):
    labels = data.draw(st.lists(FINITE, min_size=k, max_size=k))
    outputs = data.draw(st.lists(FINITE, min_size=m, max_size=m))
    cuts = st.lists(st.integers(0, 1 << 62), min_size=m - 1, max_size=m - 1).map(lambda inner: [0, *sorted(inner)])
    rows = [
        [upper - lower for lower, upper in zip(cut, [*cut[1:], 1 << 62], strict=True)]
        for cut in data.draw(st.lists(cuts, min_size=k, max_size=k))
    ]
    certificate = certify(np.array(labels), np.array(outputs), matrix(*rows), 62)
    expected = [
        sum(Fraction(weight, 1 << 62) * Fraction(output) for weight, output in zip(row, outputs, strict=True))
        - Fraction(label)
        for row, label in zip(rows, labels, strict=True)
    ]
    assert list(certificate.biases) == expected
    assert Fraction(certificate.max_bias) >= max(map(abs, expected))


# Approximate DP.


def divergence(first: list[int], second: list[int], ratio: Fraction) -> Fraction:
    return sum((max(Fraction(0), p - ratio * q) for p, q in zip(first, second, strict=True)), Fraction(0))


def test_a_hockey_stick_done_by_hand():
    # In sixteenths: 9 exceeds twice 3 by 3, and 4 exceeds twice 0 by 4.
    weights = matrix([9, 4, 3, 0], [3, 0, 9, 4])
    ratio = exp_below(Fraction(math.log(2)))
    assert hockey_stick(weights, math.log(2), 4) == (9 - 3 * ratio + 4) / 16
    assert float(hockey_stick(weights, math.log(2), 4)) == pytest.approx(7 / 16)


def test_pure_weights_have_no_hockey_stick():
    assert hockey_stick(matrix([2, 1, 1], [1, 2, 1], [1, 1, 2]), 0.7, 2) == 0


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 5), st.integers(1, 6), st.floats(1e-9, 30), st.data())
def test_hockey_stick_agrees_with_every_pair_of_labels(k, m, epsilon, data):
    point = st.one_of(st.integers(0, 1 << 62), st.integers(0, 3), st.integers(0, 62).map(lambda b: 1 << b))
    rows = []
    for _ in range(k):
        cuts = sorted(data.draw(st.lists(point, min_size=m - 1, max_size=m - 1)))
        rows.append([high - low for low, high in zip([0, *cuts], [*cuts, 1 << 62], strict=True)])
    ratio = exp_below(Fraction(epsilon))
    expected = max(divergence(first, second, ratio) for first in rows for second in rows) / (1 << 62)
    assert hockey_stick(matrix(*rows), epsilon, 62) == expected


def test_a_certificate_of_approximate_dp_states_its_delta():
    certificate = Certificate(None, (Fraction(0),), 4, (0.5, Fraction(1, 3)))
    assert certificate.epsilon == 0.5
    assert Fraction(certificate.delta) >= Fraction(1, 3) > Fraction(math.nextafter(certificate.delta, 0))
    document = certificate.to_dict()
    assert (document["epsilon"], document["delta"]) == (0.5, certificate.delta)
    assert "ratio" not in document


def test_a_pure_certificate_states_no_delta():
    certificate = Certificate(Fraction(2), (Fraction(0),), 4)
    assert certificate.delta == 0
    assert "delta" not in certificate.to_dict()
