"""Randomizer: for each label of a finite domain, integer weights over finitely many outputs; and its quality measures.

The weights of a label sum to exactly 2^62. So one 64-bit word draws an output exactly from an alias table (Walker 1977;
Vose 1991), without rejection and without floats, and a batch of draws is a few numpy gathers. A randomizer whose
certificate exceeds its epsilon cannot be constructed. Mechanisms are compared by expected losses, variance and bias.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from .budget import check_epsilon, satisfies_epsilon
from .certificate import Certificate, certify, check_row_sums, hockey_stick, likelihood_ratio
from .integer_weights import BITS, MAX_CELLS, TOTAL, AliasTable
from .label_grid import check_domain
from .losses import ABSOLUTE, SQUARED, Loss
from .prior import Prior
from .reproducible import dot

FORMAT = "labeldp-mechanism-1"
"""Format name and version in a mechanism file."""


class Randomizer:
    """Replaces label y by output c with probability weights[y, c] / 2^62, under label DP with `epsilon`.

    Attributes:
      labels: Shape (k,), float64, strictly ascending: the public domain.
      outputs: Shape (m,), float64, strictly ascending.
      weights: Shape (k, m), uint64; every row sums to exactly 2^62.
      epsilon: Requested bound, in [1e-9, 30]; `certificate().epsilon` is the proven one and is never larger.
      mechanism: Name of the mechanism that solved for it.
      parameters: Parameters of that mechanism.
      gap: Proven relative distance of its loss from the optimum; None if the solver has no proof.
      delta: 0 for pure label DP, otherwise the bound for (epsilon, delta)-label DP; `certificate().delta` is the proven
        one and is never larger.
      choice: JSON object that states why this mechanism was chosen (`Choice.to_document`); None where it was named.
    """

    choice: dict[str, Any] | None = None

    def __init__(
        self,
        labels: np.ndarray,
        outputs: np.ndarray,
        weights: np.ndarray,
        epsilon: float,
        mechanism: str,
        parameters: Mapping[str, Any] | None = None,
        gap: float | None = None,
        delta: float = 0.0,
    ):
        """Checks the weights against epsilon and delta by exact arithmetic, then stores the canonical form.

        Args:
          labels: Shape (k,), the public domain, strictly ascending.
          outputs: Shape (m,), finite, in any order. Equal outputs are merged and outputs of weight 0 are dropped;
            neither increases epsilon.
          weights: Shape (k, m), integers; every row sums to exactly 2^62.
          epsilon: Bound that the weights must satisfy, in [1e-9, 30].
          mechanism: Name of the mechanism, for the mechanism file.
          parameters: Its parameters, JSON values.
          gap: Proven relative distance from the optimum, if known.
          delta: Bound for (epsilon, delta)-label DP, in [0, 1); 0 for pure label DP.

        Raises:
          ValueError: If epsilon or delta is out of range, shapes disagree, a value is not finite, a row has another
            sum, there are too many labels times outputs, or the exact likelihood ratio is above exp(epsilon) (with a
            delta: the exact hockey-stick divergence is above delta).
        """
        check_epsilon(epsilon)
        if not 0 <= delta < 1:
            raise ValueError(f"delta must be at least 0 and below 1, not {delta!r}")
        labels, outputs = np.array(labels, np.float64), np.array(outputs, np.float64)
        weights = np.array(weights, np.uint64)
        check_domain(labels)
        if not np.all(np.isfinite(outputs)):
            raise ValueError("outputs must be finite")
        if weights.shape != (len(labels), len(outputs)):
            raise ValueError(f"weights have shape {weights.shape}, not {(len(labels), len(outputs))}")
        if weights.size > MAX_CELLS:
            raise ValueError(
                f"{len(labels)} labels times {len(outputs)} outputs is more than {MAX_CELLS}: use a larger label step"
            )
        check_row_sums(weights, BITS)
        self.labels = labels
        self.outputs, self.weights = _canonical(outputs, weights)
        self.epsilon = float(epsilon)
        self.mechanism = mechanism
        self.parameters = dict(parameters or {})
        self.gap = gap
        self.delta = float(delta)
        self._check_privacy()
        for array in (self.labels, self.outputs, self.weights):
            array.setflags(write=False)

    def _check_privacy(self) -> None:
        self._divergence = hockey_stick(self.weights, self.epsilon, BITS) if self.delta else None
        if self._divergence is None:
            ratio = likelihood_ratio(self.weights)
            if ratio is None or not satisfies_epsilon(ratio, self.epsilon):
                raise ValueError(
                    f"the weights do not satisfy epsilon {self.epsilon!r}: this randomizer cannot be built"
                )
        elif self._divergence > Fraction(self.delta):
            raise ValueError(
                f"the weights do not satisfy epsilon {self.epsilon!r} with delta {self.delta!r}: "
                "this randomizer cannot be built"
            )

    @property
    def pure(self) -> bool:
        """True for pure label DP, that is, if delta is 0."""
        return self.delta == 0

    def probabilities(self) -> np.ndarray:
        """Computes the probabilities for display and analysis; sampling uses the integers.

        Returns:
          Shape (k, m), float64: the weights divided by 2^62.
        """
        return self.weights / float(TOTAL)

    def certificate(self) -> Certificate:
        """Returns the exact certificate; it is computed once.

        Returns:
          The certificate, computed from the integer weights.
        """
        return self._certificate

    @cached_property
    def _certificate(self) -> Certificate:
        certificate = certify(self.labels, self.outputs, self.weights, BITS)
        if self._divergence is None:
            return certificate
        return dataclasses.replace(certificate, approximate=(self.epsilon, self._divergence))

    def bias(self) -> np.ndarray:
        """Computes the bias of each label from the exact certificate.

        Returns:
          Shape (k,), float64: E[M(y)] - y, in units of the label.
        """
        return np.array([float(bias) for bias in self._certificate.biases])

    def expected_loss(self, prior: Prior, loss: Loss) -> float:
        """Computes the mean of g(M(y), y) for labels y drawn from a prior.

        Args:
          prior: A prior over the same label domain; labels of weight 0 are ignored.
          loss: The loss g.

        Returns:
          The expected loss; infinite if the loss of a possible output is.

        Raises:
          ValueError: If the prior is over another domain, or the loss is not defined on it.
        """
        if not np.array_equal(prior.labels, self.labels):
            raise ValueError("the prior and the randomizer have different label domains")
        loss.check(self.labels)
        likely = prior.weights > 0
        losses = loss.value(self.outputs[None, :], self.labels[likely, None])
        # Outputs of weight 0 are left out, because their loss may be infinite.
        losses = np.where(self.weights[likely] > 0, losses, 0.0)
        return dot(prior.weights[likely], (self.probabilities()[likely] * losses).sum(axis=1))

    def sample(self, label_indices: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Draws one output per record, with exactly the certified probabilities if the words are uniform.

        Args:
          label_indices: Places of the labels in `labels`, shape (n,), integers in [0, k); not the labels themselves.
          words: Shape (n,), uint64; one word per record, never used for another record.

        Returns:
          Shape (n,), float64: the outputs.

        Raises:
          ValueError: If the indices are not integers in [0, k), or the words not as many words of 64 bits.
        """
        return self.outputs[self.draw(label_indices, words)]

    def draw(self, label_indices: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Draws one output per record, like `sample`.

        Args:
          label_indices: As for `sample`.
          words: As for `sample`.

        Returns:
          Places of the outputs in `outputs`, shape (n,), integers in [0, m).

        Raises:
          ValueError: As for `sample`.
        """
        size = len(self.labels)
        if label_indices.dtype.kind not in "iu" or (
            len(label_indices) and not (label_indices.min() >= 0 and label_indices.max() < size)
        ):
            raise ValueError(f"label_indices must be integers from 0 to {size - 1}, the places of labels in the domain")
        if words.dtype != np.uint64 or words.shape != label_indices.shape:
            raise ValueError("words must be one uint64 for each record")
        columns = (words >> self._alias.shift).astype(np.intp)
        cells = label_indices.astype(np.intp) * self._alias.width + columns
        keep = (words & self._alias.mask) < self._alias.thresholds[cells]
        return np.where(keep, columns, self._alias.aliases[cells])

    @cached_property
    def _alias(self) -> AliasTable:
        return AliasTable(self.weights)

    @cached_property
    def fingerprint(self) -> bytes:
        """BLAKE2b hash, 32 bytes, of the canonical JSON of the domain, the outputs and the weights."""
        rest = _canonical_json({"labels": self.labels.tolist(), "outputs": self.outputs.tolist()})
        canonical = f'{{"bits":{BITS},"columns":{self._columns},{rest[1:]}'
        return hashlib.blake2b(canonical.encode(), digest_size=32).digest()

    @cached_property
    def _columns(self) -> str:
        """The run-length encoded columns, as canonical JSON."""
        return _run_lengths(self.weights.T)

    def to_json(self, **extra: Any) -> str:
        """Serializes the randomizer as a mechanism file.

        Args:
          **extra: Further keys of the JSON object, for example the noisy prior.

        Returns:
          A JSON object with the run-length encoded integers, the certificate and the fingerprint.
        """
        document = {
            "format": FORMAT,
            "mechanism": self.mechanism,
            "parameters": self.parameters,
            "epsilon": self.epsilon,
            **({} if self.pure else {"delta": self.delta}),
            "bits": BITS,
            "labels": self.labels.tolist(),
            "outputs": self.outputs.tolist(),
        }
        rest = {
            "certificate": self._certificate.to_dict(),
            "gap": self.gap,
            **({} if self.choice is None else {"choice": self.choice}),
            "fingerprint": self.fingerprint.hex(),
            **extra,
        }
        # Columns, which are most of the text, are encoded once: json.dumps would put a space after each comma.
        columns = self._columns.replace(",", ", ")
        before, after = (json.dumps(part, allow_nan=False) for part in (document, rest))
        return f'{before[:-1]}, "columns": {columns}, {after[1:]}'

    @classmethod
    def from_json(cls, text: str) -> Randomizer:
        """Parses a mechanism file and recomputes its certificate from its integers.

        Args:
          text: The contents of a mechanism file.

        Returns:
          The randomizer.

        Raises:
          ValueError: If the text is not a mechanism file, its integers do not satisfy its epsilon and delta, or its
            fingerprint does not match.
        """
        try:
            document = json.loads(text)
            if document["format"] != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
            # It is computed again, from the weights.
            _ = document["certificate"]
            if document["bits"] != BITS:
                raise ValueError(f"its weights do not have {BITS} bits, all that this version reads")
            labels = np.array(document["labels"], np.float64)
            outputs = np.array(document["outputs"], np.float64)
            if labels.size * outputs.size > MAX_CELLS:
                raise ValueError(f"{labels.size} labels times {outputs.size} outputs is more than {MAX_CELLS}")
            if len(document["columns"]) != len(outputs):
                raise ValueError(f"{len(outputs)} outputs need as many columns, not {len(document['columns'])}")
            randomizer = cls(
                labels,
                outputs,
                _expand(document["columns"], len(labels)),
                document["epsilon"],
                document["mechanism"],
                {**document["parameters"]},
                document["gap"],
                document.get("delta", 0.0),
            )
            randomizer.choice = document.get("choice")
            fingerprint = document["fingerprint"]
        except (KeyError, TypeError, IndexError, OverflowError, RecursionError) as error:
            missing = f": {error} is missing" if type(error) is KeyError else f" ({type(error).__name__})"
            raise ValueError(f"not a mechanism file{missing}") from None
        if randomizer.fingerprint.hex() != fingerprint:
            raise ValueError("the fingerprint does not match the weights: the file was changed or is corrupt")
        return randomizer

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles have the compact JSON form; alias tables are rebuilt on each worker.
        return Randomizer.from_json, (self.to_json(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Randomizer) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return (
            f"Randomizer({self.mechanism}, {len(self.labels)} labels, {len(self.outputs)} outputs, "
            f"epsilon {self._certificate.epsilon:.6g})"
        )


@dataclass(frozen=True)
class Quality:
    """Quality measures of a randomizer, in units of the label or their square.

    Expectations are over labels y drawn from a prior and over the outputs M(y) of the randomizer.

    Attributes:
      epsilon: Certified epsilon.
      delta: Certified delta; 0 for pure label DP.
      outputs: Number of outputs.
      squared_error: E (M(y) - y)^2.
      absolute_error: E |M(y) - y|.
      loss: Expected value of the given loss; infinite if the loss of a possible output is.
      max_variance: Largest Var(M(y)) over all labels of the domain.
      max_bias: Largest |E[M(y)] - y| over all labels of the domain, rounded up.
      gap: Proven relative distance of the randomizer's own objective from its optimum; None without a proof.
    """

    epsilon: float
    delta: float
    outputs: int
    squared_error: float
    absolute_error: float
    loss: float
    max_variance: float
    max_bias: float
    gap: float | None


def quality(randomizer: Randomizer, prior: Prior, loss: Loss = SQUARED) -> Quality:
    """Computes the quality measures of a randomizer under a prior.

    Args:
      randomizer: The randomizer.
      prior: Distribution of the labels, over the same domain.
      loss: Loss of the field `loss`.

    Returns:
      The measures.

    Raises:
      ValueError: If the prior is over another domain, or the loss is not defined on it.
    """
    certificate = randomizer.certificate()
    return Quality(
        epsilon=certificate.epsilon,
        delta=certificate.delta,
        outputs=len(randomizer.outputs),
        squared_error=randomizer.expected_loss(prior, SQUARED),
        absolute_error=randomizer.expected_loss(prior, ABSOLUTE),
        loss=randomizer.expected_loss(prior, loss),
        max_variance=float(variances(randomizer).max()),
        max_bias=certificate.max_bias,
        gap=randomizer.gap,
    )


def variances(randomizer: Randomizer) -> np.ndarray:
    """Var(M(y)) for every label y, in squared units of the label; shape (k,), float64."""
    means = randomizer.labels + randomizer.bias()
    return (randomizer.probabilities() * (randomizer.outputs - means[:, None]) ** 2).sum(axis=1)


def label_variance(prior: Prior) -> float:
    """Variance of the labels: the expected squared loss of the best constant, which reveals nothing of them."""
    return dot(prior.weights, (prior.labels - dot(prior.weights, prior.labels)) ** 2)


def _canonical(outputs: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorts the outputs, merges equal ones and drops those of weight 0."""
    distinct, place = np.unique(outputs + 0.0, return_inverse=True)
    merged = np.zeros((len(weights), len(distinct)), np.uint64)
    np.add.at(merged.T, place.ravel(), weights.T)
    possible = merged.any(axis=0)
    return distinct[possible], np.ascontiguousarray(merged[:, possible])


def _run_lengths(columns: np.ndarray) -> str:
    """JSON arrays, without spaces, of the runs of each column: a weight, as text, and its number of labels.

    Columns have shape (m, k), uint64.
    """
    first = np.ones(columns.shape, bool)
    np.not_equal(columns[:, 1:], columns[:, :-1], out=first[:, 1:])
    lengths = np.diff(np.append(np.flatnonzero(first), first.size))
    runs = [f'["{w}",{n}]' for w, n in zip(columns[first].tolist(), lengths.tolist(), strict=True)]
    ends = np.cumsum(np.count_nonzero(first, axis=1)).tolist()
    return "[" + ",".join([f"[{','.join(runs[start:end])}]" for start, end in pairwise([0, *ends])]) + "]"


def _expand(columns: list[list[list[Any]]], labels: int) -> np.ndarray:
    """Weights, shape (labels, len(columns)), of run-length encoded columns of a file."""
    runs = [run for column in columns for run in column]
    integers = [int(weight) for weight, _ in runs]
    if min(integers) < 0:
        raise ValueError("weights must not be negative")
    lengths = np.array([length for _, length in runs], np.int64)
    ends = np.cumsum([len(column) for column in columns])
    if (
        lengths.min() < 1
        or lengths.max() > labels
        or np.any(np.append(0, lengths.cumsum())[ends] != labels * np.arange(1, len(columns) + 1))
    ):
        raise ValueError("the run lengths of a column do not sum to the number of labels")
    return np.repeat(np.array(integers, np.uint64), lengths).reshape(len(columns), labels).T


def _canonical_json(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def solved_randomizer(solved: Randomizer | None) -> Randomizer:
    """The randomizer of labels. Raises ValueError if there is none: classes are drawn from a center."""
    if solved is None:
        raise ValueError("classes that are drawn from a center have no randomizer")
    return solved
