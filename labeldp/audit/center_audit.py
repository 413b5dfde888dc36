"""Second implementation of centers: groups around a center, and the sums and coefficients of a linear center.

With groups, the labels of a mechanism are positions in the range of a record's group. Group g has the range [a, b] of
residuals, in steps of the label grid; an output c of the mechanism with labels l_0, ..., l_m stands for the residual
a + (b - a) (c - l_0) / (l_m - l_0).

The labels enter a linear center through its noised sums alone, so the coefficients must follow from them: a dishonest
party could encode labels in coefficients of its own. They are the posterior mean of a linear regression whose prior
variances and moments are public; docs/mechanisms/linear_center.md has the formula. Every sum, product and quotient is
a float operation in the order that the formula's document prescribes, so the coefficients are equal bit by bit.

A linear center may have cells; `cell_audit` checks what follows from their noised sums.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from .cell_document import Cells, read_cells, read_integers
from .documents import RefusedDocument, printable, read_center, read_count, read_member, read_nonnegative
from .row_map_document import ROW_UNIT, read_row_map

# Labels are computed in floating point, from a square root.
_CLOSE_LABELS = 1e-9

COEFFICIENT_UNIT = 1 << 16
"""Coefficients are integer multiples of 1 / COEFFICIENT_UNIT."""

_MOST_SAMPLE, _MOST_LABELS, _MOST_COEFFICIENT = 1 << 14, 1 << 20, 1 << 36
_LEAST_SIGNAL = 1e-30
_KEYS = ("encoders", "weights", "norm", "epsilon", "gram", "sampled", "signal", "records", "labels", "sums")
# A priori, labels are uniform: their variance in squared units of the range.
_VARIANCE = 1 / 12
# Multiples of the prior variances of coefficients of which the likeliest is taken: 1e-3 to 30 in 40 equal ratios.
_STRENGTHS = """
    0x1.0624dd2f1a9fcp-10 0x1.55755ef35e8dep-10 0x1.bcc53967ade48p-10 0x1.21ab946716095p-9 0x1.7950256351b3cp-9
    0x1.eb7922e43f54cp-9 0x1.40163afff572cp-8 0x1.a0eebb478bb6fp-8 0x1.0f8a3c2553579p-7 0x1.61b2833c0f04ap-7
    0x1.ccb654e54917cp-7 0x1.2c0d8659b1574p-6 0x1.86d647ed82aaap-6 0x1.fd16c6fc3fe40p-6 0x1.4b8f4566c8358p-5
    0x1.afe067c508fc1p-5 0x1.1945d2380545bp-4 0x1.6e5ff47b3698ep-4 0x1.dd39b7a7fddcdp-4 0x1.36cebcf83c781p-3
    0x1.94d8823189f9ap-3 0x1.07ab073c568ebp-2 0x1.577195638c6eep-2 0x1.bf5b33bb5e95bp-2 0x1.235ab67e73b7ap-1
    0x1.7b81b92278deep-1 0x1.ee549fe7085f0p-1 0x1.41f2a26b5cab5p+0 0x1.a35b46d47efe6p+0 0x1.111e62407d980p+1
    0x1.63c0f0e93deadp+1 0x1.cf64095fa70f4p+1 0x1.2dcc1c6abe876p+2 0x1.891bfc92950dep+2 0x1.00063dfabf7e4p+3
    0x1.4d7cc030c9d47p+3 0x1.b263314b684eep+3 0x1.1ae874b2d7fe8p+4 0x1.7081408a2a40ep+4 0x1.e000000000000p+4
""".split()  # noqa: SIM905
# The likelihood has a logarithm, which libraries round in several ways: factors this close to the likeliest are equal.
_CLOSE = 1e-9
# Noise beyond this multiple of its scale has a probability of e^-40 for each sum.
_MOST_NOISE = 40


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
    if any(abs(label - each) > _CLOSE_LABELS * length for label, each in zip(labels, expected, strict=True)):
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


def _groups_line(mechanism: dict[str, Any]) -> str:
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


def read_linear_center(mechanism: dict[str, Any]) -> dict[str, Any] | None:
    """Reads the linear center of a mechanism file and checks its bounds.

    The result has its members, with `center.linear.` before each key, and `center.linear.features`, the names of its
    features; `center.linear.cells` is read, and None without cells. The result is None if the file has no center, or
    one that is a column of the input. Raises RefusedDocument if a member is missing, has the wrong type or another
    length than the rest, or is out of bounds.
    """
    center = mechanism.get("center")
    if not isinstance(center, dict) or "linear" not in center:
        return None
    stated = read_member(center, "linear", dict)
    if set(stated) - {"cells"} != {*_KEYS, "coefficients"}:
        raise RefusedDocument("center.linear has not exactly the members of a linear center")
    found = {f"center.linear.{key}": value for key, value in stated.items()}
    size, found["center.linear.features"] = read_row_map(found, "center.linear")
    encoders = found["center.linear.encoders"]
    if not 1 <= read_count(found, "center.linear.sampled") <= _MOST_SAMPLE:
        raise RefusedDocument(f"center.linear.sampled is not between 1 and {_MOST_SAMPLE}")
    if not read_count(found, "center.linear.records"):
        raise RefusedDocument("center.linear.records is 0")
    if not 2 <= read_count(found, "center.linear.labels") <= _MOST_LABELS:
        raise RefusedDocument(f"center.linear.labels is not between 2 and {_MOST_LABELS}")
    if found["center.linear.labels"] != len(read_member(center, "domain", list)):
        raise RefusedDocument("center.linear.labels is not the number of labels of center.domain")
    if (size > 0) != (read_nonnegative(found, "center.linear.epsilon") > 0):
        raise RefusedDocument("center.linear has components without an epsilon, or an epsilon without components")
    signal = read_member(found, "center.linear.signal", list)
    if len(signal) != size or not all(isinstance(value, float) and _LEAST_SIGNAL <= value <= 1 for value in signal):
        raise RefusedDocument("center.linear.signal is not one float from 1e-30 to 1 for each component")
    _check_gram(found, size + 1)
    most, name = 1 << 128, "center.linear.coefficients"
    read_integers(found["center.linear.sums"], "center.linear.sums", size + 1 if size else 0, -most, most)
    read_integers(found[name], name, size + 1, -_MOST_COEFFICIENT, _MOST_COEFFICIENT)
    if "cells" in stated and not found["center.linear.sums"]:
        raise RefusedDocument("center.linear has cells, but no sums that they were made from")
    cells = read_cells(stated["cells"], encoders, found["center.linear.labels"]) if "cells" in stated else None
    return {**found, "center.linear.cells": cells}


def center_sum_problems(mechanism: dict[str, Any]) -> Iterator[str]:
    """Checks the noised sums and the coefficients of a linear center.

    Yields one line for each failed check; none without a linear center. Raises RefusedDocument as `read_linear_center`
    does.
    """
    linear = read_linear_center(mechanism)
    if linear is None:
        return
    if mechanism["center"].get("column") in linear["center.linear.features"]:
        yield "the center column is a feature of the linear center: it would predict itself"
    sums, norm, steps = (linear[f"center.linear.{key}"] for key in ("sums", "norm", "labels"))
    if sums:
        noise = (len(sums).bit_length() + _MOST_NOISE) * _noise_scale(linear)
        most = linear["center.linear.records"] * (steps - 1)
        if abs(sums[0]) > most * ROW_UNIT + noise or sum(map(abs, sums)) > most * norm + len(sums) * noise:
            yield "center.linear.sums are larger than those of any labels with their noise"
    if linear["center.linear.coefficients"] not in list(_coefficients(linear)):
        yield "center.linear.coefficients do not follow from its sums: they could hold labels"


def center_line(mechanism: dict[str, Any]) -> str:
    """Describes the center of a mechanism file in one line of a report, and in a second one its groups.

    Empty without a center. Raises RefusedDocument as `read_linear_center` does.
    """
    if "center" not in mechanism:
        return ""
    linear, column = read_linear_center(mechanism), printable(mechanism["center"]["column"])
    groups = _groups_line(mechanism)
    if linear is None:
        return (
            f"center       column '{column}' of the input; it must not have seen these labels, which is not checked"
            f"{groups}"
        )
    sums, labels, norm = (linear[f"center.linear.{key}"] for key in ("sums", "labels", "norm"))
    if not sums:
        return f"center       column '{column}': one label for all records, without any sum of labels{groups}"
    epsilon, features = linear["center.linear.epsilon"], len(linear["center.linear.features"])
    return (
        f"center       column '{column}', linear in {features} features: coefficients recomputed from {len(sums)} "
        f"sums, of sensitivity 2 ({labels} - 1) {norm} = {2 * (labels - 1) * norm}, with noise of scale "
        f"{float(_noise_scale(linear))!r} for epsilon {epsilon!r}{_cells_line(linear['center.linear.cells'])}{groups}"
    )


def _cells_line(cells: Cells | None) -> str:
    """Line break and line of a report about the cells of a center; empty without cells."""
    if cells is None:
        return ""
    histogram = f"the histogram of the residuals has epsilon {float(cells.histogram_epsilon)!r}"
    if not cells.sums:
        return f"\ncells        {len(cells.records)} cells of features, of which no sum was released; {histogram}"
    (low, high), epsilon = cells.ends, cells.sums_epsilon
    return (
        f"\ncells        {len(cells.records)} cells of features: sums of residuals clipped to {low}..{high} steps, of "
        f"sensitivity {high - low}, with noise of scale {float((high - low) / epsilon)!r} for epsilon "
        f"{float(epsilon)!r}; {histogram}; {len(cells.leaves)} trees recomputed from the sums"
    )


def _noise_scale(linear: dict[str, Any]) -> Fraction:
    """Scale of the discrete Laplace noise of each sum of a linear center with components, of `read_linear_center`.

    It is 2 (k - 1) A / epsilon for k labels and rows of L1 norm at most A.
    """
    labels, norm, epsilon = (linear[f"center.linear.{key}"] for key in ("labels", "norm", "epsilon"))
    return 2 * (labels - 1) * norm / Fraction(epsilon)


def _check_gram(found: dict[str, Any], size: int) -> None:
    gram, most = read_member(found, "center.linear.gram", list), found["center.linear.sampled"]
    most *= found["center.linear.norm"] ** 2
    if len(gram) != size:
        raise RefusedDocument("center.linear.gram is not a square matrix")
    for row in gram:
        read_integers(row, "center.linear.gram", size, -most, most)
    if gram[0][0] < 1 or any(gram[i][i] < 0 for i in range(size)):
        raise RefusedDocument("center.linear.gram has a diagonal that no rows have")
    if any(
        gram[i][j] != gram[j][i] or gram[i][j] ** 2 > gram[i][i] * gram[j][j]
        for i, j in itertools.combinations(range(size), 2)
    ):
        raise RefusedDocument("center.linear.gram is not a matrix of inner products")


class LikelySystem(NamedTuple):
    """Regression of a linear center for one of the likeliest strengths of its prior, in steps of the label domain.

    Attributes:
      gram: Moments of the rows.
      moments: Noised moments of rows and labels.
      noise: Variance of their noise.
      prior: Prior variances of the coefficients.
      coefficients: The posterior mean, rounded.
    """

    gram: list[list[float]]
    moments: list[float]
    noise: float
    prior: list[float]
    coefficients: list[int]


def _coefficients(linear: dict[str, Any]) -> Iterator[list[int]]:
    """The coefficients for the likeliest strength of the prior; and those for any other one that is as likely."""
    if not linear["center.linear.sums"]:
        yield [0]
    for system in likely_systems(linear):
        yield system.coefficients


def likely_systems(linear: dict[str, Any]) -> Iterator[LikelySystem]:
    """Solves the regression of a linear center for the likeliest strength of the prior, and any that is as likely."""
    sums, labels, sampled, records, signal = (
        linear[f"center.linear.{key}"] for key in ("sums", "labels", "sampled", "records", "signal")
    )
    if not sums:
        return
    gram = [[float(value) / float(ROW_UNIT**2 * sampled) for value in row] for row in linear["center.linear.gram"]]
    unit = 2 * ROW_UNIT * records
    moments, error = [each / unit for each in sums], float(_noise_scale(linear)) / unit
    noise = 2 * (error * error)
    prior = [value * float((labels - 1) ** 2) for value in signal]
    if not gram[0][0] or not noise:
        return
    centered = [moment - row[0] * moments[0] / gram[0][0] for moment, row in zip(moments[1:], gram[1:], strict=True)]
    factors = [float.fromhex(factor) for factor in _STRENGTHS]
    likelihoods = [_likelihood(centered, [factor * value + noise for value in prior]) for factor in factors]
    most = max(likelihoods, default=-math.inf)
    for factor, likelihood in zip(factors, likelihoods, strict=True):
        if likelihood >= most - _CLOSE * (1 + abs(most)):
            variances = [_VARIANCE * (labels - 1) ** 2, *(v * factor for v in prior)]
            found = _posterior_mean(gram, moments, noise, variances)
            if all(map(math.isfinite, found)):
                scaled = [round(value * COEFFICIENT_UNIT) for value in found]
                coefficients = [min(max(value, -_MOST_COEFFICIENT), _MOST_COEFFICIENT) for value in scaled]
                yield LikelySystem(gram, moments, noise, variances, coefficients)


def _likelihood(moments: Sequence[float], variances: Sequence[float]) -> float:
    return -math.fsum(
        math.log(variance) + moment * moment / variance for moment, variance in zip(moments, variances, strict=True)
    )


def _posterior_mean(gram: list[list[float]], moments: list[float], noise: float, prior: list[float]) -> list[float]:
    """Solves (G G / noise + diag(1 / prior)) x = G moments / noise by elimination without pivoting."""
    size = len(moments)
    work = []
    for i, row in enumerate(gram):
        normal = [_in_order([row[k] * gram[k][j] for k in range(size)]) / noise for j in range(size)]
        normal[i] += 1 / prior[i]
        work.append([*normal, _blockwise([g * moment for g, moment in zip(row, moments, strict=True)]) / noise])
    try:
        for i, pivot in enumerate(work):
            for row in work[i + 1 :]:
                quotient = row[i] / pivot[i]
                for j in range(i, size + 1):
                    row[j] -= quotient * pivot[j]
        found = [0.0] * size
        for i in reversed(range(size)):
            known = _blockwise([a * b for a, b in zip(work[i][i + 1 : size], found[i + 1 :], strict=True)])
            found[i] = (work[i][size] - known) / work[i][i]
    except ZeroDivisionError:
        return [math.nan]
    return found


def _in_order(terms: list[float]) -> float:
    total = terms[0]
    for term in terms[1:]:
        total += term
    return total


def _blockwise(terms: list[float]) -> float:
    """Adds at most 128 terms as the format prescribes: eight partial sums of every eighth term, then the rest."""
    if len(terms) < 8:
        return _in_order([0.0, *terms])
    whole = len(terms) - len(terms) % 8
    a, b, c, d, e, f, g, h = (_in_order(terms[i:whole:8]) for i in range(8))
    return _in_order([((a + b) + (c + d)) + ((e + f) + (g + h)), *terms[whole:]])
