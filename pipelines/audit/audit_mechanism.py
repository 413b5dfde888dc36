"""Second implementation of the certificate: audits a mechanism file from its integers."""

from __future__ import annotations

import hashlib
import json
import math
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

from .documents import RefusedDocument, read_ascending, read_bound, read_decimal, read_floats, read_member
from .exact_log import exp_below, ln_at_most, ln_rounded_up, rounded_up

MECHANISM_FORMAT = "labeldp-mechanism-1"


_MAX_DENSE_CELLS = 1 << 24  # labels times outputs, where runs must be expanded


_MAX_DENSE_EPSILON = 64


_NAME = re.compile(r"[A-Za-z0-9_.+-]{1,64}")  # it is printed: no line break may forge a verdict


_ROUNDINGS = ("nearest", "randomized")


@dataclass(frozen=True)
class Audit:
    """What an audit found. Recomputed from the weights, unless said to be the file's word.

    Where the document does not even have the shape of a mechanism file, labels is 0 and only problems counts.
    """

    problems: tuple[str, ...]  # one line each; empty if and only if everything holds
    mechanism: str = ""  # the file's word
    labels: int = 0  # how many
    outputs: int = 0  # how many
    bits: int = 0
    requested_epsilon: float = math.inf  # the file's word
    certified_epsilon: float = math.inf  # the file's word
    epsilon: float = math.inf  # the least float >= ln(ratio); infinite without a ratio
    ratio: Fraction | None = None  # >= 1; None where a row does not sum to 2^bits or a probability is zero
    max_bias: float = math.inf  # largest |E[output] - label|, rounded up; in the label's unit
    fingerprint: str = ""
    requested_delta: float = 0.0  # the file's word; 0 for pure DP
    certified_delta: float = 0.0  # the file's word
    delta: float = 0.0  # for (epsilon, delta)-DP, the least float >= what certified_epsilon needs
    prior_epsilon: float | None = None  # the release's word; None where no release was audited
    total_epsilon: float | None = None  # the release's word; None where no release was audited


def audit_mechanism(document: dict[str, Any]) -> Audit:
    """Audits a mechanism file that json.loads has read. Raises nothing for a bad one: see Audit.problems.

    Takes O(labels + outputs + runs) integer operations: runs are never expanded.
    """
    try:
        return audit_text(document)
    except RefusedDocument as refused:
        return Audit((str(refused),))


def _runs(column: Any, what: str, labels: int) -> list[tuple[int, int]]:
    """The runs of a column as (first label, weight)."""
    if not isinstance(column, list):
        raise RefusedDocument(f"{what} is not an array of runs")
    runs, start, weight_of = [], 0, f"a weight of {what}"
    for run in column:
        if not isinstance(run, list) or len(run) != 2 or type(run[1]) is not int or run[1] < 1:
            raise RefusedDocument(f"a run of {what} is not a weight and a length >= 1")
        runs.append((start, read_decimal(run[0], weight_of)))
        start += run[1]
    if start != labels:
        raise RefusedDocument(f"the runs of {what} do not cover {labels} labels")
    return runs


def audit_text(document: dict[str, Any]) -> Audit:
    if not isinstance(document, dict) or document.get("format") != MECHANISM_FORMAT:
        raise RefusedDocument(f"this is not a mechanism file: its format is not {MECHANISM_FORMAT}")
    name, bits = read_member(document, "mechanism", str), read_member(document, "bits", int)
    if not _NAME.fullmatch(name):
        raise RefusedDocument("mechanism is not a name of 1 to 64 letters, digits and _.+-")
    if not 1 <= bits <= 63:
        raise RefusedDocument("bits is not between 1 and 63")
    read_member(document, "parameters", dict)
    if document.get("rounding", "nearest") not in _ROUNDINGS:
        raise RefusedDocument(f"rounding is not {' or '.join(_ROUNDINGS)}")
    requested = read_bound(document, "epsilon")
    requested_delta = read_bound(document, "delta") if "delta" in document else Fraction(0)
    if not requested_delta < 1:
        raise RefusedDocument("delta is not below 1")
    labels, outputs = read_ascending(document, "labels"), read_ascending(document, "outputs")
    columns = read_member(document, "columns", list)
    if len(columns) != len(outputs):
        raise RefusedDocument(f"there are {len(columns)} columns for {len(outputs)} outputs")
    # The prefix tells a complaint about this epsilon from one about the other.
    certificate = read_member(document, "certificate", dict)
    certificate = {f"certificate.{key}": value for key, value in certificate.items()}

    # The denominators of floats are powers of two, so the largest is common to all.
    scale = max(value.as_integer_ratio()[1] for value in labels + outputs)
    sums, moments, ranges = _tally(columns, [_scaled(output, scale) for output in outputs], len(labels))
    pure = requested_delta == 0
    problems = list(_weight_problems(sums, ranges, 1 << bits, pure))
    # Without such problems, and only then, ratios of weights are ratios of probabilities.
    ratio = None
    if not problems and all(least for least, _ in ranges):
        ratio = max(Fraction(most, least) for least, most in set(ranges))
    biases = [moment - (_scaled(y, scale) << bits) for y, moment in zip(labels, moments, strict=True)]
    certified, delta = read_bound(certificate, "certificate.epsilon"), Fraction(0)
    if pure:
        problems += _epsilon_problems(certificate, ratio, requested, 1 << bits)
    else:
        delta = Fraction(1) if problems else _divergence(columns, len(labels), certified, bits)
        problems += _delta_problems(certificate, delta, requested, requested_delta, 1 << bits)
    epsilon = math.inf if ratio is None else ln_rounded_up(ratio)
    if not pure and not problems:
        epsilon = float(certified)
    problems += _bias_problems(certificate, biases, scale << bits)
    signed = {"bits": bits, "columns": columns, "labels": labels, "outputs": outputs}
    canonical = json.dumps(signed, sort_keys=True, separators=(",", ":"))
    fingerprint = hashlib.blake2b(canonical.encode(), digest_size=32).hexdigest()
    if read_member(document, "fingerprint", str) != fingerprint:
        problems.append("fingerprint is not that of the bits, columns, labels and outputs")
    return Audit(
        problems=tuple(problems),
        mechanism=name,
        labels=len(labels),
        outputs=len(outputs),
        bits=bits,
        requested_epsilon=float(requested),
        certified_epsilon=float(certified),
        epsilon=epsilon,
        ratio=ratio,
        max_bias=rounded_up(Fraction(max(map(abs, biases)), scale << bits)),
        fingerprint=fingerprint,
        requested_delta=float(requested_delta),
        certified_delta=0.0 if pure else float(read_bound(certificate, "certificate.delta")),
        delta=rounded_up(delta),
    )


def _scaled(value: float, scale: int) -> int:
    """value * scale, an integer because scale is a multiple of value's denominator."""
    numerator, denominator = value.as_integer_ratio()
    return numerator * (scale // denominator)


def _tally(columns: list[Any], targets: list[int], labels: int) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """Per label, the sums of weight and of weight * target; per column, its least and its largest weight.

    Gathered as changes from one label to the next, so that a run costs the same whatever its length.
    """
    sums, moments, ranges = [0] * labels, [0] * labels, []
    for c, (column, target) in enumerate(zip(columns, targets, strict=True)):
        runs, before = _runs(column, f"column {c}", labels), 0
        for start, weight in runs:
            sums[start] += weight - before
            moments[start] += (weight - before) * target
            before = weight
        weights = [weight for _, weight in runs]
        ranges.append((min(weights), max(weights)))
    return list(accumulate(sums)), list(accumulate(moments)), ranges


def _divergence(columns: list[Any], labels: int, epsilon: Fraction, bits: int) -> Fraction:
    """The largest sum over outputs of max(0, P(c | y) - E P(c | y')), E = e^epsilon rounded down by less than 2^-300.

    Against the least weight of every column no label's sum is smaller than against another label; so labels are
    taken by that bound, down to the largest sum found, and only columns that count there are looked at.
    """
    if labels * len(columns) > _MAX_DENSE_CELLS or epsilon > _MAX_DENSE_EPSILON:
        raise RefusedDocument(
            f"an audit of delta takes at most {_MAX_DENSE_CELLS} cells, and epsilon {_MAX_DENSE_EPSILON}"
        )
    shift = 300
    factor = math.floor(exp_below(epsilon) * (1 << shift))
    # Rows sum to 2^bits, so 64 bits hold a weight.
    counting, dense, bounds = [array("L") for _ in range(labels)], [], [0] * labels
    for c, column in enumerate(columns):
        weights = array("Q", (weight for _, weight, length in _spans(column, labels) for _ in range(length)))
        dense.append(weights)
        floor = factor * min(weights)
        for y, weight in enumerate(weights):
            above = (weight << shift) - floor
            if above > 0:
                bounds[y] += above
                counting[y].append(c)
    best = 0
    for y in sorted(range(labels), key=lambda label: -bounds[label]):
        if bounds[y] <= best:
            break
        sums = [0] * labels
        for c in counting[y]:
            own = dense[c][y] << shift
            for other, weight in enumerate(dense[c]):
                above = own - factor * weight
                if above > 0:
                    sums[other] += above
        best = max(best, *sums)
    return Fraction(best, 1 << (shift + bits))


def _spans(column: Any, labels: int) -> Iterator[tuple[int, int, int]]:
    """The runs of a column as (first label, weight, length)."""
    runs = _runs(column, "a column", labels)
    for (start, weight), (stop, _) in pairwise([*runs, (labels, 0)]):
        yield start, weight, stop - start


def _weight_problems(sums: list[int], ranges: list[tuple[int, int]], unit: int, pure: bool) -> Iterator[str]:
    if wrong := [y for y, total in enumerate(sums) if total != unit]:
        yield f"the weights of {len(wrong)} labels do not sum to 2^bits, first label number {wrong[0]}"
    if never := [c for c, (_, most) in enumerate(ranges) if most == 0]:
        yield f"{len(never)} outputs have probability zero for every label, first output number {never[0]}"
    if pure and (mixed := [c for c, (least, most) in enumerate(ranges) if least == 0 < most]):
        yield f"epsilon is infinite: only some labels can give {len(mixed)} outputs, first number {mixed[0]}"


def _epsilon_problems(
    certificate: dict[str, Any], ratio: Fraction | None, requested: Fraction, unit: int
) -> Iterator[str]:
    certified = read_bound(certificate, "certificate.epsilon")
    parts = read_member(certificate, "certificate.ratio", list)
    parts = [read_decimal(part, "a part of certificate.ratio") for part in parts]
    if len(parts) != 2 or parts[1] == 0:
        raise RefusedDocument("certificate.ratio is not a numerator and a denominator > 0")
    if read_decimal(read_member(certificate, "certificate.row_sum", str), "certificate.row_sum") != unit:
        yield "certificate.row_sum is not 2^bits"
    if ratio is not None and Fraction(*parts) != ratio:
        yield "certificate.ratio is not the largest ratio of the weights"
    if ratio is not None and not ln_at_most(ratio, certified):
        yield "certificate.epsilon is below the true epsilon"
    if certified > requested:
        yield "certificate.epsilon is above the epsilon requested"


def _delta_problems(
    certificate: dict[str, Any], delta: Fraction, requested: Fraction, requested_delta: Fraction, unit: int
) -> Iterator[str]:
    """delta: the true one at certificate.epsilon."""
    certified = read_bound(certificate, "certificate.delta")
    if read_decimal(read_member(certificate, "certificate.row_sum", str), "certificate.row_sum") != unit:
        yield "certificate.row_sum is not 2^bits"
    if certified < delta:
        yield "certificate.delta is below the true delta at certificate.epsilon"
    if certified > requested_delta:
        yield "certificate.delta is above the delta requested"
    if read_bound(certificate, "certificate.epsilon") > requested:
        yield "certificate.epsilon is above the epsilon requested"


def _bias_problems(certificate: dict[str, Any], biases: list[int], denominator: int) -> Iterator[str]:
    """biases: the true ones, times denominator."""
    claimed = read_floats(certificate, "certificate.bias")
    if len(claimed) != len(biases):
        raise RefusedDocument(f"certificate.bias has {len(claimed)} entries for {len(biases)} labels")
    try:  # Python divides two integers with correct rounding, as float(Fraction) does
        wrong = [y for y, bias in enumerate(biases) if bias / denominator != claimed[y]]
    except OverflowError:
        raise RefusedDocument("a bias is too large for a float") from None
    if wrong:
        yield f"certificate.bias is wrong for {len(wrong)} labels, first for label number {wrong[0]}"
    most = Fraction(max(map(abs, biases)), denominator)
    slack = most / 10**9 + Fraction(1, 10**300)
    if not most <= read_bound(certificate, "certificate.max_bias") <= most + slack:
        yield "certificate.max_bias is not the largest true bias, rounded up"
