"""Checks of the channel from labels to released labels: its probabilities, and an empirical lower bound on epsilon."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...mechanisms.analysis.privacy_attacks import Event, epsilon_at_least, misfits, select_event
from .findings import Claim, Finding, Setting, output_codes
from .release_function import BlackBox

# Records of one call of the sampler, which bounds memory.
_MOST_RECORDS = 1 << 20


def check_channel(box: BlackBox, claim: Claim, setting: Setting) -> Iterator[Finding]:
    """Compares sampled frequencies with the claimed probabilities, and bounds epsilon from below.

    The first half of the draws is spread over all labels. It tests the probabilities, and selects two labels and a set
    of outputs. The second half draws these two labels only, and gives the bound.

    Yields the findings "probabilities" and "channel".
    """
    randomizer = claim.randomizer
    labels, outputs = len(randomizer.labels), len(randomizer.outputs)
    counts = _count_outputs(box, claim, np.arange(labels), setting, "select")
    wrong = misfits(counts, np.pad(randomizer.probabilities(), ((0, 0), (0, 1))), setting.alpha)
    tested = f"{counts.size - labels:,} probabilities, {setting.draws:,} draws"
    if unlisted := int(counts[:, outputs].sum()):
        yield Finding(
            "probabilities", False, f"{unlisted:,} released labels are not outputs of the mechanism; {tested}"
        )
    elif len(wrong):
        label, output = randomizer.labels[wrong[0, 0]], randomizer.outputs[wrong[0, 1]]
        places = f"{len(wrong):,} differ from the file's, first label {label:g} to output {output:g}"
        yield Finding("probabilities", False, f"{places}; {tested}")
    else:
        yield Finding("probabilities", True, f"as in the file; {tested}")
    if labels == 1:
        yield Finding("channel", True, "epsilon at least 0: there is only one label", 0.0)
        return
    event = select_event(counts, setting.draws // 2, setting.alpha, claim.delta)
    pair = np.array([event.first, event.second])
    yield bound_finding(
        "channel",
        event,
        _count_outputs(box, claim, pair, setting, "bound"),
        claim.epsilon,
        claim.delta,
        setting.alpha,
        f"label {randomizer.labels[event.first]:g} against {randomizer.labels[event.second]:g}, "
        f"{int(event.outcomes[:outputs].sum())} of {outputs} outputs",
    )


def bound_finding(
    check: str, event: Event, counts: np.ndarray, epsilon: float, delta: float, alpha: float, about: str
) -> Finding:
    """Bounds epsilon by fresh draws and compares the bound with the claim.

    The event was selected on other draws. `counts`, shape (2, m), are those of the outcomes under its first and second
    input. `alpha` is the probability of a false alarm, `about` a description of the event.
    """
    inside, draws = counts[:, event.outcomes].sum(axis=1).tolist(), counts.sum(axis=1).tolist()
    bound = epsilon_at_least((inside[0], draws[0]), (inside[1], draws[1]), alpha, delta)
    claimed = f"claimed {epsilon:.6g}" + (f" with delta {delta:.3g}" if delta else "")
    return Finding(check, bound <= epsilon, f"epsilon at least {bound:.6g}, {claimed}; {about}", bound)


def _count_outputs(box: BlackBox, claim: Claim, inputs: np.ndarray, setting: Setting, purpose: str) -> np.ndarray:
    """Counts released labels, one row for each input label; the last column counts values that are not outputs."""
    outputs = claim.randomizer.outputs
    counts = np.zeros((len(inputs), len(outputs) + 1), np.int64)
    keys = setting.keys(purpose)
    for start in range(0, setting.draws, _MOST_RECORDS):
        ids = np.arange(start, min(start + _MOST_RECORDS, setting.draws))
        rows = ids % len(inputs)
        released = box.release(inputs[rows], ids, next(keys)).labels
        cells = rows * counts.shape[1] + output_codes(outputs, released)
        counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)
    return counts
