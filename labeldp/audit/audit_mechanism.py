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
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from .center_audit import center_line, center_sum_problems, linear_replay_line
from .center_document import read_linear_center
from .class_audit import (
    Classes,
    check_places,
    class_center_lines,
    class_center_problems,
    class_problems,
    class_replay_line,
    classes_line,
    read_classes,
)
from .class_center_document import CLASS_CENTER, read_class_center
from .document_members import check_form
from .documents import RefusedDocument, ascending, public_domain, read_center, read_unit
from .weight_runs import largest_divergence, largest_ratio, ln_at_most, ln_rounded_up, rounded_up, tally_columns

MECHANISM_FORMAT, CENTER_MECHANISM_FORMAT = "labeldp-mechanism-1", "labeldp-mechanism-2"
"""Formats of mechanism files: with a randomizer, and with a center that classes are drawn from."""

_NAME = re.compile(r"[A-Za-z0-9_.+-]{1,64}")  # the report prints it: a line break could forge a verdict
_CLOSE_ERRORS = 1.25  # that of CLOSE in mechanisms/analysis/automatic.py
_MAX_PARAMETERS = 64
_SUM_TOLERANCE = 1e-9
_SPACING = 1e-8


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
      lines: Lines of the report about the center, what was replayed of it, the table of the input, and removals since.
      classes_line: Line of the report about the classes, whose places labels and outputs are; empty for numbers.
      drawn_from_center: True if classes are drawn from a center: there is no randomizer.
      records_per_unit: Largest number of records of a privacy unit, as stated. Epsilons and deltas of the mechanism are
        those of one record.
      unit_column: Column that names the unit, as stated; None for single records.
      prior_epsilon: As the release states it; None where no release was audited.
      center_epsilon: That of the linear center of a release and of its cells; 0 without one.
      total_epsilon: As the release states it; None where no release was audited.
      data_lines: Lines of the report about the records and the signature; empty where neither was read.
      not_compared: Reason why bytes of the shards were not compared, so that the release has not passed; else empty.
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
    lines: tuple[str, ...] = ()
    classes_line: str = ""
    drawn_from_center: bool = False
    records_per_unit: int = 1
    unit_column: str | None = None
    prior_epsilon: float | None = None
    center_epsilon: float = 0.0
    total_epsilon: float | None = None
    data_lines: tuple[str, ...] = ()
    not_compared: str = ""
    parts: tuple[tuple[str, Audit], ...] = ()


def audit_mechanism(document: dict[str, Any]) -> Audit:
    """Audits a mechanism file as json.loads reads it, reporting also a document that cannot be audited.

    Everything wrong with the document is in the `problems` of the audit.
    """
    try:
        return audit_document(document)
    except RefusedDocument as refused:
        return Audit((str(refused),))


def audit_document(document: Any) -> Audit:
    """Audits a mechanism file in O(labels + outputs + runs) integer operations; only a delta needs runs expanded.

    Raises RefusedDocument if the document, as json.loads reads it, does not have the shape of a mechanism file.
    """
    if isinstance(document, dict) and document.get("format") == CENTER_MECHANISM_FORMAT:
        check_form(document, "center_mechanism", "mechanism")
        return _audit_class_center(document)
    mechanism = _read_mechanism(document)
    problems, replayed = [problem for check in _CHECKS for problem in check(mechanism)], ""
    if not problems:
        problems, replayed = _replay(mechanism.document)
    column, records = read_unit(mechanism.document)
    return Audit(
        problems=tuple(problems),
        mechanism=mechanism.document["mechanism"],
        labels=len(mechanism.labels),
        outputs=len(mechanism.outputs),
        bits=mechanism.bits,
        requested_epsilon=float(mechanism.epsilon),
        certified_epsilon=float(mechanism.certified_epsilon),
        epsilon=mechanism.true_epsilon,
        ratio=mechanism.ratio,
        max_bias=rounded_up(mechanism.max_bias),
        fingerprint=mechanism.fingerprint,
        requested_delta=float(mechanism.delta),
        certified_delta=0.0 if mechanism.pure else mechanism.certificate["delta"],
        delta=rounded_up(mechanism.true_delta),
        lines=tuple(filter(None, (center_line(mechanism.document), replayed))),
        classes_line="" if mechanism.classes is None else classes_line(mechanism.classes),
        records_per_unit=records,
        unit_column=column,
    )


@dataclass(frozen=True)
class _Mechanism:
    """Mechanism file of k labels and m outputs, and what follows from its weights.

    Attributes:
      document: The file.
      certificate: Its certificate.
      epsilon, delta: As requested.
      certified_epsilon: As certified.
      bits, labels, outputs, columns, classes: As the file has them.
      sums: Sum of the weights of each label.
      moments: Sum of weight times output of each label, in units of 1 / scale.
      ranges: Least and largest weight of each output.
      scale: Common denominator of labels and outputs.
    """

    document: Mapping[str, Any]
    certificate: Mapping[str, Any]
    epsilon: Fraction
    delta: Fraction
    certified_epsilon: Fraction
    bits: int
    labels: list[float]
    outputs: list[float]
    columns: list[Any]
    classes: Classes | None
    sums: list[int]
    moments: list[int]
    ranges: list[tuple[int, int]]
    scale: int

    @property
    def pure(self) -> bool:
        """True for epsilon-DP without a delta."""
        return self.delta == 0

    @cached_property
    def sound(self) -> bool:
        """True if rows are distributions, of which ratios of weights are ratios of probabilities."""
        return not any(_weight_problems(self))

    @cached_property
    def ratio(self) -> Fraction | None:
        """Largest ratio of two weights for one output; None if it is unbounded."""
        return largest_ratio(self.ranges) if self.sound and all(least for least, _ in self.ranges) else None

    @cached_property
    def true_delta(self) -> Fraction:
        """Delta of the weights at the certified epsilon; 0 for pure DP."""
        if self.pure or not self.sound:
            return Fraction(0 if self.pure else 1)
        return largest_divergence(self.columns, len(self.labels), self.certified_epsilon, self.bits)

    @property
    def true_epsilon(self) -> float:
        """Epsilon of the weights; the certified one if their delta is below that."""
        if not self.pure and self.sound and not any(_delta_problems(self)):
            return float(self.certified_epsilon)
        return math.inf if self.ratio is None else ln_rounded_up(self.ratio)

    @cached_property
    def biases(self) -> list[int]:
        """E[output] - label, times 2^bits scale."""
        labels = (_scaled(label, self.scale) << self.bits for label in self.labels)
        return [moment - label for moment, label in zip(self.moments, labels, strict=True)]

    @property
    def max_bias(self) -> Fraction:
        """Largest |E[output] - label|."""
        return Fraction(max(map(abs, self.biases)), self.scale << self.bits)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of bits, columns, labels and outputs."""
        signed = {"bits": self.bits, "columns": self.columns, "labels": self.labels, "outputs": self.outputs}
        canonical = json.dumps(signed, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(canonical.encode(), digest_size=32).hexdigest()


def _read_mechanism(document: Any) -> _Mechanism:
    """Reads a mechanism file with a randomizer; refuses what the report could not print."""
    if not isinstance(document, dict) or document.get("format") != MECHANISM_FORMAT:
        raise RefusedDocument(f"this is not a mechanism file: its format is not {MECHANISM_FORMAT}")
    check_form(document, "mechanism", "mechanism")
    _check_parameters(document["parameters"])
    if "choice" in document:
        _check_choice(document["choice"])
    # Weights alone are those of no label column yet.
    if "prior" in document and "rounding" not in document:
        raise RefusedDocument("rounding is missing beside a prior")
    epsilon = Fraction(document["epsilon"])
    delta = Fraction(document.get("delta", 0.0))
    if not delta < 1:
        raise RefusedDocument("delta is not below 1")
    labels, outputs = (ascending(document[key], key) for key in ("labels", "outputs"))
    classes = read_classes(document)
    if classes is not None:
        check_places(classes, labels, outputs)
    columns, certificate, bits = document["columns"], document["certificate"], document["bits"]
    if len(columns) != len(outputs):
        raise RefusedDocument(f"there are {len(columns)} columns for {len(outputs)} outputs")
    # Denominators of floats are powers of two, so the largest is a common denominator.
    scale = max(value.as_integer_ratio()[1] for value in labels + outputs)
    tallies = tally_columns(columns, [_scaled(output, scale) for output in outputs], len(labels))
    if ("delta" if delta else "ratio") not in certificate:
        raise RefusedDocument(f"certificate.{'delta' if delta else 'ratio'} is missing")
    certified = Fraction(certificate["epsilon"])
    return _Mechanism(
        document,
        certificate,
        epsilon,
        delta,
        certified,
        bits,
        labels,
        outputs,
        columns,
        classes,
        *tallies,
        scale,
    )


def _check_parameters(parameters: Mapping[str, Any]) -> None:
    """Refuses parameters that are not a few short names, before anything prints them."""
    if len(parameters) > _MAX_PARAMETERS:
        raise RefusedDocument(f"there are more than {_MAX_PARAMETERS} parameters")
    if not all(map(_NAME.fullmatch, parameters)):
        raise RefusedDocument("a name in parameters is not 1 to 64 letters, digits and _.+-")


def _check_choice(choice: Mapping[str, Any]) -> None:
    """Refuses a choice of other mechanisms than those compared, or that does not follow from the errors."""
    errors = {name: math.inf if error is None else error for name, error in choice["model_errors"].items()}
    first = _best(errors)
    # A mechanism with the same output for all labels is left out.
    if choice["mechanism"] not in (first, _best(errors | {first: math.inf})):
        raise RefusedDocument("choice.mechanism does not follow from choice.model_errors")


def _best(errors: dict[str, float]) -> str:
    """Mechanism of the smallest bias whose error is close to the least one."""
    return next(name for name, error in errors.items() if error <= _CLOSE_ERRORS * min(errors.values()))


def _scaled(value: float, scale: int) -> int:
    """value * scale; an integer, because scale is a multiple of the denominator of value."""
    numerator, denominator = value.as_integer_ratio()
    return numerator * (scale // denominator)


def _weight_problems(mechanism: _Mechanism) -> Iterator[str]:
    """Rows sum to 2^bits, and no output is impossible; for pure DP, not even for a single label."""
    labels, outputs, ranges = len(mechanism.labels), len(mechanism.outputs), mechanism.ranges
    if wrong := [y for y, total in enumerate(mechanism.sums) if total != 1 << mechanism.bits]:
        yield f"the weights of {len(wrong)} of {labels} labels do not sum to 2^bits, first label number {wrong[0]}"
    if never := [c for c, (_, most) in enumerate(ranges) if most == 0]:
        yield f"probability zero for every label: {len(never)} of {outputs} outputs, first output number {never[0]}"
    if mechanism.pure and (mixed := [c for c, (least, most) in enumerate(ranges) if least == 0 < most]):
        yield (
            f"epsilon is infinite: only some labels can give {len(mixed)} of {outputs} outputs, "
            f"first output number {mixed[0]}"
        )


def _ratio_problems(mechanism: _Mechanism) -> Iterator[str]:
    """The certificate of a pure mechanism has its true ratio, and an epsilon that is not below it."""
    if not mechanism.pure:
        return
    parts = list(map(int, mechanism.certificate["ratio"]))
    if parts[1] == 0:
        raise RefusedDocument("certificate.ratio has a denominator of 0")
    ratio = mechanism.ratio
    if ratio is not None and Fraction(*parts) != ratio:
        yield "certificate.ratio is not the largest ratio of the weights"
    if ratio is not None and not ln_at_most(ratio, mechanism.certified_epsilon):
        yield "certificate.epsilon is below the true epsilon"


def _delta_problems(mechanism: _Mechanism) -> Iterator[str]:
    """The certificate of an (epsilon, delta) mechanism has a delta between the true and the requested one."""
    if mechanism.pure:
        return
    certified = Fraction(mechanism.certificate["delta"])
    if certified < mechanism.true_delta:
        yield "certificate.delta is below the true delta at certificate.epsilon"
    if certified > mechanism.delta:
        yield "certificate.delta is above the delta requested"


def _request_problems(mechanism: _Mechanism) -> Iterator[str]:
    """The certificate has the sum of a row, and no more epsilon than was requested."""
    if int(mechanism.certificate["row_sum"]) != 1 << mechanism.bits:
        yield "certificate.row_sum is not 2^bits"
    if mechanism.certified_epsilon > mechanism.epsilon:
        yield "certificate.epsilon is above the epsilon requested"


def _bias_problems(mechanism: _Mechanism) -> Iterator[str]:
    """The certificate has the true biases, and the largest of them."""
    claimed, biases = mechanism.certificate["bias"], mechanism.biases
    if len(claimed) != len(biases):
        raise RefusedDocument(f"certificate.bias has {len(claimed)} entries for {len(biases)} labels")
    denominator = mechanism.scale << mechanism.bits
    try:  # Python rounds the quotient of two integers correctly, as float(Fraction) does
        wrong = [y for y, bias in enumerate(biases) if bias / denominator != claimed[y]]
    except OverflowError:
        raise RefusedDocument("a bias is too large for a float") from None
    if wrong:
        yield f"certificate.bias is wrong for {len(wrong)} of {len(biases)} labels, first label number {wrong[0]}"
    most = mechanism.max_bias
    slack = most / 10**9 + Fraction(1, 10**300)
    if not most <= mechanism.certificate["max_bias"] <= most + slack:
        yield "certificate.max_bias is not the largest true bias, rounded up"


def _prior_problems(mechanism: _Mechanism) -> Iterator[str]:
    """The prior is a distribution over the labels, and states what its release cost.

    With a center, the counts are those of its residuals.
    """
    if "prior" not in mechanism.document:
        return
    prior, labels = mechanism.document["prior"], len(mechanism.labels)
    weights = prior["weights"]
    if len(weights) != labels:
        raise RefusedDocument(f"prior.weights has {len(weights)} entries for {labels} labels")
    if abs(math.fsum(weights) - 1) > _SUM_TOLERANCE:
        yield "prior.weights are not probabilities: their sum is not 1"
    epsilon, name = Fraction(prior["epsilon"]), prior.get("release")
    if name is not None and epsilon == 0:
        yield "prior.epsilon is 0, but prior.release names a release, which cost more"
    if epsilon and not {"release", "label"} <= prior.keys():
        raise RefusedDocument("prior.release or prior.label is missing")
    if "counts" in prior or (epsilon and "center" not in mechanism.document):
        if "records" not in prior or len(prior.get("counts", ())) != labels:
            raise RefusedDocument(f"prior does not have records, and counts of {labels} labels")
        if epsilon == 0:
            yield "prior.epsilon is 0, but prior.counts were counted from records"


def _missing_problems(mechanism: _Mechanism) -> Iterator[str]:
    """Missing labels counted as a label of the domain in the histogram, if the file states that."""
    prior = mechanism.document.get("prior", {})
    missing = prior.get("missing_label")
    if missing is None:
        return
    if mechanism.classes is not None:
        if missing not in mechanism.classes.values:
            yield "prior.missing_label is not one of the classes"
    else:
        domain = public_domain(mechanism.document, mechanism.labels)
        if type(missing) not in (int, float) or not domain[0] <= missing <= domain[-1]:
            yield "prior.missing_label is not a number within the label domain"
    if prior.get("epsilon") == 0 and "center" not in mechanism.document:
        yield "prior.epsilon is 0, but prior.missing_label says what labels were counted as"


def _residual_problems(mechanism: _Mechanism) -> Iterator[str]:
    """The labels of a mechanism with a center are residuals: differences of labels of the domain."""
    if "center" not in mechanism.document:
        return
    domain, labels = read_center(mechanism.document).domain, mechanism.labels
    above = [label - domain[0] for label in domain]
    grid = [-residual for residual in reversed(above[1:])] + above
    first = bisect_left(grid, labels[0])
    if grid[first : first + len(labels)] != labels:
        yield "labels are not consecutive residuals of center.domain"


def _grid_problems(mechanism: _Mechanism) -> Iterator[str]:
    """The label domain is the working grid of the declared one, by the public rule."""
    if "declared_grid" not in mechanism.document:
        return
    domain, stated = public_domain(mechanism.document, mechanism.labels), mechanism.document["declared_grid"]
    declared, epsilon = stated["labels"] - 1, Fraction(stated["epsilon"])
    if epsilon < mechanism.epsilon:
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
    most = max(steps for steps in range(1, limit + 1) if declared % steps == 0)
    return most if most > limit // 2 else limit


def _fingerprint_problems(mechanism: _Mechanism) -> Iterator[str]:
    """The fingerprint is that of the weights."""
    if mechanism.document["fingerprint"] != mechanism.fingerprint:
        yield "fingerprint is not that of the bits, columns, labels and outputs"


_CHECKS: tuple[Callable[[_Mechanism], Iterable[str]], ...] = (
    _weight_problems,
    _ratio_problems,
    _delta_problems,
    _request_problems,
    _bias_problems,
    _prior_problems,
    _missing_problems,
    lambda mechanism: class_problems(mechanism.document),
    _residual_problems,
    lambda mechanism: center_sum_problems(mechanism.document),
    _grid_problems,
    _fingerprint_problems,
)
"""Each yields one line for each statement of a mechanism file that fails; of a member that is not there, none."""


def _replay(document: Mapping[str, Any]) -> tuple[list[str], str]:
    """Replays the center of a document without other problems: what does not follow, or the line of the report.

    The program's own code is loaded only where there is a center.
    """
    linear = read_linear_center(document)
    if linear is None:
        return [], ""
    from .center_replay import linear_replay_problems

    problems = list(linear_replay_problems(document["center"]["linear"]))
    return problems, "" if problems else linear_replay_line(linear)


def _audit_class_center(document: Mapping[str, Any]) -> Audit:
    """Audits a mechanism file whose classes are drawn from a center: it has no randomizer, and no prior."""
    classes, center = read_classes(document), read_class_center(document)
    assert classes is not None
    assert center is not None
    problems = list(class_center_problems(document, center))
    if not problems:
        from .center_replay import class_replay_problems

        problems = list(class_replay_problems(document[CLASS_CENTER]["center"]))
    column, records = read_unit(document)
    return Audit(
        problems=tuple(problems),
        labels=len(classes.values),
        requested_epsilon=0.0,
        certified_epsilon=0.0,
        epsilon=0.0,
        max_bias=0.0,
        fingerprint=center.fingerprint,
        lines=(class_center_lines(center), *([] if problems else [class_replay_line(center)])),
        classes_line=classes_line(classes),
        drawn_from_center=True,
        records_per_unit=records,
        unit_column=column,
    )
