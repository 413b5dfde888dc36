"""Second implementation of the certificate: audits a mechanism file from its integers.

It imports the standard library only, so that a mistake in the solvers cannot affect the audit. Every check of the
certificate is decided in exact integers and rationals; a float in a file stands for the rational number that it
represents. Input files are untrusted. What follows from the noised numbers of a center is replayed with the program's
own code, by `center_replay` alone.

A mechanism file gives integers W with P(output c | label y) = W[y, c] / 2^bits. Its true epsilon is ln of the largest
ratio, over outputs and pairs of labels, of two weights for one output. A file with a delta claims (epsilon, delta)-DP
instead: for it, the largest sum over outputs of max(0, P(c | y) - e^epsilon P(c | y')) over pairs of labels is
recomputed.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .center_audit import center_line, center_sum_problems, linear_replay_line, read_linear_center
from .class_audit import check_places, class_problems, classes_line, read_classes
from .class_center_audit import CLASS_CENTER, class_center_lines, class_center_problems, class_replay_line
from .class_center_document import read_class_center
from .documents import (
    RefusedDocument,
    public_domain,
    read_ascending_floats,
    read_center,
    read_count,
    read_counts,
    read_decimal,
    read_floats,
    read_member,
    read_nonnegative,
    records_per_unit,
)
from .weight_runs import largest_divergence, largest_ratio, ln_at_most, ln_rounded_up, rounded_up, tally_columns

MECHANISM_FORMAT, CENTER_MECHANISM_FORMAT = "labeldp-mechanism-1", "labeldp-mechanism-2"
"""Formats of mechanism files: with a randomizer, and with a center that classes are drawn from."""

_NAME = re.compile(r"[A-Za-z0-9_.+-]{1,64}")  # the report prints it: a line break could forge a verdict
_CANDIDATE = re.compile(r"[A-Za-z0-9_.+:=-]{1,64}")
_TEXT = re.compile(r"[ -~]{0,64}")
_RELEASE_NAME = re.compile(r"[0-9a-f]{32}")
_MAX_PARAMETERS = 64
_SUM_TOLERANCE = 1e-9
_MOST_DECLARED, _MOST_EPSILON, _SPACING = 1 << 20, 30, 1e-8
_ROUNDINGS = ("nearest", "randomized")


@dataclass(frozen=True)
class Audit:
    """Result of an audit: values recomputed from the weights, beside values that the files state.

    For a document that does not have the shape of a mechanism file, labels is 0 and only problems has a meaning.

    Attributes:
      problems: Failed checks, one line each; empty if and only if every check holds.
      mechanism: Name of the mechanism, as stated; empty for classes that are drawn from a center, whose epsilons of
        the randomizer are 0.
      labels: Number of labels.
      outputs: Number of outputs.
      bits: Binary logarithm of the sum of a row of weights.
      requested_epsilon: As stated.
      certified_epsilon: As stated.
      epsilon: The least float >= ln(ratio); infinite without a ratio. For (epsilon, delta)-DP, certified_epsilon.
      ratio: Largest ratio of two weights for one output, >= 1; None where a row does not sum to 2^bits or a
        probability is 0.
      max_bias: Largest |E[output] - label|, rounded up, in units of the label; without a meaning for classes.
      fingerprint: Hash of bits, columns, labels and outputs, or of the center that classes are drawn from; 64
        hexadecimal digits.
      requested_delta: As stated; 0 for pure DP.
      certified_delta: As stated; 0 for pure DP.
      delta: For (epsilon, delta)-DP, the least float >= the true delta at certified_epsilon.
      center_line: Line of the report about the center; empty without one.
      replay_line: Line of the report about what was replayed with the program's own code; empty without a center.
      table_line: Line of the report about the table of the input; empty without one.
      removals_line: Line of the report about records that were removed since; empty without any.
      classes_line: Line of the report about the classes, whose places labels and outputs are; empty for numbers.
      drawn_from_center: True if classes are drawn from a center: there is no randomizer.
      records_per_unit: Largest number of records of a privacy unit, as stated. Epsilons and deltas of the mechanism are
        those of one record.
      unit_column: Column that names the unit, as stated; None for single records.
      prior_epsilon: As the release states it; None where no release was audited.
      center_epsilon: That of the linear center of a release and of its cells; 0 without one.
      total_epsilon: As the release states it; None where no release was audited.
      data_lines: Lines of the report about the records; empty where they were not read.
      signature_line: Line of the report about the signature; empty without one, or if its check fails.
      parts: Of a release of several labels, the name and the audit of each; such a release has no mechanism itself.
    """

    problems: tuple[str, ...]
    mechanism: str = ""
    labels: int = 0
    outputs: int = 0
    bits: int = 0
    requested_epsilon: float = math.inf
    certified_epsilon: float = math.inf
    epsilon: float = math.inf
    ratio: Fraction | None = None
    max_bias: float = math.inf
    fingerprint: str = ""
    requested_delta: float = 0.0
    certified_delta: float = 0.0
    delta: float = 0.0
    center_line: str = ""
    replay_line: str = ""
    table_line: str = ""
    removals_line: str = ""
    classes_line: str = ""
    drawn_from_center: bool = False
    records_per_unit: int = 1
    unit_column: str | None = None
    prior_epsilon: float | None = None
    center_epsilon: float = 0.0
    total_epsilon: float | None = None
    data_lines: tuple[str, ...] = ()
    signature_line: str = ""
    parts: tuple[tuple[str, Audit], ...] = ()


def audit_mechanism(document: dict[str, Any]) -> Audit:
    """Audits a mechanism file as json.loads reads it, reporting also a document that cannot be audited.

    Everything wrong with the document is in the `problems` of the audit.
    """
    try:
        return audit_document(document)
    except RefusedDocument as refused:
        return Audit((str(refused),))


def audit_document(document: dict[str, Any]) -> Audit:
    """Audits a mechanism file in O(labels + outputs + runs) integer operations; only a delta needs runs expanded.

    Raises RefusedDocument if the document, as json.loads reads it, does not have the shape of a mechanism file.
    """
    if isinstance(document, dict) and document.get("format") == CENTER_MECHANISM_FORMAT:
        return _audit_class_center(document)
    if not isinstance(document, dict) or document.get("format") != MECHANISM_FORMAT:
        raise RefusedDocument(f"this is not a mechanism file: its format is not {MECHANISM_FORMAT}")
    name, bits = read_member(document, "mechanism", str), read_member(document, "bits", int)
    if not _NAME.fullmatch(name):
        raise RefusedDocument("mechanism is not a name of 1 to 64 letters, digits and _.+-")
    if not 1 <= bits <= 63:
        raise RefusedDocument("bits is not between 1 and 63")
    _check_parameters(read_member(document, "parameters", dict))
    if read_member(document, "gap", object) is not None:
        read_nonnegative(document, "gap")
    if "choice" in document:
        _check_choice(read_member(document, "choice", dict))
    # Weights alone are those of no label column yet.
    if ("prior" in document or "rounding" in document) and read_member(document, "rounding", str) not in _ROUNDINGS:
        raise RefusedDocument(f"rounding is not {' or '.join(_ROUNDINGS)}")
    requested = read_nonnegative(document, "epsilon")
    requested_delta = read_nonnegative(document, "delta") if "delta" in document else Fraction(0)
    if not requested_delta < 1:
        raise RefusedDocument("delta is not below 1")
    labels, outputs = read_ascending_floats(document, "labels"), read_ascending_floats(document, "outputs")
    classes = read_classes(document)
    if classes is not None:
        check_places(classes, labels, outputs)
    columns = read_member(document, "columns", list)
    if len(columns) != len(outputs):
        raise RefusedDocument(f"there are {len(columns)} columns for {len(outputs)} outputs")
    # The prefix distinguishes messages about certificate.epsilon from messages about epsilon.
    certificate = read_member(document, "certificate", dict)
    certificate = {f"certificate.{key}": value for key, value in certificate.items()}

    # Denominators of floats are powers of two, so the largest is a common denominator.
    scale = max(value.as_integer_ratio()[1] for value in labels + outputs)
    sums, moments, ranges = tally_columns(columns, [_scaled(output, scale) for output in outputs], len(labels))
    pure = requested_delta == 0
    problems = list(_weight_problems(sums, ranges, 1 << bits, pure))
    # Without such problems, ratios of weights are ratios of probabilities, and finite in pure DP.
    ratio = None
    if not problems and all(least for least, _ in ranges):
        ratio = largest_ratio(ranges)
    biases = [moment - (_scaled(y, scale) << bits) for y, moment in zip(labels, moments, strict=True)]
    certified, delta = read_nonnegative(certificate, "certificate.epsilon"), Fraction(0)
    if pure:
        problems += _epsilon_problems(certificate, ratio, requested, 1 << bits)
    else:
        delta = Fraction(1) if problems else largest_divergence(columns, len(labels), certified, bits)
        problems += _delta_problems(certificate, delta, requested, requested_delta, 1 << bits)
    epsilon = math.inf if ratio is None else ln_rounded_up(ratio)
    if not pure and not problems:
        epsilon = float(certified)
    problems += _bias_problems(certificate, biases, scale << bits)
    if "prior" in document:
        problems += _prior_problems(read_member(document, "prior", dict), len(labels), "center" in document)
        problems += _missing_problems(document, labels)
    if CLASS_CENTER in document:
        raise RefusedDocument("class_center is there beside a randomizer")
    if classes is not None:
        problems += class_problems(document)
    if "center" in document:
        problems += _center_problems(read_center(document)["center.domain"], labels)
        problems += center_sum_problems(document)
    if "declared_grid" in document:
        problems += _grid_problems(document, public_domain(document, labels))
    replayed = ""
    if not problems:
        problems, replayed = _replay(document)
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
        certified_delta=0.0 if pure else float(read_nonnegative(certificate, "certificate.delta")),
        delta=rounded_up(delta),
        center_line=center_line(document),
        replay_line=replayed,
        classes_line="" if classes is None else classes_line(classes),
        records_per_unit=records_per_unit(document),
        unit_column=document["unit"]["column"] if "unit" in document else None,
    )


def _check_parameters(parameters: dict[str, Any]) -> None:
    """Refuses parameters that are not a few short values, before anything prints them."""
    if len(parameters) > _MAX_PARAMETERS:
        raise RefusedDocument(f"there are more than {_MAX_PARAMETERS} parameters")
    for key, value in parameters.items():
        if not _NAME.fullmatch(key):
            raise RefusedDocument("a name in parameters is not 1 to 64 letters, digits and _.+-")
        plain = value is None or isinstance(value, bool) or (isinstance(value, str) and _TEXT.fullmatch(value))
        numbers = value if isinstance(value, list) and 0 < len(value) <= _MAX_PARAMETERS else [value]
        if not plain and not all(
            isinstance(number, int | float) and abs(number) <= sys.float_info.max for number in numbers
        ):
            raise RefusedDocument(
                f"parameters.{key} is not a finite number, a few of them, true, false, null or a short ASCII text"
            )


def _check_choice(choice: dict[str, Any]) -> None:
    """Refuses a choice that is not a name and a few errors by name, before anything prints it."""
    choice = {f"choice.{key}": value for key, value in choice.items()}
    errors = read_member(choice, "choice.model_errors", dict)
    for name in (read_member(choice, "choice.mechanism", str), *errors):
        if not _CANDIDATE.fullmatch(name):
            raise RefusedDocument("a name in choice is not 1 to 64 letters, digits and _.+-:=")
    for name, error in errors.items():
        if error is not None:
            read_nonnegative(errors, name)


def _prior_problems(noised: dict[str, Any], labels: int, center: bool) -> Iterator[str]:
    """Checks the prior of a file: a distribution over the labels, and what its release cost.

    With a center, the counts are those of its residuals.
    """
    noised = {f"prior.{key}": value for key, value in noised.items()}
    weights = read_floats(noised, "prior.weights")
    if len(weights) != labels:
        raise RefusedDocument(f"prior.weights has {len(weights)} entries for {labels} labels")
    if not (min(weights) >= 0 and max(weights) <= 1 and abs(math.fsum(weights) - 1) <= _SUM_TOLERANCE):
        yield "prior.weights are not probabilities: a weight is negative, or their sum is not 1"
    epsilon, name = read_nonnegative(noised, "prior.epsilon"), noised.get("prior.release")
    if name is not None and not (isinstance(name, str) and _RELEASE_NAME.fullmatch(name)):
        raise RefusedDocument("prior.release is not 32 hexadecimal digits")
    if name is not None and epsilon == 0:
        yield "prior.epsilon is 0, but prior.release names a release, which cost more"
    if epsilon:
        read_member(noised, "prior.release", str)
        read_member(noised, "prior.label", str)
    if "prior.counts" in noised or (epsilon and not center):
        counts = read_counts(noised, "prior.counts")
        if len(counts) != labels:
            raise RefusedDocument(f"prior.counts has {len(counts)} entries for {labels} labels")
        if not read_count(noised, "prior.records"):
            raise RefusedDocument("prior.records is 0")
        if epsilon == 0:
            yield "prior.epsilon is 0, but prior.counts were counted from records"


def _missing_problems(document: dict[str, Any], labels: list[float]) -> Iterator[str]:
    """Checks what missing labels counted as in the histogram of a file, if it states that."""
    missing = document["prior"].get("missing_label")
    if missing is None:
        return
    if "classes" in document:
        if missing not in document["classes"]["values"]:
            yield "prior.missing_label is not one of the classes"
    else:
        domain = public_domain(document, labels)
        if type(missing) not in (int, float) or not domain[0] <= missing <= domain[-1]:
            yield "prior.missing_label is not a number within the label domain"
    if document["prior"].get("epsilon") == 0 and "center" not in document:
        yield "prior.epsilon is 0, but prior.missing_label says what labels were counted as"


def _center_problems(domain: list[float], labels: list[float]) -> Iterator[str]:
    """Checks that the labels of a mechanism with a center are residuals: differences of labels of the domain."""
    above = [label - domain[0] for label in domain]
    grid = [-residual for residual in reversed(above[1:])] + above
    first = bisect_left(grid, labels[0])
    if grid[first : first + len(labels)] != labels:
        yield "labels are not consecutive residuals of center.domain"


def _replay(document: dict[str, Any]) -> tuple[list[str], str]:
    """Replays the center of a document without other problems: what does not follow, or the line of the report.

    The program's own code is loaded only where there is a center.
    """
    linear = read_linear_center(document)
    if linear is None:
        return [], ""
    from .center_replay import linear_replay_problems

    problems = list(linear_replay_problems(document["center"]["linear"]))
    return problems, "" if problems else linear_replay_line(linear)


def _audit_class_center(document: dict[str, Any]) -> Audit:
    """Audits a mechanism file whose classes are drawn from a center: it has no randomizer, and no prior."""
    classes, center = read_classes(document), read_class_center(document)
    if classes is None or center is None:
        raise RefusedDocument(f"classes or {CLASS_CENTER} is missing")
    read_member(document, "label", str)
    problems = list(class_center_problems(document))
    if not problems:
        from .center_replay import class_replay_problems

        problems = list(class_replay_problems(document[CLASS_CENTER]["center"]))
    return Audit(
        problems=tuple(problems),
        labels=len(classes.values),
        requested_epsilon=0.0,
        certified_epsilon=0.0,
        epsilon=0.0,
        max_bias=0.0,
        fingerprint=center.fingerprint,
        center_line=class_center_lines(document),
        replay_line="" if problems else class_replay_line(document),
        classes_line=classes_line(classes),
        drawn_from_center=True,
        records_per_unit=records_per_unit(document),
        unit_column=document["unit"]["column"] if "unit" in document else None,
    )


def _grid_problems(document: dict[str, Any], domain: list[float]) -> Iterator[str]:
    """Checks that the label domain is the working grid of the declared one, by the public rule."""
    stated = {f"declared_grid.{key}": value for key, value in read_member(document, "declared_grid", dict).items()}
    if set(stated) != {"declared_grid.labels", "declared_grid.epsilon"}:
        raise RefusedDocument("declared_grid does not have exactly labels and epsilon")
    declared = read_count(stated, "declared_grid.labels") - 1
    epsilon = read_nonnegative(stated, "declared_grid.epsilon")
    if not 1 <= declared < _MOST_DECLARED or epsilon > _MOST_EPSILON:
        raise RefusedDocument("declared_grid is not of 2 to 2^20 labels, for an epsilon of at most 30")
    if epsilon < read_nonnegative(document, "epsilon"):
        yield "declared_grid.epsilon is below epsilon: it is that of the whole release"
    # Another library may compute the other integer beside the limit.
    enough = 20 * math.sinh(float(epsilon) / 2)
    limits = {min(max(2 * math.ceil(enough * (1 + error)), 512), 1024) for error in (-1e-12, 1e-12)}
    steps = len(domain) - 1
    if not any(declared > limit and steps == _working_steps(declared, limit) for limit in limits):
        yield "the label domain is not the working grid of declared_grid"
    first, span = domain[0], domain[-1] - domain[0]
    if any(abs(label - first - span * i / steps) > _SPACING * span for i, label in enumerate(domain)):
        yield "the label domain of a declared_grid is not evenly spaced"


def _working_steps(declared: int, limit: int) -> int:
    """Steps of the working grid: the most that divide those declared, unless these are at most half of the limit."""
    found = max(steps for steps in range(1, limit + 1) if declared % steps == 0)
    return found if found > limit // 2 else limit


def _scaled(value: float, scale: int) -> int:
    """value * scale; an integer, because scale is a multiple of the denominator of value."""
    numerator, denominator = value.as_integer_ratio()
    return numerator * (scale // denominator)


def _weight_problems(sums: list[int], ranges: list[tuple[int, int]], unit: int, pure: bool) -> Iterator[str]:
    """Checks that rows sum to the unit, and that no output is impossible; for pure DP, not even for a single label."""
    labels, outputs = len(sums), len(ranges)
    if wrong := [y for y, total in enumerate(sums) if total != unit]:
        yield f"the weights of {len(wrong)} of {labels} labels do not sum to 2^bits, first label number {wrong[0]}"
    if never := [c for c, (_, most) in enumerate(ranges) if most == 0]:
        yield f"probability zero for every label: {len(never)} of {outputs} outputs, first output number {never[0]}"
    if pure and (mixed := [c for c, (least, most) in enumerate(ranges) if least == 0 < most]):
        yield (
            f"epsilon is infinite: only some labels can give {len(mixed)} of {outputs} outputs, "
            f"first output number {mixed[0]}"
        )


def _epsilon_problems(
    certificate: dict[str, Any], ratio: Fraction | None, requested: Fraction, unit: int
) -> Iterator[str]:
    """Checks the certificate of a pure mechanism against its true ratio; None: the ratio is unbounded."""
    certified = read_nonnegative(certificate, "certificate.epsilon")
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
    """Checks the certificate of an (epsilon, delta) mechanism; delta is the true one at certificate.epsilon."""
    certified = read_nonnegative(certificate, "certificate.delta")
    if read_decimal(read_member(certificate, "certificate.row_sum", str), "certificate.row_sum") != unit:
        yield "certificate.row_sum is not 2^bits"
    if certified < delta:
        yield "certificate.delta is below the true delta at certificate.epsilon"
    if certified > requested_delta:
        yield "certificate.delta is above the delta requested"
    if read_nonnegative(certificate, "certificate.epsilon") > requested:
        yield "certificate.epsilon is above the epsilon requested"


def _bias_problems(certificate: dict[str, Any], biases: list[int], denominator: int) -> Iterator[str]:
    """Checks the biases of the certificate; `biases` are the true ones times the denominator."""
    claimed = read_floats(certificate, "certificate.bias")
    if len(claimed) != len(biases):
        raise RefusedDocument(f"certificate.bias has {len(claimed)} entries for {len(biases)} labels")
    try:  # Python rounds the quotient of two integers correctly, as float(Fraction) does
        wrong = [y for y, bias in enumerate(biases) if bias / denominator != claimed[y]]
    except OverflowError:
        raise RefusedDocument("a bias is too large for a float") from None
    if wrong:
        yield f"certificate.bias is wrong for {len(wrong)} of {len(biases)} labels, first label number {wrong[0]}"
    most = Fraction(max(map(abs, biases)), denominator)
    slack = most / 10**9 + Fraction(1, 10**300)
    if not most <= read_nonnegative(certificate, "certificate.max_bias") <= most + slack:
        yield "certificate.max_bias is not the largest true bias, rounded up"
