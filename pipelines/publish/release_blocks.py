"""A release in four blocks of at most two lines: what was released, its privacy, its use, and what to do next.

They answer what a newcomer asks first; release.json, the report and `--verbose` have everything else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...mechanisms.analysis.findings import Verdict
from ...mechanisms.core.label_grid import is_even
from ...mechanisms.release.unit_bound import SINGLE
from ..spec.mechanism_file import MechanismFile

_INDENT = 10
_UNSEEN = "Features that recipients have beside these are not seen here."


@dataclass(frozen=True)
class Blocks:
    """Lines of the four blocks, two each, or one more for each further label; `str` gives the text."""

    released: Sequence[str]
    privacy: Sequence[str]
    use: Sequence[str]
    next: Sequence[str]

    def __str__(self) -> str:
        blocks = {"Released": self.released, "Privacy": self.privacy, "Use": self.use, "Next": self.next}
        return "\n".join(
            f"{'' if number else title:<{_INDENT}}{line}"
            for title, lines in blocks.items()
            for number, line in enumerate(lines)
        )


def certainty(epsilon: float) -> str:
    """Largest probability of one of two values that were equally likely, in percent, rounded up."""
    return f"{math.ceil(1000 / (1 + math.exp(-epsilon))) / 10:g} %"


def privacy_lines(epsilon: float, mechanisms: Sequence[MechanismFile]) -> list[str]:
    """One epsilon for all labels of a release, as what a reader may become certain of; and what it is spent on."""
    unit, deltas = mechanisms[0].unit, [mechanism.labels_budget[1] for mechanism in mechanisms]
    whom = "a label" if unit == SINGLE else "the labels of a unit"
    text = (
        f"Epsilon {epsilon:.6g}: the chance of a right guess between two values of {whom} rises from 50 % to at most "
    )
    text += f"{certainty(epsilon)}" + (f", but for a probability near {sum(deltas):.2g}" if any(deltas) else "")
    return [text, *(f"({_parts(mechanism)})" for mechanism in mechanisms)]


def _parts(mechanism: MechanismFile) -> str:
    """Parts that epsilon is spent on, as the manifest names them; and the public domain, with the step taken."""
    spent = [f"{part.epsilon:.4g} for the {part.name}" for part in mechanism.drawing.parts]
    if mechanism.drawing.solved:
        spent.append(f"{mechanism.drawing.budget.labels:.4g} for the labels")
    each = "" if mechanism.unit == SINGLE else f", for each of at most {mechanism.unit.max_records} records of a unit"
    return f"{' + '.join(spent)}{each}; {_domain(mechanism)}"


def _domain(mechanism: MechanismFile) -> str:
    labels, declared = mechanism.domain, mechanism.declared
    if mechanism.classes is not None:
        return f"{len(mechanism.classes.values)} public classes"
    if len(labels) == 1 or not is_even(np.array(labels)):
        return f"{len(labels):,} public labels"
    count = len(labels) if declared is None else declared.labels
    span, rounded = labels[-1] - labels[0], f", rounded to steps of {labels[1] - labels[0]:.6g}"
    steps = f"labels {labels[0]:.6g} to {labels[-1]:.6g} in steps of {span / (count - 1):.6g}"
    return steps if declared is None else f"{steps}{rounded}"


def use_lines(judged: Iterable[tuple[str, Verdict]]) -> list[str]:
    """Says what the labels of each column serve for, after its name; and what to do where that is not enough."""
    lines, more = [], _UNSEEN
    for column, verdict in judged:
        lines.append(f"{column}{verdict.text[0].upper()}{verdict.text[1:]}")
        if verdict.proposals:
            more = f"For more: {', or '.join(verdict.proposals)}. {_UNSEEN}"
    return [*lines, more]
