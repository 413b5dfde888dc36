"""Peak memory and time of `labeldp privatize` from one million to 30 million records.

Memory should stay constant and time should grow in proportion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from comparison import Program, compare, parser
from log_schema import FORMATS
from result_line import print_result
from workspace import Log, Workspace, open_workspace

_SIZES = (1_000_000, 3_000_000, 10_000_000, 30_000_000)
MAX_GROWTH = 1.2  # of the peak memory, from the smallest to the largest size
MIN_R_SQUARED = 0.99  # of time against size


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the job at each size and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    flags = parser(__doc__, _SIZES, rounds=1)
    flags.add_argument(
        "--formats", nargs="+", choices=FORMATS, default=list(FORMATS), help="formats of the logs (default: both)"
    )
    args = flags.parse_args(argv)
    with open_workspace(args.temp_location) as space:
        formats = {format: _grow(space, format, args.sizes, args.rounds) for format in args.formats}
    print_result(
        "memory",
        {
            "flat": all(one["largest_over_smallest_peak"] <= MAX_GROWTH for one in formats.values()),
            "linear": all(one["r_squared"] >= MIN_R_SQUARED for one in formats.values()),
            "peak_bytes": max(peak for one in formats.values() for peak in one["peak_bytes"]),
            "formats": formats,
        },
    )


def _grow(space: Workspace, format: str, sizes: Sequence[int], rounds: int) -> dict[str, Any]:
    def log(size: int) -> Log:
        return space.log(format, size)

    name = f"labeldp on {format}"
    measured = compare(space, [Program(name, sizes, log, space.privatize)], rounds)[name]
    for size in sizes:
        log(size).delete()
    growth = max(measured["peak_bytes"]) / min(measured["peak_bytes"])
    return {**measured, "largest_over_smallest_peak": growth}


if __name__ == "__main__":
    main()
