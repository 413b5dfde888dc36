"""Reads the claims of a mechanism file or release, once the audit finds no fault in it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ...mechanisms.center.group_ranges import GroupRanges
from ...mechanisms.center.residuals import ResidualDomain
from ...mechanisms.core.prior import Prior
from ...mechanisms.core.randomizer import Randomizer
from ...mechanisms.release.unit_bound import UnitBound
from ..audit.audit_release import audit_path
from ..spec.label_folders import several_labels
from ..spec.prior_file import parse_prior_release
from .findings import Claim


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
        randomizer = Randomizer.from_json(text)
        document = json.loads(text)
        noised, residuals, unit, unit_labels = document.get("prior"), None, None, None
        if "unit" in document:
            stated = document["unit"]
            unit = UnitBound(stated["column"], stated["max_records"])
            unit_labels = (stated["epsilon"], stated["delta"]) if "delta" in stated else None
        if "center" in document:
            residuals = ResidualDomain(np.array(document["center"]["domain"], np.float64))
            if randomizer.group_ranges is None:
                residuals.place(randomizer.labels)
            else:
                GroupRanges(randomizer.group_ranges).check(residuals)
        if noised is None:
            return Claim(
                randomizer,
                Prior(randomizer.labels, np.ones(len(randomizer.labels))),
                0.0,
                unit=unit,
                unit_labels=unit_labels,
            )
        epsilon, _ = parse_prior_release(noised)
        prior = Prior(randomizer.labels, np.array(noised["weights"], np.float64))
        return Claim(randomizer, prior, epsilon, residuals, unit, unit_labels)
    except (KeyError, TypeError, AttributeError):
        raise ValueError(f"{name}: the prior must be an object with weights and an epsilon") from None
    except ValueError as error:
        raise ValueError(f"{name} cannot be used: {error}") from None
