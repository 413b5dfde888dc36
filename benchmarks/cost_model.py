"""Model of the cost of `labeldp privatize` by records, width, files and shards, fitted here and worked for clusters.

CPU seconds = start + records x (a + b x bytes of a record) + files x c + shards x d, by least squares on relative
errors, with no negative coefficient. Files and bytes follow from the layout. The model is compared with runs that were
not used for the fit, of more records and of other numbers of files, and applied to 10^9, 10^10 and 10^11 records.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from result_line import print_result, progress
from scipy.optimize import nnls
from workspace import Workspace, folder_bytes, open_workspace

_PROGRAM = str(Path(__file__).parent / "counted_job.py")
_SMALL = 2_000
_FORMAT = "tfrecord"
# Rows of a batch, which is what passes between stages.
_BATCH_ROWS = 1 << 14
# Bytes that the main program holds for a file or shard, of which each is a hundred characters of paths in several
# lists: measured by many_files.py, 588 MB with 260 MB of libraries for 99,999 files and as many shards.
_COORDINATOR_MB, _COORDINATOR_KB_PER_FILE = 260, 1.7
# The cluster of the worked examples: workers with four cores, and files of a million records.
_CORES, _FILE_ROWS = 4, 1_000_000
_CLUSTERS = {10**9: 4, 10**10: 25, 10**11: 250}


@dataclass(frozen=True)
class Job:
    """Job of the model.

    Attributes:
      records: Number of records.
      columns: synthetic, of some 100 bytes, or wide, of 735.
      files: Number of input files, of equal length.
      shards: Number of shards.
    """

    records: int
    columns: str
    files: int
    shards: int


FITTED = (
    Job(100_000, "synthetic", 8, 8),
    Job(300_000, "synthetic", 8, 8),
    Job(1_000_000, "synthetic", 8, 8),
    Job(3_000_000, "synthetic", 8, 8),
    Job(10_000_000, "synthetic", 8, 8),
    Job(300_000, "synthetic", 500, 8),
    Job(300_000, "synthetic", 8, 500),
    Job(300_000, "synthetic", 500, 500),
    Job(100_000, "wide", 8, 8),
    Job(300_000, "wide", 8, 8),
    Job(900_000, "wide", 8, 8),
)
UNSEEN = (
    Job(30_000_000, "synthetic", 32, 32),
    Job(1_000_000, "synthetic", 200, 100),
    Job(600_000, "wide", 100, 100),
)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the jobs, fits the model and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    flags = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    flags.add_argument(
        "--scale", type=float, default=1.0, metavar="X", help="multiplies the numbers of records (default: 1)"
    )
    flags.add_argument("--rounds", type=int, default=3, metavar="N", help="runs of each job (default: 3)")
    flags.add_argument("--temp_location", metavar="DIR", help="folder for logs and outputs (default: a temporary one)")
    args = flags.parse_args(argv)
    with open_workspace(args.temp_location) as space:
        rounds = [[_run(space, job, args.scale) for job in (*FITTED, *UNSEEN)] for _ in range(args.rounds)]
    runs = [_median(list(of_job)) for of_job in zip(*rounds, strict=True)]
    fitted, unseen = runs[: len(FITTED)], runs[len(FITTED) :]
    coefficients, r_squared = fit(fitted)
    names = ("seconds of start", "us a record", "ns a byte of a record", "ms a file", "ms a shard")
    units = np.array([1, 1e6, 1e9, 1e3, 1e3])
    print_result(
        "cost_model",
        {
            "coefficients": [dict(zip(names, (coefficients * units).tolist(), strict=True)) | {"R squared": r_squared}],
            "fitted": [_row(one, coefficients) for one in fitted],
            "not used for the fit": [_row(one, coefficients) for one in unseen],
            "worked": [_worked(records, width, coefficients) for width in (100, 735) for records in _CLUSTERS],
        },
    )


def fit(runs: Sequence[dict[str, Any]]) -> tuple[np.ndarray, float]:
    """Fits the CPU seconds.

    Args:
      runs: As `_run` gives them.

    Returns:
      (coefficients, r_squared): in seconds, those of the start, a record, a byte of a record, a file and a shard, shape
      (5,), none negative; and the share of the variance of the seconds that they explain.
    """
    terms, seconds = np.stack([_terms(run) for run in runs]), np.array([run["cpu_seconds"] for run in runs])
    scaled = terms / seconds[:, None]
    # Columns of one size, without which the solver would take small coefficients for none.
    size = np.abs(scaled).max(axis=0)
    coefficients = nnls(scaled / size, np.ones(len(seconds)))[0] / size
    rest = seconds - terms @ coefficients
    return coefficients, float(1 - rest @ rest / ((seconds - seconds.mean()) ** 2).sum())


def _terms(run: dict[str, Any]) -> np.ndarray:
    return np.array([1.0, run["records"], run["records"] * run["width"], run["files"], run["shards"]])


def _run(space: Workspace, job: Job, scale: float) -> dict[str, Any]:
    """Facts of one run, in JSON types."""
    records = max(int(job.records * scale), job.files)
    log, small = space.log(_FORMAT, records, job.files, columns=job.columns), space.log(_FORMAT, _SMALL, 1)
    if job.columns != "synthetic":
        small = space.log(_FORMAT, _SMALL, 1, columns=job.columns)
    with space.output() as output:
        # Without the first two words, python -m labeldp, and the command.
        flags = space.privatize(log, output, f"--num_shards={job.shards}")[3:]
        cost = space.run([_PROGRAM, f"--small_input={small.pattern}", *flags])
        found = json.loads(cost.output.splitlines()[-1])
        released = folder_bytes(output / "data", f".{_FORMAT}")
    size = log.size
    facts = {
        "records": records,
        "width": size / records,
        "files": job.files,
        "shards": job.shards,
        "cpu_seconds": found["cpu_seconds"],
        "peak_mb": cost.peak_bytes / 1e6,
        "segments": found["segments"],
        "read_over_input": found["read"] / size,
        "written_over_output": found["written"] / released,
    }
    progress(str(facts))
    return facts


def _median(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Facts of a job of several runs: the median time, and the largest peak of memory."""
    seconds, peaks = ([run[name] for run in runs] for name in ("cpu_seconds", "peak_mb"))
    return runs[0] | {"cpu_seconds": statistics.median(seconds), "peak_mb": max(peaks)}


def _row(run: dict[str, Any], coefficients: np.ndarray) -> dict[str, Any]:
    """Row of a table: a run, and what the model says of it."""
    predicted = float(_terms(run) @ coefficients)
    return {
        "records": f"{run['records']:,}",
        "bytes a record": round(run["width"]),
        "files": run["files"],
        "shards": run["shards"],
        "CPU seconds": f"{run['cpu_seconds']:.2f}",
        "by the model": f"{predicted:.2f}",
        "error": f"{100 * (predicted / run['cpu_seconds'] - 1):+.0f} %",
        "peak MB": round(run["peak_mb"]),
        "segments": run["segments"],
        "segments by the model": _segments(run["files"], run["shards"]),
        "read over input": f"{run['read_over_input']:.2f}",
        "written over output": f"{run['written_over_output']:.2f}",
    }


def _segments(files: int, shards: int) -> str:
    """A segment for each shard if no shard has rows of two files; else one more, at most, where another file begins.

    Files that one bundle reads one after the other share segments.
    """
    return str(shards) if shards >= files else f"{shards} to {files + shards}"


def _worked(records: int, width: int, coefficients: np.ndarray) -> dict[str, Any]:
    """Row of a table: a job on a cluster, with as many shards as files."""
    files, workers = records // _FILE_ROWS, _CLUSTERS[records]
    run = {"records": records, "width": width, "files": files, "shards": files}
    seconds = float(_terms(run) @ coefficients)
    return {
        "records": f"{records:.0e}".replace("e+0", "e").replace("e+", "e"),
        "bytes a record": width,
        "files and shards": f"{files:,} each",
        "CPU hours": f"{seconds / 3600:,.1f}",
        "workers of 4 cores": workers,
        "minutes on them, without start-up": f"{seconds / (workers * _CORES * 60):,.0f}",
        "TB read": f"{2 * records * width / 1e12:,.1f}",
        "TB written": f"{records * width / 1e12:,.1f}",
        "batches in each pass": f"{-(-_FILE_ROWS // _BATCH_ROWS) * files:,}",
        "elements shuffled": f"{3 * files:,}",
        "main program, MB": f"{_COORDINATOR_MB + 2 * files * _COORDINATOR_KB_PER_FILE / 1e3:,.0f}",
    }


if __name__ == "__main__":
    main()
