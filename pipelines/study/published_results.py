"""Published baseline results, for comparison: a CSV file of mechanism, epsilon, mean and standard deviation."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...transforms.errors import InputError

_COLUMNS = ["mechanism", "epsilon", "mean", "std"]


@dataclass(frozen=True)
class PublishedResult:
    """Published test loss at an epsilon > 0: mean and standard deviation over trials.

    The mechanism is named as in the publication.
    """

    mechanism: str
    epsilon: float
    mean: float
    std: float


def read_published(path: str) -> list[PublishedResult]:
    """Reads the value of `--published`, a CSV file with the header mechanism,epsilon,mean,std, in its order.

    Raises InputError, which names file and line, if the file cannot be read or is not such a table.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames != _COLUMNS:
                raise InputError(f"--published {path}: the header must be {','.join(_COLUMNS)}")
            return [_parse_row(row, f"--published {path}: line {reader.line_num}") for row in reader]
    except OSError as error:
        raise InputError(f"--published {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"--published {path} is not UTF-8 text") from None


def best_published(published: Sequence[PublishedResult], epsilon: float) -> PublishedResult | None:
    """Published result with the least mean at an epsilon, compared exactly; None if there is none."""
    return min((each for each in published if each.epsilon == epsilon), key=lambda each: each.mean, default=None)


def _parse_row(row: dict[str, str], where: str) -> PublishedResult:
    try:
        epsilon, mean, std = (float(row[name]) for name in _COLUMNS[1:])
    except (TypeError, ValueError):
        raise InputError(f"{where}: epsilon, mean and std must be numbers") from None
    if not (epsilon > 0 and math.isfinite(mean) and std >= 0):
        raise InputError(f"{where}: epsilon must be above 0, mean finite, and std not negative")
    return PublishedResult(row["mechanism"], epsilon, mean, std)
