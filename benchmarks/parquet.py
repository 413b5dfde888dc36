"""Throughput of `labeldp privatize` on Parquet, beside a bare loop of pyarrow, `baselines/arrow_loop.py`.

`labeldp privatize` first reads the label column, counts, binds its noise to the data and solves; then it reads all
columns, randomizes and writes shards with a manifest. The loop only copies. Costs per record are slopes of time against
size.
"""

from __future__ import annotations

from collections.abc import Sequence

from comparison import Program, compare, cpu_ratio, parser, ratio
from result_line import print_result
from workspace import Log, open_workspace

_SIZES = (2_500_000, 5_000_000, 10_000_000, 20_000_000)


def main(argv: Sequence[str] | None = None) -> None:
    """Compares the programs and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    flags = parser(__doc__, _SIZES, rounds=1)
    flags.add_argument("--files", type=int, default=8, metavar="N", help="files of a log (default: 8)")
    args = flags.parse_args(argv)
    with open_workspace(args.temp_location) as space:

        def log(size: int) -> Log:
            return space.log("parquet", size, args.files)

        programs = [
            Program("labeldp", args.sizes, log, space.privatize),
            Program("arrow_loop", args.sizes, log, space.bare_loop),
        ]
        measured = compare(space, programs, args.rounds)
    labeldp, loop = measured["labeldp"], measured["arrow_loop"]
    print_result(
        "parquet",
        {
            "cost_per_record_over_arrow_loop": ratio(labeldp, loop),
            "cpu_per_record_over_arrow_loop": cpu_ratio(labeldp, loop),
            "fixed_seconds": labeldp["fixed_seconds"],
            "r_squared": labeldp["r_squared"],
            "peak_bytes": max(labeldp["peak_bytes"]),
            "programs": measured,
        },
    )


if __name__ == "__main__":
    main()
