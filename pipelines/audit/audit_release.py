"""Audit of a whole release: its manifest, its mechanism and its shards."""

from __future__ import annotations

import dataclasses
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

from .audit_mechanism import Audit, audit_text
from .documents import RefusedDocument, load_document, read_bound, read_member

RELEASE_FORMAT = "labeldp-release-1"


def audit_path(path: str) -> Audit:
    """Audits a mechanism file, a release.json with the mechanism.json beside it, or a folder with both.

    Raises FileNotFoundError where path does not exist; what is wrong with a file is in Audit.problems.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(path)
    try:
        where = Path(path)
        if where.is_dir():
            return _audit_release(where, load_document(where / "release.json"))
        document = load_document(where)
        if document.get("format") == RELEASE_FORMAT:
            return _audit_release(where.parent, document)
        return audit_text(document)
    except RefusedDocument as refused:
        return Audit((str(refused),))
    except MemoryError:
        return Audit(("auditing this file takes more memory than there is",))


def _audit_release(folder: Path, release: dict[str, Any]) -> Audit:
    """Audits the mechanism.json in folder, and this manifest of it."""
    mechanism = load_document(folder / "mechanism.json")
    audit = audit_text(mechanism)
    if release.get("format") != RELEASE_FORMAT:
        raise RefusedDocument(f"release.json is not a release manifest: its format is not {RELEASE_FORMAT}")
    release = {f"release.{key}": value for key, value in release.items()}
    total, prior = read_bound(release, "release.epsilon"), read_bound(release, "release.prior_epsilon")
    certified = read_bound(release, "release.certified_epsilon")
    problems = list(audit.problems)
    if read_member(release, "release.mechanism_fingerprint", str) != audit.fingerprint:
        problems.append("release.mechanism_fingerprint is not that of mechanism.json")
    if release.get("release.rounding") != mechanism.get("rounding"):
        problems.append("release.rounding is not that of mechanism.json")
    if prior + Fraction(audit.certified_epsilon) > certified:
        problems.append("release.certified_epsilon is below release.prior_epsilon + certificate.epsilon")
    if certified > total:
        problems.append("release.certified_epsilon is above release.epsilon")
    if prior + read_bound(release, "release.randomizer_epsilon") > total:
        problems.append("release.prior_epsilon + release.randomizer_epsilon is above release.epsilon")
    if Fraction(audit.certified_epsilon) > read_bound(release, "release.randomizer_epsilon"):
        problems.append("release.randomizer_epsilon is below certificate.epsilon")
    if audit.requested_delta > 0 and Fraction(audit.certified_delta) > read_bound(release, "release.delta"):
        problems.append("release.delta is below certificate.delta")
    # The certificate is of the weights alone; what the prior spent is told in both files.
    noised = mechanism.get("prior")
    if isinstance(noised, dict) and read_bound({"prior.epsilon": noised.get("epsilon")}, "prior.epsilon") != prior:
        problems.append("release.prior_epsilon is not prior.epsilon of mechanism.json")
    if release.get("release.certified_delta", audit.certified_delta) != audit.certified_delta:
        problems.append("release.certified_delta is not certificate.delta")
    found = release.get("release.shards")
    shards = found if isinstance(found, dict) else {}
    counts = list(shards.values())
    if counts and not (all(type(count) is int for count in counts) and sum(counts) == release.get("release.records")):
        problems.append("release.shards do not add up to release.records")
    data = folder / "data"
    if counts and data.is_dir():
        # Hidden files are somebody else's.
        there = {path.name for path in data.iterdir() if not path.name.startswith(".")}
        problems += [f"data/{name} is missing" for name in sorted(set(shards) - there)]
        problems += [f"data/{ascii(name)[1:-1]} is not one of release.shards" for name in sorted(there - set(shards))]
    return dataclasses.replace(audit, problems=tuple(problems), total_epsilon=float(total), prior_epsilon=float(prior))
