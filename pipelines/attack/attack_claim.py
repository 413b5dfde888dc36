"""Reads the claims of a mechanism file or release, once the audit finds no fault in it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ...mechanisms.center.group_positions import GroupRanges
from ...mechanisms.center.residuals import ResidualDomain
from ...mechanisms.core.prior import Prior
from ...mechanisms.core.randomizer import Randomizer
from ...mechanisms.release.unit_bound import UnitBound
from ..audit.audit_release import audit_path
from ..study.prior_file import parse_prior_release
from .findings import Claim


def read_claim(path: str) -> Claim:
    """Reads a mechanism file, or the one of a release.

    Args:
      path: A mechanism file, a release.json or an output folder.

    Returns:
      The claims. A mechanism file without a prior claims a uniform, public one.

    Raises:
      ValueError: If the audit finds a fault, or the file cannot be used; names the file.
      OSError: If it cannot be read.
    """
    audit = audit_path(path)
    if audit.problems:
        raise ValueError(f"{path} fails the audit, so it is not attacked: {'; '.join(audit.problems)}")
    target = Path(path)
    released = target.is_dir() or audit.total_epsilon is not None
    file = (target if target.is_dir() else target.parent) / "mechanism.json" if released else target
    text = file.read_text(encoding="utf-8")
    try:
        randomizer = Randomizer.from_json(text)
        document = json.loads(text)
        noised, residuals, unit = document.get("prior"), None, None
        if "unit" in document:
            unit = UnitBound(document["unit"]["column"], document["unit"]["max_records"])
        if "center" in document:
            residuals = ResidualDomain(np.array(document["center"]["domain"], np.float64))
            if randomizer.group_ranges is None:
                residuals.place(randomizer.labels)
            else:
                GroupRanges(randomizer.group_ranges).check(residuals)
        if noised is None:
            return Claim(randomizer, Prior(randomizer.labels, np.ones(len(randomizer.labels))), 0.0, unit=unit)
        epsilon, _ = parse_prior_release(noised)
        prior = Prior(randomizer.labels, np.array(noised["weights"], np.float64))
        return Claim(randomizer, prior, epsilon, residuals, unit)
    except (KeyError, TypeError, AttributeError):
        raise ValueError(f"{path}: the prior must be an object with weights and an epsilon") from None
    except ValueError as error:
        raise ValueError(f"{path} cannot be used: {error}") from None
