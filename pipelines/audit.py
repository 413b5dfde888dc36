"""Audits a mechanism file, or a whole release, from the integers in it: the command `labeldp audit`.

A second implementation of the certificate, on purpose: it imports the standard library only, so a mistake in
the solvers cannot hide itself here. Every check is decided in exact integers and rationals, where a float in
a file stands for the rational number that it is. A file is hostile until it has been checked.

A mechanism file gives integers W with P(output c | label y) = W[y, c] / 2^bits. Its true epsilon is ln of the
largest ratio, over outputs and pairs of labels, of two weights for one output. A file with a delta claims
(epsilon, delta)-DP instead: there the sum over outputs of what P(c | y) has above e^epsilon P(c | y') is recomputed.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import os
import re
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

MECHANISM_FORMAT = "labeldp-mechanism-1"
RELEASE_FORMAT = "labeldp-release-1"

_MAX_FILE_BYTES = 1 << 27
_MAX_DENSE_CELLS = 1 << 24  # labels times outputs, where runs must be expanded
_MAX_DENSE_EPSILON = 64
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,19}")  # 2^63 has 19 digits
_NAME = re.compile(r"[A-Za-z0-9_.+-]{1,64}")  # it is printed: no line break may forge a verdict
_ROUNDINGS = ("nearest", "randomized")
_JSON_TYPES = {dict: "an object", list: "an array", str: "a string", int: "an integer", object: "a number"}


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


class _Refused(Exception):
    """The document cannot be audited. The text says why, on one line of ASCII."""


def audit_mechanism(document: dict[str, Any]) -> Audit:
    """Audits a mechanism file that json.loads has read. Raises nothing for a bad one: see Audit.problems.

    Takes O(labels + outputs + runs) integer operations: runs are never expanded.
    """
    try:
        return _audit(document)
    except _Refused as refused:
        return Audit((str(refused),))


def audit_path(path: str) -> Audit:
    """Audits a mechanism file, a release.json with the mechanism.json beside it, or a folder with both.

    Raises FileNotFoundError where path does not exist; what is wrong with a file is in Audit.problems.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(path)
    try:
        where = Path(path)
        if where.is_dir():
            return _audit_release(where, _load(where / "release.json"))
        document = _load(where)
        if document.get("format") == RELEASE_FORMAT:
            return _audit_release(where.parent, document)
        return _audit(document)
    except _Refused as refused:
        return Audit((str(refused),))
    except MemoryError:
        return Audit(("auditing this file takes more memory than there is",))


def report(audit: Audit) -> str:
    """The audit in a few plain ASCII lines, the last of them "PASS", or "FAIL: " and every problem."""
    lines = []
    if audit.labels:
        delta = f"at most {audit.delta!r}; certified {audit.certified_delta!r}, requested {audit.requested_delta!r}"
        ratio = "unbounded" if audit.ratio is None else f"{audit.ratio.numerator}/{audit.ratio.denominator}"
        lines += [
            f"mechanism    {audit.mechanism}: {audit.labels} labels, {audit.outputs} outputs, "
            f"probabilities in units of 2^-{audit.bits}",
            f"epsilon      at most {audit.epsilon!r}, recomputed from the weights; "
            f"certified {audit.certified_epsilon!r}, requested {audit.requested_epsilon!r}",
            *([f"delta        {delta}"] if audit.requested_delta > 0 else []),
            f"ratio        {ratio}, the largest factor between two labels' chances of one output",
            f"bias         at most {audit.max_bias!r}, for every label",
            f"fingerprint  {audit.fingerprint}",
        ]
    if audit.total_epsilon is not None:
        spent = f"epsilon {audit.total_epsilon!r} in total, of it {audit.prior_epsilon!r} for the prior"
        lines.append(f"release      {spent}")
    lines.append("FAIL: " + "; ".join(audit.problems) if audit.problems else "PASS")
    return "\n".join(lines)


def run(argv: Sequence[str] | None = None) -> int:
    """The command. Prints the report; returns 0 when everything holds and 1 when it does not.

    Bad usage, a path that does not exist included, raises SystemExit(2) with a message on standard error.
    """
    parser = argparse.ArgumentParser(
        prog="labeldp audit",
        description="Recomputes a mechanism file's epsilon, bias and fingerprint from its integer weights.",
        epilog="Exit status: 0 everything holds, 1 something does not, 2 bad usage.",
    )
    parser.add_argument("path", metavar="FILE|FOLDER", help="a mechanism file, release.json or output folder")
    path = parser.parse_args(argv).path
    try:
        audit = audit_path(path)
    except FileNotFoundError:
        parser.error(f"{path!a} does not exist: name a mechanism file, or a folder with mechanism.json in it")
    print(report(audit))
    return 1 if audit.problems else 0


def ln_bounds(x: Fraction, terms: int) -> tuple[Fraction, Fraction]:
    """Rationals lower <= ln(x) <= upper, both 0 for x = 1, ninefold closer with every term; terms >= 1.

    Raises ValueError for x <= 0.
    """
    if x <= 0:
        raise ValueError("ln needs a number > 0")
    if x < 1:
        lower, upper = ln_bounds(1 / x, terms)
        return -upper, -lower
    exponent = math.floor(x).bit_length() - 1
    rest = x / (1 << exponent)  # in [1, 2), so that z below is in [0, 1/3)
    lower, upper = _twice_atanh((rest - 1) / (rest + 1), terms)
    two_lower, two_upper = _twice_atanh(Fraction(1, 3), terms)  # ln 2
    return lower + exponent * two_lower, upper + exponent * two_upper


def _twice_atanh(z: Fraction, terms: int) -> tuple[Fraction, Fraction]:
    """Bounds on 2 atanh(z) = ln((1 + z) / (1 - z)), the sum of 2 z^(2i+1) / (2i+1), for 0 <= z < 1.

    The terms left out, i >= n, are >= 0 and sum to at most 2 z^(2n+1) / (2n+1) * (1 + z^2 + z^4 + ...).
    """
    power, total = 2 * z, Fraction(0)
    for i in range(terms):
        total += power / (2 * i + 1)
        power *= z * z
    return total, total + power / ((2 * terms + 1) * (1 - z * z))


def ln_at_most(x: Fraction, bound: Fraction) -> bool:
    """Whether ln(x) <= bound, for x > 0, decided exactly.

    It ends: ln of a rational other than 1 is irrational (Lindemann), hence never bound itself; ln 1 is exact.
    """
    terms = 32
    while True:
        lower, upper = ln_bounds(x, terms)
        if upper <= bound or lower > bound:
            return upper <= bound
        terms *= 2


def _ln_rounded_up(x: Fraction) -> float:
    """The least float >= ln(x), for x >= 1."""
    value = _rounded_up(ln_bounds(x, 32)[1])
    while value > 0 and ln_at_most(x, Fraction(below := math.nextafter(value, 0))):
        value = below
    return value


def _rounded_up(x: Fraction) -> float:
    """The least float >= x; infinite where the floats end."""
    try:
        value = float(x)
    except OverflowError:
        return math.inf
    return value if Fraction(value) >= x else math.nextafter(value, math.inf)


def _load(path: Path) -> dict[str, Any]:
    def refuse_constant(text: str) -> None:
        raise ValueError(f"{text} is not a number")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            raise ValueError("a key appears twice in one object")
        return members

    name = ascii(path.name)
    try:
        if path.exists() and not path.is_file():  # reading a pipe or a device might never end
            raise _Refused(f"{name} is not a regular file")
        with path.open("rb") as file:
            text = file.read(_MAX_FILE_BYTES + 1)
        if len(text) > _MAX_FILE_BYTES:
            raise _Refused(f"{name} has more than {_MAX_FILE_BYTES} bytes")
        loaded = json.loads(text.decode(), parse_constant=refuse_constant, object_pairs_hook=unique)
    except OSError as error:
        raise _Refused(f"{name} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise _Refused(f"{name} is not valid JSON: {error}") from None
    except RecursionError:
        raise _Refused(f"{name} is nested too deeply") from None
    if not isinstance(loaded, dict):
        raise _Refused(f"{name} is not a JSON object")
    return loaded


def _member(document: dict[str, Any], key: str, kind: type) -> Any:
    if key not in document:
        raise _Refused(f"{key} is missing")
    if not isinstance(document[key], kind) or isinstance(document[key], bool):
        raise _Refused(f"{key} is not {_JSON_TYPES[kind]}")
    return document[key]


def _bound(document: dict[str, Any], key: str) -> Fraction:
    value = _member(document, key, object)
    if not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max or float(value) != value:
        raise _Refused(f"{key} is not a finite float >= 0")
    return Fraction(value)


def _floats(document: dict[str, Any], key: str) -> list[float]:
    """Integers are refused: 1 and 1.0 would be one number with two fingerprints."""
    values = _member(document, key, list)
    if not values or not all(isinstance(value, float) and math.isfinite(value) for value in values):
        raise _Refused(f"{key} is not a non-empty array of finite floats (1.0, not 1)")
    return values


def _ascending(document: dict[str, Any], key: str) -> list[float]:
    values = _floats(document, key)
    if any(left >= right for left, right in pairwise(values)):
        raise _Refused(f"{key} is not strictly ascending")
    return values


def _decimal(text: Any, what: str) -> int:
    if not isinstance(text, str) or not _DECIMAL.fullmatch(text):
        raise _Refused(f"{what} is not a string of 1 to 20 decimal digits")
    return int(text)


def _runs(column: Any, what: str, labels: int) -> list[tuple[int, int]]:
    """The runs of a column as (first label, weight)."""
    if not isinstance(column, list):
        raise _Refused(f"{what} is not an array of runs")
    runs, start, weight_of = [], 0, f"a weight of {what}"
    for run in column:
        if not isinstance(run, list) or len(run) != 2 or type(run[1]) is not int or run[1] < 1:
            raise _Refused(f"a run of {what} is not a weight and a length >= 1")
        runs.append((start, _decimal(run[0], weight_of)))
        start += run[1]
    if start != labels:
        raise _Refused(f"the runs of {what} do not cover {labels} labels")
    return runs


def _audit(document: dict[str, Any]) -> Audit:
    if not isinstance(document, dict) or document.get("format") != MECHANISM_FORMAT:
        raise _Refused(f"this is not a mechanism file: its format is not {MECHANISM_FORMAT}")
    name, bits = _member(document, "mechanism", str), _member(document, "bits", int)
    if not _NAME.fullmatch(name):
        raise _Refused("mechanism is not a name of 1 to 64 letters, digits and _.+-")
    if not 1 <= bits <= 63:
        raise _Refused("bits is not between 1 and 63")
    _member(document, "parameters", dict)
    if document.get("rounding", "nearest") not in _ROUNDINGS:
        raise _Refused(f"rounding is not {' or '.join(_ROUNDINGS)}")
    requested = _bound(document, "epsilon")
    requested_delta = _bound(document, "delta") if "delta" in document else Fraction(0)
    if not requested_delta < 1:
        raise _Refused("delta is not below 1")
    labels, outputs = _ascending(document, "labels"), _ascending(document, "outputs")
    columns = _member(document, "columns", list)
    if len(columns) != len(outputs):
        raise _Refused(f"there are {len(columns)} columns for {len(outputs)} outputs")
    # The prefix tells a complaint about this epsilon from one about the other.
    certificate = _member(document, "certificate", dict)
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
    certified, delta = _bound(certificate, "certificate.epsilon"), Fraction(0)
    if pure:
        problems += _epsilon_problems(certificate, ratio, requested, 1 << bits)
    else:
        delta = Fraction(1) if problems else _divergence(columns, len(labels), certified, bits)
        problems += _delta_problems(certificate, delta, requested, requested_delta, 1 << bits)
    epsilon = math.inf if ratio is None else _ln_rounded_up(ratio)
    if not pure and not problems:
        epsilon = float(certified)
    problems += _bias_problems(certificate, biases, scale << bits)
    signed = {"bits": bits, "columns": columns, "labels": labels, "outputs": outputs}
    canonical = json.dumps(signed, sort_keys=True, separators=(",", ":"))
    fingerprint = hashlib.blake2b(canonical.encode(), digest_size=32).hexdigest()
    if _member(document, "fingerprint", str) != fingerprint:
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
        max_bias=_rounded_up(Fraction(max(map(abs, biases)), scale << bits)),
        fingerprint=fingerprint,
        requested_delta=float(requested_delta),
        certified_delta=0.0 if pure else float(_bound(certificate, "certificate.delta")),
        delta=_rounded_up(delta),
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
        raise _Refused(f"an audit of delta takes at most {_MAX_DENSE_CELLS} cells, and epsilon {_MAX_DENSE_EPSILON}")
    shift = 300
    factor = math.floor(_exp_below(epsilon) * (1 << shift))
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


def _exp_below(x: Fraction) -> Fraction:
    """A rational <= e^x, within a relative 2^-340 or so, for 0 <= x <= 64: a sum of the first terms, each rounded
    down."""
    unit = 1 << 512
    power, total, n = unit, 0, 0
    while power:
        total += power
        n += 1
        power = power * x.numerator // (n * x.denominator)
    return Fraction(total, unit)


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
    certified = _bound(certificate, "certificate.epsilon")
    parts = _member(certificate, "certificate.ratio", list)
    parts = [_decimal(part, "a part of certificate.ratio") for part in parts]
    if len(parts) != 2 or parts[1] == 0:
        raise _Refused("certificate.ratio is not a numerator and a denominator > 0")
    if _decimal(_member(certificate, "certificate.row_sum", str), "certificate.row_sum") != unit:
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
    certified = _bound(certificate, "certificate.delta")
    if _decimal(_member(certificate, "certificate.row_sum", str), "certificate.row_sum") != unit:
        yield "certificate.row_sum is not 2^bits"
    if certified < delta:
        yield "certificate.delta is below the true delta at certificate.epsilon"
    if certified > requested_delta:
        yield "certificate.delta is above the delta requested"
    if _bound(certificate, "certificate.epsilon") > requested:
        yield "certificate.epsilon is above the epsilon requested"


def _bias_problems(certificate: dict[str, Any], biases: list[int], denominator: int) -> Iterator[str]:
    """biases: the true ones, times denominator."""
    claimed = _floats(certificate, "certificate.bias")
    if len(claimed) != len(biases):
        raise _Refused(f"certificate.bias has {len(claimed)} entries for {len(biases)} labels")
    try:  # Python divides two integers with correct rounding, as float(Fraction) does
        wrong = [y for y, bias in enumerate(biases) if bias / denominator != claimed[y]]
    except OverflowError:
        raise _Refused("a bias is too large for a float") from None
    if wrong:
        yield f"certificate.bias is wrong for {len(wrong)} labels, first for label number {wrong[0]}"
    most = Fraction(max(map(abs, biases)), denominator)
    slack = most / 10**9 + Fraction(1, 10**300)
    if not most <= _bound(certificate, "certificate.max_bias") <= most + slack:
        yield "certificate.max_bias is not the largest true bias, rounded up"


def _audit_release(folder: Path, release: dict[str, Any]) -> Audit:
    """Audits the mechanism.json in folder, and this manifest of it."""
    mechanism = _load(folder / "mechanism.json")
    audit = _audit(mechanism)
    if release.get("format") != RELEASE_FORMAT:
        raise _Refused(f"release.json is not a release manifest: its format is not {RELEASE_FORMAT}")
    release = {f"release.{key}": value for key, value in release.items()}
    total, prior = _bound(release, "release.epsilon"), _bound(release, "release.prior_epsilon")
    certified = _bound(release, "release.certified_epsilon")
    problems = list(audit.problems)
    if _member(release, "release.mechanism_fingerprint", str) != audit.fingerprint:
        problems.append("release.mechanism_fingerprint is not that of mechanism.json")
    if release.get("release.rounding") != mechanism.get("rounding"):
        problems.append("release.rounding is not that of mechanism.json")
    if prior + Fraction(audit.certified_epsilon) > certified:
        problems.append("release.certified_epsilon is below release.prior_epsilon + certificate.epsilon")
    if certified > total:
        problems.append("release.certified_epsilon is above release.epsilon")
    if prior + _bound(release, "release.randomizer_epsilon") > total:
        problems.append("release.prior_epsilon + release.randomizer_epsilon is above release.epsilon")
    if Fraction(audit.certified_epsilon) > _bound(release, "release.randomizer_epsilon"):
        problems.append("release.randomizer_epsilon is below certificate.epsilon")
    if audit.requested_delta > 0 and Fraction(audit.certified_delta) > _bound(release, "release.delta"):
        problems.append("release.delta is below certificate.delta")
    # The certificate is of the weights alone; what the prior spent is told in both files.
    noised = mechanism.get("prior")
    if isinstance(noised, dict) and _bound({"prior.epsilon": noised.get("epsilon")}, "prior.epsilon") != prior:
        problems.append("release.prior_epsilon is not prior.epsilon of mechanism.json")
    if release.get("release.certified_delta", audit.certified_delta) != audit.certified_delta:
        problems.append("release.certified_delta is not certificate.delta")
    found = release.get("release.shards")
    shards = found if isinstance(found, dict) else {}
    counts = list(shards.values())
    if counts and not (all(type(count) is int for count in counts) and sum(counts) == release.get("release.records")):
        problems.append("release.shards do not add up to release.records")
    data = folder / "data"
    if counts and data.is_dir():
        # Hidden files are somebody else's.
        there = {path.name for path in data.iterdir() if not path.name.startswith(".")}
        problems += [f"data/{name} is missing" for name in sorted(set(shards) - there)]
        problems += [f"data/{ascii(name)[1:-1]} is not one of release.shards" for name in sorted(there - set(shards))]
    return dataclasses.replace(audit, problems=tuple(problems), total_epsilon=float(total), prior_epsilon=float(prior))
