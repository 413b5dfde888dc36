"""Every benchmark runs with tiny input and prints its JSON line last. The figures are not checked."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("benchmarks")

SIZES = "--sizes 400 800 --rounds 1"
# Fewer records are refused: their center and labels would say nothing.
DEFAULT_SIZES = "--default_sizes 500 900"
MEASUREMENT_FIELDS = {
    "sizes", "wall_seconds", "cpu_seconds", "peak_bytes", "runs", "fixed_seconds", "seconds_per_record", "r_squared",
    "cpu",
}  # fmt: skip


def check(facts: dict[str, Any], name: str) -> None:
    assert facts["benchmark"] == name
    assert set(facts["machine"]) == {"date", "processor", "cores", "load_before", "python", "versions"}


def measured(facts: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Measurements within the facts, by the names of their formats, layouts and programs."""
    for name, value in facts.items():
        if isinstance(value, dict) and "runs" in value:
            yield f"{path}{name}", value
        elif isinstance(value, dict):
            yield from measured(value, path if name in ("formats", "layouts", "programs") else f"{path}{name} ")


def sizes_of(facts: dict[str, Any]) -> dict[str, list[int]]:
    """Sizes of each measurement, which are complete."""
    found = dict(measured(facts))
    for one in found.values():
        assert set(one) >= MEASUREMENT_FIELDS
        assert [len(runs) for runs in one["runs"]] == [1] * len(one["sizes"])
        assert min(*one["wall_seconds"], *one["cpu_seconds"], *one["peak_bytes"]) > 0
    return {name: one["sizes"] for name, one in found.items()}


MOST, FEW, DEFAULT = [400, 800], [100, 200], [500, 900]
WIDE = {
    f"{layout} {program}": [least // part, 2 * least // part]
    for layout, least in (("any_order", 400), ("one_order", 400), ("sequence", 200))
    for program, part in (("labeldp", 1), ("bare_loop", 4))
}
CENTERS = ("labeldp", "labeldp_center", "labeldp_linear")


@pytest.mark.usefixtures("jobs_in_process")
@pytest.mark.parametrize(
    ("name", "flags", "sizes", "shown"),
    [
        ("throughput", f"{DEFAULT_SIZES} --per_element_sizes 50 100 --files=2",
         {"labeldp": MOST, "labeldp_one_order": MOST, "labeldp_default": DEFAULT, "codec_loop": FEW,
          "codec_loop_parallel": FEW, "per_element_beam": [50, 100]}, "| labeldp privatize |"),
        ("parquet", f"{DEFAULT_SIZES} --files=2", {"labeldp": MOST, "arrow_loop": MOST, "labeldp_default": DEFAULT},
         "| labeldp privatize |"),
        ("wide", f"{DEFAULT_SIZES} --files=2 --layouts parquet",
         {"parquet labeldp": [100, 200], "parquet bare_loop": [25, 50]}, "\n| "),
        ("wide", f"{DEFAULT_SIZES} --files=2 --layouts any_order one_order sequence", WIDE, "\n| "),
        ("encoding", "--files=2", dict.fromkeys(("csv", "parquet", "codec_loop"), MOST),
         "From CSV and Parquet to TFRecord"),
        ("memory", "--formats=parquet", {"parquet": MOST}, "\n| "),
        *(("center_cost", f"--files=2 --formats {formats}",
           {f"{format} {program}": MOST for format in formats.split() for program in CENTERS}, "--center_column, ")
          for formats in ("parquet csv", "tfrecord")),
        *(("unit_cost", f"--files=2 --formats {format}",
           {f"{format} labeldp": MOST, f"{format} labeldp_units": MOST}, "") for format in ("parquet", "tfrecord")),
        ("cores", "--format=parquet --settings 1_worker 2_worker --layouts 1_file 8_wide_files",
         {f"{layout} {workers}_worker": MOST for layout in ("1_file", "8_wide_files") for workers in (1, 2)}, "\n| "),
    ],
)  # fmt: skip
def test_a_benchmark_compares_programs(
    benchmark: Any, last_line: Any, tmp_path: Path, name: str, flags: str, sizes: dict[str, list[int]], shown: str
) -> None:
    benchmark(name).main([*SIZES.split(), *flags.split(), f"--temp_location={tmp_path}"])
    facts = last_line()
    check(facts, name)
    found = sizes_of(facts)
    assert {program: found.get(program) for program in sizes} == sizes
    assert shown in benchmark("performance_tables").tables({name: facts})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("jobs_in_process")
def test_stores(benchmark: Any, last_line: Any, tmp_path: Path) -> None:
    pytest.importorskip("moto", reason="the extra dev is not installed")
    pytest.importorskip("gcp_storage_emulator", reason="the extra dev is not installed")
    # The other layout runs the same code, with larger files.
    flags = ["--layouts=small_files", "--small_files", "2", "3", "--rounds=1", f"--temp_location={tmp_path}"]
    benchmark("stores").main(flags)

    facts = last_line()
    check(facts, "stores")
    layout = facts["layouts"]["small_files"]
    for program in ("disk", "s3", "gs"):
        assert sizes_of(layout)[program] == [2, 3]
    # A segment is written. On S3 it is read and sent again; Google's store copies it. The shard is copied to its name:
    # S3 describes it first, and has it as the only part of an upload. One of the three shards is described and read for
    # the schema. The verdict reads each of them, and two thirds of one again, for the schema.
    for store, requests, reads, writes in (("s3", 7, 1, 2), ("gs", 3, 0, 1)):
        figures = layout["stores"][store]
        for ratio in ("cost_over_disk", "cpu_over_disk"):
            assert figures[ratio] is None or math.isfinite(figures[ratio])
        assert figures["requests_per_shard"] == pytest.approx(requests + 2 / 3 + 2 + 2 / 3)
        size = figures["bytes_read_per_shard"] / (reads + 1 / 3 + 1 + 2 / 9)
        assert 1800 < size < 2200
        # Google's store takes names and metadata in the bodies of requests.
        assert 0.99 * writes * size < figures["bytes_written_per_shard"] < writes * size + 600
    page = benchmark("performance_tables").tables({"stores": facts})
    assert page.count("| over S3, a small file |") == page.count("| over Google Cloud Storage, a small file |") == 1
    assert list(tmp_path.iterdir()) == []


def test_startup(benchmark: Any, last_line: Any) -> None:
    benchmark("startup").main(["--rounds=1"])

    facts = last_line()
    check(facts, "startup")
    for name in ("help", "solve"):
        assert 0 < facts[name]["least_seconds"] <= facts[name]["median_seconds"]
        assert "labeldp" in facts[name]["libraries"]
        assert facts[name]["forbidden"] == []
    assert "numpy" in facts["solve"]["libraries"]


def line(seconds_per_record: float, r_squared: float) -> dict[str, float]:
    return {"fixed_seconds": 1.0, "seconds_per_record": seconds_per_record, "r_squared": r_squared}


def test_a_ratio_needs_two_rising_lines(benchmark: Any) -> None:
    comparison = benchmark("comparison")
    good = line(4e-6, 0.99)

    assert comparison.ratio(good, line(2e-6, 0.95)) == pytest.approx(2.0)
    assert comparison.cpu_ratio({**good, "cpu": line(3e-6, 1.0)}, {**good, "cpu": good}) == pytest.approx(0.75)
    for bad in (line(2e-6, 0.5), line(-2e-6, 0.99), line(0.0, 1.0)):
        assert comparison.ratio(good, bad) is None
        assert comparison.ratio(bad, good) is None


def test_an_output_that_is_too_small_is_no_run(
    benchmark: Any, jobs_in_process: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Otherwise a program that drops records would appear fast."""
    comparison, workspace = benchmark("comparison"), benchmark("workspace")
    with workspace.open_workspace(str(tmp_path)) as space:
        halved = space.log("parquet", 500, 2)
        program = comparison.Program(
            "half",
            [2000],
            lambda size: space.log("parquet", size, 2),
            lambda log, output: space.bare_loop(halved, output),
        )

        with pytest.raises(RuntimeError, match="half wrote"):
            comparison.compare(space, [program], 1)
