"""Results of an evaluation: summaries over its seeds, and their chart, beside published baselines."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

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
_WITH_STD = ("test_loss", "mechanism_error", "center_loss")


@dataclass(frozen=True)
class Summary:
    """Results of one mechanism and model at one epsilon, over the seeds.

    Attributes:
      cell: The cell; its seed has no meaning.
      seeds: Number of seeds.
      mean: Means of the scores; the first reason alone, if a seed has one.
      std: Sample standard deviations; none for one seed.
    """

    cell: Cell
    seeds: int
    mean: Score
    std: Score

    def row(self) -> Row:
        """Values by column; the columns are explained in docs/evaluation.md."""
        cell = self.cell
        row: dict[str, object] = {
            "mechanism": cell.name,
            "model": cell.model,
            "epsilon": cell.epsilon,
            "seeds": self.seeds,
        }
        for name, value in vars(self.mean).items():
            if name == "center_loss":
                row["center"] = cell.center
            row[name] = value
            if name in _WITH_STD:
                row[f"{name}_std"] = getattr(self.std, name)
        return row


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
    if reason:
        return Summary(cell, len(scores), Score(reason=reason), Score())
    by_name = {field.name: [getattr(score, field.name) for score in scores] for field in fields(Score)}
    known = {name: values for name, values in by_name.items() if None not in values}
    means = Score(reason=None, **{name: statistics.fmean(values) for name, values in known.items()})
    several = known if len(scores) > 1 else {}
    return Summary(cell, len(scores), means, Score(**{name: statistics.stdev(several[name]) for name in several}))


def _center_alone(summaries: Sequence[Summary]) -> dict[str, dict[float, Summary]]:
    """Selects results that tell the loss of each center without a model: one at each epsilon.

    Its mechanism is the first one: others may round labels differently.
    """
    found: dict[str, dict[float, Summary]] = {}
    for each in summaries:
        cell = each.cell
        if cell.center is not None and cell.epsilon is not None and each.mean.center_loss is not None:
            found.setdefault(cell.center, {}).setdefault(cell.epsilon, each)
    return found


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
    private = [each for each in summaries if each.cell.model == model and each.cell.private]
    private.sort(key=lambda each: each.cell.epsilon or 0.0)
    lines = []
    for mechanism in dict.fromkeys(each.cell.name for each in private):
        found = [each for each in private if each.cell.name == mechanism]
        losses, stds = [each.mean.test_loss for each in found], [each.std.test_loss for each in found]
        lines.append(Line(mechanism, [each.cell.epsilon or 0.0 for each in found], losses, stds))
    for center, alone in _center_alone(summaries).items():
        x = sorted(alone)
        lines.append(Line(f"center {center} alone", x, [alone[each].mean.center_loss for each in x], guide=True))
    known = {
        epsilon: best
        for epsilon in sorted({each.cell.epsilon or 0.0 for each in private})
        if (best := _best_published(published, epsilon))
    }
    lines.append(Line(_PUBLISHED, list(known), [best.mean for best in known.values()], guide=True))
    levels = [
        (name, each.mean.test_loss)
        for name, mechanism in (("true labels", CLEAN), ("mean predictor", MEAN_PREDICTOR))
        for each in summaries
        if each.cell.name == mechanism
        and each.cell.model in (model, MEAN_PREDICTOR)
        and each.mean.test_loss is not None
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
