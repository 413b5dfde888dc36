"""Claims of a mechanism file or release that are attacked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from labeldp.audit.audit_release import audit_path
from labeldp.mechanisms.center.center import Center
from labeldp.mechanisms.center.residuals import ResidualDomain
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.core.randomizer import Randomizer, solved_randomizer
from labeldp.mechanisms.release.unit_bound import SINGLE, PrivacyUnit
from labeldp.pipelines.spec.mechanism_file import MECHANISM_NAME, read_mechanism_file


@dataclass(frozen=True)
class Claim:
    """Claims of a mechanism file about its releases, against which the sampler is attacked.

    Attributes:
      solved: The randomizer, whose certified epsilon and delta are the claim for the labels; None for classes that are
        drawn from a center.
      prior: The released or public prior.
      prior_epsilon: Claimed epsilon of the released histogram; 0 for a public prior.
      residuals: Residuals of the label domain, some of which the randomizer takes; None for labels without a center.
      unit: Privacy unit. Claimed epsilons are those of one record.
      classes: Classes, of which the labels are the places; None for numbers.
      center: Center that classes are drawn from, whose parts have the claimed epsilons. None for any other mechanism.
    """

    solved: Randomizer | None
    prior: Prior
    prior_epsilon: float
    residuals: ResidualDomain | None = None
    unit: PrivacyUnit = SINGLE
    classes: LabelClasses | None = None
    center: Center | None = None

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
        return self.unit.spent(self.epsilon), self.unit.spent(self.delta)

    @property
    def delta(self) -> float:
        """Certified delta of the labels; 0 for pure label DP."""
        return self.randomizer.certificate().delta


def read_claim(folder: str, name: str) -> Claim:
    """Reads the claims of a release in a local folder; `name` is that of the release in messages.

    Raises ValueError if the audit finds a fault or the mechanism file cannot be used, and OSError if it cannot be read.
    """
    problems = audit_path(folder).problems
    if problems:
        raise ValueError(f"{name} fails the audit, so it is not attacked: {'; '.join(problems)}")
    file = read_mechanism_file(str(Path(folder, MECHANISM_NAME)))
    drawing = file.drawing
    residuals = ResidualDomain(np.array(file.domain)) if drawing.whole else None
    center = None if drawing.solved else drawing.made
    return Claim(drawing.solved, file.prior, file.prior_epsilon, residuals, file.unit, file.classes, center)
