"""RR-on-Bins: the paper's example, and optimality among all epsilon-DP mechanisms by linear programming.

The interval costs are compared with direct minimization in rational or 50-digit arithmetic, and the dynamic program
with an enumeration of all partitions.
"""

import itertools
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from labeldp.mechanisms import ABSOLUTE, LOSSES, POISSON, SQUARED, Loss, Prior, solve
from labeldp.mechanisms.core.reproducible import log
from labeldp.mechanisms.response.rr_on_bins import MAX_LABELS, RROnBins, best_partition, interval_costs
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack, identity, kron, vstack

LOSS = pytest.mark.parametrize("loss", LOSSES.values(), ids=list(LOSSES))


def random_prior(rng: np.random.Generator, most: int) -> Prior:
    """2 to `most` labels >= 0, evenly spaced or not, with ties and zero masses among the weights."""
    k = int(rng.integers(2, most + 1))
    labels = np.cumsum(rng.choice([0.25, 1.0, 4.0], k)) if rng.random() < 0.5 else np.arange(1.0, k + 1)
    labels = labels - labels[0] * rng.integers(0, 2)
    weights = [rng.random(k), rng.integers(0, 3, k).astype(float), 10 ** rng.uniform(-6, 0, k)][rng.integers(3)]
    weights[rng.integers(k)] += 0.1
    return Prior(labels, weights)


def random_epsilon(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


# Example of the paper.


def test_the_example_of_the_papers():
    """Badanidiyuru et al. 2023, Table 1 and the text below it.

    The joint law of the feature (a or b) and the label (0, 1, 2) is .35 .1 .05 and .25 .15 .1. With E = exp(0.5), the
    bins {0} and {1, 2} report their own output with probability E / (E + 1). The best predictor of the noisy label
    from the feature is its conditional mean: sum over y of P(y | feature) E[M(y)].
    """
    joint = np.array([[0.35, 0.1, 0.05], [0.25, 0.15, 0.1]])
    prior = Prior(np.arange(3.0), joint.sum(axis=0))
    randomizer = RROnBins(SQUARED).solve(prior, 0.5)
    np.testing.assert_allclose(randomizer.outputs, [0.3959, 0.7200], atol=5e-5)
    own = math.exp(0.5) / (math.exp(0.5) + 1)
    np.testing.assert_allclose(randomizer.probabilities(), [[own, 1 - own], [1 - own, own], [1 - own, own]], rtol=1e-15)
    assert randomizer.expected_loss(prior, SQUARED) == pytest.approx(0.52131, abs=5e-6)
    noisy_mean = randomizer.probabilities() @ randomizer.outputs
    predictors = joint @ noisy_mean / joint.sum(axis=1)
    np.testing.assert_allclose(predictors, [0.542, 0.558], atol=5e-4)
    # Expected outputs: the weighted mean label, in which the labels of the output's own bin weigh E times as much.
    ratio = math.exp(0.5)
    by_hand = [0.55 / (0.6 * ratio + 0.4), 0.55 * ratio / (0.6 + 0.4 * ratio)]
    np.testing.assert_allclose(randomizer.outputs, by_hand, rtol=1e-14)


# Optimality.


def interval_optima(prior: Prior, epsilon: float, loss: Loss) -> list[float]:
    """Computes the best output of every interval of labels directly from the definition."""
    found = []
    for r, i in itertools.combinations(range(len(prior.labels) + 1), 2):
        weights = prior.weights.copy()
        weights[r:i] *= math.exp(epsilon)
        if loss.mean_optimal:
            found.append(float(weights @ prior.labels / weights.sum()))
        else:
            found.append(float(prior.labels[np.searchsorted(np.cumsum(weights), weights.sum() / 2)]))
    return found


def least_loss_of_any_mechanism(prior: Prior, epsilon: float, loss: Loss, outputs: np.ndarray) -> float:
    """Computes a lower bound on the loss of all epsilon-DP mechanisms with these outputs, tight up to rounding.

    The linear program has the probabilities M[y, c] and floors q_c, with q_c <= M[y, c] <= E q_c and rows that sum to
    1. Solvers satisfy rows only to a tolerance, so the bound is computed from the dual values u of the rows: by
    duality, the loss of a mechanism is at least sum(u) + sum over c of q_c s_c, where s_c = sum over y of the reduced
    cost of M[y, c] times 1 or E, whichever product is less; and the q_c add up to at most 1.
    """
    k, n, ratio = len(prior.labels), len(outputs), math.exp(epsilon)
    likely = prior.weights > 0
    costs = np.zeros((k, n))
    costs[likely] = prior.weights[likely, None] * loss.value(outputs[None, :], prior.labels[likely, None])
    usable = np.isfinite(costs).all(axis=0)
    costs, n = costs[:, usable], int(usable.sum())
    per_cell, per_output = identity(k * n, format="csr"), kron(np.ones((k, 1)), identity(n), format="csr")
    upper = vstack([hstack([-per_cell, per_output]), hstack([per_cell, -ratio * per_output])])
    sums = hstack([kron(identity(k), np.ones((1, n))), csr_array((k, n))])
    # Costs are scaled up to 10,000, so that the solver's absolute tolerance on dual values is a relative 1e-14.
    unit = (np.abs(costs).max() or 1.0) / 1e4
    found = linprog(
        np.append(costs.ravel() / unit, np.zeros(n)),
        A_ub=upper.tocsr(),
        b_ub=np.zeros(2 * k * n),
        A_eq=sums.tocsr(),
        b_eq=np.ones(k),
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert found.status == 0, found.message
    prices = found.eqlin.marginals * unit
    reduced = costs - prices[:, None]
    slack = np.where(reduced < 0, ratio * reduced, reduced).sum(axis=0)
    bound = float(prices.sum() + min(slack.min(), 0.0))
    assert bound == pytest.approx(found.fun * unit, rel=1e-7, abs=1e-3 * unit)
    return bound


@pytest.mark.parametrize("seed", range(10))
@LOSS
def test_no_mechanism_has_a_smaller_expected_loss(loss, seed):
    """Tests ten priors per seed. The linear program may use the solver's outputs, all interval optima and a grid."""
    rng = np.random.default_rng([seed, list(LOSSES).index(loss.name)])
    for _ in range(10):
        prior, epsilon = random_prior(rng, 7), random_epsilon(rng, 0.05, 6)
        randomizer = RROnBins(loss).solve(prior, epsilon)
        found = randomizer.expected_loss(prior, loss)
        grid = np.linspace(prior.labels[0], prior.labels[-1], 30)
        outputs = np.unique(np.concatenate([randomizer.outputs, interval_optima(prior, epsilon, loss), grid]))
        least = least_loss_of_any_mechanism(prior, epsilon, loss, outputs)
        likely = prior.weights > 0
        largest = np.abs(loss.value(prior.labels[likely], prior.labels[likely])).max()
        scale = max(1.0, float(largest), abs(found))
        assert found <= least + 1e-9 * scale, (prior, epsilon)
        # The bound also applies to the solver's own mechanism.
        assert found >= least - 1e-9 * scale, (prior, epsilon)


@LOSS
def test_labels_without_mass_at_the_ends_are_handled(loss):
    for weights in ([0, 0.5, 0.5], [0.5, 0.5, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]):
        for first in (0.0, 1.0):
            prior = Prior(np.arange(3.0) + first, np.array(weights))
            randomizer = RROnBins(loss).solve(prior, 1.0)
            outputs = np.append(randomizer.outputs, interval_optima(prior, 1.0, loss))
            least = least_loss_of_any_mechanism(prior, 1.0, loss, np.unique(outputs))
            assert randomizer.expected_loss(prior, loss) == pytest.approx(least, abs=1e-9)


@LOSS
def test_bins_are_intervals_with_ascending_outputs(loss):
    rng = np.random.default_rng(11)
    for _ in range(30):
        prior, epsilon = random_prior(rng, 60), random_epsilon(rng, 0.05, 10)
        randomizer = RROnBins(loss).solve(prior, epsilon)
        own = randomizer.weights.argmax(axis=1)
        assert np.all(np.diff(own) >= 0)
        assert set(own.tolist()) == set(range(len(randomizer.outputs)))
        assert np.all(np.diff(randomizer.outputs) > 0)
        assert prior.labels[0] <= randomizer.outputs[0] <= randomizer.outputs[-1] <= prior.labels[-1]


# Interval costs.


def total(terms: Iterable[Fraction]) -> Fraction:
    return sum(terms, Fraction(0))


def logarithm(x: Fraction) -> Fraction:
    """Returns ln x to 50 digits, and 0 for x = 0, where every use multiplies it by 0."""
    with localcontext(Context(prec=50)):
        return Fraction((Decimal(x.numerator) / Decimal(x.denominator)).ln()) if x else Fraction(0)


def weighted_divergences(prior: Prior, ratio: Fraction, loss: Loss, r: int, i: int) -> Fraction:
    """Computes the least weighted divergence from its definition, exactly except for 50-digit logarithms (Poisson)."""
    inside = [ratio if r <= y <= i else Fraction(1) for y in range(len(prior.labels))]
    weights = [factor * Fraction(weight) for factor, weight in zip(inside, prior.weights.tolist(), strict=True)]
    pairs = [(weight, Fraction(y)) for weight, y in zip(weights, prior.labels.tolist(), strict=True) if weight]
    mean = total(weight * y for weight, y in pairs) / total(weight for weight, _ in pairs)
    if loss is SQUARED:
        return total(weight * (mean - y) ** 2 for weight, y in pairs)
    if loss is ABSOLUTE:
        return min(total(weight * abs(t - y) for weight, y in pairs) for _, t in pairs)
    return total(weight * (y * (logarithm(y) - logarithm(mean)) - y + mean) for weight, y in pairs)


def cost_unit(prior: Prior, loss: Loss) -> Fraction:
    """Unit of the interval costs: those of squared and absolute loss refer to labels scaled to [0, 1]."""
    spread = Fraction(prior.labels[-1]) - Fraction(prior.labels[0])
    return {"squared": spread**2, "absolute": spread, "poisson": Fraction(1)}[loss.name]


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 6.0, 20.0, 30.0])
@LOSS
def test_interval_costs_agree_with_direct_minimisation(loss, epsilon):
    rng = np.random.default_rng(7)
    ratio = Fraction(float(np.exp(epsilon)))
    for _ in range(6):
        prior = random_prior(rng, 7)
        costs = interval_costs(prior, epsilon, loss)
        assert np.all(np.isinf(costs[np.triu_indices(len(costs), 1)]))
        for r, i in itertools.combinations_with_replacement(range(len(costs)), 2):
            expected = float(weighted_divergences(prior, ratio, loss, r, i) / cost_unit(prior, loss))
            assert costs[i, r] == pytest.approx(expected, rel=1e-12, abs=1e-15)


@LOSS
def test_a_single_label_costs_what_lies_outside_it_even_at_a_large_epsilon(loss):
    """If the output is the label itself, its term of weight exp(20) is 0 and must not cost the others precision."""
    rng = np.random.default_rng(2)
    for _ in range(10):
        prior = Prior(np.arange(2.0, 9.0), rng.random(7) + 0.1)
        costs = interval_costs(prior, 20.0, loss)
        unit = float(cost_unit(prior, loss))
        for r, label in enumerate(prior.labels):
            outside = float(prior.weights @ loss.divergence(np.full(7, label), prior.labels)) / unit
            # The best output is about exp(-20) from the label, which changes the cost by about exp(-20) relative.
            assert costs[r, r] == pytest.approx(outside, rel=1e-6)
            assert costs[r, r] <= outside * (1 + 1e-13)
            exact = float(weighted_divergences(prior, Fraction(float(np.exp(20.0))), loss, r, r)) / unit
            assert costs[r, r] == pytest.approx(exact, rel=1e-13)


# Partitions.


def partition_value(costs: np.ndarray, starts: tuple[int, ...] | np.ndarray, ratio: float) -> float:
    ends = [*(start - 1 for start in starts[1:]), len(costs) - 1]
    return math.fsum(costs[i, r] for r, i in zip(starts, ends, strict=True)) / (len(starts) - 1 + ratio)


def best_of_all_partitions(costs: np.ndarray, ratio: float) -> float:
    inner = range(1, len(costs))
    return min(
        partition_value(costs, (0, *starts), ratio)
        for size in range(len(costs))
        for starts in itertools.combinations(inner, size)
    )


def spiky_priors(rng: np.random.Generator, k: int) -> list[Prior]:
    """Priors whose best loss first grows and then falls with the number of bins."""
    labels = np.arange(1.0, k + 1)
    spikes = np.full(k, 1e-9)
    spikes[:: max(k // 4, 2)] = 1.0
    return [
        Prior(labels, spikes),
        Prior(labels, np.where(np.arange(k) % 2, 1.0, 1e-12)),
        Prior(labels, 2.0 ** -np.arange(k)),
        Prior(2.0 ** np.arange(k), 4.0 ** -np.arange(k)),
        Prior(labels**2, np.where(np.arange(k) < k // 2, 1e-6, 1.0)),
        Prior(labels, 10 ** rng.uniform(-9, 0, k)),
        Prior(np.cumsum(10 ** rng.uniform(-3, 1, k)), 10 ** rng.uniform(-3, 0, k)),
    ]


@LOSS
def test_stopping_early_misses_no_partition(loss):
    rng = np.random.default_rng(1)
    priors = [random_prior(rng, 8) for _ in range(15)] + [prior for k in (3, 8) for prior in spiky_priors(rng, k)]
    for prior in priors:
        for epsilon in (0.05, 0.7, 2.0, 5.0, 9.0):
            costs, ratio = interval_costs(prior, epsilon, loss), float(np.exp(epsilon))
            starts = best_partition(costs, epsilon)
            assert starts[0] == 0
            assert np.all(np.diff(starts) > 0)
            assert partition_value(costs, starts, ratio) == pytest.approx(
                best_of_all_partitions(costs, ratio), rel=1e-13, abs=1e-300
            )


def test_stopping_early_misses_no_partition_of_any_growing_costs():
    """The stopping rule assumes only that costs grow with the interval, so random costs of that kind are tested."""
    rng = np.random.default_rng(4)
    for _ in range(150):
        k = int(rng.integers(1, 9))
        costs = np.full((k, k), np.inf)
        power = rng.choice([1, 4, 16])
        for length in range(k):
            for r in range(k - length):
                i = r + length
                inner = max(costs[i, r + 1], costs[i - 1, r]) if length else 0.0
                costs[i, r] = inner + rng.random() ** power * rng.integers(0, 2)
        epsilon = random_epsilon(rng, 0.01, 8)
        ratio = float(np.exp(epsilon))
        found = partition_value(costs, best_partition(costs, epsilon), ratio)
        assert found == pytest.approx(best_of_all_partitions(costs, ratio), rel=1e-13, abs=1e-300)


# Small domains, refused input, large domains.


def test_two_labels_by_hand():
    ratio = math.exp(2.0)
    randomizer = RROnBins().solve(Prior(np.array([0.0, 1.0]), np.array([0.5, 0.5])), 2.0)
    np.testing.assert_allclose(randomizer.outputs, [1 / (ratio + 1), ratio / (ratio + 1)], rtol=1e-14)
    own = ratio / (ratio + 1)
    np.testing.assert_allclose(randomizer.probabilities(), [[own, 1 - own], [1 - own, own]], rtol=1e-15)
    # The weighted median of two labels is the one with more weight.
    assert RROnBins(ABSOLUTE).solve(Prior(np.array([0.0, 1.0]), np.ones(2)), 2.0).outputs.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
@pytest.mark.parametrize("tiny", [1e-9, 1e-13, 1e-15, 1e-20])
def test_poisson_outputs_near_zero_are_precise(tiny, epsilon):
    """A relative error in an output near zero increases the Poisson loss; an output of 0 makes it infinite."""
    labels = np.array([0.0, 0.3, 1.0])
    prior = Prior(labels, np.array([1.0, tiny, tiny]))
    randomizer = RROnBins(POISSON).solve(prior, epsilon)
    ratio = Fraction(float(np.exp(epsilon)))
    own = randomizer.weights.argmax(axis=1)
    for column, output in enumerate(randomizer.outputs):
        weights = [
            Fraction(weight) * (ratio if place == column else 1)
            for weight, place in zip(prior.weights, own, strict=True)
        ]
        moment = sum(weight * Fraction(label) for weight, label in zip(weights, labels, strict=True))
        assert output == pytest.approx(float(moment / sum(weights)), rel=1e-12, abs=0)


def test_labels_that_differ_by_less_than_the_range_can_show_are_solved():
    """Any ascending floats are a valid domain; scaling to [0, 1] must not merge two labels."""
    prior = Prior(np.array([-1.0, 0.0, 1e-17]), np.ones(3))
    for loss in (SQUARED, ABSOLUTE):
        found = RROnBins(loss).solve(prior, 1.0).expected_loss(prior, loss)
        pair = Prior(np.array([-1.0, 0.0]), np.array([1.0, 2.0]))
        assert found == pytest.approx(RROnBins(loss).solve(pair, 1.0).expected_loss(pair, loss), rel=1e-9)


def test_refusals():
    prior = Prior(np.arange(3.0), np.ones(3))
    for epsilon in (0.0, -1.0, 31.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="epsilon must be between"):
            RROnBins().solve(prior, epsilon)
    with pytest.raises(ValueError, match="poisson loss needs labels >= 0"):
        RROnBins(POISSON).solve(Prior(np.array([-1.0, 1.0]), np.ones(2)), 1.0)
    with pytest.raises(ValueError, match="16385 labels; at most 16384"):
        RROnBins().solve(Prior(np.arange(MAX_LABELS + 1.0), np.ones(MAX_LABELS + 1)), 1.0)


def test_it_says_what_solved_it():
    randomizer = solve("rr_on_bins", Prior(np.arange(3.0), np.ones(3)), 1.0, loss="poisson")
    assert (randomizer.mechanism, randomizer.parameters, randomizer.epsilon) == ("rr_on_bins", {"loss": "poisson"}, 1.0)


def processor_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@LOSS
def test_401_labels_take_little_more_than_their_costs(loss, epsilon):
    """Measured against logarithms of as many numbers as 5 matrices of labels and labels have: 0.4 to 3 times as long.

    The logarithms are those of the losses, a row at a time: whole matrices take up to six times as long where the
    memory allocator returns their pages to the system in between, and those of numpy depend on the processor.
    """
    prior = Prior(np.arange(401.0), np.random.default_rng(0).random(401))
    solver, rows = RROnBins(loss), np.random.default_rng(0).random((401, 401))
    reference = min(processor_seconds(lambda: [log(row) for _ in range(5) for row in rows]) for _ in range(3))
    assert min(processor_seconds(lambda: solver.solve(prior, epsilon)) for _ in range(3)) < 6 * reference


LARGE = """
import json, re, resource, sys, time
import numpy as np
from labeldp.mechanisms import SQUARED, Prior, solve

prior = Prior(np.arange(5000.0), np.random.default_rng(0).random(5000))
seconds, losses = [], []
for epsilon in (1.0, 8.0):
    start = time.process_time()
    randomizer = solve("rr_on_bins", prior, epsilon)
    seconds.append(time.process_time() - start)
    losses.append(randomizer.expected_loss(prior, SQUARED))
if sys.platform == "linux":
    # The usage of a process that was forked counts the peak of its parent, here of all tests before.
    peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": seconds, "losses": losses, "peak": peak}))
"""


def test_5000_labels_are_solved_within_half_a_minute_and_two_gigabytes():
    found = json.loads(subprocess.run([sys.executable, "-c", LARGE], capture_output=True, check=True).stdout)
    assert max(found["seconds"]) < 30
    assert found["peak"] < 2e9
    # A finer grid over the same range has about the same loss.
    coarse = Prior(np.arange(24.5, 5000, 50), np.ones(100))
    for epsilon, loss in zip((1.0, 8.0), found["losses"], strict=True):
        assert loss == pytest.approx(RROnBins().solve(coarse, epsilon).expected_loss(coarse, SQUARED), rel=0.05)
