"""Beam's local runner with one worker and with two, which are threads of one process, on logs of 1 to 1,000 files.

Wide records have 40 features, the others 8 floats; the default sizes differ. The number of files of a layout is the
same at every size, so that the cost of opening files is in the fixed seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from comparison import Program, compare, cpu_ratio, parser, ratio
from log_schema import FORMATS
from result_line import print_result
from workspace import Log, Workspace, open_workspace

SETTINGS = {f"{number}_worker": [f"--direct_num_workers={number}"] for number in (1, 2)}


@dataclass(frozen=True)
class Layout:
    """Log that is measured.

    Attributes:
      files: Number of files.
      sizes: Default numbers of records.
      columns: synthetic or wide.
    """

    files: int
    sizes: Sequence[int]
    columns: str = "synthetic"


_SMALL, _WIDE = (2_000_000, 5_000_000, 10_000_000), (800_000, 1_600_000, 3_200_000)
LAYOUTS = {
    "8_files": Layout(8, _SMALL),
    "8_wide_files": Layout(8, _WIDE, "wide"),
    "1_file": Layout(1, _SMALL),
    "1_wide_file": Layout(1, _WIDE, "wide"),
    "1000_files": Layout(1000, _SMALL),
}
# By default there are as many shards as input files; 1,000 shards would cost time of their own.
_SHARDS = 8


def main(argv: Sequence[str] | None = None) -> None:
    """Runs every setting on every layout and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    flags = parser(__doc__, _SMALL, rounds=1)
    flags.set_defaults(sizes=None)
    flags.add_argument("--format", choices=FORMATS, default="tfrecord", help="format of the logs (default: tfrecord)")
    flags.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), help="default: all")
    flags.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS), help="default: all")
    args = flags.parse_args(argv)
    with open_workspace(args.temp_location) as space:
        layouts = {name: _measured(space, name, args) for name in args.layouts}
    print_result("cores", {"format": args.format, "layouts": layouts})


def _measured(space: Workspace, name: str, args: Any) -> dict[str, Any]:
    layout = LAYOUTS[name]
    sizes = args.sizes or layout.sizes

    def log(size: int) -> Log:
        return space.log(args.format, size, layout.files, columns=layout.columns)

    runs = [
        Program(f"{name} {setting}", sizes, log, space.privatize, [*SETTINGS[setting], f"--num_shards={_SHARDS}"])
        for setting in args.settings
    ]
    measured = compare(space, runs, args.rounds)
    for size in sizes:
        log(size).delete()
    programs = {setting: measured[f"{name} {setting}"] for setting in args.settings}
    both = [programs[setting] for setting in SETTINGS if setting in programs]
    return {
        "speedup_by_second_worker": ratio(*both) if len(both) == 2 else None,
        "cpu_speedup_by_second_worker": cpu_ratio(*both) if len(both) == 2 else None,
        "programs": programs,
    }


if __name__ == "__main__":
    main()
