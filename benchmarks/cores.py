"""Beam's local runner with one worker and with two, which are threads of one process, on logs of 1 to 1,000 files.

The number of files is the same at every size, so that the cost of opening files is in the fixed seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from comparison import Program, compare, parser
from log_schema import FORMATS
from result_line import print_result
from workspace import Log, Workspace, open_workspace

_SIZES = (300_000, 1_000_000, 2_000_000, 3_000_000)
SETTINGS = {f"{number}_worker": [f"--direct_num_workers={number}"] for number in (1, 2)}
LAYOUTS = {"8_files": 8, "1_file": 1, "1000_files": 1000}
# By default there are as many shards as input files; 1,000 shards would cost time of their own.
_SHARDS = 8


def main(argv: Sequence[str] | None = None) -> None:
    """Runs every setting on every layout and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    flags = parser(__doc__, _SIZES, rounds=2)
    flags.add_argument("--format", choices=FORMATS, default="tfrecord", help="format of the logs (default: tfrecord)")
    flags.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), help="default: all")
    flags.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS), help="default: all")
    args = flags.parse_args(argv)
    with open_workspace(args.temp_location) as space:
        layouts = {name: _layout(space, name, args) for name in args.layouts}
    print_result("cores", {"format": args.format, "layouts": layouts})


def _layout(space: Workspace, layout: str, args: Any) -> dict[str, Any]:
    def log(size: int) -> Log:
        return space.log(args.format, size, LAYOUTS[layout])

    programs = [
        Program(f"{layout} {name}", args.sizes, log, space.privatize, [*SETTINGS[name], f"--num_shards={_SHARDS}"])
        for name in args.settings
    ]
    measured = compare(space, programs, args.rounds)
    for size in args.sizes:
        log(size).delete()
    return {name: measured[f"{layout} {name}"] for name in args.settings}


if __name__ == "__main__":
    main()
