"""Results of others to hold an evaluation against: a CSV file of mechanism, epsilon, mean and deviation."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...transforms.errors import InputError

_COLUMNS = ["mechanism", "epsilon", "mean", "std"]


@dataclass(frozen=True)
class Published:
    """A published test loss. mechanism: as it is called there. std: its deviation over trials."""

    mechanism: str
    epsilon: float
    mean: float
    std: float


def read_published(path: str) -> list[Published]:
    """Raises InputError, naming the line, for a file that is not such a table."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames != _COLUMNS:
                raise InputError(f"--published {path}: the header must be {','.join(_COLUMNS)}")
            return [_published(row, f"--published {path}: line {reader.line_num}") for row in reader]
    except OSError as error:
        raise InputError(f"--published {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"--published {path} is not UTF-8 text") from None


def best_at(published: Sequence[Published], epsilon: float) -> Published | None:
    """The least mean at an epsilon."""
    return min((each for each in published if each.epsilon == epsilon), key=lambda each: each.mean, default=None)


def _published(row: dict[str, str], where: str) -> Published:
    try:
        epsilon, mean, std = (float(row[name]) for name in _COLUMNS[1:])
    except (TypeError, ValueError):
        raise InputError(f"{where} must have three numbers after the mechanism") from None
    if not (epsilon > 0 and math.isfinite(mean) and std >= 0):
        raise InputError(f"{where}: epsilon must be above 0, mean a number, std not negative")
    return Published(row["mechanism"], epsilon, mean, std)
