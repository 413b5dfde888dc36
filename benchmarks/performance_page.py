"""Renews the tables and the plot of docs/performance.md from the JSON lines of the benchmarks.

Sections of benchmarks without a file stay as they are.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from performance_tables import NAMES, PLOT, Result, tables

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
_DOCS = Path(__file__).parent.parent / "docs"
_PANELS = {"throughput": "TFRecord", "parquet": "Parquet"}


def main(argv: Sequence[str] | None = None) -> None:
    """Renews the page and the plot.

    Args:
      argv: Arguments; default those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("results", type=Path, metavar="DIR", help="files that end in the JSON line of a benchmark")
    parser.add_argument(
        "--page",
        type=Path,
        default=_DOCS / "performance.md",
        metavar="FILE",
        help="page with the markers (default: docs/performance.md)",
    )
    parser.add_argument("--images", type=Path, default=_DOCS / "images", metavar="DIR", help="folder of the plot")
    args = parser.parse_args(argv)
    results = read_results(args.results)
    page = args.page.read_text(encoding="utf-8")
    args.page.write_text(renewed(page, tables(results)), encoding="utf-8")
    if any(name in results for name in _PANELS):
        args.images.mkdir(parents=True, exist_ok=True)
        plot(results, args.images / PLOT)


def read_results(folder: Path) -> dict[str, Result]:
    """Reads the JSON lines of a run.

    Args:
      folder: Folder with a file for each benchmark.

    Returns:
      The JSON objects, by the name of the benchmark.

    Raises:
      ValueError: If a file does not end in a benchmark's JSON line, or there is no file.
    """
    results = {}
    for path in sorted(folder.iterdir()):
        lines = path.read_text(encoding="utf-8").splitlines()
        try:
            result = json.loads(lines[-1])
            results[result["benchmark"]] = result
        except (IndexError, KeyError, TypeError, json.JSONDecodeError):
            raise ValueError(f"{path} does not end in a benchmark's JSON line: run it again") from None
    if not results:
        raise ValueError(f"{folder} is empty: run the benchmarks first")
    return results


def renewed(page: str, text: str) -> str:
    """Replaces the text between the markers of a page, except for sections that the new text does not have.

    A section that the page does not have follows the one before it in the new text.

    Args:
      page: The page.
      text: The new text.

    Returns:
      The new page.

    Raises:
      ValueError: If the page does not have each marker once, in order.
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise ValueError(f"the page needs {BEGIN} and, after it, {END}, once each")
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    _, before = _sections(page[begin:end])
    start, after = _sections(text)
    order = list(before)
    for previous, heading in itertools.pairwise(["", *after]):
        if heading not in before:
            order.insert(order.index(previous) + 1 if previous else len(order), heading)
    sections = {**before, **after}
    parts = [start, *(sections[heading] for heading in order)]
    return page[:begin] + "\n\n" + "\n\n".join(part.strip() for part in parts) + "\n\n" + page[end:]


def _sections(text: str) -> tuple[str, dict[str, str]]:
    """The text before the first section, and the sections by heading."""
    start, *parts = re.split(r"^(?=### )", text, flags=re.M)
    return start, {part.partition("\n")[0]: part for part in parts}


def plot(results: Mapping[str, Result], path: Path) -> None:
    """Plots seconds against records: the medians, and the lines through them.

    Args:
      results: JSON objects of the benchmarks, by name.
      path: SVG file to write; the same for the same results.
    """
    with matplotlib.rc_context({"svg.hashsalt": "labeldp", "svg.fonttype": "none"}):
        panels = [name for name in _PANELS if name in results]
        figure = Figure(figsize=(4.5 * len(panels), 4.6), layout="tight")
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _draw(axes, results[panel]["programs"])
            axes.set_title(_PANELS[panel])
        figure.savefig(path, metadata={"Date": None})


def _draw(axes: Any, programs: Mapping[str, Result]) -> None:
    largest = max(size for measured in programs.values() for size in measured["sizes"])
    for name, measured in programs.items():
        (points,) = axes.plot(
            [size / 1e6 for size in measured["sizes"]], measured["wall_seconds"], "o", label=NAMES[name]
        )
        ends = [0, max(measured["sizes"]), largest]
        seconds = [measured["fixed_seconds"] + measured["seconds_per_record"] * end for end in ends]
        # Dots continue the line beyond the largest measured size.
        axes.plot([end / 1e6 for end in ends[:2]], seconds[:2], "-", color=points.get_color())
        axes.plot([end / 1e6 for end in ends[1:]], seconds[1:], ":", color=points.get_color())
    highest = max(second for measured in programs.values() for second in measured["wall_seconds"])
    axes.set(xlabel="million records", ylabel="seconds", xlim=0, ylim=(0, 1.15 * highest))
    axes.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(0, -0.18))


if __name__ == "__main__":
    main()
