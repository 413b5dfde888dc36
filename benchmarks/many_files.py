"""Steps of a job that handle all files or shards in one process, at growing numbers of empty files.

Each should take time in proportion to the number of files, and little memory: they run in the main program, or in one
worker.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from labeldp.audit.release_files import shard_problems
from labeldp.mechanisms.core.budget import BudgetSplit
from labeldp.mechanisms.release.bound_noise import NoiseBinding
from labeldp.pipelines.job.job_graph import write_job_result
from labeldp.pipelines.publish.sealed_result import unsealed
from labeldp.transforms.io.filesystems import match, read_text
from labeldp.transforms.io.hive_partitions import OutputPartitions
from labeldp.transforms.io.input_format import Format, file_parts
from labeldp.transforms.noise_key_file import NoiseKeyFile
from labeldp.transforms.shards.publish_shards import MOVED_AT_ONCE, _move
from labeldp.transforms.shards.shard_ranges import SourceRows, divide_rows
from labeldp.transforms.shards.shard_writer import ShardFile
from result_line import print_result, progress

_SIZES = (25_000, 50_000, 99_999)
_FOLDERS = 100


def main(argv: Sequence[str] | None = None) -> None:
    """Times every step at each number of files and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=_SIZES, metavar="N", help="numbers of files")
    parser.add_argument("--temp_location", metavar="DIR", help="folder for temporary files")
    args = parser.parse_args(argv)
    sizes: dict[str, dict[str, float]] = {}
    for size in args.sizes:
        with tempfile.TemporaryDirectory(prefix="labeldp-benchmark-", dir=args.temp_location) as folder:
            sizes[str(size)] = _steps(Path(folder), size)
        progress(f"{size:,} files: {sizes[str(size)]}")
    # Of this process, with all libraries.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print_result("many_files", {"cpu_seconds": sizes, "peak_bytes": peak})


def _steps(folder: Path, size: int) -> dict[str, float]:
    """CPU seconds of each step."""
    seconds: dict[str, float] = {}

    def timed(name: str, step: Callable[[], Any]) -> Any:
        started = time.process_time()
        found = step()
        seconds[name] = round(time.process_time() - started, 3)
        return found

    paths = [folder / f"k={place % _FOLDERS}" / f"part-{place:05d}.csv" for place in range(size)]
    for number in range(_FOLDERS):
        (folder / f"k={number}").mkdir()
    for path in paths:
        path.touch()
    names = timed("list the input", lambda: list(match(f"{folder}/k=*/*.csv")))
    parts = timed("find partitions", lambda: file_parts(names, Format("csv")))
    assert len(parts) == size
    partitions = OutputPartitions((("k", True),), tuple(f"k={number}" for number in range(_FOLDERS)))
    counts = [SourceRows(name, 1_000_000, 1_000_000) for name in names]
    divided = timed("divide rows", lambda: divide_rows(counts, size // _FOLDERS + 1, partitions))
    # A worker looks at one after the other. All kept at once, Python would search them for garbage most of the time.
    found = timed("find ranges", lambda: sum(len(divided.of_file(n, partitions.place(n)).whole) for n in names))
    assert found == (size // _FOLDERS + 1) * _FOLDERS

    data, released = folder / "data", folder / "released"
    data.mkdir()
    shards = [ShardFile(str(data / f"part-{n:05d}-of-{size:05d}.parquet"), 1, frozenset(["ab"])) for n in range(size)]
    for shard in shards:
        Path(shard.path).touch()
    batches = [shards[first : first + MOVED_AT_ONCE] for first in range(0, size, MOVED_AT_ONCE)]
    moved = timed(
        "move shards", lambda: [shard for batch in batches for shard in _move(batch, str(released / "data"), 1)]
    )
    result = str(folder / "job_result.json")
    binding = NoiseBinding(1, "y", tuple(np.arange(3.0).tolist()), BudgetSplit(0.1, 0.9), size, 0, "nearest")
    key = NoiseKeyFile(str(folder / "noise.key"))
    key.create()
    timed("write the result", lambda: write_job_result(binding, result, 0, "run", key, "", 1, moved, [], None))
    found = timed("read the result", lambda: unsealed(result, read_text(result), "", "run", key))
    manifest = {
        "shards": found.shards, "records": size, "records_without_label": 0, "label": "y",
    }  # fmt: skip
    text = timed("write the manifest", lambda: json.dumps(manifest, indent=2))
    again = timed("read the manifest", lambda: json.loads(text))
    problems = timed("audit the shards", lambda: list(shard_problems(again, released / "data")))
    assert problems == []
    return seconds


if __name__ == "__main__":
    main()
