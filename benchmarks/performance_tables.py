"""Markdown tables of benchmark results, for docs/performance.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    **{scheme: f"over {name}" for scheme, name in STORES.items()},
}

RECORDS = {"synthetic": "8 floats", "wide": "40 features"}
"""Kinds of records of `flink_throughput`, by `--columns`."""

COLUMNS = {
    "cost_model": {
        "coefficients": (),
        "worked": (
            "records", "bytes a record", "files and shards", "CPU hours", "workers of 4 cores",
            "minutes on them, without start-up", "TB read", "TB written",
        ),
    },
    "solvers": {"growth": ("labels", "epsilon", "gap", "seconds")},
}  # fmt: skip
"""Lists of a benchmark that are shown, with their columns, all if empty; other figures are in its JSON line alone."""

Result = Mapping[str, Any]
"""The JSON object of a benchmark, or a part of it."""


def tables(results: Mapping[str, Result]) -> str:
    """Formats the figures that decide as Markdown; the JSON lines have all.

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
            heading, *parts = known.get(name, _other)(results[name])
            machine = results[name]["machine"]
            sections += [f"### {heading}", f"{machine['date']}, load {machine['load_before']:g}.", *parts]
            if name in PLOTS:
                sections.append(f"![Seconds against records, a line per program](images/{PLOTS[name]})")
    return "\n\n".join(sections)


def _machine(result: Result) -> str:
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"Measured on {machine['cores']} cores of {machine['processor']}, with Python {machine['python']}, {versions}."
    )


def _throughput(result: Result) -> Iterator[str]:
    yield "TFRecord: the whole job"
    loop = "cost_per_record_over_codec_loop", "cpu_per_record_over_codec_loop"
    beam = "speedup_over_per_element_beam", "cpu_speedup_over_per_element_beam"
    rows = [
        _ratios("cost per record over the faster bare loop of C++ codecs", result, *loop),
        _ratios("speed-up per record over the per-element Beam pipeline", result, *beam),
    ]
    yield _table(["", "wall time", "CPU time"], rows)
    yield _programs(result["programs"])


def _parquet(result: Result) -> Iterator[str]:
    yield "Parquet: the whole job"
    loop = "cost_per_record_over_arrow_loop", "cpu_per_record_over_arrow_loop"
    yield _table(
        ["", "wall time", "CPU time"], [_ratios("cost per record over the bare loop of pyarrow", result, *loop)]
    )
    yield _programs(result["programs"])


def _wide(result: Result) -> Iterator[str]:
    yield "Wide records: the whole job"
    yield _over_loop((NAMES[name], one, one["programs"]["labeldp"]) for name, one in result["layouts"].items())


def _encoding(result: Result) -> Iterator[str]:
    yield "From CSV and Parquet to TFRecord"
    yield _over_loop((f"from {name}", one, result["programs"][name]) for name, one in result["ratios"].items())


def _over_loop(cases: Iterable[tuple[str, Result, Result]]) -> str:
    keys = "cost_per_record_over_bare_loop", "cpu_per_record_over_bare_loop"
    rows = [[*_program(name, measured), *_ratios("", one, *keys)[1:]] for name, one, measured in cases]
    return _table([*PROGRAM, "over the bare loop, wall time", "CPU time"], rows)


def _ratios(text: str, result: Result, *keys: str) -> list[str]:
    return [text, *("no line" if result[key] is None else f"{result[key]:.2f}" for key in keys)]


PROGRAM = ("", "us per record", "us of CPU per record", "fixed seconds", "peak MB")
"""Columns of `_program`."""


def _programs(programs: Mapping[str, Result]) -> str:
    return _table(PROGRAM, [_program(name, measured) for name, measured in programs.items()])


def _program(name: str, measured: Result) -> list[str]:
    return [
        NAMES.get(name, name),
        f"{1e6 * measured['seconds_per_record']:.2f}",
        f"{1e6 * measured['cpu']['seconds_per_record']:.2f}",
        f"{measured['fixed_seconds']:.1f}",
        f"{max(measured['peak_bytes']) / 1e6:.0f}",
    ]


def _memory(result: Result) -> Iterator[str]:
    yield "Memory and growth"
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
    yield "Over object stores, tfrecord"
    texts = {"records": "a record, in 24 files", "small_files": "a small file"}
    rows = [
        [
            *_ratios(f"{NAMES[store]}, {texts[name]}", one, "cost_over_disk", "cpu_over_disk"),
            f"{one['requests_per_shard']:.1f}",
            f"{one['bytes_read_per_shard'] / 1e6:.2f}",
            f"{one['bytes_written_per_shard'] / 1e6:.2f}",
        ]
        for name, layout in result["layouts"].items()
        for store, one in layout["stores"].items()
    ]
    yield _table(
        ["cost over that on disk", "wall time", "CPU time", "requests per shard", "MB read", "MB written"], rows
    )


def _stages(result: Result) -> Iterator[str]:
    yield "Stages"
    rows = [
        [name, f"{one['records_per_cpu_second'] / 1e6:.2f}", f"{one['target'] / 1e6:g}"]
        for name, one in result["stages"].items()
        if "target" in one
    ]
    yield _table(["", "million records per CPU second", "target"], rows)


def _cores(result: Result) -> Iterator[str]:
    yield f"Workers of the local runner, {result['format']}"
    keys = "speedup_by_second_worker", "cpu_speedup_by_second_worker"
    rows = [
        [
            NAMES[layout],
            *(_program("", measured)[1] for measured in one["programs"].values()),
            *_ratios("", one, *keys)[1:],
        ]
        for layout, one in result["layouts"].items()
    ]
    workers = (f"us per record, {NAMES[name]}" for name in ("1_worker", "2_worker"))
    yield _table(["files", *workers, "speed-up, wall time", "CPU time"], rows)


def _flink(result: Result) -> Iterator[str]:
    yield "A Flink cluster on the same machine, tfrecord"
    rows = [
        [
            RECORDS[columns],
            NAMES.get(name, name),
            f"{1e6 * one['seconds_per_record']:.2f}",
            f"{one['fixed_seconds']:.1f}",
        ]
        for columns, layout in result["columns"].items()
        for name, one in layout["programs"].items()
    ]
    yield _table(["records", "", "us per record", "fixed seconds"], rows)
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
    yield "Start-up"
    rows = [
        [
            NAMES[name],
            f"{one['median_seconds']:.2f}",
            f"{one['cpu_seconds']:.2f}",
            f"{one['target_seconds']:g}",
            ", ".join(one["forbidden"]) or "none",
        ]
        for name, one in result.items()
        if isinstance(one, dict) and "target_seconds" in one
    ]
    yield _table(["", "seconds", "CPU seconds", "target", "forbidden libraries loaded"], rows)


def _center_cost(result: Result) -> Iterator[str]:
    yield "Labels around a center"
    rows = []
    for format, one in result["formats"].items():
        for program, kind in (("labeldp_center", ""), ("labeldp_linear", "linear_")):
            keys = f"{kind}cost_per_record_over_no_center", f"{kind}cpu_per_record_over_no_center"
            growth = "" if kind else f"{one['largest_over_smallest_peak']:.2f}"
            name = f"{NAMES[program].removeprefix('labeldp privatize ')}, {format}"
            rows.append([*_program(name, one["programs"][program]), *_ratios("", one, *keys)[1:], growth])
    wall = f"over no center, wall time (target for a column: at most {result['max_ratio']:g})"
    growth = f"largest over smallest peak memory (target: at most {result['max_growth']:g})"
    yield _table([*PROGRAM, wall, "CPU time", growth], rows)


def _other(result: Result) -> Iterator[str]:
    """Any other benchmark: lists of objects as tables, everything else as rows of one table."""
    yield result["benchmark"].replace("_", " ").capitalize()
    lists = COLUMNS.get(result["benchmark"])
    rest = []
    for name, value in result.items():
        if name in ("benchmark", "machine") or (lists and name not in lists):
            continue
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            columns = (lists or {}).get(name) or list(dict.fromkeys(key for row in value for key in row))
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
