"""Claims of a mechanism file or release that are attacked, and the findings and the setting that all checks share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..audit.audit_release import audit_path
from ..audit.documents import printable
from ..mechanisms.center.center import Center
from ..mechanisms.center.residuals import ResidualDomain
from ..mechanisms.core.label_classes import LabelClasses
from ..mechanisms.core.prior import Prior
from ..mechanisms.core.randomizer import Randomizer, solved_randomizer
from ..mechanisms.release.unit_bound import UnitBound, spent
from ..pipelines.spec.label_folders import several_labels
from ..pipelines.spec.prior_file import parse_prior_release

_LONGEST = 40  # characters of a class


@dataclass(frozen=True)
class Claim:
    """Claims of a mechanism file about its releases, against which the sampler is attacked.

    Attributes:
      solved: The randomizer, whose certified epsilon and delta are the claim for the labels; None for classes that are
        drawn from a center.
      prior: The released or public prior.
      prior_epsilon: Claimed epsilon of the released histogram; 0 for a public prior.
      residuals: Residuals of the label domain, some of which the randomizer takes; None for labels without a center.
      unit: Privacy unit; None for single records. Claimed epsilons are those of one record.
      classes: Classes, of which the labels are the places; None for numbers.
      center: Center that classes are drawn from, whose parts have the claimed epsilons. None for any other mechanism.
    """

    solved: Randomizer | None
    prior: Prior
    prior_epsilon: float
    residuals: ResidualDomain | None = None
    unit: UnitBound | None = None
    classes: LabelClasses | None = None
    center: Center | None = None

    def value(self, label: float) -> str:
        """Text of a label or an output in a finding: a number, or the beginning of a class."""
        if self.classes is None:
            return f"{label:g}"
        value = self.classes.values[int(label)]
        return f"'{printable(value[:_LONGEST])}{'...' * (len(value) > _LONGEST)}'"

    @property
    def randomizer(self) -> Randomizer:
        """The randomizer. Raises ValueError for classes that are drawn from a center: they have none."""
        return solved_randomizer(self.solved)

    @property
    def epsilon(self) -> float:
        """Certified epsilon of the labels."""
        return self.randomizer.certificate().epsilon

    @property
    def of_unit(self) -> tuple[float, float]:
        """Claimed epsilon and delta of all labels of a unit."""
        return spent(self.unit, self.epsilon), spent(self.unit, self.delta)

    @property
    def delta(self) -> float:
        """Certified delta of the labels; 0 for pure label DP."""
        return self.randomizer.certificate().delta


@dataclass(frozen=True)
class Finding:
    """Result of a check.

    Attributes:
      check: Name of the check.
      passed: False if the check contradicts a claim.
      text: What was found, one line of ASCII.
      epsilon: Lower bound on epsilon, at the confidence of the attack; None for checks without one.
    """

    check: str
    passed: bool
    text: str
    epsilon: float | None = None


@dataclass(frozen=True)
class Setting:
    """Numbers that all checks share.

    Attributes:
      draws: Records drawn by each half of the channel check.
      alpha: Probability that one check reports a break that is not there.
      seed: Seed of the test keys; the same seed gives the same result.
    """

    draws: int
    alpha: float
    seed: int = 0

    def keys(self, purpose: str) -> Iterator[bytes]:
        """Generates test keys of 32 bytes, without end. They are public, and protect nothing.

        Different purposes have different keys.
        """
        number = 0
        while True:
            text = f"labeldp attack {self.seed} {purpose} {number}"
            yield hashlib.blake2b(text.encode(), digest_size=32).digest()
            number += 1


def output_codes(outputs: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Index of each released label among the outputs of a randomizer, or m for a value that is not an output.

    `outputs`, shape (m,), ascend; values and result have shape (n,).
    """
    places = np.minimum(np.searchsorted(outputs, values), len(outputs) - 1)
    return np.where(outputs[places] == values, places, len(outputs))


def read_claim(path: str, name: str) -> Claim:
    """Reads a mechanism file, or the one of a release. A mechanism file without a prior claims a uniform, public one.

    `path` is a mechanism file, a release.json or an output folder; `name` is its name in messages, such as the URL that
    it is a copy of. Raises ValueError, which names the file, if the audit finds a fault or the file cannot be used, and
    OSError if it cannot be read.
    """
    audit = audit_path(path)
    if audit.problems:
        raise ValueError(f"{name} fails the audit, so it is not attacked: {'; '.join(audit.problems)}")
    if audit.parts:
        raise ValueError(several_labels(name, [label for label, _ in audit.parts]))
    target = Path(path)
    released = target.is_dir() or audit.total_epsilon is not None
    file = (target if target.is_dir() else target.parent) / "mechanism.json" if released else target
    text = file.read_text(encoding="utf-8")
    try:
        document = json.loads(text)
        if audit.drawn_from_center:
            # Loads pyarrow, which attacks on randomizers do without.
            from ..pipelines.spec.mechanism_file import read_mechanism_file

            made = read_mechanism_file(str(file))
            assert made.class_center is not None
            center = made.class_center.center
            return Claim(None, made.prior, 0.0, unit=made.unit, classes=made.classes, center=center)
        randomizer = Randomizer.from_json(text)
        noised, residuals, unit, classes = document.get("prior"), None, None, None
        if "classes" in document:
            classes = LabelClasses(tuple(document["classes"]["values"]), document["classes"]["other"])
        if "unit" in document:
            stated = document["unit"]
            unit = UnitBound(stated["column"], stated["max_records"])
        if "center" in document:
            residuals = ResidualDomain(np.array(document["center"]["domain"], np.float64))
            residuals.place(randomizer.labels)
        if noised is None:
            return Claim(
                randomizer,
                Prior(randomizer.labels, np.ones(len(randomizer.labels))),
                0.0,
                unit=unit,
                classes=classes,
            )
        epsilon, *_ = parse_prior_release(noised)
        prior = Prior(randomizer.labels, np.array(noised["weights"], np.float64))
        return Claim(randomizer, prior, epsilon, residuals, unit, classes)
    except (KeyError, TypeError, AttributeError):
        raise ValueError(f"{name}: the prior must be an object with weights and an epsilon") from None
    except ValueError as error:
        raise ValueError(f"{name} cannot be used: {error}") from None
