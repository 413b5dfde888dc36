"""Chart of an evaluation: test loss against epsilon, with reference lines for models without privacy."""

from __future__ import annotations

from collections.abc import Sequence

from ..charts.line_chart import Line, draw_lines
from .evaluation_cell import CLEAN, MEAN_PREDICTOR
from .evaluation_table import Summary, center_alone
from .published_results import PublishedResult, best_published

_PUBLISHED = "best published"


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
    for center, alone in center_alone(summaries).items():
        x = sorted(alone)
        lines.append(Line(f"center {center} alone", x, [alone[each].center_loss for each in x], guide=True))
    known = {
        epsilon: best
        for epsilon in sorted({each.epsilon or 0.0 for each in private})
        if (best := best_published(published, epsilon))
    }
    lines.append(Line(_PUBLISHED, list(known), [best.mean for best in known.values()], guide=True))
    levels = [
        (name, each.test_loss)
        for name, mechanism in (("true labels", CLEAN), ("mean predictor", MEAN_PREDICTOR))
        for each in summaries
        if each.mechanism == mechanism and each.model in (model, MEAN_PREDICTOR) and each.test_loss is not None
    ]
    x_label, y_label = "epsilon, of histogram and labels together", f"test {loss} loss, true labels"
    return draw_lines(lines, title, x_label, y_label, levels)
