"""Throughput of `labeldp privatize` from CSV and Parquet to TFRecord, beside the bare loop of C++ codecs on TFRecords.

The records have the form of the demo's log: numbers and categories of conversions. The loop decodes and encodes the
same records; the job parses or reads them, encodes all features, and replaces the label.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial

from comparison import Program, compare, cpu_ratio, parser, ratio
from result_line import print_result
from workspace import Log, open_workspace

_SIZES = (100_000, 200_000, 400_000, 800_000)
FORMATS = ("csv", "parquet")


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the job on every format, and the loop, and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    flags = parser(__doc__, _SIZES, rounds=2)
    flags.add_argument("--files", type=int, default=8, metavar="N", help="files of a log (default: 8)")
    args = flags.parse_args(argv)
    with open_workspace(args.temp_location) as space:

        def log(format: str, size: int) -> Log:
            records = space.log("tfrecord", size, args.files, columns="conversions")
            if format == "tfrecord":
                return records
            made = space.log(format, size, args.files, columns="conversions")
            return dataclasses.replace(made, encoded=records.size)

        programs = [Program(name, args.sizes, partial(log, name), space.privatize) for name in FORMATS]
        programs.append(Program("codec_loop", args.sizes, partial(log, "tfrecord"), space.bare_loop))
        measured = compare(space, programs, args.rounds)
    loop = measured["codec_loop"]
    print_result(
        "encoding",
        {
            "ratios": {
                name: {
                    "cost_per_record_over_bare_loop": ratio(measured[name], loop),
                    "cpu_per_record_over_bare_loop": cpu_ratio(measured[name], loop),
                }
                for name in FORMATS
            },
            "programs": measured,
        },
    )


if __name__ == "__main__":
    main()
