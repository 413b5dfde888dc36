"""Throughput of `labeldp privatize` on a local Flink cluster, in one task slot and in two, beside DirectRunner.

`make flink` fetches the cluster. It has two TaskManagers with a slot each, so that two slots are two Python workers.
A job at each parallelism runs before the measurement, to warm the cluster up. CPU time is not reported: the cluster
spends it outside the measured processes.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparison import Program, compare, parser, ratio
from result_line import print_result, progress
from workspace import Log, Workspace, open_workspace

# A job on Flink takes 20 seconds to start; smaller sizes would say little about the cost per record.
_SIZES = (1_000_000, 2_000_000, 5_000_000, 10_000_000)
_WARM_UP = 50_000
_CLUSTER = Path(__file__).resolve().parents[1] / "templates" / "flink" / "local_cluster.py"


def main(argv: Sequence[str] | None = None) -> None:
    """Compares the runners and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    flags = parser(__doc__, _SIZES, rounds=2)
    flags.add_argument("--files", type=int, default=8, metavar="N", help="files of a log (default: 8)")
    args = flags.parse_args(argv)
    with open_workspace(args.temp_location) as space, _cluster(space) as cluster:
        progress(f"Flink runs on {cluster.master}")

        def log(size: int) -> Log:
            return space.log("tfrecord", size, args.files)

        slots = {f"flink_{slots}_slot": [*cluster.flags, f"--parallelism={slots}"] for slots in (1, 2)}
        for to_slots in slots.values():
            with space.output() as output:
                space.run(space.privatize(log(_WARM_UP), output, *to_slots))
        runners = {"direct": ["--direct_num_workers=1"], **slots}
        programs = [Program(name, args.sizes, log, space.privatize, flags) for name, flags in runners.items()]
        measured = compare(space, programs, args.rounds)
    direct, one, two = measured["direct"], measured["flink_1_slot"], measured["flink_2_slot"]
    print_result(
        "flink",
        {
            "cost_per_record_over_direct": ratio(one, direct),
            "speedup_of_two_slots": ratio(one, two),
            "fixed_seconds_over_direct": one["fixed_seconds"] - direct["fixed_seconds"],
            "programs": {
                name: {key: value for key, value in each.items() if "cpu" not in key} for name, each in measured.items()
            },
        },
    )


def _cluster(space: Workspace) -> Any:
    spec = importlib.util.spec_from_file_location(_CLUSTER.stem, _CLUSTER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.FlinkCluster(space.folder / "cluster", task_managers=2, slots=1)


if __name__ == "__main__":
    main()
