"""Cost of `labeldp privatize` with a center, a column or linear, beside the job without one, on the demo's records.

All jobs read the same files, which hold the prediction as one column among others, and use the same mechanism. The
linear center has all columns as features, so the job decodes them in two more passes and in both of its own. Costs
per record are slopes of time against size. The fixed cost is higher with a center, because the mechanism is solved for
several ranges of residuals; the label step is coarse, so that solving does not depend on the number of records by
more than a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from comparison import Program, compare, cpu_ratio, parser, ratio
from log_schema import PREDICTION
from result_line import print_result
from workspace import Log, open_workspace

_SIZES = (500_000, 1_000_000, 2_000_000)
_FORMATS = ("tfrecord", "parquet", "csv")
MAX_RATIO = 1.5  # of the cost per record with a center, over that without
MAX_GROWTH = 1.2  # of the peak memory with a center, from the smallest to the largest size
# The last --label_step counts.
_FLAGS = ("--label_step=8", "--mechanism=unbiased")


def main(argv: Sequence[str] | None = None) -> None:
    """Compares the jobs in each format and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    flags = parser(__doc__, _SIZES, rounds=1)
    flags.add_argument(
        "--formats", nargs="+", choices=_FORMATS, default=list(_FORMATS), help="formats of the logs (default: all)"
    )
    flags.add_argument("--files", type=int, default=8, metavar="N", help="files of a log (default: 8)")
    args = flags.parse_args(argv)
    formats = {}
    with open_workspace(args.temp_location) as space:
        for format in args.formats:

            def log(size: int, format: str = format) -> Log:
                return space.log(format, size, args.files, columns="conversions")

            def plain(log: Log, output: Path) -> list[str]:
                return space.privatize(log, output, *_FLAGS)

            programs = [
                Program("labeldp", args.sizes, log, plain),
                Program("labeldp_center", args.sizes, log, plain, [f"--center_column={PREDICTION}"]),
                Program("labeldp_linear", args.sizes, log, plain, ["--center=linear"]),
            ]
            measured = compare(space, programs, args.rounds)
            for size in args.sizes:
                log(size).delete()
            without, centered, linear = (measured[name] for name in ("labeldp", "labeldp_center", "labeldp_linear"))
            peaks = centered["peak_bytes"]
            formats[format] = {
                "cost_per_record_over_no_center": ratio(centered, without),
                "cpu_per_record_over_no_center": cpu_ratio(centered, without),
                "linear_cost_per_record_over_no_center": ratio(linear, without),
                "linear_cpu_per_record_over_no_center": cpu_ratio(linear, without),
                "largest_over_smallest_peak": peaks[-1] / peaks[0],
                "programs": measured,
            }
    print_result("center_cost", {"max_ratio": MAX_RATIO, "max_growth": MAX_GROWTH, "formats": formats})


if __name__ == "__main__":
    main()
