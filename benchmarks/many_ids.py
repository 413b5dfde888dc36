"""Peak memory and CPU time of the check that `--id_column` has no duplicate, stage by stage, as one worker has them.

The stages are called without a runner: a local runner holds all that is grouped, a cluster's one group a worker.
"""

from __future__ import annotations

import argparse
import resource
import time
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from labeldp.transforms.batches import LabelledBatch
from labeldp.transforms.input_checks import ID_GROUPS, _Check, _Split
from labeldp.transforms.io.input_format import BATCH_ROWS
from result_line import print_result, progress

_SIZE = 20_000_000


def main(argv: Sequence[str] | None = None) -> None:
    """Checks ids that are all different, and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=_SIZE, metavar="N", help="number of ids")
    args = parser.parse_args(argv)
    start = _peak()
    split, check = _Split("id", ID_GROUPS), _Check("id")
    split.start_bundle()
    groups: dict[int, list[Any]] = {}
    elements = size = 0
    began = time.process_time()
    for first in range(0, args.records, BATCH_ROWS):
        ids = np.arange(first, min(first + BATCH_ROWS, args.records))
        batch = LabelledBatch.whole("/logs/a", first, pa.RecordBatch.from_pydict({"id": ids}))
        for group, found in split.process(batch):
            groups.setdefault(group, []).append(found)
            elements += 1
            size += found.rows.nbytes + found.blocks.nbytes
    for element in split.finish_bundle():
        group, found = element.value
        groups.setdefault(group, []).append(found)
        elements += 1
        size += found.rows.nbytes + found.blocks.nbytes
    seconds = {"split": time.process_time() - began}
    gathered = _peak()
    largest = max(groups, key=lambda group: sum(len(part.rows) for part in groups[group]))
    tracemalloc.start()
    list(check.process((largest, groups[largest])))
    of_check = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    number = len(groups)
    began = time.process_time()
    found = sum(count for group in sorted(groups) for count in check.process((group, groups.pop(group))))
    seconds["check"] = time.process_time() - began
    if found != args.records:
        raise RuntimeError(f"{found:,} of {args.records:,} ids were counted")
    figures = {
        "records": args.records,
        "groups": number,
        "elements_shuffled": elements,
        "bytes_shuffled": size,
        "peak_bytes_of_all_groups": gathered - start,
        "peak_bytes_of_a_check": of_check,
        "cpu_seconds": seconds,
    }
    progress(str(figures))
    print_result("many_ids", figures)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
