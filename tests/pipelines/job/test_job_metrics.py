"""Beam metrics of a job: what they count, and that two logs that differ in one label have the same ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from labeldp.transforms import job_metrics
from labeldp.transforms.beam_internals import LocalRunner

from tests.written_logs import write_log

ROWS = 800
NAMES = {each.metric_name.name for each in vars(job_metrics).values() if hasattr(each, "metric_name")}
TIMES = {"solve_milliseconds"}
GRADES = {"label": "grade", "label_classes": "a,b,a class of a longer name"} | dict.fromkeys(
    ("label_min", "label_max", "label_step")
)
Count = Callable[..., dict[str, int]]


def table(changed: Any = None, label: str = "y") -> pa.Table:
    """A log with another label in row 7; every 50th has none."""
    features = np.random.default_rng(1).integers(0, 5, ROWS)
    labels: list[Any] = [float(value) if label == "y" else "ab"[value % 2] for value in features]
    labels[::50] = [None] * len(labels[::50])
    if changed is not None:
        labels[7] = changed
    kind = pa.float64() if label == "y" else pa.string()
    return pa.table({"f": features, "text": [f"t{value}" for value in features], label: pa.array(labels, kind)})


@pytest.fixture
def count(tmp_path: Path, outputs: Path, job: Any, invoke: Any, monkeypatch: pytest.MonkeyPatch) -> Count:
    """Function (kind, table, flag=value, ...) -> the metrics of `privatize` in the namespace `labeldp`, but times."""
    results, run = [], LocalRunner.run_pipeline

    def keep(*arguments: Any) -> Any:
        results.append(run(*arguments))
        return results[-1]

    monkeypatch.setattr(LocalRunner, "run_pipeline", keep)

    def counted(kind: str, log: pa.Table, **flags: Any) -> dict[str, int]:
        path = tmp_path / f"log.{kind}"
        write_log(path, log)
        results.clear()
        format = "tfrecord" if kind == "tfrecord" else "parquet"
        files = {"input_format": kind, "output_format": format, "output": outputs / f"r{len(list(outputs.iterdir()))}"}
        invoke(job(input=path, **files, **flags)).ok()
        found: dict[str, int] = {}
        for result in results:
            for each in result.metrics().query()["counters"]:
                if each.key.metric.namespace == job_metrics.NAMESPACE:
                    name = each.key.metric.name
                    found[name] = found.get(name, 0) + each.committed
        return found

    return counted


def test_what_they_count(count: Count) -> None:
    assert count("csv", table(), mechanism="rr", center="none", num_shards=2) == {
        "records_read": 2 * ROWS,
        "records_left_out": 16,
        "records_written": ROWS - 16,
        # Eight bytes of f and a bit that tells nulls; an offset of four for the text, of two.
        "bytes_written": 14 * (ROWS - 16) + (ROWS - 16) // 8,
        "segments": 2,
        "passes_done": 2,
    }


@pytest.mark.parametrize(
    ("kind", "flags", "changed"),
    [
        (kind, flags, changed)
        for kind in ("csv", "parquet", "tfrecord")
        for flags, changed in (
            ({"mechanism": "rr"}, (0.5, -1e30)),
            ({"mechanism": "rr", "missing_label": 2}, (None,)),
            ({"mechanism": "auto", "center": "linear", "num_shards": 3}, (123456.75,)),
            ({"mechanism": "rr", "center": "none", **GRADES}, ("a class of a longer name",)),
        )
    ],
    ids=str,
)
def test_neighbors_have_the_same(count: Count, kind: str, flags: Any, changed: tuple[Any, ...]) -> None:
    label = flags.get("label", "y")
    logs = [table(label=label), *(table(value, label) for value in changed)]
    first, *others = [count(kind, log, **flags) for log in logs]
    assert {*first} == NAMES - TIMES
    assert others == [first] * len(changed)


def test_the_threat_model_has_a_reason_for_each() -> None:
    rows = (Path(__file__).parents[3] / "docs" / "threat_model.md").read_text().splitlines()
    listed = {row.split("`")[1] for row in rows if row.startswith("| `") and row.count("|") == 4}
    assert listed >= NAMES
