"""Second implementation of groups around a center: their ranges, the labels of the mechanism, the manifest's statement.

With groups, the labels of a mechanism are positions in the range of a record's group. Group g has the range [a, b] of
residuals, in steps of the label grid; an output c of the mechanism with labels l_0, ..., l_m stands for the residual
a + (b - a) (c - l_0) / (l_m - l_0).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from .documents import RefusedDocument, printable, read_center, read_member

# Labels are computed in floating point, from a square root.
_CLOSE = 1e-9


def read_group_ranges(mechanism: dict[str, Any]) -> list[tuple[int, int]]:
    """First and last residual of each group of a mechanism file with groups, in steps of the label grid.

    Raises RefusedDocument if there is not one range of at least two residuals of the domain for each group.
    """
    center = read_center(mechanism)
    most, groups = len(center["center.domain"]) - 1, len(center["center.groups.records"])
    ranges = read_member(mechanism, "group_ranges", list)
    for ends in ranges:
        if not isinstance(ends, list) or len(ends) != 2 or not all(type(end) is int for end in ends):
            raise RefusedDocument("group_ranges are not pairs of integers")
        if not -most <= ends[0] < ends[1] <= most:
            raise RefusedDocument("group_ranges has a range that is not one of residuals of center.domain")
    if len(ranges) != groups:
        raise RefusedDocument(f"group_ranges has {len(ranges)} ranges for {groups} groups")
    return [(low, high) for low, high in ranges]


def signed_ranges(mechanism: dict[str, Any]) -> dict[str, Any]:
    """Part of the groups that the fingerprint covers: the member group_ranges; empty without groups.

    Raises RefusedDocument if there are ranges without groups, or groups without ranges.
    """
    grouped = "center" in mechanism and "groups" in read_member(mechanism, "center", dict)
    if grouped != ("group_ranges" in mechanism):
        raise RefusedDocument("group_ranges and center.groups: one is missing")
    return {"group_ranges": mechanism["group_ranges"]} if grouped else {}


def histograms_of_groups(mechanism: dict[str, Any], cells: int) -> list[int]:
    """Number of the histogram in which each group is counted, for histograms of `cells` cells.

    The largest groups have one each, all others the last one.
    """
    center = read_center(mechanism)
    records, histograms = center["center.groups.records"], len(center["center.counts"]) // cells
    largest = sorted(range(len(records)), key=lambda group: (-records[group], group))[: histograms - 1]
    own = {group: place for place, group in enumerate(sorted(largest))}
    return [own.get(group, histograms - 1) for group in range(len(records))]


def group_problems(mechanism: dict[str, Any]) -> Iterator[str]:
    """Checks that the labels of a mechanism are positions in the ranges of its groups.

    The file has groups and ascending labels. Yields one line for each failed check. Raises RefusedDocument if the
    ranges or the groups are malformed.
    """
    ranges, center, labels = read_group_ranges(mechanism), read_center(mechanism), mechanism["labels"]
    domain, records = center["center.domain"], center["center.groups.records"]
    if len(labels) < 2:
        yield "labels are not positions in a range: there is only one"
        return
    step = (domain[-1] - domain[0]) / (len(domain) - 1)
    squares = [count * (high - low) ** 2 for count, (low, high) in zip(records, ranges, strict=True)]
    length = step * math.sqrt(sum(squares) / sum(records))
    start = length * sum(
        count * (high - low) * low for count, (low, high) in zip(records, ranges, strict=True)
    ) / sum(squares)  # fmt: skip
    expected = [start + length * place / (len(labels) - 1) for place in range(len(labels))]
    if any(abs(label - each) > _CLOSE * length for label, each in zip(labels, expected, strict=True)):
        yield "labels are not even positions over the root mean square length of group_ranges"


def stated_groups(mechanism: dict[str, Any]) -> dict[str, Any] | None:
    """Computes what a manifest must state about the groups of a mechanism file with a center; None without groups.

    That is the column, and value, range and records of each group. Raises RefusedDocument if the groups are malformed.
    """
    center = read_center(mechanism)
    if "center.groups" not in center:
        return None
    domain, values = center["center.domain"], [*center["center.groups.values"], None]
    above = [label - domain[0] for label in domain]
    ends = [
        {"min": above[low] if low >= 0 else -above[-low], "max": above[high] if high >= 0 else -above[-high]}
        for low, high in read_group_ranges(mechanism)
    ]
    rows = zip(values, ends, center["center.groups.records"], strict=True)
    ranges = [{"value": value, **each, "records": records} for value, each, records in rows]
    return {"column": center["center.groups.column"], "ranges": ranges}


def groups_line(mechanism: dict[str, Any]) -> str:
    """Line break and line of a report about the groups of a mechanism file with a center; empty without groups."""
    groups = stated_groups(mechanism)
    if groups is None:
        return ""
    ranges = [(row["min"], row["max"]) for row in groups["ranges"]]
    shortest, longest = (f(ranges, key=lambda ends: ends[1] - ends[0]) for f in (min, max))
    return (
        f"\ngroups       {len(ranges)} of column '{printable(groups['column'])}': residuals in ranges from "
        f"{shortest[0]!r}..{shortest[1]!r} to {longest[0]!r}..{longest[1]!r}"
    )
