"""Summary of an evaluation over its seeds, as table rows and as a Markdown page."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .evaluation_cell import CLEAN, MEAN_PREDICTOR, Cell, Score
from .published_results import PublishedResult, best_published
from .tables import Row

WARNING = (
    "These losses were measured on true labels, with noise that anyone can make from the seed. They are not private, "
    "whatever epsilon a row names: publish them only of data that you may show."
)
# Smaller numbers are rounding errors and shown as 0.
_NEGLIGIBLE = 1e-9


@dataclass(frozen=True)
class Summary:
    """Results of one mechanism and model at one epsilon, over the seeds.

    Attributes:
      mechanism: Name of mechanism and center, as in `Cell.name`.
      model: As in `Cell`.
      epsilon: As in `Cell`.
      seeds: Number of seeds.
      test_loss: Mean of `Score.test_loss`; None if a seed has a reason.
      test_loss_std: Its sample standard deviation; None for one seed.
      mechanism_error: Mean of `Score.mechanism_error`.
      mechanism_error_std: Its sample standard deviation; None for one seed.
      bias: Mean of `Score.bias`.
      rms_bias: Mean of `Score.rms_bias`.
      reason: First reason of a seed without a score.
      center: As in `Cell`.
      center_loss: Mean of `Score.center_loss`.
      center_loss_std: Its sample standard deviation; None for one seed.
      center_epsilon: Mean of `Score.center_epsilon`.
      range: Mean of `Score.range`.
      clipped: Mean of `Score.clipped`.
    """

    mechanism: str
    model: str
    epsilon: float | None
    seeds: int
    test_loss: float | None
    test_loss_std: float | None
    mechanism_error: float | None
    mechanism_error_std: float | None
    bias: float | None
    rms_bias: float | None
    reason: str | None
    center: str | None = None
    center_loss: float | None = None
    center_loss_std: float | None = None
    center_epsilon: float | None = None
    range: float | None = None
    clipped: float | None = None

    def row(self) -> Row:
        """Values by column; the columns are explained in docs/evaluation.md."""
        return dict(vars(self))


def summarize_cells(scores: Mapping[Cell, Score]) -> list[Summary]:
    """Summarizes scores over seeds, for each mechanism, model and epsilon.

    If one seed has a reason, the summary has it and no values.
    """
    groups: dict[Cell, list[Score]] = {}
    for cell, score in scores.items():
        groups.setdefault(replace(cell, seed=0), []).append(score)
    return [_summary(cell, group) for cell, group in groups.items()]


def _summary(cell: Cell, scores: Sequence[Score]) -> Summary:
    reason = next((score.reason for score in scores if score.reason), None)

    def values(name: str) -> list[float]:
        found = [getattr(score, name) for score in scores]
        return [] if reason or None in found else found

    loss, error, alone = values("test_loss"), values("mechanism_error"), values("center_loss")
    return Summary(
        cell.name,
        cell.model,
        cell.epsilon,
        len(scores),
        _mean(loss),
        _deviation(loss),
        _mean(error),
        _deviation(error),
        _mean(values("bias")),
        _mean(values("rms_bias")),
        reason,
        cell.center,
        _mean(alone),
        _deviation(alone),
        _mean(values("center_epsilon")),
        _mean(values("range")),
        _mean(values("clipped")),
    )


def center_alone(summaries: Sequence[Summary]) -> dict[str, dict[float, Summary]]:
    """Selects results that tell the loss of each center without a model: one at each epsilon.

    Its mechanism is the first one: others may round labels differently.
    """
    found: dict[str, dict[float, Summary]] = {}
    for each in summaries:
        if each.center is not None and each.epsilon is not None and each.center_loss is not None:
            found.setdefault(each.center, {}).setdefault(each.epsilon, each)
    return found


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def markdown_page(title: str, summaries: Sequence[Summary], loss: str, published: Sequence[PublishedResult]) -> str:
    """Markdown page of results: a table of test losses for each model, then a table of the errors of the labels."""
    private = [each for each in summaries if each.epsilon is not None]
    mechanisms = list(dict.fromkeys(each.mechanism for each in private))
    epsilons = sorted({each.epsilon for each in private if each.epsilon is not None})
    found = {(each.mechanism, each.model, each.epsilon): each for each in summaries}
    models = list(dict.fromkeys(each.model for each in private))
    seeds = max(each.seeds for each in summaries)
    lines = [f"# {title}", "", WARNING, "", f"Mean ± standard deviation over {seeds} seeds; the best of a row is bold."]
    mean = found.get((MEAN_PREDICTOR, MEAN_PREDICTOR, None))
    centers = center_alone(summaries)
    named = [f"center {center} alone" for center in centers]
    for model in models:
        lines += ["", f"## Test {loss} loss, {model}", "", *_heading([*mechanisms, *named], bool(published))]
        for epsilon in epsilons:
            row = [found[each, model, epsilon] for each in mechanisms]
            best = min((each.test_loss for each in row if each.test_loss is not None), default=None)
            cells = [_cell(each.test_loss, each.test_loss_std, each.test_loss == best) for each in row]
            alone = [each.get(epsilon) for each in centers.values()]
            cells += [_cell(each.center_loss, each.center_loss_std) if each else "-" for each in alone]
            lines.append(_line([f"{epsilon:g}", *cells, *_published_cell(published, epsilon)]))
        clean = found.get((CLEAN, model, None))
        if clean:
            lines += ["", f"True labels: {_cell(clean.test_loss, clean.test_loss_std)}."]
        if mean:
            lines.append(f"Mean predictor: {_cell(mean.test_loss, mean.test_loss_std)}.")
    lines += ["", "## Error of the privatized training labels", "", *_heading(mechanisms, False)]
    for epsilon in epsilons:
        row = [found[each, models[0], epsilon] for each in mechanisms]
        cells = [f"{_number(each.mechanism_error)} ({_number(each.rms_bias)})" for each in row]
        lines.append(_line([f"{epsilon:g}", *cells]))
    lines += ["", "Mean squared distance from the true labels; in brackets, the root mean square of the bias."]
    failures = [f"- {each.mechanism}, epsilon {each.epsilon:g}: {each.reason}" for each in private if each.reason]
    if failures:
        lines += ["", "Not solved:", "", *dict.fromkeys(failures)]
    return "\n".join(lines) + "\n"


def _heading(mechanisms: Sequence[str], published: bool) -> list[str]:
    names = ["epsilon", *mechanisms, *(["best published"] if published else [])]
    return [_line(names), _line(["---:"] * len(names))]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _published_cell(published: Sequence[PublishedResult], epsilon: float) -> list[str]:
    if not published:
        return []
    best = best_published(published, epsilon)
    return [f"{_cell(best.mean, best.std)} ({best.mechanism})" if best else "-"]


def _cell(mean: float | None, deviation: float | None, best: bool = False) -> str:
    if mean is None:
        return "-"
    text = _number(mean) if deviation is None else f"{_number(mean)} ± {_number(deviation, mean)}"
    return f"**{text}**" if best else text


def _number(value: float | None, scale: float | None = None) -> str:
    """Formats with four significant digits of the scale: of the value, or of the mean for a standard deviation."""
    if value is None:
        return "-"
    if abs(value) < _NEGLIGIBLE:
        return "0"
    size = abs(value if scale is None else scale)
    decimals = 3 - math.floor(math.log10(size)) if size > 0 else 4
    return f"{value:.{min(max(decimals, 0), 8)}f}"
