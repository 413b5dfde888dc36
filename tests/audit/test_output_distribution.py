"""Distribution of outputs: bounds that hold for every label counts, tails of the noise, and what is found."""

import math

import numpy as np
import pytest
from labeldp.audit import output_distribution
from labeldp.audit.output_distribution import NoiseTails, check_distribution, divergence

RECORDS = 100_000


def noise(generator, scale, size):
    """Discrete Laplace noise: a difference of two geometric variables."""
    p = -math.expm1(-1 / scale)
    return generator.geometric(p, size) - generator.geometric(p, size)


def noised(generator, counts, scale):
    clipped = np.maximum(counts + noise(generator, scale, len(counts)), 0)
    return clipped / clipped.sum()


def draw(generator, counts, channel):
    return np.sum([generator.multinomial(count, row) for count, row in zip(counts, channel, strict=True)], axis=0)


def response(labels, epsilon):
    """Randomized response."""
    channel = np.ones((labels, labels)) + (math.exp(epsilon) - 1) * np.eye(labels)
    return channel / channel.sum(axis=1, keepdims=True)


def bins(weights, cells, epsilon):
    """Randomized response on bins of about equal weight: a channel that depends on the noised prior."""
    cell = np.minimum((np.cumsum(weights) * cells).astype(int), cells - 1)
    return response(cells, epsilon)[cell]


COUNTS = {
    "even": np.full(50, 2000),
    "falling": np.floor(RECORDS * 0.15 * 0.85 ** np.arange(50)).astype(int),
    "sparse": np.where(np.arange(50) % 10 == 0, 20_000, 0),
    "one label": np.where(np.arange(50) == 7, RECORDS, 0),
}


@pytest.mark.parametrize("removed", [10, 1000, RECORDS // 2])
@pytest.mark.parametrize("of_largest", [False, True])
def test_a_correct_release_passes_after_a_removal(removed, of_largest):
    """Records go at random, or all with the largest labels. A failure has a probability of at most 2e-5 in all."""
    generator = np.random.default_rng(1)
    counts = COUNTS["falling"]
    scale = 2 / math.sqrt(len(counts) / counts.sum())
    for _ in range(20):
        weights = noised(generator, counts, scale)
        channel = bins(weights, 5, 1.0)
        gone = largest(counts, removed) if of_largest else generator.multivariate_hypergeometric(counts, removed)
        observed = draw(generator, counts - gone, channel)
        assert check_distribution(observed, channel, weights, scale, removed=removed).wrong == ()
        if of_largest and removed == RECORDS // 2:
            # Without the removal, they are not those that were counted.
            assert check_distribution(observed, channel, weights, scale).wrong


@pytest.mark.parametrize("removed", [10, 1000])
def test_other_outputs_are_found_after_a_removal(removed):
    """One in twenty records has the first output in place of its own: more than noise, draws and removal explain."""
    generator = np.random.default_rng(1)
    counts = COUNTS["falling"]
    scale = 2 / math.sqrt(len(counts) / counts.sum())
    weights = noised(generator, counts, scale)
    channel = bins(weights, 5, 1.0)
    observed = draw(generator, counts - largest(counts, removed), channel)
    assert not check_distribution(observed, channel, weights, scale, removed=removed).wrong
    moved = observed // 20
    observed += np.append(moved.sum(), np.zeros(4, np.int64)) - moved
    assert check_distribution(observed, channel, weights, scale, removed=removed).wrong


def largest(counts, records):
    """Numbers of records by label, of those with the largest labels."""
    above = np.append(np.cumsum(counts[::-1])[::-1], 0)
    return np.clip(records - above[1:], 0, counts)


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("cells", [2, 5, 50])
def test_a_correct_release_passes(counts, cells):
    """With a false alarm of 1e-6 in 50 draws each, a failure would have a probability of 6e-4 in all."""
    generator = np.random.default_rng(1)
    scale = 2 / math.sqrt(len(counts) / counts.sum())
    for _ in range(50):
        weights = noised(generator, counts, scale)
        channel = bins(weights, cells, 1.0)
        result = check_distribution(draw(generator, counts, channel), channel, weights, scale)
        assert result.wrong == ()
        assert result.sets == max(2 * cells - 2, 2)


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_expectations_hold_for_every_noise(counts):
    """At a false alarm of 1e-2, in 200 draws each; without the noise of the draws of outputs."""
    generator, scale = np.random.default_rng(2), 40.0
    tails = NoiseTails(scale, 1e-2 / 2 / (50 * 51 + 2))
    failures = 0
    for _ in range(200):
        weights = noised(generator, counts, scale)
        channel = bins(weights, 5, 1.0)
        total = counts.sum() - tails.above(50)
        errors = output_distribution._Errors(tails, weights * total)
        for chances in channel.T:
            low, high = errors.expectations(chances, weights, int(counts.sum()))
            failures += not low <= counts @ chances / counts.sum() <= high
    assert failures == 0


def test_steps_add_up():
    generator = np.random.default_rng(3)
    for size in (1, 2, 30):
        values = generator.integers(0, 5, size).astype(float)
        total = np.zeros(size)
        for height, start, stop in output_distribution._steps(values):
            assert height > 0
            total[start:stop] += height
        np.testing.assert_allclose(total, values)


def found(observed, channel, weights, scale):
    return bool(check_distribution(observed, channel, weights, scale).wrong)


@pytest.fixture
def falling():
    """Counts, noised prior, scale and a channel of two outputs, for 100,000 records of 53 labels."""
    generator = np.random.default_rng(4)
    counts = np.floor(RECORDS * 0.0645 * 0.936 ** np.arange(53)).astype(int)
    counts[0] += RECORDS - counts.sum()
    scale = 2 / math.sqrt(53 / RECORDS)
    weights = noised(generator, counts, scale)
    return counts, weights, scale, bins(weights, 2, 1.0), generator


def test_what_is_found(falling):
    counts, weights, scale, channel, generator = falling
    bits = channel.argmax(axis=1)
    good = draw(generator, counts, channel)
    assert not found(good, channel, weights, scale)
    skewed = channel @ np.array([[1.0, 0.0], [0.15, 0.85]])  # another mechanism with the same outputs
    assert found(draw(generator, counts, skewed), channel, weights, scale)
    assert found(np.array([RECORDS, 0]), channel, weights, scale)
    assert found(np.array([0, RECORDS]), channel, weights, scale)
    # Labels of other data: all of them in the first bin.
    assert found(draw(generator, counts, channel[np.zeros(53, int)]), channel, weights, scale)
    assert set(bits) == {0, 1}


def test_raw_labels_are_found(falling):
    """With randomized response the labels are outputs too."""
    counts, weights, scale, _, generator = falling
    channel = response(53, 1.0)
    assert not found(draw(generator, counts, channel), channel, weights, scale)
    assert found(counts, channel, weights, scale)


def test_the_smallest_shift_that_is_found(falling):
    """docs/guides/auditing.md states it: with 100,000 records and 53 labels at epsilon 1, 3.2 % of the records."""
    _, weights, scale, channel, _ = falling
    share = RECORDS * float(weights @ channel[:, 0])

    def smallest(sign):
        for step in range(1, 100):
            first = round(share + sign * step / 1000 * RECORDS)
            if found(np.array([first, RECORDS - first]), channel, weights, scale):
                return step
        return None

    assert (smallest(1), smallest(-1)) == (32, 31)


def test_outputs_without_number_are_compared_in_cells():
    generator = np.random.default_rng(5)
    channel = generator.dirichlet(np.ones(1000), 20)
    counts = np.full(20, 5000)
    weights = noised(generator, counts, 100.0)
    observed = draw(generator, counts, channel)
    result = check_distribution(observed, channel, weights, 100.0)
    assert 100 < result.sets <= 256
    assert result.wrong == ()
    moved = observed.copy()
    moved[:250], moved[250] = 0, moved[250] + moved[:250].sum()
    assert len(check_distribution(moved, channel, weights, 100.0).wrong) > 10


def test_a_uniform_prior_of_few_records_says_nothing():
    channel, weights = response(4, 1.0), np.full(4, 0.25)
    assert check_distribution(np.array([50, 0, 0, 0]), channel, weights, 100.0).sets == 0
    assert check_distribution(np.array([50_000, 0, 0, 0]), channel, weights, 1.0).wrong


WIDTHS = np.array([5, 3, 2, 1, 1, 1, 1, 1, 2, 3, 5])


def cells_and_channel(generator, scale):
    """Residuals, their noised cells and a channel that clips the outer ones."""
    places = np.arange(25) - 12
    counts = np.floor(RECORDS * np.exp(-np.abs(places) / 3) / np.exp(-np.abs(places) / 3).sum()).astype(int)
    starts = np.cumsum(WIDTHS) - WIDTHS
    weights = noised(generator, np.add.reduceat(counts, starts), scale)
    return counts, weights, response(9, 1.0)[np.clip(places, -4, 4) + 4]


def test_a_correct_release_with_cells_of_several_labels_passes():
    """The cells are those of residuals; the records of a cell are spread unevenly, and rows within a cell differ."""
    generator = np.random.default_rng(3)
    for _ in range(50):
        counts, weights, channel = cells_and_channel(generator, 50.0)
        assert check_distribution(draw(generator, counts, channel), channel, weights, 50.0, widths=WIDTHS).wrong == ()


def test_labels_that_were_drawn_without_clipping_are_found_in_cells():
    generator = np.random.default_rng(4)
    counts, weights, channel = cells_and_channel(generator, 50.0)
    other = response(9, 1.0)[np.abs(np.arange(25) - 12) % 9]
    assert check_distribution(draw(generator, counts, other), channel, weights, 50.0, widths=WIDTHS).wrong


def test_bounds_of_cells_hold_for_every_spread_within_them():
    """All records of each cell at its first label, or all at its last one: the same cells, and both pass."""
    generator = np.random.default_rng(5)
    counts, weights, channel = cells_and_channel(generator, 50.0)
    starts = np.cumsum(WIDTHS) - WIDTHS
    sums = np.add.reduceat(counts, starts)
    for place in (starts, starts + WIDTHS - 1):
        spread = np.zeros(25, int)
        spread[place] = sums
        assert check_distribution(draw(generator, spread, channel), channel, weights, 50.0, widths=WIDTHS).wrong == ()


FAILURE = 1e-4


def probabilities(scale, most):
    values = np.arange(-most, most + 1)
    p = math.exp(-1 / scale)
    return values, (1 - p) / (1 + p) * p ** np.abs(values)


def sum_above(scale, kinds, bound):
    """P(sum > bound), exactly: one discrete Laplace draw for each floor; None: no floor, else max(z, -floor)."""
    most = math.ceil(40 * scale)
    values, chances = probabilities(scale, most)
    total, shift = np.ones(1), 0
    for floor in kinds:
        clipped = chances.copy()
        if floor is not None:
            low = values < -floor
            clipped[most - floor] += clipped[low].sum()
            clipped[low] = 0
        total, shift = np.convolve(total, clipped), shift - most
    return total[np.arange(len(total)) + shift > bound].sum()


@pytest.mark.parametrize("scale", [0.1, 0.7, 3.0, 12.5])
@pytest.mark.parametrize(
    "kinds", [[None], [None] * 12, [0], [0] * 12, [4] * 12, [None] * 5 + [0] * 7, [4] * 3 + [0] * 3], ids=str
)
def test_sums_stay_below_their_bound(scale, kinds):
    tails = NoiseTails(scale, FAILURE)
    floor = next((kind for kind in kinds if kind), None)
    bound = tails.above(len(kinds), kinds.count(0), floor)
    assert sum_above(scale, kinds, bound) <= FAILURE
    # Chernoff's bound loses a factor of the square root of the exponent or so, and the noise is whole numbers.
    if scale > 1:
        assert sum_above(scale, kinds, 0.6 * bound) > FAILURE


def test_no_draw_has_no_sum():
    assert NoiseTails(3.0, FAILURE).above(0) == 0


@pytest.mark.parametrize("scale", [0.1, 0.7, 3.0, 12.5])
@pytest.mark.parametrize("count", [1, 50, 5000])
def test_the_largest_of_several(scale, count):
    values, chances = probabilities(scale, math.ceil(60 * scale) + 60)
    limit = NoiseTails(scale, FAILURE).single(count)
    assert count * chances[np.abs(values) >= limit].sum() <= FAILURE


@pytest.mark.parametrize("scale", [0.7, 3.0, 12.5])
@pytest.mark.parametrize("count", [1, 2, 50, 5000])
def test_how_many_are_large(scale, count):
    tails = NoiseTails(scale, FAILURE)
    values, chances = probabilities(scale, math.ceil(60 * scale))
    chance, most = chances[values >= tails.large].sum(), tails.exceeding(count)
    # P(more than `most`) of a binomial distribution, from its largest term on.
    terms = [
        math.exp(
            math.lgamma(count + 1) - math.lgamma(j + 1) - math.lgamma(count - j + 1)
            + j * math.log(chance) + (count - j) * math.log1p(-chance)
        )
        for j in range(most + 1, min(count, most + 200) + 1)
    ]  # fmt: skip
    assert math.fsum(terms) <= FAILURE
    assert most <= max(5, 3 * count * chance)


def test_a_divergence_is_that_of_two_coins():
    assert divergence(0.5, 0.25) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert divergence(0.3, 0.3) == 0
    assert divergence(0.0, 0.5) == divergence(1.0, 0.5) == pytest.approx(math.log(2))
    assert divergence(0.1, 0.0) == divergence(0.9, 1.0) == math.inf
