"""The picture of an evaluation: test loss against epsilon, with bands, and without privacy as horizontal lines."""

from __future__ import annotations

from collections.abc import Sequence

from . import figures
from .evaluation_cell import CLEAN, MEAN
from .evaluation_table import Summary
from .published import Published, best_at

_BAND = 0.15
_PUBLISHED = "best published"


def draw_evaluation(
    summaries: Sequence[Summary], model: str, loss: str, title: str, published: Sequence[Published]
) -> bytes:
    """A PNG of one model: a line per mechanism, with a band of one standard deviation to each side."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    private = [each for each in summaries if each.model == model and each.epsilon is not None]
    with rc_context({"font.size": figures._FONT_POINTS}):
        figure = Figure(figsize=(7.6, 4.6), dpi=figures._DOTS_PER_INCH)
        axes = figure.add_axes((0.1, 0.12, 0.62, 0.78))
        ends: list[tuple[str, float | None, float, str]] = []
        heights: list[float] = []
        for place, mechanism in enumerate(dict.fromkeys(each.mechanism for each in private)):
            line = sorted(
                (each.epsilon or 0.0, each.test_loss, each.test_loss_std or 0.0)
                for each in private
                if each.mechanism == mechanism and each.test_loss is not None
            )
            if not line:
                continue
            x, y, deviations = zip(*line, strict=True)
            colour = figures._COLOURS[place % len(figures._COLOURS)]
            style = figures._STYLES[place // len(figures._COLOURS) % len(figures._STYLES)]
            marker = figures._MARKERS[place % len(figures._MARKERS)]
            axes.plot(x, y, style, color=colour, marker=marker, markersize=4, linewidth=1.5)
            low = [mean - deviation for mean, deviation in zip(y, deviations, strict=True)]
            high = [mean + deviation for mean, deviation in zip(y, deviations, strict=True)]
            axes.fill_between(x, low, high, color=colour, alpha=_BAND, linewidth=0)
            ends.append((mechanism, x[-1], y[-1], colour))
            heights += y
        epsilons = sorted({each.epsilon for each in private if each.epsilon is not None})
        known = [(epsilon, best) for epsilon in epsilons if (best := best_at(published, epsilon))]
        if known:
            x, y = [epsilon for epsilon, _ in known], [best.mean for _, best in known]
            axes.plot(x, y, "--", color=figures._GREY, marker="x", markersize=4, linewidth=1.2)
            ends.append((_PUBLISHED, x[-1], y[-1], figures._GREY))
            heights += y
        for name, mechanism in (("true labels", CLEAN), ("mean predictor", MEAN)):
            for each in summaries:
                if each.mechanism == mechanism and each.model in (model, MEAN) and each.test_loss is not None:
                    axes.axhline(each.test_loss, color=figures._GREY, linewidth=1, linestyle=(0, (2, 3)), zorder=0)
                    ends.append((name, None, each.test_loss, figures._GREY))
                    heights.append(each.test_loss)
        figures._scale(axes, epsilons, heights)
        axes.set_title(title, loc="left", fontsize=figures._FONT_POINTS + 1.5)
        axes.set_xlabel("epsilon, of histogram and labels together")
        axes.set_ylabel(f"test {loss} loss, true labels")
        axes.grid(color="#E4E4E4", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        figures._name_ends(figure, axes, ends)
        return figures._bytes(figure, f"{model}.png")
