"""Turns what the benchmarks of a run printed into the tables of docs/performance.md, and their times into its plot."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
PLOT = "performance.svg"
_DOCS = Path(__file__).parent.parent / "docs"
_NAMES = {
    "labeldp": "labeldp privatize",
    "labeldp_one_order": "labeldp privatize, features in one order",
    "codec_loop": "bare loop of C++ codecs",
    "codec_loop_parallel": "the same, files read in parallel",
    "per_element_beam": "usual Beam pipeline, per element",
    "arrow_loop": "bare loop of pyarrow",
    "1_worker": "one worker",
    "2_worker": "two workers, threads",
    "direct": "DirectRunner, one worker",
    "flink_1_slot": "Flink, one task slot",
    "flink_2_slot": "Flink, two task slots",
    "8_files": "8 equal files",
    "1_file": "one file",
    "1000_files": "1,000 small files",
    "help": "`labeldp --help`",
    "solve": "`labeldp solve`, 401 labels",
    "python": "`python -c pass`",
    "numpy": '`python -c "import numpy"`',
}
Facts = Mapping[str, Any]


def main(argv: Sequence[str] | None = None) -> None:
    """Renews the page and the plot."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("results", type=Path, metavar="DIR", help="files whose last lines are the benchmarks' JSON")
    parser.add_argument("--page", type=Path, default=_DOCS / "performance.md", metavar="FILE", help="has the markers")
    parser.add_argument("--images", type=Path, default=_DOCS / "images", metavar="DIR", help="where the plot goes")
    args = parser.parse_args(argv)
    results = read_results(args.results)
    page = args.page.read_text(encoding="utf-8")
    args.page.write_text(renewed(page, tables(results)), encoding="utf-8")
    if any(name in results for name in _PANELS):
        args.images.mkdir(parents=True, exist_ok=True)
        plot(results, args.images / PLOT)


def read_results(folder: Path) -> dict[str, Facts]:
    """The JSON of each benchmark, by its name. Raises ValueError when a file does not end in any, or there is none."""
    results = {}
    for path in sorted(folder.iterdir()):
        lines = path.read_text(encoding="utf-8").splitlines()
        try:
            facts = json.loads(lines[-1])
            results[facts["benchmark"]] = facts
        except (IndexError, KeyError, TypeError, json.JSONDecodeError):
            raise ValueError(f"{path} does not end in a benchmark's JSON line: run it again") from None
    if not results:
        raise ValueError(f"{folder} is empty: run the benchmarks first")
    return results


def renewed(page: str, text: str) -> str:
    """The page with the text between its markers. Raises ValueError when it does not have them once each."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise ValueError(f"the page needs {BEGIN} and, after it, {END}, once each")
    return page[: page.index(BEGIN) + len(BEGIN)] + f"\n\n{text.strip()}\n\n" + page[page.index(END) :]


def tables(results: Mapping[str, Facts]) -> str:
    """Markdown: a section for each benchmark that was run."""
    known: dict[str, Callable[[Facts], Iterator[str]]] = {
        "throughput": _throughput,
        "parquet": _parquet,
        "memory": _memory,
        "stages": _stages,
        "cores": _cores,
        "flink": _flink,
        "startup": _startup,
    }
    sections = [_where(next(iter(results.values())))]
    for name in [*known, *(name for name in results if name not in known)]:
        if name in results:
            sections += known.get(name, _other)(results[name])
            if name == "parquet":
                sections.append(f"![Seconds against records, a line per rival](images/{PLOT})")
    return "\n\n".join(sections)


def _where(facts: Facts) -> str:
    machine = facts["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"Measured on {machine['date']}: {machine['cores']} cores of {machine['processor']}, Python "
        f"{machine['python']}, {versions}; load average before the run {machine['load_before']:g}."
    )


def _throughput(facts: Facts) -> Iterator[str]:
    yield "### TFRecord: the whole job"
    yield _table(
        ["", "wall time", "CPU time"],
        [
            _ratios(
                "cost per record over the faster bare loop of C++ codecs",
                facts,
                "cost_per_record_over_codec_loop",
                "cpu_per_record_over_codec_loop",
            ),
            _ratios(
                "speed-up per record over the usual Beam pipeline",
                facts,
                "speedup_over_per_element_beam",
                "cpu_speedup_over_per_element_beam",
            ),
        ],
    )
    yield _rivals(facts["rivals"])


def _parquet(facts: Facts) -> Iterator[str]:
    yield "### Parquet: the whole job"
    yield _table(
        ["", "wall time", "CPU time"],
        [
            _ratios(
                "cost per record over the bare loop of pyarrow",
                facts,
                "cost_per_record_over_arrow_loop",
                "cpu_per_record_over_arrow_loop",
            )
        ],
    )
    yield _rivals(facts["rivals"])


def _ratios(text: str, facts: Facts, *keys: str) -> list[str]:
    return [text, *("no line" if facts[key] is None else f"{facts[key]:.2f}" for key in keys)]


def _rivals(rivals: Mapping[str, Facts]) -> str:
    return _table(
        ["", "us per record", "us of CPU per record", "fixed seconds", "R squared", "records up to", "peak MB"],
        [_rival(name, facts) for name, facts in rivals.items()],
    )


def _rival(name: str, facts: Facts) -> list[str]:
    return [
        _NAMES.get(name, name),
        f"{1e6 * facts['seconds_per_record']:.2f}",
        f"{1e6 * facts['cpu']['seconds_per_record']:.2f}",
        f"{facts['fixed_seconds']:.1f}",
        f"{facts['r_squared']:.4f}",
        f"{max(facts['sizes']):,}",
        f"{max(facts['peak_bytes']) / 1e6:.0f}",
    ]


def _memory(facts: Facts) -> Iterator[str]:
    yield "### Memory and growth"
    formats = facts["formats"]
    rows = [
        [
            name,
            ", ".join(f"{peak / 1e6:.0f}" for peak in one["peak_bytes"]),
            f"{one['largest_over_smallest_peak']:.2f}",
            f"{one['r_squared']:.4f}",
        ]
        for name, one in formats.items()
    ]
    sizes = ", ".join(f"{size:,}" for size in next(iter(formats.values()))["sizes"])
    yield f"Of `labeldp privatize` at {sizes} records."
    yield _table(["", "peak MB", "largest over smallest (wanted: 1.2 at most)", "R squared (wanted: 0.99)"], rows)


def _stages(facts: Facts) -> Iterator[str]:
    yield "### Stages"
    rows = [
        [
            name,
            f"{one['records_per_cpu_second'] / 1e6:.2f}",
            f"{one['target'] / 1e6:g}" if "target" in one else "",
            ", ".join(f"{speed:.3g} x {rival}" for rival, speed in one["speed_over"].items()),
        ]
        for name, one in facts["stages"].items()
    ]
    yield _table(["", "million records per CPU second", "wanted", "speed over rivals"], rows)


def _cores(facts: Facts) -> Iterator[str]:
    yield f"### Workers of the local runner, {facts['format']}"
    yield _table(
        ["files", "workers", "us per record", "us of CPU per record", "fixed seconds", "R squared"],
        [
            [_NAMES[layout], *_rival(setting, facts)[:5]]
            for layout, settings in facts["layouts"].items()
            for setting, facts in settings.items()
        ],
    )


def _flink(facts: Facts) -> Iterator[str]:
    yield "### A Flink cluster on the same machine, tfrecord"
    rows = [
        [
            _NAMES[name],
            f"{1e6 * rival['seconds_per_record']:.2f}",
            f"{rival['fixed_seconds']:.1f}",
            f"{rival['r_squared']:.4f}",
            f"{max(rival['sizes']):,}",
            f"{max(rival['wall_seconds']):.1f}",
        ]
        for name, rival in facts["rivals"].items()
    ]
    yield _table(["", "us per record", "fixed seconds", "R squared", "records up to", "seconds for these"], rows)
    yield _table(
        ["", "per record"],
        [
            _ratios("cost in one task slot over DirectRunner's", facts, "cost_per_record_over_direct"),
            _ratios("speed-up by the second task slot", facts, "speedup_of_two_slots"),
        ],
    )


def _startup(facts: Facts) -> Iterator[str]:
    yield "### Start-up"
    rows = [
        [
            _NAMES[name],
            f"{one['median_seconds']:.2f}",
            f"{one['cpu_seconds']:.2f}",
            f"{one['target_seconds']:g}" if "target_seconds" in one else "",
            ", ".join(one.get("libraries", [])),
            ", ".join(one["forbidden"]) or "none" if "forbidden" in one else "",
        ]
        for name, one in facts.items()
        if isinstance(one, dict) and "median_seconds" in one
    ]
    yield _table(["", "seconds", "CPU seconds", "wanted below", "libraries", "loaded, but must not be"], rows)


def _other(facts: Facts) -> Iterator[str]:
    """A benchmark that this file does not know: its lists of objects as tables, everything else as rows."""
    yield f"### {facts['benchmark'].replace('_', ' ').capitalize()}"
    rest = []
    for name, value in facts.items():
        if name in ("benchmark", "machine"):
            continue
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            columns = list(dict.fromkeys(key for row in value for key in row))
            yield _table([name, *columns], [["", *(_text(row.get(key, "")) for key in columns)] for row in value])
        else:
            rest += [[key, _text(leaf)] for key, leaf in _leaves(name, value)]
    if rest:
        yield _table(["", ""], rest)


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _leaves(f"{name}, {key}", below)
    else:
        yield name, value


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


_PANELS = {"throughput": "TFRecord", "parquet": "Parquet"}


def plot(results: Mapping[str, Facts], path: Path) -> None:
    """Seconds against records: the medians, and the line through them."""
    # The same figures give the same file.
    with matplotlib.rc_context({"svg.hashsalt": "labeldp", "svg.fonttype": "none"}):
        panels = [name for name in _PANELS if name in results]
        figure = Figure(figsize=(4.5 * len(panels), 4.6), layout="tight")
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _draw(axes, results[panel]["rivals"])
            axes.set_title(_PANELS[panel])
        figure.savefig(path, metadata={"Date": None})


def _draw(axes: Any, rivals: Mapping[str, Facts]) -> None:
    largest = max(size for facts in rivals.values() for size in facts["sizes"])
    for name, facts in rivals.items():
        (points,) = axes.plot([size / 1e6 for size in facts["sizes"]], facts["wall_seconds"], "o", label=_NAMES[name])
        ends = [0, max(facts["sizes"]), largest]
        seconds = [facts["fixed_seconds"] + facts["seconds_per_record"] * end for end in ends]
        # Beyond what was measured, the line goes on as dots.
        axes.plot([end / 1e6 for end in ends[:2]], seconds[:2], "-", color=points.get_color())
        axes.plot([end / 1e6 for end in ends[1:]], seconds[1:], ":", color=points.get_color())
    highest = max(second for facts in rivals.values() for second in facts["wall_seconds"])
    axes.set(xlabel="million records", ylabel="seconds", xlim=0, ylim=(0, 1.15 * highest))
    axes.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(0, -0.18))


if __name__ == "__main__":
    main()
