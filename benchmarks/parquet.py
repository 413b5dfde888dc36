"""Throughput of `labeldp privatize` on Parquet, beside a bare loop of pyarrow, `baselines/arrow_loop.py`.

`labeldp privatize` first reads the label column, counts, binds its noise to the data and solves; then it reads all
columns, randomizes and writes shards with a manifest. The loop only copies. The command is run with its defaults, which
find a center from the features, and without a center. Costs per record are slopes of time against size.
"""

from __future__ import annotations

from collections.abc import Sequence

from comparison import Program, compare, cpu_ratio, parser, ratio
from result_line import print_result
from workspace import Log, open_workspace

_SIZES = (2_500_000, 5_000_000, 10_000_000, 20_000_000)
# The default is slower a record, and its times lie on a line with fewer.
_DEFAULT_SHARE = 4


def main(argv: Sequence[str] | None = None) -> None:
    """Compares the programs and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    flags = parser(__doc__, _SIZES, rounds=1)
    flags.add_argument(
        "--default_sizes", type=int, nargs="+", metavar="N",
        help=f"numbers of records for the job with a center (default: 1/{_DEFAULT_SHARE} of --sizes)",
    )  # fmt: skip
    flags.add_argument("--files", type=int, default=8, metavar="N", help="files of a log (default: 8)")
    args = flags.parse_args(argv)
    fewer = args.default_sizes or [size // _DEFAULT_SHARE for size in args.sizes]
    with open_workspace(args.temp_location) as space:

        def log(size: int) -> Log:
            return space.log("parquet", size, args.files)

        programs = [
            Program("labeldp_default", fewer, log, space.privatize_by_default, wider=True),
            Program("labeldp", args.sizes, log, space.privatize),
            Program("arrow_loop", args.sizes, log, space.bare_loop),
        ]
        measured = compare(space, programs, args.rounds)
    default, labeldp, loop = (measured[program.name] for program in programs)
    print_result(
        "parquet",
        {
            "default_cost_per_record_over_arrow_loop": ratio(default, loop),
            "default_cpu_per_record_over_arrow_loop": cpu_ratio(default, loop),
            "default_cpu_per_record_over_no_center": cpu_ratio(default, labeldp),
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
