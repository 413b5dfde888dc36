"""Cost of `labeldp privatize` with privacy units, beside the job without them, on clicks of users by Zipf's law.

Both jobs read the same files. With units, the records beyond the bounds of their users are not written, and one more
pass reads the column of users and sends 20 bytes for each record that may be kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from comparison import Program, compare, cpu_ratio, parser, ratio
from log_schema import FORMATS, USER
from result_line import print_result
from workspace import Log, open_workspace

_SIZES = (2_000_000, 5_000_000, 10_000_000, 20_000_000)
BOUND = 5
_UNITS = (f"--unit_column={USER}", f"--max_records_per_unit={BOUND}")


def main(argv: Sequence[str] | None = None) -> None:
    """Compares the jobs in each format and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    flags = parser(__doc__, _SIZES, rounds=1)
    flags.add_argument("--formats", nargs="+", choices=FORMATS, default=["parquet"], help="formats (default: parquet)")
    flags.add_argument("--files", type=int, default=8, metavar="N", help="files of a log (default: 8)")
    args = flags.parse_args(argv)
    formats = {}
    with open_workspace(args.temp_location) as space:
        for format in args.formats:

            def log(size: int, format: str = format) -> Log:
                return space.log(format, size, args.files, columns="clicks")

            def plain(log: Log, output: Path) -> list[str]:
                return space.privatize(log, output)

            programs = [
                Program("labeldp", args.sizes, log, plain),
                Program("labeldp_units", args.sizes, log, plain, _UNITS, whole=False),
            ]
            measured = compare(space, programs, args.rounds)
            for size in args.sizes:
                log(size).delete()
            without, units = (measured[program.name] for program in programs)
            peaks = units["peak_bytes"]
            formats[format] = {
                "cost_per_record_over_no_units": ratio(units, without),
                "cpu_per_record_over_no_units": cpu_ratio(units, without),
                "bytes_per_record": (peaks[-1] - peaks[0]) / (args.sizes[-1] - args.sizes[0]),
                "programs": measured,
            }
    print_result("unit_cost", {"max_records_per_unit": BOUND, "formats": formats})


if __name__ == "__main__":
    main()
