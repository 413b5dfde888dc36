"""The distribution of the labels over their public domain, and its release under label DP.

Sources: Ghazi et al. 2022, Algorithm 3 (the noised histogram) and Algorithm 4 with Theorem 7 (the split of the
budget). The noise is discrete, so that the guarantee holds on a computer.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from .noise import ByteStream, discrete_laplace

MIN_EPSILON = 1e-9
MAX_EPSILON = 30.0
"""Outside these, 64-bit weights cannot hold the ratios with a useful precision."""

# The counts of two datasets that differ in one label differ by one in two cells.
_HISTOGRAM_SENSITIVITY = 2
_NORMALISED = 1e-12
# Splits are multiples of this, so that the noise's scale is a small fraction and sampling stays cheap.
_SPLIT_GRAIN = Fraction(1, 1 << 24)


def check_epsilon(epsilon: float) -> None:
    """Raises ValueError unless 1e-9 <= epsilon <= 30."""
    if not MIN_EPSILON <= epsilon <= MAX_EPSILON:
        raise ValueError(f"epsilon must be between {MIN_EPSILON:g} and {MAX_EPSILON:g}, not {epsilon:g}")


@dataclass(frozen=True, eq=False)
class Prior:
    """Probabilities of the labels of a public domain.

    labels: (k,) finite float64, strictly ascending. weights: (k,) float64 >= 0, summing to 1.
    """

    labels: np.ndarray
    weights: np.ndarray

    def __post_init__(self) -> None:
        """Normalises the weights. Raises ValueError for a bad domain, a negative weight or no positive one."""
        labels = np.array(self.labels, np.float64)
        weights = np.array(self.weights, np.float64)
        check_domain(labels)
        if weights.shape != labels.shape:
            raise ValueError(f"{len(labels)} labels need as many weights, not {weights.size}")
        if not np.all(np.isfinite(weights)) or np.min(weights) < 0:
            raise ValueError("weights must be finite and not negative")
        largest = np.max(weights)
        if largest <= 0:
            raise ValueError("at least one weight must be positive")
        # What is normalised already stays as it is, to the bit: priors are written to files and read again.
        if largest > 1 or abs(weights.sum() - 1) > _NORMALISED:
            weights = weights / largest
            weights /= weights.sum()
        labels.setflags(write=False)
        weights.setflags(write=False)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "weights", weights)

    @classmethod
    def from_counts(cls, labels: np.ndarray, counts: np.ndarray) -> Prior:
        """The prior of a noisy histogram: negative counts become 0; uniform when nothing is left."""
        clipped = np.maximum(np.asarray(counts, np.float64), 0.0)
        return cls(labels, clipped if clipped.any() else np.ones_like(clipped))

    @classmethod
    def from_text(cls, text: str) -> Prior:
        """A prior from a CSV of label,weight (a header line is allowed) or a JSON object.

        The JSON object holds `labels` and `weights`, or it is a mechanism file, whose noisy prior is taken.
        Raises ValueError, naming the line, when it is neither.
        """
        text = text.removeprefix("\ufeff")
        if text.lstrip().startswith("{"):
            return cls._from_json(text)
        pairs: dict[float, float] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip():
                continue
            try:
                label, weight = (float(cell) for cell in line.split(","))
            except ValueError:
                cells = line.split(",")
                if number == 1 and len(cells) == 2 and not any(map(_is_number, cells)):
                    continue
                raise ValueError(f"line {number} is not two numbers, label,weight") from None
            if label in pairs:
                raise ValueError(f"line {number} repeats a label")
            pairs[label] = weight
        if not pairs:
            raise ValueError("no line has a label and a weight")
        labels = sorted(pairs)
        return cls(np.array(labels), np.array([pairs[label] for label in labels]))

    @classmethod
    def _from_json(cls, text: str) -> Prior:
        try:
            document = json.loads(text)
            labels = document["labels"]
            weights = document["prior"]["weights"] if "prior" in document else document["weights"]
            return cls(np.array(labels, np.float64), np.array(weights, np.float64))
        except (KeyError, TypeError, json.JSONDecodeError):
            raise ValueError("a JSON prior is an object with the lists labels and weights") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def check_domain(labels: np.ndarray) -> None:
    """Raises ValueError unless labels is a (k,) array, k >= 1, of finite numbers in strictly ascending order."""
    if labels.ndim != 1 or labels.size == 0:
        raise ValueError("the label domain needs at least one label")
    if not np.all(np.isfinite(labels)):
        raise ValueError("labels of the domain must be finite")
    if np.any(labels[1:] <= labels[:-1]):
        raise ValueError("labels of the domain must be strictly ascending")


def label_grid(low: str, high: str, step: str) -> np.ndarray:
    """The domain low, low + step, ..., high, each label correctly rounded from exact arithmetic.

    The arguments are decimal strings, so that 0.1 is a tenth. Returns (k,) float64.
    Raises ValueError when low >= high, step <= 0, or step does not divide the range.
    """
    first, last, stride = _decimal("label_min", low), _decimal("label_max", high), _decimal("label_step", step)
    if first >= last:
        raise ValueError(f"label_min must be below label_max, but {low} >= {high}")
    if stride <= 0:
        raise ValueError(f"label_step must be positive, not {step}")
    steps = (last - first) / stride
    if steps.denominator != 1:
        raise ValueError(f"label_step {step} does not divide the range from {low} to {high}")
    if steps >= 1 << 20:
        raise ValueError(f"label_step {step} makes {int(steps) + 1} labels; at most {1 << 20} are allowed")
    try:
        labels = np.array([float(first + i * stride) for i in range(int(steps) + 1)])
    except OverflowError:
        raise ValueError(f"label_max {high} or label_min {low} is beyond floating point") from None
    check_domain(labels)
    return labels


def _decimal(name: str, text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{name} must be a number, not {text!r}") from None


def split_budget(epsilon: float, labels: int, records: int, prior_epsilon: float | None = None) -> tuple[float, float]:
    """What the histogram and the randomizer may spend: e1 = sqrt(k / n), never more than epsilon / 2.

    Ghazi et al. 2022, Theorem 7. labels: k. records: n. prior_epsilon: overrides e1.
    Returns (e1, e2), floats with e1 + e2 <= epsilon in exact arithmetic.
    Raises ValueError for no records, an epsilon out of range or too small to split, or a prior_epsilon that is not
    in (0, epsilon).
    """
    check_epsilon(epsilon)
    if records < 1:
        raise ValueError("there must be at least one record")
    if prior_epsilon is None:
        rule = min(Fraction(math.sqrt(labels / records)), Fraction(epsilon) / 2)
        grains = rule // _SPLIT_GRAIN
        first = grains * _SPLIT_GRAIN if grains else rule
    else:
        if not MIN_EPSILON <= prior_epsilon < epsilon:
            raise ValueError(
                f"prior_epsilon must be at least {MIN_EPSILON:g} and below epsilon {epsilon:g}, not {prior_epsilon:g}"
            )
        first = Fraction(prior_epsilon)
    second = Fraction(epsilon) - first
    if second < Fraction(MIN_EPSILON):
        raise ValueError(f"prior_epsilon {float(first):g} leaves too little of epsilon {epsilon:g} for the labels")
    return float(first), round_down(second)


def round_down(exact: Fraction) -> float:
    """The largest float that is not above exact."""
    nearest = float(exact)
    return math.nextafter(nearest, -math.inf) if Fraction(nearest) > exact else nearest


def round_up(exact: Fraction) -> float:
    """The smallest float that is not below exact."""
    return 0.0 - round_down(-exact)


def noisy_prior(labels: np.ndarray, counts: np.ndarray, prior_epsilon: float, noise_key: bytes) -> Prior:
    """The prior released from a histogram: discrete Laplace noise of scale 2 / e1 on each count, clip, normalise.

    Label DP with e1 for datasets of equal size that differ in one label: Ghazi et al. 2022, Algorithm 3.

    labels: (k,). counts: (k,) integers, how many records carry each label. prior_epsilon: e1 > 0.
    noise_key: 32 bytes; the same key and counts give the same prior. Raises ValueError for a bad prior_epsilon.
    """
    check_epsilon(prior_epsilon)
    stream = ByteStream(noise_key, b"prior")
    noise = discrete_laplace(stream, _HISTOGRAM_SENSITIVITY / Fraction(prior_epsilon), len(labels))
    return Prior.from_counts(labels, np.asarray(counts, np.int64) + noise)


def mean_variance(prior: Prior, records: int, prior_epsilon: float) -> float:
    """What the noise of a histogram does to the variance of its mean, at most: how well a release knows the mean.

    Each count is off by discrete Laplace noise of scale 2 / e1, whose variance is below twice the scale's square; to
    first order in the noise over n, clipping left out. prior_epsilon: e1 >= 0; infinite without noise.
    """
    if prior_epsilon == 0:
        return math.inf
    centred = prior.labels - prior.weights @ prior.labels
    return 2 * (2 / prior_epsilon) ** 2 * float(centred @ centred) / records**2
