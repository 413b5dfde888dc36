"""Where a command without Beam takes its prior from: a public one, or what a release said of its labels."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from typing import Any

from ...mechanisms.core.prior import Prior
from ..cli.arguments import UsageError

HELP = "CSV of label,weight; JSON of labels and weights; a mechanism file; or a release folder"


@dataclass(frozen=True)
class PriorFile:
    """A prior and what is known of it.

    spent: the epsilon that its release spent; 0 for a public prior. release: how ledgers name that release, where the
    file says so. records: how many records it was counted from, where a release folder says so.
    """

    prior: Prior
    spent: float = 0.0
    release: str | None = None
    records: int | None = None


def read_prior(path: str) -> PriorFile:
    """Reads what `--prior` names: a file, or the folder of a release.

    Raises UsageError when it cannot be read, ValueError when it is not a prior; both name the file.
    """
    folder = path if os.path.isdir(path) else None
    text = _text(os.path.join(folder, "mechanism.json") if folder else path)
    try:
        prior = Prior.from_text(text)
    except ValueError as error:
        raise ValueError(f"--prior {path}: {error}") from None
    noised = _object(text).get("prior")
    try:
        spent, release = release_of_prior({"epsilon": 0.0} | noised if isinstance(noised, dict) else {"epsilon": 0.0})
    except ValueError as error:
        raise ValueError(f"--prior {path}: {error}") from None
    manifest = os.path.join(folder, "release.json") if folder else ""
    records = _object(_text(manifest)).get("records") if os.path.exists(manifest) else None
    return PriorFile(prior, spent, release, records if isinstance(records, int) and records > 0 else None)


def release_of_prior(noised: dict[str, Any]) -> tuple[float, str | None]:
    """The epsilon that the release of a mechanism file's prior spent, and how ledgers name it, if the file says so.

    Raises ValueError when either cannot be, KeyError when there is no epsilon.
    """
    spent, release = noised["epsilon"], noised.get("release")
    if isinstance(spent, bool) or not isinstance(spent, (int, float)) or not 0 <= spent <= sys.float_info.max:
        raise ValueError("the prior's epsilon must be a finite number, and not negative")
    if release is not None and not (isinstance(release, str) and re.fullmatch("[0-9a-f]{32}", release)):
        raise ValueError("the name of the prior's release is not 32 hexadecimal digits")
    return float(spent), release


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"--prior {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"--prior {path}: not UTF-8 text") from None


def _object(text: str) -> dict[str, Any]:
    """The JSON object that the text is, or an empty one."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
