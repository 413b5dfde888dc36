"""Throughput of `labeldp privatize` on a local Flink cluster, by number of task slots, beside DirectRunner.

`make flink` fetches the cluster. Each TaskManager has one slot, so that each slot has a Python worker of its own. A job
at each parallelism runs before the measurement, to warm the cluster up. CPU time is not reported: the cluster spends it
outside the measured processes. The default sizes of wide records are 400,000 to 4,000,000.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from comparison import Program, compare, parser, ratio
from result_line import print_result, progress
from workspace import Log, Workspace, open_workspace

from tests.engines.flink_cluster import FlinkCluster


@dataclass(frozen=True)
class Layout:
    """Records that are measured.

    Attributes:
      sizes: Default numbers of records. A job takes 7 seconds to start, and its end is seen in steps of 2 seconds:
        smaller sizes say little about the slope.
      slots: Default numbers of task slots.
    """

    sizes: Sequence[int]
    slots: Sequence[int]


LAYOUTS = {
    "synthetic": Layout((3_000_000, 10_000_000, 20_000_000), (1, 2)),
    "wide": Layout((400_000, 1_600_000, 4_000_000), (1, 2, 4)),
}
_WARM_UP = 50_000


def main(argv: Sequence[str] | None = None) -> None:
    """Compares the runners on each kind of records and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    flags = parser(__doc__, LAYOUTS["synthetic"].sizes, rounds=1)
    flags.set_defaults(sizes=None)
    flags.add_argument("--files", type=int, default=8, metavar="N", help="files of a log (default: 8)")
    flags.add_argument("--columns", nargs="+", choices=LAYOUTS, default=list(LAYOUTS), help="records (default: all)")
    flags.add_argument(
        "--slots", type=int, nargs="+", metavar="N", help="numbers of task slots (default: 1 2, for wide records 1 2 4)"
    )
    args = flags.parse_args(argv)
    most_slots = max(slots for columns in args.columns for slots in args.slots or LAYOUTS[columns].slots)
    with (
        open_workspace(args.temp_location) as space,
        FlinkCluster(space.folder / "cluster", task_managers=most_slots, slots=1) as cluster,
    ):
        progress(f"Flink runs on {cluster.master}")
        measured = {columns: _measured(space, cluster, columns, args) for columns in args.columns}
    print_result("flink", {"columns": measured})


def _measured(space: Workspace, cluster: Any, columns: str, args: argparse.Namespace) -> dict[str, Any]:
    layout = LAYOUTS[columns]
    sizes = args.sizes or layout.sizes

    def log(size: int) -> Log:
        return space.log("tfrecord", size, args.files, columns=columns)

    runners = {"direct": ["--direct_num_workers=1"]} | {
        f"flink_{slots}_slot": [*cluster.flags, f"--parallelism={slots}"] for slots in args.slots or layout.slots
    }
    for name, to_slots in runners.items():
        if name != "direct":
            with space.output() as output:
                space.run(space.privatize(log(_WARM_UP), output, *to_slots))
    programs = [Program(name, sizes, log, space.privatize, to_slots) for name, to_slots in runners.items()]
    results = compare(space, programs, args.rounds)
    for size in {*sizes, _WARM_UP}:
        log(size).delete()
    return _figures(results)


def _figures(measured: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Compares the fewest slots with DirectRunner, and more slots with the fewest."""
    direct = measured["direct"]
    fewest, *more = (name for name in measured if name != "direct")
    return {
        "cost_per_record_over_direct": ratio(measured[fewest], direct),
        "fixed_seconds_over_direct": measured[fewest]["fixed_seconds"] - direct["fixed_seconds"],
        "speedup_over_fewest_slots": {name: ratio(measured[fewest], measured[name]) for name in more},
        "programs": {
            name: {key: value for key, value in each.items() if "cpu" not in key} for name, each in measured.items()
        },
    }


if __name__ == "__main__":
    main()
