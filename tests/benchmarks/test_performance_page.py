"""Page and plot generated from the JSON lines of a run."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

MACHINE = {
    "date": "2026-01-02", "processor": "a processor", "cores": 2, "load_before": 0.01, "python": "3.11.7",
    "versions": {"numpy": "1.26.4"},
}  # fmt: skip
LINE = {"fixed_seconds": 4.0, "seconds_per_record": 2e-6, "r_squared": 0.9987}
MEASUREMENT = {
    "sizes": [1_000_000, 5_000_000], "wall_seconds": [6.0, 14.0], "cpu_seconds": [7.0, 19.0],
    "peak_bytes": [300_000_000, 310_000_000], "runs": [[6.0], [14.0]], **LINE,
    "cpu": {**LINE, "seconds_per_record": 3e-6},
}  # fmt: skip
RESULTS: dict[str, Any] = {
    "throughput": {
        "cost_per_record_over_codec_loop": 1.25,
        "cpu_per_record_over_codec_loop": 1.5,
        "speedup_over_per_element_beam": 6.75,
        "cpu_speedup_over_per_element_beam": 5.5,
        "programs": {"labeldp": MEASUREMENT, "codec_loop": MEASUREMENT, "per_element_beam": MEASUREMENT},
    },
    "parquet": {
        "cost_per_record_over_arrow_loop": 2.25,
        "cpu_per_record_over_arrow_loop": 2.5,
        "programs": {"labeldp": MEASUREMENT, "arrow_loop": MEASUREMENT},
    },
    "memory": {"formats": {"parquet": {**MEASUREMENT, "largest_over_smallest_peak": 1.03}}},
    "stores": {
        "layouts": {
            name: {
                "programs": dict.fromkeys(("disk", "s3", "gs"), MEASUREMENT),
                "stores": {
                    store: {
                        "cost_over_disk": cost, "cpu_over_disk": None, "requests_per_shard": requests,
                        "bytes_read_per_shard": 1e6, "bytes_written_per_shard": 2.5e6,
                    }
                    for store, cost in (("s3", 3.5), ("gs", 4.5))
                },
            }
            for name, requests in (("records", 9.0), ("small_files", 3.0))
        }
    },
    "stages": {
        "stages": {
            "keyed words": {"records_per_cpu_second": 9e6, "speed_over": {"a loop": 4.5}},
            "sampling": {"records_per_cpu_second": 9e7, "target": 2e7, "speed_over": {}},
        }
    },
    "cores": {
        "format": "tfrecord",
        "layouts": {
            "1_file": {
                "speedup_by_second_worker": 1.625,
                "cpu_speedup_by_second_worker": 0.75,
                "programs": {"1_worker": MEASUREMENT, "2_worker": MEASUREMENT},
            }
        },
    },
    "flink": {
        "columns": {
            "wide": {
                "cost_per_record_over_direct": 0.75,
                "speedup_over_fewest_slots": {"flink_4_slot": None},
                "programs": {
                    name: {key: value for key, value in MEASUREMENT.items() if key != "cpu"}
                    for name in ("direct", "flink_1_slot", "flink_4_slot")
                },
            }
        }
    },
    "startup": {
        "help": {
            "median_seconds": 0.06, "least_seconds": 0.05, "cpu_seconds": 0.04, "target_seconds": 0.5,
            "libraries": ["labeldp"], "forbidden": [],
        },
        "numpy": {"median_seconds": 0.02, "least_seconds": 0.02, "cpu_seconds": 0.02},
    },
    "unknown": {"growth": {"exponent": 2.0}, "solved": [{"mechanism": "rr", "seconds": 0.5}, {"mechanism": "optm"}]},
    "solvers": {"growth": [{"labels": 52, "epsilon": 1, "gap": 0, "seconds": 0.5, "loss": 7}], "grid": [{"loss": 8}]},
}  # fmt: skip


@pytest.fixture
def report(benchmark: Any) -> Any:
    return benchmark("performance_page")


@pytest.fixture
def run(report: Any, tmp_path: Path) -> Any:
    """(results) -> the generated page, and its plots by file name."""

    def made(results: dict[str, Any]) -> tuple[str, dict[str, str]]:
        folder, page, images = tmp_path / "results", tmp_path / "page.md", tmp_path / "images"
        folder.mkdir(exist_ok=True)
        for name, facts in results.items():
            line = json.dumps({"benchmark": name, **facts, "machine": MACHINE})
            (folder / f"{name}.out").write_text(f"a line for people\n{line}\n")
        page.write_text(f"# Before\n{report.BEGIN}\nold figures\n{report.END}\nAfter.\n")
        report.main([str(folder), f"--page={page}", f"--images={images}"])
        return page.read_text(), {path.name: path.read_text() for path in images.glob("*")}

    return made


def test_the_page_has_all_figures_between_its_markers(run: Any, report: Any) -> None:
    page, plots = run(RESULTS)

    assert page.startswith(f"# Before\n{report.BEGIN}\n")
    assert page.endswith(f"\n{report.END}\nAfter.\n")
    assert "old figures" not in page
    for figure in (
        "| 1.25 | 1.50 |",
        "| 6.75 | 5.50 |",
        "| 2.25 | 2.50 |",
        "| 1.03 |",
        "| 90.00 | 20 |",
    ):
        assert figure in page
    assert "keyed words" not in page, "a stage without a target"
    assert "| labeldp privatize | 2.00 | 3.00 | 4.0 | 310 |" in page
    for store, cost in (("over S3", "3.50"), ("over Google Cloud Storage", "4.50")):
        assert f"| {store}, a record, in 24 files | {cost} | no line | 9.0 | 1.00 | 2.50 |" in page
        assert f"| {store}, a small file | {cost} | no line | 3.0 | 1.00 | 2.50 |" in page
    assert page.count("2026-01-02") == len(RESULTS)
    assert "| one file | 2.00 | 2.00 | 1.62 | 0.75 |" in page
    assert "| 40 features | Flink, four task slots | 2.00 | 4.0 |" in page
    assert "| 40 features | cost of Flink, one task slot, over DirectRunner | 0.75 |" in page
    assert "| 40 features | speed-up of Flink, four task slots, over Flink, one task slot | no line |" in page
    assert "| `labeldp --help` | 0.06 | 0.04 | 0.5 | none |" in page
    shown = re.findall(r"\]\(images/(.*)\)", page)
    assert shown == ["performance_tfrecord.svg", "performance_parquet.svg"]
    assert sorted(plots) == sorted(shown)
    for name, programs in zip(shown, (3, 2), strict=True):
        assert plots[name].count('class="legend"') == programs
        assert ">labeldp privatize</text>" in plots[name]


@pytest.mark.parametrize("text", ["", "{begin}", "{end} {begin}", "{begin} {end} {begin}"])
def test_a_page_without_its_markers_is_left_alone(report: Any, text: str) -> None:
    with pytest.raises(ValueError, match="once each"):
        report.renewed(text.format(begin=report.BEGIN, end=report.END), "figures")


@pytest.mark.parametrize("text", ["", "no JSON", "{}", "[1]", "3"])
def test_a_run_that_failed_is_named(report: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "memory.out").write_text(text)

    with pytest.raises(ValueError, match=r"memory\.out"):
        report.read_results(tmp_path)


def test_the_page_of_the_docs_has_the_markers(report: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()

    assert report.renewed(page, "figures").count("figures") >= 1
