"""Counts and digest are exact and independent of batches; the released prior is noised and bound to the input."""

import base64
import math
import pickle
from dataclasses import FrozenInstanceError

import apache_beam as beam
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.mechanisms.core.budget import BudgetSplit, split_budget
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.mechanisms.noise.input_digest import RawSums, digest_sums, input_digest
from labeldp.mechanisms.noise.keyed_words import NoiseRequest, row_identities, words
from labeldp.mechanisms.noise.noisy_histogram import estimated_prior, noisy_priors
from labeldp.mechanisms.release.label_column import LabelMeaning
from labeldp.mechanisms.release.label_records import PassSums
from labeldp.transforms import (
    BindNoise,
    InputError,
    LabelColumn,
    NoiseBinding,
    NoiseKeyFile,
    NoisyPrior,
    PriorRelease,
    Threshold,
)
from labeldp.transforms.release_passes import MergePasses

from tests.label_counts import summarize

DOMAIN = (0.0, 1.0, 2.5, 4.0)
COLUMN = LabelColumn("y", DOMAIN)
SECRET = bytes(32)


def of_classes(*values: str) -> LabelColumn:
    return LabelColumn("y", (0.0, 1.0), meaning=LabelMeaning(LabelClasses(values)))


def labels_of(rows: int, seed: int = 1) -> list[float]:
    """Labels in and around the domain, some of them far outside."""
    return np.random.default_rng(seed).choice([-50.0, 0.0, 0.4, 1.0, 2.0, 2.5, 4.0, 99.0], rows).tolist()


def counted(values: list[float]) -> list[int]:
    """Counts the values nearest to each label of the domain, one at a time; ties go to the upper label."""
    nearest = [min(range(len(DOMAIN)), key=lambda i: (abs(DOMAIN[i] - value), -i)) for value in values]
    return [nearest.count(i) for i in range(len(DOMAIN))]


def same(one: PriorRelease, two: PriorRelease) -> bool:
    return (
        NoiseBinding.__eq__(one, two)
        and np.array_equal(one.prior.weights, two.prior.weights)
        and np.array_equal(one.prior.labels, two.prior.labels)
    )


# Summaries.

SUMMARIES = st.builds(
    PassSums,
    st.lists(st.integers(0, 2**40), min_size=3, max_size=3).map(lambda counts: np.array(counts, np.int64)),
    st.integers(0, 2**40),
    st.integers(0, 2**40),
    st.lists(st.integers(0, 2**64 - 1), min_size=4, max_size=4).map(lambda lanes: RawSums(np.array(lanes, np.uint64))),
)


def facts(summary: PassSums | None) -> tuple[list[int], int, list[int]] | None:
    return None if summary is None else (summary.sums.tolist(), summary.unusable, summary.digest.lanes.tolist())


def rows_sums(rows: np.ndarray, values: list[float] | np.ndarray, secret: bytes = SECRET) -> RawSums:
    """Sums of the given rows of /logs/a."""
    return digest_sums(secret, "y", row_identities("/logs/a", rows), np.array(values))


@settings(deadline=None)
@given(st.lists(SUMMARIES, max_size=6), st.data())
def test_merging_adds_up_in_any_order_and_grouping(parts, data):
    merge = MergePasses()
    expected = (
        parts
        and (
            [sum(int(part.sums[i]) for part in parts) for i in range(3)],
            sum(part.unusable for part in parts),
            [sum(int(part.digest.lanes[lane]) for part in parts) % 2**64 for lane in range(4)],
        )
    ) or None
    assert facts(merge.merge_accumulators(parts)) == expected
    accumulators = [merge.create_accumulator() for _ in range(3)]
    for part in data.draw(st.permutations(parts)):
        place = data.draw(st.integers(0, 2))
        accumulators[place] = merge.add_input(accumulators[place], part)
    grouped = merge.merge_accumulators([merge.merge_accumulators(accumulators[:2]), accumulators[2]])
    assert facts(merge.extract_output(grouped)) == expected


@settings(deadline=None)
@given(SUMMARIES, SUMMARIES)
def test_merging_leaves_its_inputs_as_they_are(one, two):
    """Beam may reuse an accumulator."""
    before = facts(one), facts(two)
    merge = MergePasses()
    merge.add_input(one, two)
    merge.merge_accumulators([one, two])
    assert (facts(one), facts(two)) == before


def test_a_summary_counts_the_nearest_label_and_digests_what_was_read(labelled):
    values = labels_of(200)
    summary = summarize(labelled({"y": values}), COLUMN, SECRET)
    assert summary.sums.tolist() == counted(values)
    assert (summary.unusable, summary.records) == (0, 200)
    assert summary.digest.lanes.tolist() == rows_sums(np.arange(200), values).lanes.tolist()


def test_a_summary_leaves_out_records_without_a_usable_label(labelled):
    values = [1.0, None, math.nan, 4.0, math.inf, -math.inf]
    summary = summarize(labelled({"y": values}, start=10), COLUMN, SECRET)
    assert (summary.sums.tolist(), summary.unusable, summary.records) == ([0, 1, 0, 1], 4, 2)
    assert summary.digest.lanes.tolist() == rows_sums(np.array([10, 13]), [1.0, 4.0]).lanes.tolist()


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from([*DOMAIN, None, -1e9]), max_size=30), st.lists(st.integers(0, 30), max_size=4))
def test_summaries_of_pieces_add_up_to_the_summary_of_the_whole(labelled, recut, values, cuts):
    import pyarrow as pa

    whole = labelled({"y": pa.array(values, pa.float64())}, start=3)
    pieces = recut(whole, *(3 + cut for cut in sorted(cut for cut in cuts if cut <= len(values))))
    merged = MergePasses().merge_accumulators([summarize(piece, COLUMN, SECRET) for piece in pieces])
    assert facts(merged) == facts(summarize(whole, COLUMN, SECRET))


def test_raw_counts_and_sums_have_no_text(labelled):
    """A log or an error that prints a summary must show neither the histogram nor the sums behind the digest."""
    summary = PassSums(np.array([48613, 0, 0]), 1, 0, RawSums(np.full(4, 48613, np.uint64)))
    assert "48613" not in repr(summary)
    assert "48613" not in str(summary)


# Release.


@pytest.fixture
def release(run, key):
    """(batches, keyword arguments of NoisyPrior) -> the PriorRelease."""

    def compute(batches, column=COLUMN, epsilon=2.0, key=key, **options):
        (found,) = run(lambda p: {"out": p | beam.Create(batches) | NoisyPrior(column, epsilon, key, **options)})["out"]
        assert isinstance(found, PriorRelease)
        return found

    return compute


@pytest.mark.parametrize("prior_epsilon", [None, 0.25])
def test_the_release_is_the_noisy_prior_of_the_counts(labelled, release, secret, prior_epsilon):
    values = [*labels_of(500), math.nan]
    found = release([labelled({"y": values})], prior_epsilon=prior_epsilon, threshold=Threshold(0.1))
    budget = split_budget(2.0, 4, 500, prior_epsilon)
    sums = rows_sums(np.arange(500), values[:-1], secret)
    digest = input_digest(secret, sums, NoiseRequest("y", np.array(DOMAIN), "nearest"), budget)
    binding = NoiseBinding(digest, "y", DOMAIN, budget, 500, 1)
    assert NoiseBinding(**{name: getattr(found, name) for name in vars(binding)}) == binding
    key = binding.noise_key(secret)
    (expected,) = noisy_priors(np.array(DOMAIN), np.array(counted(values[:-1])), budget.prior, [key])
    np.testing.assert_array_equal(found.prior.weights, expected.weights)
    np.testing.assert_array_equal(found.prior.labels, DOMAIN)
    assert found.budget.total <= 2.0


def test_the_release_does_not_depend_on_batches_or_their_order(labelled, recut, release):
    one, two = labelled({"y": labels_of(150)}), labelled({"y": labels_of(60, 2)}, "/logs/b")
    expected = release([one, two])
    for batches in ([two, one], [*recut(two, 7, 7, 30), *recut(one, 1, 90)][::-1], [*recut(one, *range(1, 150)), two]):
        assert same(release(batches), expected)


def test_by_default_the_prior_takes_at_most_half_of_the_budget(labelled, release):
    assert release([labelled({"y": [1.0]})], epsilon=0.5).budget == BudgetSplit(0.25, 0.25)
    found = release([labelled({"y": [1.0] * 900})], epsilon=0.5).budget
    assert found.prior == pytest.approx(math.sqrt(4 / 900), abs=1e-6)
    assert found.total <= 0.5


@pytest.mark.parametrize(("epsilon", "prior_epsilon"), [(0.0, None), (31.0, None), (1.0, 0.0), (1.0, 1.0)])
def test_a_budget_out_of_range_is_refused_at_once(key, epsilon, prior_epsilon):
    with pytest.raises(ValueError, match="epsilon" if prior_epsilon is None else "prior_epsilon"):
        NoisyPrior(COLUMN, epsilon, key, prior_epsilon)


# Refused input.


@pytest.mark.parametrize(
    ("column", "given"),
    [
        (COLUMN, "0"),
        (LabelColumn("y", (1.0, 2.0)), "LABEL (one of the domain)"),
        (of_classes("1", "0"), "0"),
        (of_classes("high", "low"), "CLASS (one of the classes)"),
        (LabelColumn("y", DOMAIN, others=("z",)), None),
    ],
)
@pytest.mark.parametrize("usable", [0, 1])
def test_missing_labels_are_not_published_on_advice(column, given, usable):
    with pytest.raises(InputError) as raised:
        Threshold().check(usable, 9, column)
    assert "raise the threshold" not in str(raised.value)
    words = f"no conversion yet, give `missing_label` {given} in privatize"
    assert words in str(raised.value) if given else "`missing_label`" not in str(raised.value)


def test_without_a_key_nothing_is_counted(failure, labelled, tmp_path):
    missing = NoiseKeyFile(str(tmp_path / "nowhere"))
    text = failure(lambda p: {"out": p | beam.Create([labelled({"y": [1.0]})]) | NoisyPrior(COLUMN, 1.0, missing)})
    assert f"noise key file {tmp_path}/nowhere does not exist" in text


# Threshold.


@pytest.mark.parametrize(
    ("fraction", "records", "unusable", "fine"),
    [
        (0.0, 10, 0, True),
        (0.0, 10**9, 1, False),
        (0.25, 3, 1, True),
        (0.25, 5, 2, False),
        (1.0, 1, 10**9, True),
        (0.001, 999, 1, True),
        (0.001, 998, 1, False),
    ],
)
def test_threshold(fraction, records, unusable, fine):
    threshold = Threshold(fraction)
    if fine:
        threshold.check(records, unusable, LabelColumn("y", (0.0, 1.0)))
    else:
        with pytest.raises(InputError, match=f"{unusable} of .*`max_unusable_fraction` {fraction:g}"):
            threshold.check(records, unusable, LabelColumn("y", (0.0, 1.0)))


@pytest.mark.parametrize("fraction", [-0.1, 1.1, math.nan])
def test_a_threshold_is_a_fraction(fraction):
    with pytest.raises(ValueError, match="max_unusable_fraction must be between 0 and 1"):
        Threshold(fraction)


# Column.


@pytest.mark.parametrize("domain", [(), (1.0, 1.0), (2.0, 1.0), (math.nan,), (0.0, math.inf)], ids=str)
def test_a_column_needs_an_ascending_domain(domain):
    with pytest.raises(ValueError, match="label"):
        LabelColumn("y", domain)


def test_the_label_is_no_id():
    """The error about a duplicate id would reveal that two records have the same label."""
    with pytest.raises(ValueError, match="id_column"):
        LabelColumn("y", DOMAIN, "y")


ROUNDED = LabelColumn("y", DOMAIN, rounding="randomized")


def test_coins_are_the_records_own():
    """Rounding coins depend on the secret, the column and the record's name, not on the batch or the label."""
    values, rows = np.full(1000, 1.75), np.arange(1000)
    coins = ROUNDED.indices(values, row_identities("/logs/a", rows), SECRET)
    assert set(coins.tolist()) == {1, 2}
    order = np.random.default_rng(1).permutation(1000)[:300]
    again = ROUNDED.indices(values[order], row_identities("/logs/a", rows[order]), SECRET)
    assert again.tolist() == coins[order].tolist()
    # The same words decide the rounding in another gap.
    higher = ROUNDED.indices(np.full(1000, 3.25), row_identities("/logs/a", rows), SECRET)
    assert (higher - 2).tolist() == (coins - 1).tolist()
    others = [
        ROUNDED.indices(values, row_identities("/logs/b", rows), SECRET),
        ROUNDED.indices(values, row_identities("/logs/a", rows), bytes(31) + b"\x01"),
        LabelColumn("z", DOMAIN, rounding="randomized").indices(values, row_identities("/logs/a", rows), SECRET),
    ]
    # Of 1000 independent fair coins, between 400 and 600 agree, with a false alarm rate below 1e-9.
    assert all(400 < (other == coins).sum() < 600 for other in others)


def test_coins_are_not_the_words_that_draw_outputs(secret):
    """Otherwise an output would depend on the rounding other than through the rounded label."""
    names = row_identities("/logs/a", np.arange(1000))
    coins = ROUNDED.indices(np.full(1000, 1.75), names, secret) == 2
    noise_key = NoiseBinding(1, "y", DOMAIN, BudgetSplit(0.5, 0.5), 1000, 0, "randomized").noise_key(secret)
    for key in (secret, noise_key):
        drawn = words(key, bytes(32), names) < np.uint64(1 << 63)
        assert 400 < (drawn == coins).sum() < 600


def test_an_unknown_rounding_is_refused():
    with pytest.raises(ValueError, match="rounding must be nearest or randomized, not 'up'"):
        LabelColumn("y", DOMAIN, rounding="up")


# Binding.


@pytest.mark.parametrize("id_column", [None, "id"])
def test_binding_again_gives_the_noise_key_of_the_release(labelled, recut, release, run, key, secret, id_column):
    column = LabelColumn("y", DOMAIN, id_column)
    batch = labelled({"id": np.arange(200), "y": [*labels_of(199), None]})
    threshold = Threshold(0.1)
    released = release([batch], column, threshold=threshold)

    def build(pipeline):
        batches = pipeline | beam.Create(recut(batch, 60, 130))
        return {"out": batches | BindNoise(column, released.budget, key, threshold)}

    (binding,) = run(build)["out"]
    assert type(binding) is NoiseBinding
    assert {name: getattr(released, name) for name in vars(binding)} == vars(binding)
    assert binding.noise_key(secret) == released.noise_key(secret)


def test_bindings_and_releases_hold_no_secret(labelled, release, secret):
    released = release([labelled({"y": labels_of(50)})])
    binding = NoiseBinding(released.digest, "y", DOMAIN, released.budget, 50, 0)
    noise_key = released.noise_key(secret)
    for one in (released, binding, COLUMN, Threshold()):
        shown = repr(one).encode() + pickle.dumps(one) + str(vars(one)).encode()
        for hidden in (secret, noise_key):
            for form in (hidden, hidden.hex().encode(), base64.b64encode(hidden)[:40], repr(hidden).encode()):
                assert form not in shown
            assert str(int.from_bytes(hidden, "little")).encode() not in shown
            assert str(int.from_bytes(hidden, "big")).encode() not in shown


def test_a_release_holds_no_raw_count(labelled, release):
    released = release([labelled({"y": [1.0] * 400 + [4.0] * 31})])
    assert set(vars(released)) == {
        "digest", "column", "domain", "budget", "records", "unusable", "rounding", "prior", "counts", "center",
        "missing_centers", "meaning", "made", "unit",
    }  # fmt: skip
    noised = np.array(released.counts) - [0, 400, 0, 31]
    assert (noised != 0).any()
    # The noise of the job's key, of scale 2 / prior epsilon.
    assert np.abs(noised).max() < 100 / released.budget.prior
    found = estimated_prior(np.array(DOMAIN), np.array(released.counts), 431, released.budget.prior)
    np.testing.assert_array_equal(found.weights, released.prior.weights)


@pytest.mark.parametrize("id_column", [None, "id"], ids=["rows", "ids"])
def test_releases_and_bindings_hold_the_keyed_hash_of_the_sums_and_not_the_sums(
    labelled, release, run, key, secret, id_column
):
    """The sums of two runs would reveal how their labels differ."""
    column = LabelColumn("y", DOMAIN, id_column)
    batch = labelled({"id": np.arange(50), "y": labels_of(50)})
    sums = summarize(batch, column, secret).digest
    released = release([batch], column)
    (binding,) = run(lambda p: {"out": p | beam.Create([batch]) | BindNoise(column, BudgetSplit(0.5, 0.5), key)})["out"]
    for one in (released, binding):
        assert one.digest == input_digest(secret, sums, NoiseRequest("y", np.array(DOMAIN), "nearest"), one.budget)
        shown = pickle.dumps(one) + repr(one).encode() + str(vars(one)).encode() + one.digest.to_bytes(32, "little")
        for lane in sums.lanes.tolist():
            for form in (lane.to_bytes(8, "little"), lane.to_bytes(8, "big"), b"%d" % lane, b"%x" % lane):
                assert form not in shown


def test_a_binding_cannot_be_changed():
    binding = NoiseBinding(1, "y", DOMAIN, BudgetSplit(0.5, 0.5), 10, 0)
    with pytest.raises(FrozenInstanceError):
        binding.digest = 2  # type: ignore[misc]


def test_records_and_unusable_do_not_enter_the_noise_key(secret):
    one = NoiseBinding(1, "y", DOMAIN, BudgetSplit(0.5, 0.5), 10, 0)
    two = NoiseBinding(1, "y", DOMAIN, BudgetSplit(0.5, 0.5), 11, 3)
    assert one.noise_key(secret) == two.noise_key(secret)
