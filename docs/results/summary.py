"""Regenerates the tables of README.md from the CSV files beside it, so that no figure is copied by hand."""

from __future__ import annotations

import csv
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

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


def rows_of(name: str) -> list[dict[str, str]]:
    """Reads a CSV file beside this one.

    Args:
      name: Its name without .csv.

    Returns:
      The rows; none without a file.
    """
    path = HERE / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def read_rows(name: str, kind: Any) -> list[Any]:
    """Reads the rows of `write_rows`.

    Args:
      name: Name of the file without .csv.
      kind: Class of the rows, a named tuple of texts, integers, floats and booleans; fields that the file lacks have
        their default.

    Returns:
      The rows; none without a file.
    """
    types = {field: "True".__eq__ if each is bool else each for field, each in get_type_hints(kind).items()}
    return [
        kind(**{field: types[field](row[field]) for field in kind._fields if field in row}) for row in rows_of(name)
    ]


def write_rows(name: str, rows: Iterable[Sequence[Any]], kind: Any) -> None:
    """Writes rows as a CSV file beside this one, and prints them, while they are computed.

    Args:
      name: Name of the file without .csv.
      rows: Named tuples; floats are written with six significant digits.
      kind: Their class.
    """
    with (HERE / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(kind._fields)
        for row in rows:
            writer.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in row])
            file.flush()
            print(*row, flush=True)


def read(*runs: str) -> list[Result]:
    """Reads the results of evaluations.

    Args:
      *runs: Names of runs.

    Returns:
      The rows with a score.
    """
    found = []
    for run in runs:
        for row in rows_of(run):
            if row["test_loss"]:
                epsilon = float(row["epsilon"]) if row["epsilon"] else None
                figures = float(row["test_loss"]), float(row["test_loss_std"] or 0)
                error = float(row["mechanism_error"]) if row["mechanism_error"] else None
                found.append(Result(run, row["mechanism"], row["model"], epsilon, int(row["seeds"]), *figures, error))
    return found


def published(name: str) -> list[Result]:
    """Reads published results.

    Args:
      name: Name of the data set.

    Returns:
      The rows of NAME_published.csv.
    """
    return [
        Result("published", row["mechanism"], "", float(row["epsilon"]), 10, float(row["mean"]), float(row["std"]))
        for row in rows_of(f"{name}_published")
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


AROUND = " around linear"
"""Suffix of the name of a mechanism whose labels are released around a linear center."""
DEFAULT, CELLS = "auto" + AROUND, "auto around cells"
"""The default release, and that of `--for log_features`."""
SHOWN = {"rr_on_bins": "`rr_on_bins`", "unbiased": "`unbiased`", DEFAULT: "default", CELLS: "`--for log_features`"}
"""Releases of the first table, as it names them."""
DATA = {
    "housing": (("housing_center", "housing_cells"), ("trees", "linear"), 3),
    "communities": (("communities_center", "communities_cells"), ("linear",), 4),
    "weeks": (("census_center", "census_cells"), ("linear",), 1),
    "diamonds": (("diamonds_cells",), ("trees", "linear"), 3),
    "loans": (("loans_cells",), ("trees",), 1),
    "wages": (("wages_cells",), ("trees",), 1),
}
"""Runs, models and number of decimals of each data set of the first table."""
SHOWN_EPSILONS = (0.1, 0.5, 1, 2, 4)


def by_epsilon(runs: Sequence[str], model: str) -> dict[tuple[str, float | None], Result]:
    """Finds the results of a model.

    Args:
      runs: Names of runs; where two have the same figure, that of the first counts.
      model: Name of the model.

    Returns:
      Results by mechanism and epsilon.
    """
    return {(each.mechanism, each.epsilon): each for each in reversed(read(*runs)) if each.model == model}


def releases() -> str:
    """Compares the ways to release labels.

    Returns:
      A table with a row for each data set, model and release.
    """
    rows = []
    for data, (runs, models, digits) in DATA.items():
        for model in models:
            found = by_epsilon(runs, model)
            true = figure(found["clean", None], digits)
            for mechanism, name in SHOWN.items():
                cells = [figure(found.get((mechanism, epsilon)), digits) for epsilon in SHOWN_EPSILONS]
                if set(cells) != {"-"}:
                    rows.append([f"{data}, {model}", name, *cells, true])
                    true = ""
    return table(["data, model", "release", *(f"{epsilon:g}" for epsilon in SHOWN_EPSILONS), "true labels"], rows)


SCENARIOS = {
    "housing": (3, ("housing_cells", "housing_center"), ("housing_recipients", "housing_center")),
    "diamonds": (3, ("diamonds_10000",), ("diamonds_recipients",)),
}
"""Number of decimals by data set, and runs of recipients with the features of the log, and with further ones. Labels
without a center are the same in both."""


def recipients() -> str:
    """Compares releases for recipients who have the features of the log alone, and for those who have further ones.

    Returns:
      A table with a row for each data set, each of the two and each epsilon.
    """
    rows = []
    for data, (digits, *scenarios) in SCENARIOS.items():
        for title, runs in zip(("those of the log", "others, too"), scenarios, strict=True):
            found = by_epsilon(runs, "trees")
            for epsilon in (0.5, 1.0, 2.0):
                here = [found.get((release, epsilon)) for release in (DEFAULT, CELLS, "auto")]
                best = least(each for each in here if each)
                cells = [figure(each, digits, bold=each == best) for each in here]
                rows.append([data, title, f"{epsilon:g}", *cells])
    heading = ["data", "features of recipients", "epsilon", "default", "`--for log_features`", "`--center none`"]
    return table(heading, rows)


def rival() -> str:
    """Compares models that are trained privately with labels around cells.

    Returns:
      A table with a row for each data set and epsilon.
    """
    trials = {(row["run"], float(row["epsilon"]), row["model"]): row for row in rows_of("rival")}
    rows = []
    for run, epsilon in dict.fromkeys((run, epsilon) for run, epsilon, _ in trials):
        data = run.removesuffix("_cells")
        digits = DATA[data][2]
        found = [trials[run, epsilon, model] for model in ("linear", "network", "DP-EBM")]
        theirs = [f"{float(row['loss']):.{digits}f} ± {float(row['deviation']):.{digits}f}" for row in found]
        rows.append([data, f"{epsilon:g}", *theirs, figure(by_epsilon((run,), "trees")[CELLS, epsilon], digits)])
    return table(["data", "epsilon", "rival, linear", "rival, network", "DP-EBM", "`--for log_features`, trees"], rows)


CLASS_RUNS = {
    "conversions": 2, "housing": 3, "housing_recipients": 3, "digits": 3, "fashion": 3, "cut": 3, "weeks": 3
}  # fmt: skip
"""Data sets of class_results.py, with the digits of their losses."""
CLASS_RELEASES = ("default", "center, probabilities", "randomized response", "LP-2ST")


def classes() -> str:
    """Compares releases of classes by the loss of models that are trained on them, and by their accuracy if measured.

    Returns:
      A table with a row for each data set and epsilon: means over seeds, and those with true classes.
    """
    rows = []
    for name, digits in CLASS_RUNS.items():
        found: dict[tuple[str, float], list[tuple[float, float]]] = {}
        for row in rows_of(f"classes_{name}"):
            figures = float(row["loss"]), float(row.get("accuracy", "nan"))
            found.setdefault((row["release"], float(row["epsilon"])), []).append(figures)
        means = {}
        for key, figures in found.items():
            loss, accuracy = map(statistics.mean, zip(*figures, strict=True))
            means[key] = f"{loss:.{digits}f}" + ("" if math.isnan(accuracy) else f" ({100 * accuracy:.1f} %)")
        true = means.pop(("true", float("inf")))
        for epsilon in sorted({epsilon for _, epsilon in means}):
            cells = [means.get((release, epsilon), "-") for release in CLASS_RELEASES]
            rows.append([name.replace("_", ", "), f"{epsilon:g}", *cells, true])
    return table(["data", "epsilon", *CLASS_RELEASES, "true classes"], rows)


PUBLISHED_ACCURACY = {
    "RR": (46.9, 75.7, 84.6),
    "RR, debiased loss": (44.8, 73.9, 85.0),
    "LP-2ST": (10.9, 68.7, 84.8),
    "ALIBI": (69.2, 76.5, 82.3),
    "DP-SGD, one model, with a delta": (79.7, 81.5, 82.3),
    "LabelDP-Pro, one model, with a delta": (79.8, 81.7, 82.4),
}
"""Accuracy of a network on Fashion-MNIST in percent at epsilon 0.5, 1 and 2, in table 14 of LabelDP-Pro."""


TRAININGS = {
    "uncorrected": "`--center none`, classes as released",
    "debiased": "`--center none`, `debiased`",
    "likelihood": "`--center none`, `likelihood`",
    "posterior": "again, on the posterior",
    "agreed": "again, on agreed classes",
    "center": "default, probabilities",
    "true": "true classes",
}
"""Releases and trainings of fashion_cnn.py."""


def fashion_cnn() -> str:
    """Compares networks on Fashion-MNIST with published ones.

    Returns:
      A table with a row for each release and training: accuracy in percent, the mean of the seeds.
    """
    found: dict[tuple[str, str, float], list[float]] = {}
    for row in rows_of("fashion_cnn"):
        key = row["network"], row["training"], float(row["epsilon"])
        found.setdefault(key, []).append(100 * float(row["accuracy"]))
    means = {key: f"{statistics.mean(accuracies):.1f}" for key, accuracies in found.items()}
    rows = [["published", name, *(f"{each:.1f}" for each in three)] for name, three in PUBLISHED_ACCURACY.items()]
    for network, (training, title) in product(sorted({network for network, _, _ in means}), TRAININGS.items()):
        epsilons = [math.inf] * 3 if training == "true" else [0.5, 1.0, 2.0]
        rows.append([network, title, *(means.get((network, training, epsilon), "-") for epsilon in epsilons)])
    return table(["network", "release, training", "0.5", "1", "2"], rows)


COARSE = "communities_coarse"
"""Run with labels in steps of 0.1."""
AGAINST = (
    ("communities", ("communities", COARSE), (COARSE, "unbiased", "linear"), 4),
    ("housing", ("housing",), ("housing", "unbiased", "trees"), 3),
)
"""Data sets of the comparison with published results: our runs, one choice for all epsilons, decimals."""
COMPARED_EPSILONS = (0.1, 0.5, 1, 2, 4, 8)
"""Those of the table; the files have more."""


def against_published() -> str:
    """Compares with the best published result at each epsilon.

    Returns:
      A table of the best published result, one choice of ours, and our best result.
    """
    rows, heading = {}, ["epsilon"]
    for data, runs, fixed, digits in AGAINST:
        ours, theirs = read(*runs), published(data)
        heading += [f"{data}: best published", f"{fixed[1]}, {fixed[2]}", "our best"]
        for epsilon in COMPARED_EPSILONS:
            other, same, best = (
                least(each for each in results if each.epsilon == epsilon)
                for results in (theirs, [each for each in ours if each[:3] == fixed], ours)
            )
            assert other is not None
            assert best is not None
            row = rows.setdefault(epsilon, [f"{epsilon:g}"])
            row += [f"{figure(other, digits)} ({other.mechanism})", figure(same, digits), f"{best.loss:.{digits}f}"]
    return table(heading, rows.values())


RUNS_OF_CLAIMS = {
    "housing": ("trees", "linear"),
    COARSE: ("linear", "trees"),
    "census_0_52": ("trees", "linear"),
    "census_1_52": ("trees", "linear"),
}
"""Runs of all mechanisms, with their models."""
RUNS_AROUND_CENTERS = {
    "housing_center": ("trees", "linear"),
    "communities_center": ("linear", "trees"),
    "census_center": ("linear",),
    "census_center_trees": ("trees",),
}
ONE = 1.0
"""Epsilon of the table of mechanisms."""


def mechanisms() -> str:
    """Compares the mechanisms without a center at one epsilon.

    Returns:
      A table with a row for each mechanism.
    """
    columns = {run: by_epsilon((run,), models[0]) for run, models in RUNS_OF_CLAIMS.items()}
    names = dict.fromkeys(name for found in columns.values() for name, epsilon in found if epsilon == ONE)
    rows = []
    for name, epsilon in [*((name, ONE) for name in reversed(names)), ("clean", None)]:
        digits = {"housing": 3, COARSE: 4}
        cells = [figure(found.get((name, epsilon)), digits.get(run, 1)) for run, found in columns.items()]
        rows.append([f"`{name}`" if epsilon else "true labels", *cells])
    return table(["mechanism", *(f"{run}, {models[0]}" for run, models in RUNS_OF_CLAIMS.items())], rows)


CLIPPED = ("laplace", "staircase")
UNCLIPPED = ("laplace:clip=false", "staircase:clip=false")
CLAIMS = (
    ("`unbiased` below `rr_on_bins`", ["unbiased"], ["rr_on_bins"], RUNS_OF_CLAIMS),
    ("`rr_on_bins` below clipped noise", ["rr_on_bins"], CLIPPED, RUNS_OF_CLAIMS),
    ("`unbiased` below clipped noise", ["unbiased"], CLIPPED, RUNS_OF_CLAIMS),
    ("`unbiased` below noise that is not clipped", ["unbiased"], UNCLIPPED, RUNS_OF_CLAIMS),
    ("`unbiased` around a linear center below `unbiased`", ["unbiased" + AROUND], ["unbiased"], RUNS_AROUND_CENTERS),
    ("default below `rr_on_bins`", [DEFAULT], ["rr_on_bins"], RUNS_AROUND_CENTERS),
)


def compared(results: Sequence[Result], first: Sequence[str], second: Sequence[str]) -> dict[float, str]:
    """Compares the best of some mechanisms with the best of others.

    Means are even if they differ by at most the larger of both standard deviations over seeds.

    Args:
      results: Results of one run and model.
      first: The mechanisms that are claimed to be better.
      second: The other mechanisms.

    Returns:
      Epsilon to "confirmed", "even" or "refuted".
    """
    found = {}
    for epsilon in sorted({result.epsilon for result in results if result.epsilon is not None}):
        here = [result for result in results if result.epsilon == epsilon]
        one, other = (least(each for each in here if each.mechanism in names) for names in (first, second))
        if one is not None and other is not None:
            even = abs(one.loss - other.loss) <= max(one.deviation, other.deviation)
            found[epsilon] = "even" if even else "confirmed" if one.loss < other.loss else "refuted"
    return found


def claims() -> str:
    """Counts where the claims of the papers about models, and those about centers, hold.

    Returns:
      A table of claims, with the numbers of runs, models and epsilons, and where they are refuted.
    """
    rows = []
    for claim, first, second, runs in CLAIMS:
        counts, refuted = Counter(), []
        for run, model in [(run, model) for run, models in runs.items() for model in models]:
            found = compared([result for result in read(run) if result.model == model], first, second)
            counts.update(found.values())
            epsilons = [f"{epsilon:g}" for epsilon, result in found.items() if result == "refuted"]
            refuted += [f"{run}, {model}: {', '.join(epsilons)}"] if epsilons else []
        rows.append([claim, str(counts["confirmed"]), str(counts["even"]), "; ".join(refuted) or "-"])
    won, lost = 0, []
    for run in RUNS_OF_CLAIMS:
        errors = [(each.epsilon, each.label_error or 0.0, each.mechanism) for each in read(run) if each.label_error]
        for epsilon in dict.fromkeys(epsilon for epsilon, _, _ in errors):
            best = min(each for each in errors if each[0] == epsilon)
            won += best[2] == "rr_on_bins"
            lost += [f"{run}: {epsilon:g}"] if best[2] != "rr_on_bins" else []
    rows.append(["labels of `rr_on_bins` have the least error", str(won), "0", "; ".join(lost) or "-"])
    return table(["test loss", "confirmed", "even", "refuted at epsilon"], rows)


BOUND = "bias_limited:bias="
RULES = {"housing": 3, "communities": 4}
"""Decimals of the data sets whose bias is varied."""
RULE_EPSILONS = (0.1, 0.3, 0.5, 1)


def rule() -> str:
    """Tabulates the recommendations of `labeldp plan` beside the measured errors of linear models.

    Returns:
      A table with a row for each data set and epsilon.
    """
    rows = []
    for data, digits in RULES.items():
        results = [result for result in read(f"{data}_bias") if result.model == "linear"]
        recommended = {float(row["epsilon"]): row["recommended"] for row in rows_of(f"{data}_bias_plan")}
        for epsilon in RULE_EPSILONS:
            mechanism = recommended[epsilon]
            here = {result.mechanism: result for result in results if result.epsilon == epsilon}
            bounds = {name: float(name.removeprefix(BOUND)) for name in here if name.startswith(BOUND)}
            bounds |= {"unbiased": 0.0, "rr_on_bins": 1.0}
            wanted = 0.0 if mechanism == "unbiased" else float(mechanism.removeprefix(BOUND))
            nearest = min(bounds, key=lambda name: abs(bounds[name] - wanted))
            best = least(here.values())
            assert best is not None
            found = [f"{figure(each, digits)} ({bounds[each.mechanism]:g})" for each in (here[nearest], best)]
            rows.append([data, f"{epsilon:g}", f"{wanted:g}", *found])
    return table(["data", "epsilon", "recommended bound", "nearest measured", "best measured"], rows)


BLOCKS = (releases, recipients, rival, classes, fashion_cnn, against_published, mechanisms, claims, rule)
"""Functions that make the tables of README.md, each in a block of its name."""


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
    replace_blocks(HERE / "README.md", {make.__name__: make() for make in BLOCKS})


if __name__ == "__main__":
    main()
