"""Regenerates the tables of README.md from the CSV files beside it, so that no figure is copied by hand."""

from __future__ import annotations

import csv
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent


class Result(NamedTuple):
    """One row of an evaluation.

    Attributes:
      run: Name of the run, or "published".
      mechanism: As on the command line.
      model: Name of the model; empty for published results.
      epsilon: The whole budget; None without privacy.
      seeds: Number of seeds.
      loss: Mean test loss.
      deviation: Standard deviation of the test loss over seeds.
      label_error: Mean squared error of the training labels.
    """

    run: str
    mechanism: str
    model: str
    epsilon: float | None
    seeds: int
    loss: float
    deviation: float
    label_error: float | None = None


def read(*runs: str) -> list[Result]:
    """Reads the results of evaluations.

    Args:
      *runs: Names of runs; a run without a file has no rows.

    Returns:
      The rows with a score.
    """
    found = []
    for run in runs:
        path = HERE / f"{run}.csv"
        if not path.exists():
            continue
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if row["test_loss"]:
                    epsilon = float(row["epsilon"]) if row["epsilon"] else None
                    figures = float(row["test_loss"]), float(row["test_loss_std"] or 0)
                    error = float(row["mechanism_error"]) if row["mechanism_error"] else None
                    found.append(
                        Result(run, row["mechanism"], row["model"], epsilon, int(row["seeds"]), *figures, error)
                    )
    return found


def published(name: str) -> list[Result]:
    """Reads published results.

    Args:
      name: Name of the data set.

    Returns:
      The rows of NAME_published.csv.
    """
    with (HERE / f"{name}_published.csv").open(newline="") as file:
        return [
            Result("published", row["mechanism"], "", float(row["epsilon"]), 10, float(row["mean"]), float(row["std"]))
            for row in csv.DictReader(file)
        ]


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Formats a table as Markdown.

    Args:
      heading: Names of the columns.
      rows: Cells of each row.

    Returns:
      The table, without a final line break.
    """
    lines = [heading, ["---:"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def figure(result: Result | None, digits: int, bold: bool = False) -> str:
    """Formats mean and standard deviation.

    Args:
      result: The result; None gives "-".
      digits: Number of decimals.
      bold: True for bold text.

    Returns:
      The text of a cell.
    """
    if result is None:
        return "-"
    text = f"{result.loss:.{digits}f} ± {result.deviation:.{digits}f}"
    return f"**{text}**" if bold else text


def least(results: Iterable[Result]) -> Result | None:
    """Finds the result with the least loss.

    Args:
      results: The results.

    Returns:
      The result; None if there are none.
    """
    return min(results, key=lambda result: result.loss, default=None)


def against_published(name: str, runs: Sequence[str], fixed: tuple[str, str, str], digits: int) -> str:
    """Compares with the best published result at each epsilon.

    Args:
      name: Name of the data set.
      runs: Our runs.
      fixed: Run, mechanism and model of the column with one choice for all epsilons.
      digits: Number of decimals.

    Returns:
      A table of the best published result, the fixed choice, our best result, and the ratio of the best ones.
    """
    ours, theirs = read(*runs), published(name)
    rows = []
    for epsilon in sorted({result.epsilon or 0.0 for result in theirs}):
        other = least(result for result in theirs if result.epsilon == epsilon)
        same = least(result for result in ours if result.epsilon == epsilon and result[:3] == fixed)
        best = least(result for result in ours if result.epsilon == epsilon)
        if other is None or best is None:
            continue
        steps = " (step 0.1)" if best.run.endswith("_coarse") else ""
        ratio = f"{best.loss / other.loss:.2f}"
        what = f"{best.mechanism}, {best.model}{steps}"
        rows.append(
            [
                f"{epsilon:g}",
                f"{figure(other, digits)} ({other.mechanism})",
                figure(same, digits),
                f"{figure(best, digits, bold=True)} ({what})",
                ratio,
            ]
        )
    heading = ["epsilon", "best published", f"ours: {fixed[1]}, {fixed[2]}", "ours: the best", "ratio"]
    return table(heading, rows)


def by_mechanism(run: str, model: str, digits: int) -> str:
    """Tabulates one model, epsilon by mechanism.

    Args:
      run: Name of the run.
      model: Name of the model.
      digits: Number of decimals.

    Returns:
      The table, and a line with true labels and the mean predictor.
    """
    ours = [result for result in read(run) if result.model == model]
    private = [result for result in ours if result.epsilon is not None]
    mechanisms = list(dict.fromkeys(result.mechanism for result in private))
    rows = []
    for epsilon in sorted({result.epsilon or 0.0 for result in private}):
        best = least(result for result in private if result.epsilon == epsilon)
        line = [f"{epsilon:g}"]
        for mechanism in mechanisms:
            found = least(result for result in private if result.epsilon == epsilon and result.mechanism == mechanism)
            line.append(figure(found, digits, bold=found == best))
        rows.append(line)
    clean = least(result for result in ours if result.mechanism == "clean")
    mean = least(result for result in read(run) if result.mechanism == "mean_predictor")
    note = f"True labels {figure(clean, digits)}, mean predictor {figure(mean, digits)}."
    return f"{table(['epsilon', *mechanisms], rows)}\n\n{note}"


AROUND = " around linear"
"""Suffix of the name of a mechanism whose labels are released around a linear center."""
TARGETS = {
    ("housing_center", "trees"): {0.1: 0.52, 0.3: 0.48, 0.5: 0.45, 1: 0.37},
    ("communities_center", "linear"): {0.1: 0.045, 0.3: 0.033},
}
"""Largest loss that labels around a center were to have, by run, model and epsilon."""


def around_center(run: str, model: str, digits: int) -> str:
    """Compares labels with and without a linear center.

    Args:
      run: Name of the run.
      model: Name of the model.
      digits: Number of decimals.

    Returns:
      A table with a row for each epsilon: the default before centers (`rr_on_bins`), the present one (`auto` around a
      center), `unbiased` without and around a center, and the ratio of the excess of the two over true labels.
    """
    ours = [result for result in read(run) if result.model == model]
    clean = least(result for result in ours if result.mechanism == "clean")
    rows = []
    for epsilon in sorted({result.epsilon for result in ours if result.epsilon is not None}):
        here = {result.mechanism: result for result in ours if result.epsilon == epsilon}
        without, around = here.get("unbiased"), here.get("unbiased" + AROUND)
        if clean is None or without is None or around is None:
            continue
        excess = around.loss - clean.loss
        measurable = min(excess, without.loss - clean.loss) > 0
        ratio = f"{excess / (without.loss - clean.loss):.2f}" if measurable else "no excess"
        even = abs(around.loss - without.loss) <= max(around.deviation, without.deviation)
        wanted = TARGETS.get((run, model), {}).get(epsilon)
        rows.append(
            [
                f"{epsilon:g}",
                figure(here.get("rr_on_bins"), digits),
                figure(here.get("auto" + AROUND), digits),
                figure(without, digits),
                figure(around, digits),
                f"{ratio} (even)" if even else ratio,
                "-" if wanted is None else f"{wanted:g}",
            ]
        )
    heading = ["epsilon", "rr_on_bins", "auto around linear", "unbiased", "unbiased around linear"]
    note = f"True labels {figure(clean, digits)}."
    return f"{table([*heading, 'ratio of excess', 'target'], rows)}\n\n{note}"


CELLS = ("auto around linear", "auto around cells")
"""Releases of a run of cells: the default, and that of `--for log_features`."""
CELL_TARGETS = {"housing_cells": {0.5: 0.37, 1: 0.325, 2: 0.28}}
"""Largest loss of trees that cells were to have, by run and epsilon; for diamonds at most 3/4 of that without
cells at epsilon 1."""


CELL_RUNS = {"housing": 3, "diamonds": 3, "communities": 4, "loans": 1, "wages": 1, "census": 1}
"""Number of decimals by the first part of the name of each run of cells."""


def around_cells(run: str, digits: int) -> str:
    """Compares labels around a linear center and around cells.

    Args:
      run: Name of the run.
      digits: Number of decimals.

    Returns:
      A table with a row for each model and epsilon.
    """
    results, rows = read(run), []
    for model in ("trees", "linear"):
        ours = [result for result in results if result.model == model]
        for epsilon in sorted({result.epsilon for result in ours if result.epsilon is not None}):
            here = {result.mechanism: result for result in ours if result.epsilon == epsilon}
            linear, cells = (here.get(name) for name in CELLS)
            assert linear is not None
            assert cells is not None
            wanted = CELL_TARGETS.get(run, {}).get(epsilon) if model == "trees" else None
            apart = max(linear.deviation, cells.deviation)
            said = (
                "even" if abs(cells.loss - linear.loss) <= apart else "better" if cells.loss < linear.loss else "worse"
            )
            both = [figure(each, digits) for each in (linear, cells)]
            rows.append([model, f"{epsilon:g}", *both, said, "-" if wanted is None else f"{wanted:g}"])
    clean = [
        least(each for each in results if (each.mechanism, each.model) == ("clean", m)) for m in ("trees", "linear")
    ]
    note = f"True labels: trees {figure(clean[0], digits)}, linear {figure(clean[1], digits)}."
    heading = ["model", "epsilon", "around linear", "around cells", "the latter is", "target"]
    return f"{table(heading, rows)}\n\n{note}"


SCENARIOS = {
    "housing": (3, ("housing_cells", "housing_center"), ("housing_recipients", "housing_center")),
    "diamonds": (3, ("diamonds_10000",), ("diamonds_recipients",)),
}
"""Number of decimals by data set, and runs of recipients with the features of the log, and with further ones. Labels
without a center are the same in both."""


def recipients(data: str) -> str:
    """Compares releases for recipients who have the features of the log alone, and for those who have further ones.

    Args:
      data: Name in `SCENARIOS`.

    Returns:
      A table with a row for each of the two and each epsilon.
    """
    digits, *scenarios = SCENARIOS[data]
    rows = []
    for title, runs in zip(("those of the log", "others, too"), scenarios, strict=True):
        here = {(each.mechanism, each.epsilon): each for each in reversed(read(*runs)) if each.model == "trees"}
        for epsilon in (0.5, 1.0, 2.0):
            found = [here.get((release, epsilon)) for release in (*CELLS, "auto")]
            best = least(each for each in found if each)
            cells = [figure(each, digits, bold=each == best) for each in found]
            rows.append([title, f"{epsilon:g}", *cells, figure(here.get(("clean", None)), digits)])
    heading = ["features of recipients", "epsilon", "default", "`--for log_features`", "`--center none`", "true labels"]
    return table(heading, rows)


def rival() -> str:
    """Compares models that are trained privately with labels around cells.

    Returns:
      A table with a row for each data set and epsilon; empty without results of the rival.
    """
    path = HERE / "rival.csv"
    if not path.exists():
        return ""
    with path.open(newline="") as file:
        trials = {(row["run"], float(row["epsilon"]), row["model"]): row for row in csv.DictReader(file)}
    rows = []
    for run, epsilon in dict.fromkeys((run, epsilon) for run, epsilon, _ in trials):
        digits = CELL_RUNS[run.removesuffix("_cells")]
        ours = [each for each in read(run) if (each.epsilon, each.mechanism) == (epsilon, CELLS[1])]
        by_model = {each.model: each for each in ours}
        found = [trials[run, epsilon, model] for model in ("linear", "network")]
        theirs = [f"{float(row['loss']):.{digits}f} ± {float(row['deviation']):.{digits}f}" for row in found]
        cells = [figure(by_model.get(model), digits) for model in ("linear", "trees")]
        rows.append([run.removesuffix("_cells"), f"{epsilon:g}", *theirs, *cells])
    ours = [f"`--for log_features`, {model}" for model in ("linear", "trees")]
    return table(["data", "epsilon", "rival, linear", "rival, network", *ours], rows)


CLASS_RUNS = {
    "conversions": 2, "housing": 3, "housing_recipients": 3, "digits": 3, "cut": 3, "weeks": 3, "twenty": 3
}  # fmt: skip
"""Data sets of class_results.py, with the digits of their losses."""
CLASS_RELEASES = ("default", "center, probabilities", "center, drawn", "center itself", "randomized response", "LP-2ST")


def classes(name: str, digits: int) -> str:
    """Compares releases of classes by the loss of models that are trained on them.

    Args:
      name: Data set, of CLASS_RUNS.
      digits: Digits of the losses.

    Returns:
      A table with a row for each epsilon, and the loss with true classes; empty without results.
    """
    path = HERE / f"classes_{name}.csv"
    if not path.exists():
        return ""
    found: dict[tuple[float, str], list[tuple[float, float]]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            key = float(row["epsilon"]), row["release"]
            found.setdefault(key, []).append((float(row["loss"]), float(row["slope"])))

    def shown(epsilon: float, release: str) -> str:
        losses, slopes = zip(*found.get((epsilon, release), [(math.nan, 0.0)]), strict=True)
        slope = f", slope {statistics.mean(slopes):.2f}" if any(slopes) else ""
        spread = f" ± {statistics.stdev(losses):.{digits}f}" if len(losses) > 1 else ""
        return "-" if math.isnan(losses[0]) else f"{statistics.mean(losses):.{digits}f}{spread}{slope}"

    budgets = sorted({epsilon for epsilon, _ in found} - {math.inf})
    releases = [release for release in CLASS_RELEASES if any((epsilon, release) in found for epsilon in budgets)]
    rows = [[f"{epsilon:g}", *(shown(epsilon, release) for release in releases)] for epsilon in budgets]
    seeds = len(found[math.inf, "true"])
    return f"{table(['epsilon', *releases], rows)}\n\nTrue classes: {shown(math.inf, 'true')}; seeds: {seeds}."


CLIPPED = ("laplace", "staircase")
UNCLIPPED = ("laplace:clip=false", "staircase:clip=false")
CLAIMS = (
    ("unbiased below rr_on_bins", ["unbiased"], ["rr_on_bins"]),
    ("rr_on_bins below clipped noise", ["rr_on_bins"], CLIPPED),
    ("unbiased below clipped noise", ["unbiased"], CLIPPED),
    ("unbiased below noise that is not clipped", ["unbiased"], UNCLIPPED),
)
CLAIMS_OF_CENTERS = (
    ("unbiased around a linear center below unbiased", ["unbiased" + AROUND], ["unbiased"]),
    ("auto around a linear center below rr_on_bins", ["auto" + AROUND], ["rr_on_bins"]),
)
RUNS_OF_CLAIMS = {
    "census_1_52": ("linear", "trees"),
    "census_0_52": ("linear", "trees"),
    "housing": ("linear", "trees", "network"),
    "communities_coarse": ("linear", "trees", "network"),
}
RUNS_AROUND_CENTERS = {
    "census_center": ("linear",),
    "census_center_trees": ("trees",),
    "housing_center": ("linear", "trees"),
    "communities_center": ("linear", "trees"),
}


def verdicts(pairs: Iterable[tuple[float, float, float, float]]) -> list[str]:
    """Sorts epsilons by the comparison of two losses.

    Args:
      pairs: Epsilon, first loss, second loss, and the largest difference that counts as even.

    Returns:
      Epsilons at which the first loss is below the second, even, and above; "-" for none.
    """
    below, even, above = [], [], []
    for epsilon, first, second, apart in pairs:
        place = even if abs(first - second) <= apart else below if first < second else above
        place.append(f"{epsilon:g}")
    return [", ".join(place) or "-" for place in (below, even, above)]


def compared(results: Sequence[Result], first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Compares the best of some mechanisms with the best of others.

    Means are even if they differ by at most the larger of both standard deviations over seeds.

    Args:
      results: Results of one run and model.
      first: The mechanisms that are claimed to be better.
      second: The other mechanisms.

    Returns:
      Epsilons at which the claim is confirmed, even, and refuted.
    """
    pairs = []
    for epsilon in sorted({result.epsilon for result in results if result.epsilon is not None}):
        here = [result for result in results if result.epsilon == epsilon]
        one, other = (least(each for each in here if each.mechanism in names) for names in (first, second))
        if one is not None and other is not None:
            pairs.append((epsilon, one.loss, other.loss, max(one.deviation, other.deviation)))
    return verdicts(pairs)


def claims() -> str:
    """Tabulates the claims of the papers about models, and those about centers.

    Returns:
      A table of claims by run and model, with the epsilons at which they are confirmed, even and refuted.
    """
    rows = []
    for pages, runs in ((CLAIMS, RUNS_OF_CLAIMS), (CLAIMS_OF_CENTERS, RUNS_AROUND_CENTERS)):
        for (claim, first, second), (run, models) in product(pages, runs.items()):
            for model in models:
                found = compared([result for result in read(run) if result.model == model], first, second)
                if set(found) != {"-"}:
                    rows.append([claim, run, model, *found])
    return table(["test loss", "run", "model", "confirmed at", "even at", "refuted at"], rows)


def label_errors() -> str:
    """Tabulates where labels of rr_on_bins have the least error (Ghazi et al. 2022, Theorem 5).

    Returns:
      A table of the epsilons at which they have and at which they do not, by run.
    """
    rows = []
    for run in RUNS_OF_CLAIMS:
        errors = {
            (result.epsilon, result.mechanism): result.label_error
            for result in read(run)
            if result.epsilon is not None and result.label_error is not None
        }
        epsilons = sorted({epsilon for epsilon, _ in errors})
        least_of = {
            epsilon: min((error, name) for (other, name), error in errors.items() if other == epsilon)
            for epsilon in epsilons
        }
        won = [f"{epsilon:g}" for epsilon, (_, name) in least_of.items() if name == "rr_on_bins"]
        lost = [
            f"{epsilon:g} ({name}, by {1 - error / errors[epsilon, 'rr_on_bins']:.1%})"
            for epsilon, (error, name) in least_of.items()
            if name != "rr_on_bins"
        ]
        rows.append([run, ", ".join(won) or "-", ", ".join(lost) or "-"])
    return table(["run", "least at", "not at"], rows)


BOUND = "bias_limited:bias="


def rule(run: str, digits: int) -> str:
    """Tabulates the recommendations of `labeldp plan` beside the measured errors of linear models.

    Args:
      run: Name of the run.
      digits: Number of decimals.

    Returns:
      The table, a row for each epsilon.
    """
    path = HERE / f"{run}_plan.csv"
    results = [result for result in read(run) if result.model == "linear"]
    rows = []
    if path.exists():
        with path.open(newline="") as file:
            recommended = {float(row["epsilon"]): row["recommended"] for row in csv.DictReader(file)}
        for epsilon, mechanism in recommended.items():
            here = {result.mechanism: result for result in results if result.epsilon == epsilon}
            nearest = mechanism
            if mechanism.startswith(BOUND):
                bounds = {name: float(name.removeprefix(BOUND)) for name in here if name.startswith(BOUND)}
                bounds["unbiased"] = 0.0
                wanted = float(mechanism.removeprefix(BOUND))
                nearest = min(bounds, key=lambda name: abs(bounds[name] - wanted))
            best = least(here.values())
            rows.append(
                [
                    f"{epsilon:g}",
                    mechanism,
                    f"{figure(here.get(nearest), digits)} ({nearest})",
                    f"{figure(best, digits)} ({best.mechanism if best else ''})",
                    figure(here.get("unbiased"), digits),
                    figure(here.get("rr_on_bins"), digits),
                ]
            )
    return table(
        ["epsilon", "recommended", "the nearest of those measured", "the best measured", "unbiased", "rr_on_bins"], rows
    )


def blocks() -> dict[str, str]:
    """Makes all tables of README.md.

    Returns:
      Markdown by name of the block.
    """
    runs = ("communities", "communities_coarse")
    return {
        "communities": against_published("communities", runs, ("communities_coarse", "unbiased", "linear"), 4),
        "housing": against_published("housing", ("housing",), ("housing", "unbiased", "trees"), 3),
        "census_1_52": by_mechanism("census_1_52", "trees", 1),
        "census_0_52": by_mechanism("census_0_52", "trees", 1),
        "housing_bias": by_mechanism("housing_bias", "trees", 3),
        "housing_bias_linear": by_mechanism("housing_bias", "linear", 3),
        "communities_bias": by_mechanism("communities_bias", "linear", 4),
        "housing_rule": rule("housing_bias", 3),
        "communities_rule": rule("communities_bias", 4),
        "housing_center": around_center("housing_center", "trees", 3),
        "housing_center_linear": around_center("housing_center", "linear", 3),
        "communities_center": around_center("communities_center", "linear", 4),
        "communities_center_trees": around_center("communities_center", "trees", 4),
        "census_center": around_center("census_center", "linear", 1),
        "census_center_trees": around_center("census_center_trees", "trees", 1),
        **{f"{name}_recipients": recipients(name) for name in SCENARIOS},
        **{f"{name}_cells": around_cells(f"{name}_cells", digits) for name, digits in CELL_RUNS.items()},
        "rival": rival(),
        **{f"classes_{name}": classes(name, digits) for name, digits in CLASS_RUNS.items()},
        "claims": claims(),
        "label_errors": label_errors(),
    }


def replace_blocks(path: Path, found: Mapping[str, str]) -> None:
    """Replaces the blocks between `<!-- NAME -->` and `<!-- end -->` in a page.

    Args:
      path: The page.
      found: Markdown by name of the block.
    """
    page = path.read_text(encoding="utf-8")
    for name, text in found.items():
        page, count = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)",
            lambda match, text=text: f"{match[1]}{text}\n{match[2]}",
            page,
            flags=re.DOTALL,
        )
        if count != 1:
            raise SystemExit(f"{path.name} must have one block <!-- {name} -->")
    path.write_text(page, encoding="utf-8")


def main() -> None:
    """Replaces the tables of README.md."""
    replace_blocks(HERE / "README.md", blocks())


if __name__ == "__main__":
    main()
