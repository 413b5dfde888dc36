"""Summary of the validation/ folder of a release: a few numbers for each column."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

from ...transforms.errors import InputError
from ...transforms.io.filesystems import read_text
from ...transforms.validation.schema_protos import parse_statistics
from ..flags.optional_extras import check_extra
from ..job.validation_passes import (
    ANOMALIES_NAME,
    FEATURE_STATISTICS_NAME,
    OUTPUT_STATISTICS_NAME,
    VALIDATION_NAME,
    describe_anomalies,
)

# Relative; sums of floats depend on the order of their terms.
_MEAN_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Column:
    """Statistics of a column of the released records.

    The kind is integer, float or text. `present` and `missing` count the records with and without a value; `unchanged`
    says whether the input has the same statistics. Minimum, mean and maximum are None for text, the number of distinct
    values for numbers.
    """

    name: str
    kind: str
    present: int
    missing: int
    unchanged: bool
    low: float | None = None
    mean: float | None = None
    high: float | None = None
    distinct: int | None = None


@dataclass(frozen=True)
class ValidationSummary:
    """Statistics of a validated release.

    Records are counted as read (`before`) and as released (`after`); features are the columns other than the label, by
    name.
    """

    before: int
    after: int
    features: list[Column]
    label: Column


def read_validation(release: str, label: str) -> ValidationSummary | None:
    """Reads the validation/ folder of a release; None if the release was not validated.

    Needs the extra `validation` if there is one: UsageError is raised if it is not installed, InputError if a file is
    missing, corrupt, of another release, or reports anomalies.
    """
    folder = os.path.join(release, VALIDATION_NAME)
    if not os.path.isdir(folder):
        return None
    check_extra(f"reading {folder}", "validation", "tensorflow_metadata")
    found = _read_anomalies(os.path.join(folder, ANOMALIES_NAME))
    if found:
        raise InputError(f"{folder} has anomalies: {'; '.join(found[:3])}")
    before = _read_statistics(os.path.join(folder, FEATURE_STATISTICS_NAME))
    after = _read_statistics(os.path.join(folder, OUTPUT_STATISTICS_NAME))
    inputs = {_name(feature): feature for feature in before.features}
    columns = {_name(feature): _column(feature, inputs.get(_name(feature)), after) for feature in after.features}
    if label not in columns or label in inputs or inputs.keys() - columns.keys():
        raise InputError(
            f"{folder}: {FEATURE_STATISTICS_NAME} and {OUTPUT_STATISTICS_NAME} are statistics of different releases"
        )
    privatized = columns.pop(label)
    features = [columns[name] for name in sorted(columns)]
    return ValidationSummary(int(before.num_examples), int(after.num_examples), features, privatized)


def _read_anomalies(path: str) -> list[str]:
    try:
        return describe_anomalies(read_text(path))
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def _read_statistics(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            (dataset,) = parse_statistics(file.read()).datasets
    except OSError:
        raise InputError(f"{path} cannot be read: check the path") from None
    except ValueError:
        raise InputError(f"{path} does not hold the statistics of one dataset") from None
    return dataset


def _name(feature: Any) -> str:
    return ".".join(feature.path.step) or feature.name


def _column(feature: Any, before: Any, dataset: Any) -> Column:
    values: dict[str, Any]
    if feature.HasField("num_stats"):
        stats = feature.num_stats
        # TFDV's enumeration of types begins with int64.
        kind, values = "float" if feature.type else "integer", {"low": stats.min, "mean": stats.mean, "high": stats.max}
    else:
        stats = feature.string_stats
        kind, values = "text", {"distinct": int(stats.unique)}
    present = int(stats.common_stats.num_non_missing)
    unchanged = before is not None and _same(before, feature)
    return Column(_name(feature), kind, present, int(dataset.num_examples) - present, unchanged, **values)


def _same(one: Any, other: Any) -> bool:
    if (one.type, one.WhichOneof("stats")) != (other.type, other.WhichOneof("stats")):
        return False
    if one.HasField("num_stats"):
        first, second = one.num_stats, other.num_stats
        exact = (first.min, first.max, first.num_zeros) == (second.min, second.max, second.num_zeros) and all(
            math.isclose(getattr(first, name), getattr(second, name), rel_tol=_MEAN_TOLERANCE, abs_tol=1e-300)
            for name in ("mean", "std_dev")
        )
    else:
        first, second = one.string_stats, other.string_stats
        exact = first.unique == second.unique and list(first.top_values) == list(second.top_values)
    counts = [(s.common_stats.num_non_missing, s.common_stats.tot_num_values) for s in (first, second)]
    return exact and counts[0] == counts[1]
