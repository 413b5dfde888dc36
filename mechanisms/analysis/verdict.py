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
from .model_error import ModelError
from .utility import ReleasedFacts

TREES = 0.7
"""Boosted trees fit noise as a linear model of rate * rounds * leaves / TREES parameters does (docs/expect.md)."""

LEAST_LEAF = 20
"""Least number of records in a leaf that is advised, the default of libraries."""

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
    if not measured.seen and facts.center is None:
        off = percent(math.sqrt(measured.noise * of_all))
        text = f"no features are here; noise moves the mean of all records by {off} of a label's deviation"
        return Verdict("averages", f"for averages: {text}")
    alone = facts.center is not None and measured.parameters < 1
    biased = facts.classes is None and not facts.utility.unbiased
    ridge = "a ridge of debiased labels" if biased else "a ridge on these features alone"
    model = "the center" if alone else ridge
    if share.least <= 0 and share.value + 2 * share.error <= LITTLE:
        most = _percent(share.value + 2 * share.error)
        return Verdict("averages", f"for averages: {model} explains at most {most} of the variance")
    explains = f"{model} explains {_signed(share.value)} +- {_percent(share.error)} of the variance"
    advice = tuple(_advice(facts.randomizer.epsilon, facts.records, share, naming))
    if share.least <= 0:
        return Verdict("unknown", f"cannot be told from these records: {explains}", advice)
    cost = _percent(measured.parameters * measured.noise * of_all)
    costs = "" if alone else f"; noise costs its {max(round(measured.parameters), 1)} parameters {cost}"
    text = explains + costs
    # A sample of the records has a wider interval than all of them.
    if (share.value - share.least) * math.sqrt(of_all) <= (1 - NARROW) * share.value:
        return Verdict("good", f"good for training: {text}")
    return Verdict("small", f"for small models: {text}", advice)


def _percent(share: float) -> str:
    return percent(max(share, 0.001))


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
    if facts.center is None or not facts.center.cells:
        return False
    most = carried_parameters(facts)
    return most is not None and most < parameters_of(facts)


def model_note(facts: ReleasedFacts, naming: Naming = AS_FLAGS) -> str | None:
    """Line for the top of a release whose center took most of epsilon; None for one of labels."""
    if not is_model(facts):
        return None
    return f"the release is a model: {NOTHING_ELSE}; if theirs say more, {naming('center')} {_no_model(facts, naming)}"


def _no_model(facts: ReleasedFacts, naming: Naming) -> str:
    return "none" if facts.classes is not None else f"linear, without {naming('for')} log_features"


def parameters_of(facts: ReleasedFacts) -> int:
    """Number of parameters of the model that a release is judged by: 100, or of a linear model of all its features.

    It is the larger of the two.
    """
    return max(MODEL_PARAMETERS, (facts.features or 0) + 1)


def noise_cost(facts: ReleasedFacts, parameters: int) -> float:
    """Share of the label variance that noise and bias add to the error of a model; the records are known."""
    assert facts.records is not None
    errors = _errors(facts)
    return min(part.bias + part.variance * parameters / facts.records for part in errors) / facts.label_variance


def carried_parameters(facts: ReleasedFacts) -> int | None:
    """Largest number of parameters of a model that released numbers serve; None if it is unknown, or for classes."""
    if facts.classes is not None or facts.records is None or not facts.label_variance > 0:
        return None
    return int(facts.records / _records_per_parameter(facts))


def _errors(facts: ReleasedFacts) -> list[ModelError]:
    known = facts.explainable
    return facts.whole_utility.noise_errors(1.0 if known is None else known)


def _allowed(facts: ReleasedFacts) -> float:
    """Share of the variance that noise and bias may cost."""
    return LOSS if facts.explainable is None else PART * facts.explainable


def _records_per_parameter(facts: ReleasedFacts) -> float:
    """Least number of records for each parameter of a model, >= 1; infinite if the bias that remains is too large."""
    return _least_ratio(_errors(facts), _allowed(facts) * facts.label_variance)


def _least_ratio(errors: list[ModelError], most: float) -> float:
    return min(max(part.variance / (most - part.bias), 1.0) if part.bias < most else math.inf for part in errors)


def debiasing(facts: ReleasedFacts) -> Debiasing:
    """Line that debiases released labels, or the reason why there is none."""
    if facts.classes is not None:
        return class_debiasing(facts)
    if facts.utility.unbiased:
        clipping = "" if facts.center is None else ", up to the clipping of residuals"
        return Debiasing(None, f"needs none: the labels are unbiased{clipping}")
    moments = facts.whole_utility
    if moments.line is None:
        return Debiasing(None, "there is no line: the mean released label does not rise with the true one")
    intercept, slope = moments.line
    released, before = ("released", "") if facts.center is None else ("released - center", "center + ")
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
