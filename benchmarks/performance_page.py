"""Renews the tables and the plots of docs/performance.md from the JSON lines of the benchmarks.

Sections of benchmarks without a file stay as they are.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path

from labeldp.report.charts import Line, lines_chart
from performance_tables import NAMES, PLOTS, Result, tables

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
_DOCS = Path(__file__).parent.parent / "docs"
_TITLES = {"throughput": "TFRecord: the whole job", "parquet": "Parquet: the whole job"}


def main(argv: Sequence[str] | None = None) -> None:
    """Renews the page and the plots.

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
    parser.add_argument("--images", type=Path, default=_DOCS / "images", metavar="DIR", help="folder of the plots")
    args = parser.parse_args(argv)
    results = read_results(args.results)
    page = args.page.read_text(encoding="utf-8")
    args.page.write_text(renewed(page, tables(results)), encoding="utf-8")
    for name, title in _TITLES.items():
        if name in results:
            args.images.mkdir(parents=True, exist_ok=True)
            (args.images / PLOTS[name]).write_text(plot(results[name], title), encoding="utf-8")


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


def plot(result: Result, title: str) -> str:
    """Plots seconds against records: the medians of each program.

    Args:
      result: JSON object of a benchmark.
      title: Title of the plot.

    Returns:
      The content of an SVG file; the same for the same result.
    """
    lines = [
        Line(NAMES[name], [size / 1e6 for size in measured["sizes"]], measured["wall_seconds"])
        for name, measured in result["programs"].items()
    ]
    return lines_chart(lines, title, "million records", "seconds", from_zero=True, file=True)


if __name__ == "__main__":
    main()
