"""Results of an evaluation: summaries over its seeds, and their chart, beside published baselines."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from labeldp import InputError

from ..pipelines.cli.text_format import Row
from ..report.charts import Line, lines_chart
from .evaluation_cell import CLEAN, MEAN_PREDICTOR, Cell, Score

WARNING = (
    "These losses were measured on true labels, with noise that anyone can make from the seed. They are not private, "
    "whatever epsilon a row names: publish them only of data that you may show."
)
_PUBLISHED = "best published"

_COLUMNS = ["mechanism", "epsilon", "mean", "std"]


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


def _center_alone(summaries: Sequence[Summary]) -> dict[str, dict[float, Summary]]:
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


def scenario_text(recipient_features: Sequence[str]) -> str:
    """States which of the features to train on the log lacks."""
    names = ", ".join(recipient_features)
    return f"Recipients have features that the log lacks: {names}. Models are trained on them, centers made without."


def draw_evaluation(
    summaries: Sequence[Summary], model: str, loss: str, title: str, published: Sequence[PublishedResult]
) -> str:
    """Draws the chart of one model as SVG: a line for each mechanism, with a band of one standard deviation.

    The band has this width to each side. Dashed lines are the best published mean at each epsilon, and the loss of each
    center without a model.
    """
    private = [each for each in summaries if each.model == model and each.epsilon is not None]
    lines = []
    for mechanism in dict.fromkeys(each.mechanism for each in private):
        found = sorted((each for each in private if each.mechanism == mechanism), key=lambda each: each.epsilon or 0.0)
        x = [each.epsilon or 0.0 for each in found]
        lines.append(Line(mechanism, x, [each.test_loss for each in found], [each.test_loss_std for each in found]))
    for center, alone in _center_alone(summaries).items():
        x = sorted(alone)
        lines.append(Line(f"center {center} alone", x, [alone[each].center_loss for each in x], guide=True))
    known = {
        epsilon: best
        for epsilon in sorted({each.epsilon or 0.0 for each in private})
        if (best := _best_published(published, epsilon))
    }
    lines.append(Line(_PUBLISHED, list(known), [best.mean for best in known.values()], guide=True))
    levels = [
        (name, each.test_loss)
        for name, mechanism in (("true labels", CLEAN), ("mean predictor", MEAN_PREDICTOR))
        for each in summaries
        if each.mechanism == mechanism and each.model in (model, MEAN_PREDICTOR) and each.test_loss is not None
    ]
    x_label, y_label = "epsilon, of histogram and labels together", f"test {loss} loss, true labels"
    return lines_chart(lines, title, x_label, y_label, levels, file=True)


@dataclass(frozen=True)
class PublishedResult:
    """Published test loss at an epsilon > 0: mean and standard deviation over trials.

    The mechanism is named as in the publication.
    """

    mechanism: str
    epsilon: float
    mean: float
    std: float


def read_published(path: str) -> list[PublishedResult]:
    """Reads the value of `--published`, a CSV file with the header mechanism,epsilon,mean,std, in its order.

    Raises InputError, which names file and line, if the file cannot be read or is not such a table.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            if reader.fieldnames != _COLUMNS:
                raise InputError(f"--published {path}: the header must be {','.join(_COLUMNS)}")
            return [_parse_row(row, f"--published {path}: line {reader.line_num}") for row in reader]
    except csv.Error:
        raise InputError(f"--published {path} is not CSV: close each quote where its field ends") from None
    except OSError as error:
        raise InputError(f"--published {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"--published {path} is not UTF-8 text") from None


def _best_published(published: Sequence[PublishedResult], epsilon: float) -> PublishedResult | None:
    """Published result with the least mean at an epsilon, compared exactly; None if there is none."""
    return min((each for each in published if each.epsilon == epsilon), key=lambda each: each.mean, default=None)


def _parse_row(row: dict[str, str], where: str) -> PublishedResult:
    try:
        epsilon, mean, std = (float(row[name]) for name in _COLUMNS[1:])
    except (TypeError, ValueError):
        raise InputError(f"{where}: epsilon, mean and std must be numbers") from None
    if not (epsilon > 0 and math.isfinite(mean) and std >= 0):
        raise InputError(f"{where}: epsilon must be above 0, mean finite, and std not negative")
    return PublishedResult(row["mechanism"], epsilon, mean, std)
