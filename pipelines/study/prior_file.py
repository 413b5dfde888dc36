"""Reader of priors: a public one from CSV or JSON, or the released one of a mechanism file or release folder."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from typing import Any

from ...mechanisms.core.prior import Prior
from ..cli.arguments import UsageError

PRIOR_HELP = "CSV of label,weight; JSON of labels and weights; a mechanism file; or a release folder"


@dataclass(frozen=True)
class PriorFile:
    """Prior with the facts that its file states about it.

    Attributes:
      prior: The prior over the label domain.
      prior_epsilon: Epsilon that the release of the prior spent; 0 for a public prior.
      release: Name of that release in ledgers, 32 hexadecimal digits, where the file states it.
      records: Number of records that the prior was counted from, where a release folder states it.
    """

    prior: Prior
    prior_epsilon: float = 0.0
    release: str | None = None
    records: int | None = None


def read_prior(path: str) -> PriorFile:
    """Reads the value of `--prior`.

    Args:
      path: A file, or the folder of a release.

    Returns:
      The prior and the facts about it.

    Raises:
      UsageError: If the file cannot be read.
      ValueError: If it is not a prior. Both messages name the file.
    """
    folder = path if os.path.isdir(path) else None
    text = _read_text(os.path.join(folder, "mechanism.json") if folder else path)
    try:
        prior = Prior.from_text(text)
    except ValueError as error:
        raise ValueError(f"--prior {path}: {error}") from None
    noised = _json_object(text).get("prior")
    try:
        epsilon, release = parse_prior_release(
            {"epsilon": 0.0} | noised if isinstance(noised, dict) else {"epsilon": 0.0}
        )
    except ValueError as error:
        raise ValueError(f"--prior {path}: {error}") from None
    manifest = os.path.join(folder, "release.json") if folder else ""
    records = _json_object(_read_text(manifest)).get("records") if os.path.exists(manifest) else None
    return PriorFile(prior, epsilon, release, records if isinstance(records, int) and records > 0 else None)


def parse_prior_release(noised: dict[str, Any]) -> tuple[float, str | None]:
    """Reads the facts about the release of a prior from a mechanism file.

    Args:
      noised: The member `prior` of the mechanism file.

    Returns:
      The epsilon that the release spent, and its name in ledgers; None where the file does not state the name.

    Raises:
      ValueError: If the epsilon or the name is malformed.
      KeyError: If there is no epsilon.
    """
    epsilon, release = noised["epsilon"], noised.get("release")
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not 0 <= epsilon <= sys.float_info.max:
        raise ValueError("the prior's epsilon must be a finite number, and not negative")
    if release is not None and not (isinstance(release, str) and re.fullmatch("[0-9a-f]{32}", release)):
        raise ValueError("the name of the prior's release must have 32 hexadecimal digits")
    return float(epsilon), release


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"--prior {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"--prior {path}: not UTF-8 text") from None


def _json_object(text: str) -> dict[str, Any]:
    """Parses a JSON object; empty for any other text."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
