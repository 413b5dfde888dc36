"""Reader of priors: a public one from CSV or JSON, or the released one of a mechanism file or release folder."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...mechanisms.center.residuals import ClippingError
from ...mechanisms.core.document_form import check_form
from ...mechanisms.core.prior import Prior
from ...mechanisms.release.noised_counts import NoisedCounts, NoisedResiduals
from ...transforms.errors import InputError
from ..errors import UsageError
from .release_files import released_file


@dataclass(frozen=True)
class ReleasedResiduals:
    """Residuals around a center, over which a mechanism file states its prior.

    Attributes:
      center: Name of the center column.
      center_epsilon: Epsilon that a linear center has spent; 0 for a column of the input.
      clipping: Error of clipping residuals to the range of the mechanism.
      domain: Labels of the public domain, ascending.
    """

    center: str
    center_epsilon: float
    clipping: ClippingError
    domain: tuple[float, ...]


@dataclass(frozen=True)
class PriorFile:
    """Prior with the facts that its file states about it.

    Attributes:
      prior: The prior over the label domain.
      prior_epsilon: Epsilon that the release of the prior spent; 0 for a public prior.
      release: Name of that release in ledgers, 32 hexadecimal digits; None for a public prior.
      label: Name of the label column that it was counted from; None for a public prior.
      records: Number of records that the prior was counted from, where a release folder states it.
      noised: The noised counts that the prior was estimated from; None for a public prior, and one of residuals.
      residuals: The residuals that the prior is about; None for labels.
      missing_label: Number that missing labels counted as; None where such records were left out, or none were counted.
    """

    prior: Prior
    prior_epsilon: float = 0.0
    release: str | None = None
    label: str | None = None
    records: int | None = None
    noised: NoisedCounts | None = None
    residuals: ReleasedResiduals | None = None
    missing_label: float | None = None


def read_prior(path: str, name: str | None = None) -> PriorFile:
    """Reads the value of `--prior`: a file, or the folder of a release.

    `name` stands for the path in messages, such as the URL that it is a copy of. Raises UsageError if the file cannot
    be read, and ValueError, which names the file, if it is not a prior.
    """
    name, folder = name or path, path if os.path.isdir(path) else None
    text = _read_text(_released(path, "mechanism.json", name) if folder else path, name)
    try:
        prior = Prior.from_text(text)
    except ValueError as error:
        raise ValueError(f"--prior {name}: {error}") from None
    document = _json_object(text)
    if document.get("classes") is not None:
        raise ValueError(
            f"--prior {name}: its labels are classes, whose places in a list mean nothing as numbers. Give the prior "
            "of a label that is a number"
        )
    # Other files than mechanism files hold public priors.
    stated = document.get("prior", {"epsilon": 0.0})
    try:
        for form in document.keys() & {"prior", "center"}:
            check_form(document[form], form, f"its {form}")
        epsilon, release, label = parse_prior_release(stated)
        noised = NoisedCounts.from_document(stated, epsilon > 0 and "center" not in document)
        if noised is not None:
            noised.check(prior, epsilon)
        residuals = _residuals(document["center"], prior, epsilon) if "center" in document else None
        domain = prior.labels.tolist() if residuals is None else residuals.domain
        missing = parse_missing_label(stated, domain)
        assert not isinstance(missing, str)
    except ValueError as error:
        raise ValueError(f"--prior {name}: {error}") from None
    records = None
    if folder and os.path.lexists(os.path.join(folder, "release.json")):
        records = _json_object(_read_text(_released(folder, "release.json", name), name)).get("records")
    records = records if isinstance(records, int) and records > 0 else None
    return PriorFile(prior, epsilon, release, label, records, noised, residuals, missing)


def _residuals(document: Any, prior: Prior, epsilon: float) -> ReleasedResiduals:
    stated = NoisedResiduals.from_document(document, epsilon)
    return ReleasedResiduals(stated.column, stated.epsilon, stated.clipping(prior.labels), stated.domain)


def parse_prior_release(noised: dict[str, Any]) -> tuple[float, str | None, str | None]:
    """Reads the facts about the release of a prior from the member `prior` of a mechanism file, which has its form.

    Returns the epsilon that the release spent, its name in ledgers, and the label column; None for a public prior.
    Raises ValueError if one of them is missing, or there is a name of a release, but the epsilon is 0.
    """
    epsilon, release, label = noised["epsilon"], noised.get("release"), noised.get("label")
    if release is not None and epsilon == 0:
        # Taken as it stands, the file would publish a released prior without a charge.
        raise ValueError("the prior's epsilon is 0, but it names a release, which cost more")
    if epsilon > 0 and (release is None or label is None):
        raise ValueError("the prior was released, but release or label, which say from what, is missing")
    return epsilon, release, label


def parse_missing_label(
    noised: dict[str, Any], domain: Sequence[float], classes: Sequence[str] | None = None
) -> float | str | None:
    """Reads what missing labels counted as from the member `prior` of a mechanism file; None where it is not stated.

    `domain` is the public label domain, ascending; `classes` are the classes of a label that is no number. Raises
    ValueError if it is neither a number within the domain nor one of the classes.
    """
    missing = noised.get("missing_label")
    if classes is not None and missing not in (None, *classes):
        raise ValueError("its missing_label is not one of its classes")
    if classes is None and missing is not None and (isinstance(missing, str) or not domain[0] <= missing <= domain[-1]):
        raise ValueError("its missing_label is not a number within its label domain")
    return missing


def _released(folder: str, file: str, name: str) -> str:
    """Path of a file of a release, which is no link to another file."""
    try:
        return released_file(folder, file)
    except InputError as error:
        raise UsageError(f"--prior {name}: {error}") from None


def _read_text(path: str, name: str) -> str:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"--prior {name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"--prior {name}: not UTF-8 text") from None


def _json_object(text: str) -> dict[str, Any]:
    """Parses a JSON object; empty for any other text."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
