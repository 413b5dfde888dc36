"""A randomizer: for every label of a finite domain, integer weights over finitely many outputs.

The weights of a label sum to exactly 2^62, so one 64-bit word draws an output exactly, with no rejection and no
float, from an alias table (Walker 1977; Vose 1991), and a batch of draws is a few numpy gathers. A randomizer whose
certificate exceeds the epsilon that it was built for cannot be built.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from .alias_table import BITS, MAX_CELLS, TOTAL, AliasTable
from .budget import check_epsilon
from .certificate import Certificate, certify, check_row_sums, hockey_stick, likelihood_ratio
from .exact_bounds import within
from .label_grid import check_domain
from .losses import Loss
from .prior import Prior

FORMAT = "labeldp-mechanism-1"


class Randomizer:
    """Replaces label y by output c with probability weights[y, c] / 2^62, under label DP with `epsilon`.

    labels: (k,) float64, strictly ascending, the public domain. outputs: (m,) float64, strictly ascending.
    weights: (k, m) uint64. epsilon: the bound it was built for, in (0, 30]; `certificate().epsilon` is what the
    integers prove, and is never more. mechanism, parameters: what solved it. gap: the proven relative distance of
    its loss from the optimum, where the solver has a proof; None elsewhere. delta: 0 for pure label DP, else the
    bound for (epsilon, delta)-label DP; `certificate().delta` is what the integers prove.
    """

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
        """Outputs need not be sorted: equal ones are merged and impossible ones dropped, which keeps the epsilon.

        Raises ValueError when shapes disagree, a value is not finite, a row does not sum to exactly 2^62, or the
        weights' exact likelihood ratio is above exp(epsilon) or, with a delta, their exact hockey-stick divergence is
        above it.
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
            if ratio is None or not within(ratio, self.epsilon):
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
        """Whether epsilon holds by itself, without a delta."""
        return self.delta == 0

    def probabilities(self) -> np.ndarray:
        """(k, m) float64: the integers divided, for people; sampling uses the integers."""
        return self.weights / float(TOTAL)

    def certificate(self) -> Certificate:
        """The exact facts of this randomizer. Computed once."""
        return self._certificate

    @cached_property
    def _certificate(self) -> Certificate:
        certificate = certify(self.labels, self.outputs, self.weights, BITS)
        if self._divergence is None:
            return certificate
        return dataclasses.replace(certificate, approximate=(self.epsilon, self._divergence))

    def bias(self) -> np.ndarray:
        """(k,) float64: E[M(y)] - y for every label, from the exact certificate."""
        return np.array([float(bias) for bias in self._certificate.biases])

    def expected_loss(self, prior: Prior, loss: Loss) -> float:
        """The mean of g(M(y), y) for y drawn from the prior. Labels of no mass do not count.

        Raises ValueError when the prior is over another domain, or the loss is not defined on it.
        """
        if not np.array_equal(prior.labels, self.labels):
            raise ValueError("the prior and the randomizer have different label domains")
        loss.check(self.labels)
        likely = prior.weights > 0
        losses = loss.value(self.outputs[None, :], self.labels[likely, None])
        # What cannot come out costs nothing, even where the loss would be infinite.
        losses = np.where(self.weights[likely] > 0, losses, 0.0)
        return float(prior.weights[likely] @ (self.probabilities()[likely] * losses).sum(axis=1))

    def sample(self, label_indices: np.ndarray, words: np.ndarray) -> np.ndarray:
        """The output of each record, exactly distributed when its word is uniform.

        label_indices: (n,) integers in [0, k). words: (n,) uint64, one per record, never used for another.
        Returns (n,) float64.
        """
        columns = (words >> self._alias.shift).astype(np.intp)
        cells = label_indices.astype(np.intp) * self._alias.width + columns
        keep = (words & self._alias.mask) < self._alias.thresholds[cells]
        return self.outputs[np.where(keep, columns, self._alias.aliases[cells])]

    @cached_property
    def _alias(self) -> AliasTable:
        return AliasTable(self.weights)

    @cached_property
    def fingerprint(self) -> bytes:
        """32 bytes that identify the domain, the outputs and the weights: BLAKE2b of their canonical JSON."""
        return hashlib.blake2b(_canonical_json(self._essence()).encode(), digest_size=32).digest()

    def _essence(self) -> dict[str, Any]:
        return {
            "bits": BITS,
            "labels": self.labels.tolist(),
            "outputs": self.outputs.tolist(),
            "columns": [_run_lengths(column) for column in self.weights.T],
        }

    def to_json(self, **extra: Any) -> str:
        """The mechanism file: the integers in run-length form, the certificate, the fingerprint, and extra keys."""
        return json.dumps(
            {
                "format": FORMAT,
                "mechanism": self.mechanism,
                "parameters": self.parameters,
                "epsilon": self.epsilon,
                **({} if self.pure else {"delta": self.delta}),
                **self._essence(),
                "certificate": self._certificate.to_dict(),
                "gap": self.gap,
                "fingerprint": self.fingerprint.hex(),
                **extra,
            },
            allow_nan=False,
        )

    @classmethod
    def from_json(cls, text: str) -> Randomizer:
        """The randomizer of a mechanism file, certified anew from its integers.

        Raises ValueError when the text is not a mechanism file, its integers do not hold its epsilon and delta, or its
        fingerprint is another's.
        """
        try:
            document = json.loads(text)
            if document["format"] != FORMAT:
                raise ValueError(f"format {document['format']!r} is not {FORMAT!r}")
            if document["bits"] != BITS:
                raise ValueError(f"weights of {document['bits']} bits; this version reads {BITS}")
            labels = np.array(document["labels"], np.float64)
            outputs = np.array(document["outputs"], np.float64)
            if labels.size * outputs.size > MAX_CELLS:
                raise ValueError("more labels times outputs than a worker holds")
            if len(document["columns"]) != len(outputs):
                raise ValueError(f"{len(outputs)} outputs need as many columns, not {len(document['columns'])}")
            weights = np.empty((len(labels), len(outputs)), np.uint64)
            for column, runs in enumerate(document["columns"]):
                weights[:, column] = _expand(runs, len(labels))
            randomizer = cls(
                labels,
                outputs,
                weights,
                document["epsilon"],
                document["mechanism"],
                document["parameters"],
                document.get("gap"),
                document.get("delta", 0.0),
            )
            fingerprint = document["fingerprint"]
        except (KeyError, TypeError, IndexError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a mechanism file ({type(error).__name__})") from None
        if randomizer.fingerprint.hex() != fingerprint:
            raise ValueError("the fingerprint does not match the weights: the file was changed or damaged")
        return randomizer

    def __reduce__(self) -> tuple[Any, ...]:
        # The compact form travels; alias tables are rebuilt where they are used.
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


def _canonical(outputs: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ascending outputs, equal ones merged, impossible ones dropped."""
    distinct, place = np.unique(outputs + 0.0, return_inverse=True)
    merged = np.zeros((len(weights), len(distinct)), np.uint64)
    np.add.at(merged.T, place.ravel(), weights.T)
    possible = merged.any(axis=0)
    return distinct[possible], np.ascontiguousarray(merged[:, possible])


def _run_lengths(column: np.ndarray) -> list[list[Any]]:
    starts = np.flatnonzero(np.concatenate(([True], column[1:] != column[:-1])))
    lengths = np.diff(np.append(starts, len(column)))
    return [[str(w), n] for w, n in zip(column[starts].tolist(), lengths.tolist(), strict=True)]


def _expand(runs: list[list[Any]], labels: int) -> np.ndarray:
    integers = [int(weight) for weight, _ in runs]
    if min(integers) < 0:
        raise ValueError("weights must not be negative")
    weights = np.array(integers, np.uint64)
    lengths = np.array([length for _, length in runs], np.int64)
    if lengths.min() < 1 or lengths.max() > labels or lengths.sum() != labels:
        raise ValueError("a column's runs do not cover the labels")
    return np.repeat(weights, lengths)


def _canonical_json(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
