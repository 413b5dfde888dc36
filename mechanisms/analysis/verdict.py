"""Verdict on released labels, measured on the release; and the line that debiases them.

The verdict says what a model explains of the true labels (`explained`), and words follow from the lower end of that
interval alone:

- above 0: the labels are of use, for small models at least;
- four fifths of the share or more, as all records would give it: for training. It is that narrow if noise costs the
  default trees of libraries, which fit it as a linear model of 443 parameters does, less than features explain;
- below 0: it cannot be told from these records, unless the upper end is next to nothing, too.

Labels that a center draws, and those around cells that took most of epsilon, say what the center says: they are not
measured. Everything is computed from released and public facts, so it costs no budget and may be shown to anybody.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..center.linear_center import label_noise
from ..center.residuals import MODEL_PARAMETERS
from .class_utility import correction
from .explained import Measured, Share
from .findings import (
    AS_FLAGS,
    LOSS,
    NOTHING_ELSE,
    PART,
    Debiasing,
    Naming,
    Verdict,
    percent,
    rounded_up,
)
from .utility import ReleasedFacts

NARROW = 0.8
"""Lower end of the interval as a part of the share from which on labels are called good for training."""

LITTLE = 0.05
"""Upper end of an interval that holds 0 up to which features are said to explain next to nothing."""

# Labels of a larger epsilon are not advised: above it the bound says little.
_MOST_EPSILON = 4.0
_STEPS = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
_DRAWN = (
    "Classes are drawn from its probabilities, which are beside them: train on the probabilities, and judge models by "
    "them"
)
# A share of the range of the labels.
_ROUNDING = 1e-9


def verdict(facts: ReleasedFacts, measured: Measured | None = None, naming: Naming = AS_FLAGS) -> Verdict:
    """Judges released labels by what a ridge explains that was measured on them; None if it was not."""
    if is_model(facts):
        more = f"{naming('center')} {_no_model(facts, naming)}, for labels that say more"
        drawn = f". {_DRAWN}" if facts.drawn_from_center else ""
        return Verdict("center", f"the center is the model: {NOTHING_ELSE}{drawn}", (more,))
    if facts.records is None:
        return Verdict("unknown", "measured once labels are released; labeldp plan predicts what models lose")
    if measured is None:
        return Verdict("unknown", "not measured here: labeldp report measures it on the released records")
    share, of_all = measured.share, measured.records / facts.records
    if not measured.seen and not facts.center.prior:
        off = percent(math.sqrt(measured.noise * of_all))
        text = f"no features are here; noise moves the mean of all records by {off} of a label's deviation"
        return Verdict("averages", f"for averages: {text}")
    model, costs = "a ridge on these features alone", ""
    if facts.classes is None and not facts.utility.unbiased:
        model = "a ridge of debiased labels"
    if facts.center.prior and measured.parameters < 1:
        model = "the center"
    else:
        cost = _percent(measured.parameters * measured.noise * of_all)
        number = max(round(measured.parameters), 1)
        costs = f"; noise costs its {number} parameter{'s' * (number > 1)} {cost}"
    most = share.value + 2 * share.error
    explains = f"{model} explains {_signed(share.value)} +- {_percent(share.error)}"
    # A sample of the records has a wider interval than all of them.
    narrow = (share.value - share.least) * math.sqrt(of_all) <= (1 - NARROW) * share.value
    words = (
        (share.least <= 0 and most <= LITTLE, "averages", "for averages", f"{model} explains at most {_percent(most)}"),
        (share.least <= 0, "unknown", "cannot be told from these records", explains),
        (narrow, "good", "good for training", explains),
        (True, "small", "for small models", explains),
    )
    level, word, found = next(row for holds, *row in words if holds)
    advised = _advice(facts.randomizer.epsilon, facts.records, share, naming) if level in ("unknown", "small") else ()
    text = f"{word}: {found} of the variance{costs if share.least > 0 else ''}"
    return Verdict(level, text, tuple(advised))


def _percent(share: float) -> str:
    """Two significant digits, above 100 % too: an estimate with its error is a figure, however large it is."""
    return percent(max(share, 0.001)) if share < 0.995 else f"{rounded_up(100 * share):,} %"


def _signed(share: float) -> str:
    return _percent(share) if share >= 0 else f"-{_percent(-share)}"


def _advice(epsilon: float, records: int, share: Share, naming: Naming) -> Iterator[str]:
    """Yields what would take the word to the next one: a larger epsilon for the labels, or more records, if any."""
    wanted = (1 - NARROW) / 2 if share.least > 0 else 0.5
    factor = (share.error / (wanted * max(share.value, share.error))) ** 2
    larger = next((step for step in _STEPS if _noise(epsilon * step) * factor <= _noise(epsilon)), math.inf)
    if epsilon * larger <= _MOST_EPSILON:
        yield f"{larger:g} times {naming('epsilon')}"
    elif factor > 1:
        yield f"{rounded_up(factor * records):,} records"


def _noise(epsilon: float) -> float:
    dividend, divisor = label_noise(epsilon)
    return dividend / divisor


def is_model(facts: ReleasedFacts) -> bool:
    """Tells whether the center is the model: labels are drawn from it, or add little to what its cells say."""
    if facts.drawn_from_center:
        return True
    if not facts.center.cells:
        return False
    most = carried_parameters(facts)
    return most is not None and most < parameters_of(facts)


def _no_model(facts: ReleasedFacts, naming: Naming) -> str:
    return "none" if facts.classes is not None else f"linear, without {naming('for')} log_features"


def parameters_of(facts: ReleasedFacts) -> int:
    """Number of parameters of the model that a release is judged by: 100, or of a linear model of all its features.

    It is the larger of the two.
    """
    return max(MODEL_PARAMETERS, (facts.features or 0) + 1)


def carried_parameters(facts: ReleasedFacts) -> int | None:
    """Largest number of parameters of a model that released numbers serve; None if it is unknown, or for classes."""
    if facts.classes is not None or facts.records is None or not facts.label_variance > 0:
        return None
    known = facts.explainable
    # What noise and bias may cost.
    most = (LOSS if known is None else PART * known) * facts.label_variance
    errors = facts.whole_utility.noise_errors(1.0 if known is None else known)
    ratios = [max(part.variance / (most - part.bias), 1.0) if part.bias < most else math.inf for part in errors]
    return int(facts.records / min(ratios))


def debiasing(facts: ReleasedFacts) -> Debiasing:
    """Line that debiases released labels, or the reason why there is none."""
    if facts.classes is not None:
        return class_debiasing(facts)
    if facts.utility.unbiased:
        clipping = ", up to the clipping of residuals" if facts.center.prior else ""
        return Debiasing(None, f"needs none: the labels are unbiased{clipping}")
    moments = facts.whole_utility
    if moments.line is None:
        return Debiasing(None, "there is no line: the mean released label does not rise with the true one")
    intercept, slope = moments.line
    released, before = ("released - center", "center + ") if facts.center.prior else ("released", "")
    # Rounding leaves a little of an intercept of 0.
    if abs(intercept) > _ROUNDING * (facts.prior.labels[-1] - facts.prior.labels[0]):
        released += f" {'-' if intercept >= 0 else '+'} {abs(intercept):.6g}"
    formula = f"true = {before}({released}) / {slope:.6g}"
    if facts.records is not None and not moments.best_use(facts.records / parameters_of(facts))[1]:
        return Debiasing(formula, "for averages over many records; a model of so few records is better without it")
    return Debiasing(formula, "for averages over many records and for predictions")


def class_debiasing(facts: ReleasedFacts) -> Debiasing:
    """Formula that corrects shares of released classes; models are corrected by their losses."""
    if facts.drawn_from_center:
        return Debiasing(None, "needs none: the mean probability of a class is its share as the center knows it")
    randomizer, models = facts.randomizer, "models with the losses of labeldp.training"
    if len(randomizer.outputs) < len(randomizer.labels):
        return Debiasing(None, f"shares cannot be corrected, because some classes are never released; {models}")
    own, other = correction(randomizer)
    return Debiasing(f"true share = (released share - {other:.6g}) / {own - other:.6g}", f"for each class; {models}")
