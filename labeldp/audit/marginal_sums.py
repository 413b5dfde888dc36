"""Second implementation of marginal sums: what their members may be, and bounds of the noised numbers.

Every feature parts the records: a category by its values, a number by cuts of its encoded value. A record lies in one
part of each feature. The center is a constant and the effects of a record's parts; that these follow from the sums is
checked by `center_replay`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .documents import RefusedDocument, ascending, residual_cells, sized

_NAME, _MOST_PARTS = "center.linear.marginals", 1000
# Noise beyond this multiple of its scale has a probability of e^-40 for each sum.
_MOST_NOISE = 40


@dataclass(frozen=True)
class CodedParts:
    """Parts of a feature, as codes.

    Attributes:
      cuts: Of a number; ascending.
      places: Of a category, the code of each place; empty for a number.
    """

    cuts: list[int]
    places: list[int]

    @property
    def size(self) -> int:
        """Number of parts."""
        return len(self.places) or len(self.cuts) + 1


@dataclass(frozen=True)
class Marginals:
    """Marginal sums of a center, with all members within their bounds.

    Attributes:
      parts: Parts of each feature.
      histogram_epsilon, sums_epsilon: Budgets of the histogram and of the sums.
      common: Number of records that any two parts have in common, L rows of L.
      counts: Noised counts of the histogram of the labels.
      ends: Least and largest label in the sums, in steps from the middle of the domain.
      sums: Noised sum of the clipped labels of each part.
      constant, effects: What is predicted, in units of 2^-16 steps from the middle.
    """

    parts: list[CodedParts]
    histogram_epsilon: Fraction
    sums_epsilon: Fraction
    common: list[list[int]]
    counts: list[int]
    ends: list[int]
    sums: list[int]
    constant: int
    effects: list[int]

    @property
    def epsilon(self) -> Fraction:
        """Budget that histogram and sums have spent."""
        return self.histogram_epsilon + self.sums_epsilon

    @property
    def slices(self) -> list[slice]:
        """Places of the parts of each feature among those of all."""
        bounds = itertools.accumulate((part.size for part in self.parts), initial=0)
        return [slice(*pair) for pair in itertools.pairwise(bounds)]

    @property
    def scales(self) -> list[Fraction]:
        """Scale of the noise of the sums of each feature: their sensitivity, divided by its part of epsilon."""
        weights = [math.isqrt(64 * part.size) for part in self.parts]
        return [(self.ends[1] - self.ends[0]) / (self.sums_epsilon * weight / sum(weights)) for weight in weights]


def read_marginals(linear: Mapping[str, Any]) -> Marginals:
    """Reads the marginal sums of a center, whose other members were checked.

    Raises RefusedDocument if a member does not fit to others, or the records in common are not those of any records.
    """
    marginals, encoders, labels = linear["marginals"], linear["encoders"], linear["labels"]
    if linear["sums"]:
        raise RefusedDocument("center.linear has marginal sums and components")
    parts = []
    for encoder, cuts in zip(encoders, sized(marginals["cuts"], f"{_NAME}.cuts", len(encoders)), strict=True):
        category = "shares" in encoder
        if category == bool(cuts) or (category and not encoder["values"]):
            raise RefusedDocument(f"{_NAME}.cuts has cuts of a category, or none of a number")
        parts.append(
            CodedParts(ascending(cuts, f"{_NAME}.cuts"), list(range(len(encoder["values"]) + 1)) if category else [])
        )
    size = sum(part.size for part in parts)
    if size > _MOST_PARTS:
        raise RefusedDocument(f"{_NAME} has more than {_MOST_PARTS} parts")
    rows = sized(marginals["common"], f"{_NAME}.common", size)
    below = [sized(row, f"{_NAME}.common", place + 1) for place, row in enumerate(rows)]
    common = [[*row, *(later[place] for later in below[place + 1 :])] for place, row in enumerate(below)]
    low, high = marginals["range"]
    if not -(labels // 2) <= low < high <= labels - 1 - labels // 2:
        raise RefusedDocument(f"{_NAME}.range is not one of labels")
    found = Marginals(
        parts=parts,
        histogram_epsilon=Fraction(marginals["histogram_epsilon"]),
        sums_epsilon=Fraction(marginals["sums_epsilon"]),
        common=common,
        counts=sized(marginals["counts"], f"{_NAME}.counts", len(residual_cells(labels))),
        ends=marginals["range"],
        sums=sized(marginals["sums"], f"{_NAME}.sums", size),
        constant=marginals["constant"],
        effects=sized(marginals["effects"], f"{_NAME}.effects", size),
    )
    for part in found.slices:
        if any(sum(row[part]) != row[place] for place, row in enumerate(common)):
            raise RefusedDocument(f"{_NAME}.common is not of records that are in one part of each feature")
    return found


def marginal_problems(marginals: Marginals, most: int) -> Iterator[str]:
    """Checks the noised numbers of marginal sums of at most so many records."""
    own = [row[place] for place, row in enumerate(marginals.common)]
    records = sum(own[marginals.slices[0]])
    if records > most:
        yield f"{_NAME}.common has more records than center.linear.records"
    noise = (len(marginals.counts).bit_length() + _MOST_NOISE) * 2 / marginals.histogram_epsilon
    if min(marginals.counts) < -noise or max(marginals.counts) > records + noise:
        yield f"{_NAME}.counts are not those of any labels with their noise"
    low, high = marginals.ends
    for part, scale in zip(marginals.slices, marginals.scales, strict=True):
        noise = (len(own).bit_length() + _MOST_NOISE) * scale
        pairs = zip(marginals.sums[part], own[part], strict=True)
        if any(not low * count - noise <= total <= high * count + noise for total, count in pairs):
            yield f"{_NAME}.sums are larger than those of any labels with their noise"
            return


def marginal_line(column: str, marginals: Marginals) -> str:
    """Line of a report about a center of marginal sums in a column."""
    low, high = marginals.ends
    scales = sorted({float(scale) for scale in marginals.scales})
    return (
        f"center       column '{column}', additive in {len(marginals.parts)} features: {len(marginals.sums)} sums of "
        f"labels clipped to {low}..{high} steps from the middle by parts of each feature, of sensitivity {high - low} "
        f"for each, with noise of scale {scales[0]!r} to {scales[-1]!r} for epsilon {float(marginals.sums_epsilon)!r} "
        f"in sum; the histogram of the labels has epsilon {float(marginals.histogram_epsilon)!r}"
    )
