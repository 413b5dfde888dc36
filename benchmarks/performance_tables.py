"""Markdown tables of benchmark results, for docs/performance.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

PLOTS = {"throughput": "performance_tfrecord.svg", "parquet": "performance_parquet.svg"}
"""Names of the plots, by benchmark."""

STORES = {"s3": "S3", "gs": "Google Cloud Storage"}
"""Stores of `stores`, by the scheme of their URLs."""

NAMES = {
    "labeldp_default": "labeldp privatize, by default",
    "labeldp": "labeldp privatize",
    "labeldp_one_order": "labeldp privatize, features in one order",
    "labeldp_center": "labeldp privatize --center_column",
    "labeldp_linear": "labeldp privatize --center linear",
    "codec_loop": "bare loop of C++ codecs",
    "codec_loop_parallel": "bare loop of C++ codecs, files read in parallel",
    "per_element_beam": "per-element Beam pipeline",
    "arrow_loop": "bare loop of pyarrow",
    "1_worker": "one worker",
    "2_worker": "two workers, threads",
    "direct": "DirectRunner, one worker",
    "flink_1_slot": "Flink, one task slot",
    "flink_2_slot": "Flink, two task slots",
    "flink_4_slot": "Flink, four task slots",
    "bare_loop": "bare loop",
    "any_order": "40 features in any order",
    "one_order": "40 features in one order",
    "sequence": "40 features and 200 floats, in one order",
    "parquet": "300 columns of Parquet",
    "8_files": "8 equal files",
    "8_wide_files": "8 equal files of wide records",
    "1_file": "one file",
    "1_wide_file": "one file of wide records",
    "1000_files": "1,000 small files",
    "disk": "on disk",
    "help": "`labeldp --help`",
    "solve": "`labeldp solve`, 401 labels",
    "python": "`python -c pass`",
    "numpy": '`python -c "import numpy"`',
    **{scheme: f"over {name}" for scheme, name in STORES.items()},
}

RECORDS = {"synthetic": "8 floats", "wide": "40 features"}
"""Kinds of records of `flink_throughput`, by `--columns`."""

Result = Mapping[str, Any]
"""The JSON object of a benchmark, or a part of it."""


def tables(results: Mapping[str, Result]) -> str:
    """Formats results as Markdown.

    Args:
      results: JSON objects of the benchmarks, by name.

    Returns:
      A section for each benchmark, with its tables.
    """
    known: dict[str, Callable[[Result], Iterator[str]]] = {
        "throughput": _throughput,
        "parquet": _parquet,
        "memory": _memory,
        "stores": _stores,
        "stages": _stages,
        "wide": _wide,
        "encoding": _encoding,
        "cores": _cores,
        "flink": _flink,
        "startup": _startup,
        "center_cost": _center_cost,
    }
    sections = [_machine(next(iter(results.values())))]
    for name in [*known, *(name for name in results if name not in known)]:
        if name in results:
            for part in known.get(name, _other)(results[name]):
                sections += [part, _when(results[name])] if part.startswith("### ") else [part]
            if name in PLOTS:
                sections.append(f"![Seconds against records, a line per program](images/{PLOTS[name]})")
    return "\n\n".join(sections)


def _machine(result: Result) -> str:
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"Measured on {machine['cores']} cores of {machine['processor']}, with Python {machine['python']}, {versions}."
    )


def _when(result: Result) -> str:
    machine = result["machine"]
    return f"On {machine['date']}; load average before the run {machine['load_before']:g}."


def _throughput(result: Result) -> Iterator[str]:
    yield "### TFRecord: the whole job"
    yield _table(
        ["", "wall time", "CPU time"],
        [
            _ratios(
                "cost per record over the faster bare loop of C++ codecs",
                result,
                "cost_per_record_over_codec_loop",
                "cpu_per_record_over_codec_loop",
            ),
            _ratios(
                "speed-up per record over the per-element Beam pipeline",
                result,
                "speedup_over_per_element_beam",
                "cpu_speedup_over_per_element_beam",
            ),
        ],
    )
    yield _programs(result["programs"])


def _parquet(result: Result) -> Iterator[str]:
    yield "### Parquet: the whole job"
    yield _table(
        ["", "wall time", "CPU time"],
        [
            _ratios(
                "cost per record over the bare loop of pyarrow",
                result,
                "cost_per_record_over_arrow_loop",
                "cpu_per_record_over_arrow_loop",
            )
        ],
    )
    yield _programs(result["programs"])


def _wide(result: Result) -> Iterator[str]:
    yield "### Wide records: the whole job"
    keys = "cost_per_record_over_bare_loop", "cpu_per_record_over_bare_loop"
    layouts = result["layouts"]
    yield _table(
        ["cost per record over the bare loop", "wall time", "CPU time"],
        [_ratios(NAMES[name], layout, *keys) for name, layout in layouts.items()],
    )
    for name, layout in layouts.items():
        yield f"{NAMES[name]}:"
        yield _programs(layout["programs"])


def _encoding(result: Result) -> Iterator[str]:
    yield "### From CSV and Parquet to TFRecord"
    keys = "cost_per_record_over_bare_loop", "cpu_per_record_over_bare_loop"
    yield _table(
        ["cost per record over the bare loop on TFRecords", "wall time", "CPU time"],
        [_ratios(f"from {name}", one, *keys) for name, one in result["ratios"].items()],
    )
    programs: Mapping[str, Result] = result["programs"]
    yield _programs({f"from {name}" if name in result["ratios"] else name: one for name, one in programs.items()})


def _ratios(text: str, result: Result, *keys: str) -> list[str]:
    return [text, *("no line" if result[key] is None else f"{result[key]:.2f}" for key in keys)]


def _programs(programs: Mapping[str, Result]) -> str:
    return _table(
        ["", "us per record", "us of CPU per record", "fixed seconds", "R squared", "records up to", "peak MB"],
        [_program(name, measured) for name, measured in programs.items()],
    )


def _program(name: str, measured: Result) -> list[str]:
    return [
        NAMES.get(name, name),
        f"{1e6 * measured['seconds_per_record']:.2f}",
        f"{1e6 * measured['cpu']['seconds_per_record']:.2f}",
        f"{measured['fixed_seconds']:.1f}",
        f"{measured['r_squared']:.4f}",
        f"{max(measured['sizes']):,}",
        f"{max(measured['peak_bytes']) / 1e6:.0f}",
    ]


def _memory(result: Result) -> Iterator[str]:
    yield "### Memory and growth"
    formats = result["formats"]
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
    yield f"`labeldp privatize` with {sizes} records."
    yield _table(
        ["", "peak MB", "largest over smallest (target: at most 1.2)", "R squared (target: at least 0.99)"], rows
    )


def _stores(result: Result) -> Iterator[str]:
    texts = {"records": "a record, in 24 files", "small_files": "a small file"}
    layouts = result["layouts"]
    for store in next(iter(layouts.values()))["stores"]:
        yield f"### Over {STORES[store]}, tfrecord"
        yield _table(
            ["cost over that on disk, of", "wall time", "CPU time", "requests per shard", "MB read", "MB written"],
            [_over_disk(texts[name], layout["stores"][store]) for name, layout in layouts.items()],
        )
        for name, layout in layouts.items():
            programs = {program: layout["programs"][program] for program in ("disk", store)}
            yield _programs(programs) if name == "records" else _small_files(programs)


def _over_disk(text: str, measured: Result) -> list[str]:
    return [
        *_ratios(text, measured, "cost_over_disk", "cpu_over_disk"),
        f"{measured['requests_per_shard']:.1f}",
        f"{measured['bytes_read_per_shard'] / 1e6:.2f}",
        f"{measured['bytes_written_per_shard'] / 1e6:.2f}",
    ]


def _small_files(programs: Mapping[str, Result]) -> str:
    return _table(
        ["", "ms per small file", "ms of CPU per small file", "R squared", "files up to"],
        [
            [
                NAMES[name],
                f"{1e3 * measured['seconds_per_record']:.1f}",
                f"{1e3 * measured['cpu']['seconds_per_record']:.1f}",
                f"{measured['r_squared']:.4f}",
                f"{max(measured['sizes']):,}",
            ]
            for name, measured in programs.items()
        ],
    )


def _stages(result: Result) -> Iterator[str]:
    yield "### Stages"
    rows = [
        [
            name,
            f"{one['records_per_cpu_second'] / 1e6:.2f}",
            f"{one['target'] / 1e6:g}" if "target" in one else "",
            ", ".join(f"{speed:.3g} x {baseline}" for baseline, speed in one["speed_over"].items()),
        ]
        for name, one in result["stages"].items()
    ]
    yield _table(["", "million records per CPU second", "target", "speed over others"], rows)


def _cores(result: Result) -> Iterator[str]:
    yield f"### Workers of the local runner, {result['format']}"
    yield _table(
        ["files", "workers", "us per record", "us of CPU per record", "fixed seconds", "R squared"],
        [
            [NAMES[layout], *_program(setting, measured)[:5]]
            for layout, one in result["layouts"].items()
            for setting, measured in one["programs"].items()
        ],
    )
    yield _table(
        ["speed-up per record by the second worker", "wall time", "CPU time"],
        [
            _ratios(NAMES[layout], one, "speedup_by_second_worker", "cpu_speedup_by_second_worker")
            for layout, one in result["layouts"].items()
        ],
    )


def _flink(result: Result) -> Iterator[str]:
    yield "### A Flink cluster on the same machine, tfrecord"
    measured = [
        (RECORDS[columns], name, one)
        for columns, layout in result["columns"].items()
        for name, one in layout["programs"].items()
    ]
    rows = [
        [
            records,
            NAMES.get(name, name),
            f"{1e6 * one['seconds_per_record']:.2f}",
            f"{one['fixed_seconds']:.1f}",
            f"{one['r_squared']:.4f}",
            f"{max(one['sizes']):,}",
            f"{max(one['wall_seconds']):.1f}",
        ]
        for records, name, one in measured
    ]
    titles = ["us per record", "fixed seconds", "R squared", "records up to", "seconds for these"]
    yield _table(["records", "", *titles], rows)
    rows = []
    for columns, layout in result["columns"].items():
        fewest = next(NAMES.get(name, name) for name in layout["programs"] if name != "direct")
        speedups = layout["speedup_over_fewest_slots"]
        lines = [
            _ratios(f"cost of {fewest}, over DirectRunner", layout, "cost_per_record_over_direct"),
            *(_ratios(f"speed-up of {NAMES.get(name, name)}, over {fewest}", speedups, name) for name in speedups),
        ]
        rows += [[RECORDS[columns], *line] for line in lines]
    yield _table(["records", "", "per record"], rows)


def _startup(result: Result) -> Iterator[str]:
    yield "### Start-up"
    rows = [
        [
            NAMES[name],
            f"{one['median_seconds']:.2f}",
            f"{one['cpu_seconds']:.2f}",
            f"{one['target_seconds']:g}" if "target_seconds" in one else "",
            ", ".join(one.get("libraries", [])),
            ", ".join(one["forbidden"]) or "none" if "forbidden" in one else "",
        ]
        for name, one in result.items()
        if isinstance(one, dict) and "median_seconds" in one
    ]
    yield _table(["", "seconds", "CPU seconds", "target", "libraries", "forbidden libraries loaded"], rows)


def _center_cost(result: Result) -> Iterator[str]:
    yield "### Labels around a center"
    rows = [
        [
            *_ratios(format, one, "cost_per_record_over_no_center", "cpu_per_record_over_no_center"),
            f"{one['largest_over_smallest_peak']:.2f}",
        ]
        for format, one in result["formats"].items()
    ]
    linear = "linear_cost_per_record_over_no_center", "linear_cpu_per_record_over_no_center"
    rows += [[*_ratios(f"{format}, --center linear", one, *linear), ""] for format, one in result["formats"].items()]
    target = f"over the same job without a center (target: at most {result['max_ratio']:g})"
    growth = f"largest over smallest peak memory (target: at most {result['max_growth']:g})"
    yield _table(["", f"wall time per record {target}", "CPU time per record", growth], rows)
    for format, one in result["formats"].items():
        yield f"Records of the demo's form, {format}:"
        yield _programs(one["programs"])


def _other(result: Result) -> Iterator[str]:
    """Any other benchmark: lists of objects as tables, everything else as rows of one table."""
    yield f"### {result['benchmark'].replace('_', ' ').capitalize()}"
    rest = []
    for name, value in result.items():
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
