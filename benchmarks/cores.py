"""Beam's local runner with one worker and with two, threads of one process, on logs cut into files differently.

The number of files stays the same at every size: what files cost by themselves is in the fixed seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from layout import FORMATS
from race import Rival, parser, race, result
from workspace import Log, Workspace, open_workspace

_SIZES = (300_000, 1_000_000, 2_000_000, 3_000_000)
SETTINGS = {f"{number}_worker": [f"--direct_num_workers={number}"] for number in (1, 2)}
LAYOUTS = {"8_files": 8, "1_file": 1, "1000_files": 1000}
# As a log of 1,000 small files is not to be released as 1,000 shards.
_SHARDS = 8


def main(argv: Sequence[str] | None = None) -> None:
    """Runs every setting on every layout and prints the JSON line."""
    flags = parser(__doc__, _SIZES, rounds=2)
    flags.add_argument("--format", choices=FORMATS, default="tfrecord", help="default tfrecord")
    flags.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), help="default all")
    flags.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS), help="default all")
    args = flags.parse_args(argv)
    with open_workspace(args.temp_location) as space:
        layouts = {name: _layout(space, name, args) for name in args.layouts}
    result("cores", {"format": args.format, "layouts": layouts})


def _layout(space: Workspace, layout: str, args: Any) -> dict[str, Any]:
    def log(size: int) -> Log:
        return space.log(args.format, size, LAYOUTS[layout])

    rivals = [
        Rival(f"{layout} {name}", args.sizes, log, space.privatize, [*SETTINGS[name], f"--num_shards={_SHARDS}"])
        for name in args.settings
    ]
    facts = race(space, rivals, args.rounds)
    for size in args.sizes:
        log(size).delete()
    return {name: facts[f"{layout} {name}"] for name in args.settings}


if __name__ == "__main__":
    main()
