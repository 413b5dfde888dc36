"""Audit of a release: its manifest against its mechanism file and the names of its shards."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from .audit_mechanism import Audit, audit_document, audit_mechanism
from .documents import RefusedDocument, load_document, read_member, read_nonnegative

RELEASE_FORMAT = "labeldp-release-1"


def audit_path(path: str) -> Audit:
    """Audits a mechanism file, a release.json with the mechanism.json beside it, or a folder with both.

    Args:
      path: The file or the folder.

    Returns:
      The audit. Everything wrong with the files is in its `problems`.

    Raises:
      FileNotFoundError: If the path does not exist.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(path)
    try:
        target = Path(path)
        if target.is_dir():
            return _audit_release(target, load_document(target / "release.json"))
        document = load_document(target)
        if document.get("format") == RELEASE_FORMAT:
            return _audit_release(target.parent, document)
        return audit_mechanism(document)
    except RefusedDocument as refused:
        return Audit((str(refused),))
    except MemoryError:
        return Audit(("not enough memory to audit this file",))


def _audit_release(folder: Path, release: dict[str, Any]) -> Audit:
    """Audits the mechanism.json of the folder and this manifest."""
    mechanism = load_document(folder / "mechanism.json")
    audit = audit_document(mechanism)
    if release.get("format") != RELEASE_FORMAT:
        raise RefusedDocument(f"release.json is not a release manifest: its format is not {RELEASE_FORMAT}")
    release = {f"release.{key}": value for key, value in release.items()}
    total, prior = read_nonnegative(release, "release.epsilon"), read_nonnegative(release, "release.prior_epsilon")
    problems = (
        *audit.problems,
        *_manifest_problems(release, mechanism, audit, total, prior),
        *_shard_problems(release, folder / "data"),
    )
    return dataclasses.replace(audit, problems=problems, total_epsilon=float(total), prior_epsilon=float(prior))


def _manifest_problems(
    release: dict[str, Any], mechanism: dict[str, Any], audit: Audit, total: Fraction, prior: Fraction
) -> Iterator[str]:
    """Compares the manifest with the mechanism file, and its epsilons and deltas with each other."""
    certified = read_nonnegative(release, "release.certified_epsilon")
    if read_member(release, "release.mechanism_fingerprint", str) != audit.fingerprint:
        yield "release.mechanism_fingerprint is not that of mechanism.json"
    if release.get("release.rounding") != mechanism.get("rounding"):
        yield "release.rounding is not that of mechanism.json"
    if prior + Fraction(audit.certified_epsilon) > certified:
        yield "release.certified_epsilon is below release.prior_epsilon + certificate.epsilon"
    if certified > total:
        yield "release.certified_epsilon is above release.epsilon"
    if prior + read_nonnegative(release, "release.randomizer_epsilon") > total:
        yield "release.prior_epsilon + release.randomizer_epsilon is above release.epsilon"
    if Fraction(audit.certified_epsilon) > read_nonnegative(release, "release.randomizer_epsilon"):
        yield "release.randomizer_epsilon is below certificate.epsilon"
    if audit.requested_delta > 0 and Fraction(audit.certified_delta) > read_nonnegative(release, "release.delta"):
        yield "release.delta is below certificate.delta"
    # The certificate covers the weights alone; both files state the epsilon of the prior.
    noised = mechanism.get("prior")
    if (
        isinstance(noised, dict)
        and read_nonnegative({"prior.epsilon": noised.get("epsilon")}, "prior.epsilon") != prior
    ):
        yield "release.prior_epsilon is not prior.epsilon of mechanism.json"
    if release.get("release.certified_delta", audit.certified_delta) != audit.certified_delta:
        yield "release.certified_delta is not certificate.delta"


def _shard_problems(release: dict[str, Any], data: Path) -> Iterator[str]:
    """Compares the shards that the manifest lists with its record count and with the files of the data folder."""
    listed = release.get("release.shards")
    shards = listed if isinstance(listed, dict) else {}
    counts = list(shards.values())
    if counts and not (all(type(count) is int for count in counts) and sum(counts) == release.get("release.records")):
        yield "release.shards do not add up to release.records"
    if counts and data.is_dir():
        # Hidden files are not part of the release.
        found = {path.name for path in data.iterdir() if not path.name.startswith(".")}
        yield from (f"data/{ascii(name)[1:-1]} is missing" for name in sorted(set(shards) - found))
        yield from (f"data/{ascii(name)[1:-1]} is not one of release.shards" for name in sorted(found - set(shards)))
