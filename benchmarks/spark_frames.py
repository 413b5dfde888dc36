"""CPU time of `labeldp.privatize` over a Spark frame, beside a `mapInArrow` that copies batches, and the Beam job.

`make pyspark` fetches Spark, which runs in this process and its children (local[2]). CPU time is that of all of them,
for records of an id, 8 floats and a label in Parquet; the result is computed and dropped (format noop).
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / ".spark" / "python")]
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """CPU time of this process and all below it."""
    parents: dict[int, list[int]] = {}
    times: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        number = int(stat.parent.name)
        parents.setdefault(int(fields[1]), []).append(number)
        # With the children that have ended.
        times[number] = sum(map(int, fields[11:15])) / _TICKS
    total, left = 0.0, [os.getpid()]
    while left:
        number = left.pop()
        total += times.get(number, 0.0)
        left += parents.get(number, [])
    return total


def cost(action: Callable[[], Any]) -> tuple[float, Any]:
    """CPU time of an action, and its result."""
    before = cpu_seconds()
    result = action()
    return cpu_seconds() - before, result


def main() -> None:
    """Prints one line of JSON."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--records", type=int, default=2_000_000)
    arguments.add_argument("--rounds", type=int, default=2)
    options = arguments.parse_args()
    import labeldp
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    def copied(batches: Any) -> Any:
        yield from (pa.RecordBatch.from_arrays(batch.columns, schema=batch.schema) for batch in batches)

    with tempfile.TemporaryDirectory() as name:
        folder, generator = Path(name), np.random.default_rng(1)
        columns: dict[str, Any] = {"id": np.arange(options.records)}
        columns |= {f"x{place}": generator.normal(size=options.records).astype(np.float32) for place in range(8)}
        columns["y"] = np.clip(np.round(10 + 3 * columns["x0"] + generator.normal(size=options.records)), 0, 20)
        pq.write_table(pa.table(columns), folder / "log.parquet", row_group_size=1 << 17)
        sql: Any = importlib.import_module("pyspark.sql")
        builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "localhost")
        session = spark.config("spark.sql.shuffle.partitions", "2").getOrCreate()
        log = session.read.parquet(str(folder / "log.parquet"))
        asked = {"label": "y", "label_max": 20, "epsilon": 2.0, "id_column": "id", "noise_key_file": f"{folder}/key"}

        def dropped(frame: Any) -> None:
            frame.write.format("noop").mode("overwrite").save()

        dropped(log.mapInArrow(copied, log.schema))
        found: dict[str, list[float]] = {"copy": [], "passes": [], "draw": [], "command": []}
        for number in range(options.rounds):
            found["copy"].append(cost(lambda: dropped(log.mapInArrow(copied, log.schema)))[0])
            seconds, released = cost(lambda: labeldp.privatize(log, ledger=folder / "ledger", **asked))
            found["passes"].append(seconds)
            found["draw"].append(cost(functools.partial(dropped, released.frame))[0])
            flags = [f"--{key}={value}" for key, value in asked.items()]
            command = [Path(sys.executable).parent / "labeldp", "privatize", folder / "log.parquet", *flags]
            command += [f"--output={folder}/released{number}", "--output_format=parquet"]
            run = functools.partial(subprocess.run, command, check=True, capture_output=True)
            found["command"].append(cost(run)[0])
        least = {key: round(min(values), 2) for key, values in found.items()}
        least["draw over copy"] = round(least["draw"] / least["copy"], 2)
        print(json.dumps({"records": options.records, "time": time.strftime("%F"), "cpu_seconds": least}))
        session.stop()


if __name__ == "__main__":
    main()
