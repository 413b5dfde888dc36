"""Releases a log as a Spark frame, in a process of its own: `spark_job.py MASTER FOLDER UI_PORT`.

MASTER is local[2], local-cluster[2,1,1024], of which an executor is killed while labels are drawn, or connect. FOLDER
has the log, log.parquet with the columns id, x, group and y, and the key. It prints lines of JSON: of every call that
is refused its error, and what the web interface shows.
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import labeldp
import pyarrow.parquet as pq

PAGES = ("jobs", "stages?details=true", "sql?details=true&planDescription=true&length=1000", "environment", "executors")

# Spark 3.5 gives rand() a seed with the frame, whose labels then stay.
RANDOM = "cast(cast(reflect('java.lang.System', 'nanoTime') as bigint) % 9 as double) as y"


def session(master: str, folder: Path, port: int) -> Any:
    """A session whose driver writes an event log and has a web interface."""
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.port": str(port),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder / "local"),
        "spark.executor.extraJavaOptions": f"-Dlabeldp.folder={folder}",
    }
    builder: Any = importlib.import_module("pyspark.sql").SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    if master == "connect":
        return builder.remote("local[2]").getOrCreate()
    return builder.master(master).getOrCreate()


def refused(name: str, call: Any) -> None:
    """Prints the error of a call."""
    try:
        call()
        print(json.dumps({"refused": name, "error": None}), flush=True)
    except Exception as error:
        print(json.dumps({"refused": name, "kind": type(error).__name__, "error": str(error)}), flush=True)


def executors() -> list[int]:
    """Process ids of the executors of a local cluster, which this process has started."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    folder = sys.argv[2]
    return [
        int(line.split()[0])
        for line in listed.splitlines()
        if "CoarseGrainedExecutorBackend" in line and f"-Dlabeldp.folder={folder}" in line
    ]


def kill_one(data: Path) -> None:
    """Kills an executor once shards are being written."""
    while not [*data.glob(".*/release/data/*.parquet")]:
        time.sleep(0.05)
    os.kill(executors()[0], signal.SIGKILL)
    print(json.dumps({"killed": True}), flush=True)


def pages(port: int) -> str:
    """Pages of the web interface about all applications."""
    base, shown = f"http://localhost:{port}/api/v1/applications", []
    for application in json.load(urllib.request.urlopen(base)):
        for page in PAGES:
            with contextlib.suppress(OSError):
                shown.append(urllib.request.urlopen(f"{base}/{application['id']}/{page}").read().decode())
    return "\n".join(shown)


def main() -> None:
    """Makes the releases."""
    master, folder, port = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    (folder / "events").mkdir(exist_ok=True)
    spark = session(master, folder, port)
    log = spark.read.parquet(str(folder / "log.parquet")).repartition(6)
    asked: dict[str, Any] = {
        "label": "y", "label_values": str(folder / "domain"), "epsilon": 2.0, "id_column": "id",
        "noise_key_file": str(folder / "noise.key"), "ledger": str(folder / "frames.jsonl"),
    }  # fmt: skip

    def privatized(frame: Any, **changed: Any) -> Any:
        parameters: dict[str, Any] = {**asked, **changed}
        return labeldp.privatize(frame, **parameters)

    released = privatized(log)
    if master.startswith("local-cluster"):
        threading.Thread(target=kill_one, args=(folder,), daemon=True).start()
        released.write(folder / "release")
        print(json.dumps({"application": spark.sparkContext.applicationId, "pages": pages(port)}), flush=True)
        spark.stop()
        return
    released.write(folder / "release")
    released.frame.repartition(3).write.parquet(str(folder / "frame"))
    classes: dict[str, Any] = {"label": "group", "label_classes": ["a", "b", "c"], "label_values": None}
    privatized(log, **classes).frame.write.parquet(str(folder / "classes"))
    names = log.selectExpr("id as `i.d`", "x as X", "`group` as x", "y as `y``.z`", "id % 1000 as `u.v`")
    renamed: dict[str, Any] = {"label": "y`.z", "id_column": "i.d", "unit_column": "u.v", "max_records_per_unit": 3}
    privatized(names, **renamed).frame.toDF("id", "x", "group", "y", "u").write.parquet(str(folder / "names"))
    unit = {"unit_column": "u", "max_records_per_unit": 1000}
    units = log.selectExpr("*", RANDOM.replace(" as double) as y", " as int) as u"))
    refused("units", lambda: privatized(units, **unit))
    refused("keys", lambda: privatized(log.selectExpr("*", "map('Y', y) as m")))
    refused("random", lambda: privatized(log.selectExpr("id", "x", RANDOM)))
    refused("ids", lambda: privatized(log.union(log)))
    refused("no ids", lambda: privatized(log, id_column=None))
    refused("bytes", lambda: privatized(log, noise_key_file=None, noise_key=b"k" * 32))
    refused("text", lambda: privatized(log.selectExpr("id", "x", "cast(y as string) as y")))
    table = pq.read_table(folder / "log.parquet")
    labels = table.column("y").to_numpy()[::-1]
    pq.write_table(table.set_column(table.schema.get_field_index("y"), "y", [labels]), folder / "log.parquet")
    refused("changed", released.frame.collect)
    refused("changed write", lambda: released.write(folder / "changed"))
    print(json.dumps({"pages": pages(port)}), flush=True)
    spark.stop()


main()
