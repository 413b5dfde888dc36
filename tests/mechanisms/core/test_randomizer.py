"""Randomizer: exact sampling, refusal above epsilon, one canonical form, and refusal of tampered files."""

import hashlib
import json
import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms import ABSOLUTE, LOSSES, POISSON, SQUARED, Prior, Randomizer, solve
from labeldp.mechanisms.core.integer_weights import AliasTable
from labeldp.mechanisms.noise.keyed_words import integer_identities, words
from labeldp.mechanisms.response.randomized_response import randomized_response

TOTAL = 1 << 62
WORDS = 1 << 64
KEY = bytes(range(32))


def uniform(k: int) -> Prior:
    return Prior(np.arange(k, dtype=float), np.ones(k))


def build(weights: list[list[int]], epsilon: float = 30.0, outputs: list[float] | None = None) -> Randomizer:
    k, m = len(weights), len(weights[0])
    values = np.arange(m, dtype=float) if outputs is None else np.array(outputs)
    return Randomizer(np.arange(k, dtype=float), values, np.array(weights, np.uint64), epsilon, "test")


@st.composite
def exact_rows(draw: st.DrawFn, m: int, least: int = 0) -> list[int]:
    """m integers >= least that sum to exactly 2^62: even, skewed, or with many zeros."""
    free = TOTAL - least * m
    point = st.one_of(st.integers(0, free), st.integers(0, 3), st.integers(0, 62).map(lambda b: min(1 << b, free)))
    cuts = sorted(draw(st.lists(point, min_size=m - 1, max_size=m - 1)))
    row = [upper - lower for lower, upper in zip([0, *cuts], [*cuts, free], strict=True)]
    return [weight + least for weight in draw(st.permutations(row))]


@st.composite
def randomizers(draw: st.DrawFn) -> Randomizer:
    k, m = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    finite = st.floats(-1e9, 1e9).map(lambda value: value + 0.0)
    labels = sorted(draw(st.lists(finite, min_size=k, max_size=k, unique=True)))
    outputs = draw(st.lists(finite, min_size=m, max_size=m, unique=True))
    # Weights of at least 2^20 keep every ratio below exp(30), about 2^43.
    rows = draw(st.lists(exact_rows(m, least=1 << 20), min_size=k, max_size=k))
    parameters = draw(st.dictionaries(st.text(max_size=5), st.one_of(st.none(), st.booleans(), st.text()), max_size=3))
    return Randomizer(np.array(labels), np.array(outputs), np.array(rows, np.uint64), 30.0, "drawn", parameters)


# Sampling.


@settings(deadline=None)
@given(randomizers())
def test_sample_obeys_the_table_at_every_boundary_word(randomizer):
    """The output is constant between two boundaries of the table, so testing the words next to them is exhaustive."""
    table = AliasTable(randomizer.weights)
    capacity = WORDS // table.width
    cases: list[tuple[int, int, int]] = []
    for label in range(len(randomizer.labels)):
        for column in range(table.width):
            cell = label * table.width + column
            threshold, alias = int(table.thresholds[cell]), int(table.aliases[cell])
            start = column * capacity
            inside = [(start, column), (start + threshold - 1, column)] if threshold else []
            outside = [(start + threshold, alias), (start + capacity - 1, alias)] if threshold < capacity else []
            cases += [(label, word, output) for word, output in inside + outside]
    labels, drawn, outputs = zip(*cases, strict=True)
    found = randomizer.sample(np.array(labels), np.array(drawn, np.uint64))
    np.testing.assert_array_equal(found, randomizer.outputs[list(outputs)])


def test_samples_of_keyed_words_follow_the_probabilities(fits):
    prior = Prior(np.arange(12.0), np.arange(1, 13))
    for name in ("rr_on_bins", "rr"):
        randomizer = solve(name, prior, 1.5)
        for label in (0, 5, 11):
            drawn = words(KEY, randomizer.fingerprint, integer_identities("id", np.arange(20_000) + label * 20_000))
            found = randomizer.sample(np.full(20_000, label), drawn)
            counts = [int((found == output).sum()) for output in randomizer.outputs]
            assert sum(counts) == 20_000
            assert fits(counts, randomizer.probabilities()[label])


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_sampling_does_not_depend_on_the_dtype_of_the_label_indices(dtype):
    randomizer = solve("rr", uniform(200), 8.0)
    indices = np.arange(2000) % 200
    drawn = words(KEY, randomizer.fingerprint, integer_identities("id", np.arange(2000)))
    np.testing.assert_array_equal(
        randomizer.sample(indices.astype(dtype), drawn), randomizer.sample(indices.astype(np.intp), drawn)
    )


@pytest.mark.parametrize(
    ("indices", "drawn"),
    [
        (np.array([0.0, 2.0]), np.zeros(2, np.uint64)),
        (np.array([0, 3]), np.zeros(2, np.uint64)),
        (np.array([-1, 0]), np.zeros(2, np.uint64)),
        (np.array([True, False]), np.zeros(2, np.uint64)),
        (np.array([0, 1]), np.zeros(3, np.uint64)),
        (np.array([0, 1]), np.zeros(2, np.int64)),
    ],
)
def test_labels_in_place_of_their_indices_are_refused(indices, drawn):
    """Negative indices would silently be those of the last labels."""
    with pytest.raises(
        ValueError, match=r"label_indices must be integers from 0 to 2|words must be one uint64"
    ) as error:
        solve("rr", uniform(3), 1.0).sample(indices, drawn)
    assert "3" not in str(error.value)


def test_a_single_output_is_always_drawn():
    randomizer = build([[TOTAL], [TOTAL]], outputs=[7.0], epsilon=1e-9)
    every = np.array([0, 1, (1 << 63) - 1, 1 << 63, WORDS - 1], np.uint64)
    assert randomizer.sample(np.array([0, 1, 0, 1, 0]), every).tolist() == [7.0] * 5
    assert randomizer.certificate().epsilon == 0


# Refused arguments.


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 0.5, 1.0, math.log(3), 8.0, 20.0, 30.0])
def test_one_unit_above_epsilon_cannot_be_built(epsilon, exp_bracket):
    low, high = exp_bracket(Fraction(epsilon))
    # own / (2^62 - own) <= E
    most = TOTAL * low // (1 + low)
    assert most == TOTAL * high // (1 + high)
    for own, allowed in ((most, True), (most + 1, False), (TOTAL, False)):
        rows = [[own, TOTAL - own], [TOTAL - own, own]]
        if allowed:
            assert build(rows, epsilon).certificate().epsilon <= epsilon
        else:
            with pytest.raises(ValueError, match="cannot be built"):
                build(rows, epsilon)


HALF = 1 << 61


@pytest.mark.parametrize(
    ("labels", "outputs", "weights", "epsilon", "message"),
    [
        ([0, 1], [0, 1], [[HALF, HALF]], 1.0, "shape"),
        ([0, 1], [0], [[HALF, HALF]] * 2, 1.0, "shape"),
        ([1, 0], [0, 1], [[HALF, HALF]] * 2, 1.0, "ascending"),
        ([0, math.nan], [0, 1], [[HALF, HALF]] * 2, 1.0, "finite"),
        ([], [0], np.empty((0, 1)), 1.0, "at least one label"),
        ([0, 1], [0, math.inf], [[HALF, HALF]] * 2, 1.0, "outputs must be finite"),
        ([0, 1], [], np.empty((2, 0)), 1.0, "do not sum"),
        ([0, 1], [0, 1], [[HALF, HALF], [HALF, HALF - 1]], 1.0, "label index 1 do not sum"),
        ([0, 1], [0, 1, 2], [[1 << 63, 1 << 63, 1 << 62]] * 2, 1.0, "label index 0 do not sum"),
        ([0, 1], [0, 1], [[TOTAL, 0], [0, TOTAL]], 30.0, "cannot be built"),
        ([0, 1], [0, 1], [[HALF, HALF]] * 2, 0.0, "epsilon"),
        ([0, 1], [0, 1], [[HALF, HALF]] * 2, -1.0, "epsilon"),
        ([0, 1], [0, 1], [[HALF, HALF]] * 2, 31.0, "epsilon"),
        ([0, 1], [0, 1], [[HALF, HALF]] * 2, math.nan, "epsilon"),
    ],
)
def test_a_bad_randomizer_cannot_be_built(labels, outputs, weights, epsilon, message):
    with pytest.raises(ValueError, match=message):
        Randomizer(np.array(labels), np.array(outputs), np.array(weights, np.uint64), epsilon, "test")


def test_negative_weights_cannot_be_built():
    weights = np.array([[TOTAL + 1, -1], [HALF, HALF]], np.int64)
    with pytest.raises(ValueError, match="do not sum"):
        Randomizer(np.arange(2.0), np.arange(2.0), weights, 1.0, "test")


# Canonical form.


def test_outputs_are_sorted_merged_and_dropped_where_impossible():
    rows = [[1 << 60, 1 << 60, 0, 1 << 61, 0], [1 << 60, 1 << 61, 0, 1 << 60, 0]]
    randomizer = build(rows, outputs=[5.0, 0.0, 9.0, -0.0, 1.0])
    assert randomizer.outputs.tolist() == [0.0, 5.0]
    assert not np.signbit(randomizer.outputs[0])
    assert randomizer.weights.tolist() == [[3 << 60, 1 << 60]] * 2
    assert randomizer.certificate().epsilon == 0


@settings(deadline=None)
@given(randomizers(), st.randoms(use_true_random=False))
def test_the_order_of_outputs_does_not_matter(randomizer, random):
    order = list(range(len(randomizer.outputs)))
    random.shuffle(order)
    again = Randomizer(
        randomizer.labels,
        randomizer.outputs[order],
        randomizer.weights[:, order],
        30.0,
        randomizer.mechanism,
        randomizer.parameters,
    )
    assert again == randomizer
    assert again.fingerprint == randomizer.fingerprint
    assert hash(again) == hash(randomizer)


def test_a_randomizer_is_frozen_and_does_not_alias_what_it_was_given():
    labels, outputs = np.arange(2.0), np.arange(2.0)
    weights = np.array([[HALF, HALF]] * 2, np.uint64)
    randomizer = Randomizer(labels, outputs, weights, 1.0, "test")
    labels[0] = outputs[0] = -7.0
    weights[:] = 0
    assert (randomizer.labels[0], randomizer.outputs[0], int(randomizer.weights[0, 0])) == (0.0, 0.0, HALF)
    for array in (randomizer.labels, randomizer.outputs, randomizer.weights):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


# Reported properties.


@settings(deadline=None)
@given(randomizers())
def test_probabilities_and_bias_are_the_integers_divided(randomizer):
    rows = [[Fraction(weight, TOTAL) for weight in row] for row in randomizer.weights.tolist()]
    np.testing.assert_array_equal(randomizer.probabilities(), [[float(share) for share in row] for row in rows])
    biases = [
        sum(share * Fraction(output) for share, output in zip(row, randomizer.outputs.tolist(), strict=True))
        - Fraction(label)
        for row, label in zip(rows, randomizer.labels.tolist(), strict=True)
    ]
    assert randomizer.bias().tolist() == [float(bias) for bias in biases]
    assert randomizer.certificate().max_bias >= np.abs(randomizer.bias()).max()


@pytest.mark.parametrize("loss", LOSSES.values(), ids=list(LOSSES))
def test_expected_loss_agrees_with_brute_force(loss):
    rng = np.random.default_rng(5)
    for _ in range(10):
        labels = np.sort(rng.choice(100, 5, replace=False)) / 8
        prior = Prior(labels, rng.random(5) * (rng.random(5) < 0.7) + np.array([0.1, 0, 0, 0, 0]))
        randomizer = solve("rr_on_bins", prior, 1.0)
        formula: dict[str, Callable[[float, float], float]] = {
            "squared": lambda t, y: (t - y) ** 2,
            "absolute": lambda t, y: abs(t - y),
            "poisson": lambda t, y: t - y * math.log(t),
        }
        expected = math.fsum(
            p * (weight / TOTAL) * formula[loss.name](t, y)
            for p, y, row in zip(prior.weights, labels, randomizer.weights.tolist(), strict=True)
            for weight, t in zip(row, randomizer.outputs, strict=True)
            if p > 0
        )
        assert randomizer.expected_loss(prior, loss) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_labels_of_no_mass_do_not_count_even_where_their_loss_is_infinite():
    randomizer = build([[HALF, HALF]] * 3, outputs=[0.0, 2.0])
    assert randomizer.expected_loss(Prior(np.arange(3.0), np.array([1, 0, 0])), POISSON) == 1.0
    assert randomizer.expected_loss(Prior(np.arange(3.0), np.array([1, 1, 0])), POISSON) == math.inf


def test_an_output_that_cannot_come_out_costs_nothing():
    """The output -1 has an infinite Poisson loss but probability 0."""
    weights = np.array([[0, TOTAL], [1, TOTAL - 1]], np.uint64)
    randomizer = Randomizer(np.arange(2.0), np.array([-1.0, 1.0]), weights, 1.0, "drawn", delta=0.5)
    assert randomizer.expected_loss(Prior(np.arange(2.0), np.array([1.0, 0.0])), POISSON) == 1.0
    assert randomizer.expected_loss(Prior(np.arange(2.0), np.array([1.0, 1.0])), POISSON) == math.inf


def test_expected_loss_refuses_another_domain_or_an_undefined_loss():
    randomizer = build([[HALF, HALF]] * 2)
    with pytest.raises(ValueError, match="different label domains"):
        randomizer.expected_loss(Prior(np.array([0.0, 2.0]), np.ones(2)), SQUARED)
    with pytest.raises(ValueError, match="different label domains"):
        randomizer.expected_loss(uniform(3), SQUARED)
    negative = Prior(np.array([-1.0, 1.0]), np.ones(2))
    with pytest.raises(ValueError, match="poisson"):
        solve("rr", negative, 1.0).expected_loss(negative, POISSON)


# Mechanism file.


@settings(deadline=None)
@given(randomizers())
def test_json_and_pickle_round_trips_are_exact(randomizer):
    for again in (Randomizer.from_json(randomizer.to_json()), pickle.loads(pickle.dumps(randomizer))):
        assert again == randomizer
        assert again.fingerprint == randomizer.fingerprint
        assert again.epsilon == randomizer.epsilon
        assert again.parameters == randomizer.parameters
        for name in ("labels", "outputs", "weights"):
            np.testing.assert_array_equal(getattr(again, name), getattr(randomizer, name))
        assert again.certificate() == randomizer.certificate()


@settings(deadline=None, max_examples=25)
@given(randomizers())
def test_the_file_and_the_hashed_text_are_those_of_the_json_library(randomizer):
    text = randomizer.to_json(more={"a": [1, 2]})
    document = json.loads(text)
    assert text == json.dumps(document)
    hashed = {key: document[key] for key in ("bits", "columns", "labels", "outputs")}
    canonical = json.dumps(hashed, sort_keys=True, separators=(",", ":")).encode()
    assert document["fingerprint"] == hashlib.blake2b(canonical, digest_size=32).hexdigest()


def test_extra_keys_travel_in_the_file_and_do_not_change_the_randomizer():
    randomizer = solve("rr", uniform(3), 1.0)
    text = randomizer.to_json(prior={"weights": [0.5, 0.25, 0.25]}, note="x")
    assert json.loads(text)["note"] == "x"
    assert Randomizer.from_json(text) == randomizer


def test_the_file_states_the_facts():
    randomizer = solve("rr_on_bins", uniform(5), 1.0, loss="absolute")
    document = json.loads(randomizer.to_json())
    certificate = document["certificate"]
    assert document["format"] == "labeldp-mechanism-1"
    assert document["mechanism"] == "rr_on_bins"
    assert document["parameters"] == {"loss": ABSOLUTE.name}
    assert document["fingerprint"] == randomizer.fingerprint.hex()
    assert certificate["epsilon"] == randomizer.certificate().epsilon <= document["epsilon"] == 1.0
    assert Fraction(*map(int, certificate["ratio"])) == randomizer.certificate().ratio
    assert certificate["row_sum"] == str(1 << document["bits"]) == str(TOTAL)
    expanded = [[int(weight) for weight, count in runs for _ in range(count)] for runs in document["columns"]]
    assert np.array(expanded, np.uint64).T.tolist() == randomizer.weights.tolist()


def test_the_fingerprint_depends_on_domain_outputs_and_weights_only():
    base = solve("rr", uniform(3), 1.0)
    same = Randomizer(base.labels, base.outputs, base.weights, 2.0, "another name", {"a": 1})
    assert same.fingerprint == base.fingerprint
    assert same != base
    shifted = Randomizer(base.labels + 1, base.outputs, base.weights, 1.0, "rr")
    moved = Randomizer(base.labels, base.outputs + 1, base.weights, 1.0, "rr")
    looser = solve("rr", uniform(3), 2.0)
    assert len({each.fingerprint for each in (base, shifted, moved, looser)}) == 4


def test_a_file_of_5000_labels_stays_compact():
    labels = np.arange(5000.0)
    bins = randomized_response(labels, np.arange(50.0), np.arange(5000) // 100, 2.0, "rr")
    # The file stores each label with its bias, and three runs of weights per output.
    assert len(bins.to_json()) < 40 * 5000 + 200 * 50
    assert Randomizer.from_json(bins.to_json()) == bins
    everything = solve("rr", uniform(1000), 2.0)
    assert len(everything.to_json()) < 40 * 1000 + 200 * 1000


Document = dict[str, Any]


def _set(*path: Any) -> Callable[[Document], None]:
    """Sets document[path[0]][path[1]]... to the last element of path."""

    def change(document: Document) -> None:
        target: Any = document
        for step in path[:-2]:
            target = target[step]
        target[path[-2]] = path[-1]

    return change


def _swap_weights(document: Document) -> None:
    """Changes the drawn outputs without changing the row sums or epsilon."""
    document["columns"][0], document["columns"][1] = document["columns"][1], document["columns"][0]


def _move_one_unit(document: Document) -> None:
    for column, unit in ((0, -1), (1, 1)):
        runs = document["columns"][column]
        runs[:] = [[str(int(weight) + unit), count] for weight, count in runs]


TAMPERED: dict[str, Callable[[Document], object]] = {
    "weights swapped": _swap_weights,
    "one unit moved": _move_one_unit,
    "a weight changed": _set("columns", 0, 0, 0, "5"),
    "a weight negative": _set("columns", 0, 0, 0, "-1"),
    "a weight too large": _set("columns", 0, 0, 0, str(1 << 64)),
    "a run longer": _set("columns", 0, 0, 1, 2),
    "a run of no labels": _set("columns", 0, 0, 1, 0),
    "a run of negative length": _set("columns", 0, 0, 1, -1),
    "a run of overflowing length": _set("columns", 0, 0, 1, (1 << 64) + 1),
    "a label changed": _set("labels", 1, 1.5),
    "labels out of order": lambda document: document["labels"].reverse(),
    "an output changed": _set("outputs", 1, 1.5),
    "epsilon lowered": _set("epsilon", 0.5),
    "epsilon too large": _set("epsilon", 31.0),
    "bits changed": _set("bits", 61),
    "format changed": _set("format", "labeldp-mechanism-0"),
    "fingerprint changed": _set("fingerprint", "00" * 32),
}


@pytest.mark.parametrize("change", TAMPERED.values(), ids=list(TAMPERED))
def test_a_tampered_file_is_refused(change):
    text = solve("rr", uniform(4), 1.0).to_json()
    document = json.loads(text)
    change(document)
    tampered = json.dumps(document)
    # The valid file is read in between, so that reused memory cannot supply values the tampered file leaves unset.
    for _ in range(20):
        with pytest.raises(ValueError, match=r"\w"):
            Randomizer.from_json(tampered)
        Randomizer.from_json(text)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"text"', "3", "{}", "[" * 100_000])
def test_a_text_that_is_no_mechanism_file_is_refused(text):
    with pytest.raises(ValueError, match=r"\w"):
        Randomizer.from_json(text)


def test_a_file_of_absurd_size_is_refused_before_it_is_expanded():
    document = json.loads(solve("rr", uniform(2), 1.0).to_json())
    document["labels"] = list(range(1 << 14))
    document["outputs"] = list(range((1 << 12) + 1))
    with pytest.raises(ValueError, match="is more than 67108864"):
        Randomizer.from_json(json.dumps(document))


def test_repr_is_short_and_shows_no_numbers_but_sizes_and_epsilon():
    assert repr(solve("rr", uniform(3), 1.0)) == "Randomizer(rr, 3 labels, 3 outputs, epsilon 1)"


# Approximate DP.

EIGHTH = TOTAL >> 3
SKEWED = [[5 * EIGHTH, 3 * EIGHTH, 0], [0, 3 * EIGHTH, 5 * EIGHTH]]
"""No epsilon holds without a delta of 5/8."""


def approximate(delta: float) -> Randomizer:
    labels, outputs = np.arange(2.0), np.arange(3.0)
    return Randomizer(labels, outputs, np.array(SKEWED, np.uint64), 1.0, "test", delta=delta)


def test_a_delta_is_checked_to_the_last_bit():
    randomizer = approximate(0.625)
    assert not randomizer.pure
    assert (randomizer.certificate().epsilon, randomizer.certificate().delta) == (1.0, 0.625)
    for delta in (0.0, math.nextafter(0.625, 0)):
        with pytest.raises(ValueError, match=r"do not satisfy epsilon 1.0.*cannot be built"):
            approximate(delta)


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan, math.inf])
def test_a_delta_out_of_range_is_refused(delta):
    with pytest.raises(ValueError, match="delta must be at least 0 and below 1"):
        approximate(delta)


def test_a_delta_travels_in_the_file():
    randomizer = approximate(0.7)
    document = json.loads(randomizer.to_json())
    assert (document["delta"], document["certificate"]["delta"]) == (0.7, 0.625)
    for copied in (Randomizer.from_json(randomizer.to_json()), pickle.loads(pickle.dumps(randomizer))):
        assert copied == randomizer
        assert copied.delta == 0.7


@pytest.mark.parametrize("delta", [..., 0.0, 0.5, 1.0, "0.7", None])
def test_a_file_with_another_delta_is_refused(delta):
    document = json.loads(approximate(0.7).to_json())
    del document["delta"]
    if delta is not ...:
        document["delta"] = delta
    with pytest.raises(ValueError, match=r"cannot be built|delta must|not a mechanism file"):
        Randomizer.from_json(json.dumps(document))


def test_a_pure_file_does_not_mention_delta():
    randomizer = build([[TOTAL // 2, TOTAL // 2]])
    assert randomizer.pure
    assert "delta" not in randomizer.to_json()
