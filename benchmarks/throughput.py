"""Throughput of `labeldp privatize` on TFRecord, beside a per-element Beam pipeline and a bare loop of C++ codecs.

The baselines are `baselines/per_element_beam.py` and `baselines/codec_loop.py`. The loop is run with two ways of
reading, because the faster one depends on the machine; ratios are to the faster one. `labeldp privatize` reads the log
twice, counts labels, binds its noise to the data, solves, randomizes and writes shards with a manifest. The pipeline
only randomizes, and the loop only copies. Costs per record are slopes of time against size, which leave start-up and
imports out.

The command is run with its defaults, which find a center from the features, and without a center.

The features of a tf.Example come in any order, as C++ writes them. `labeldp privatize` is also run on logs in which
all records have one order, as Python writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from comparison import Measurement, Program, compare, cpu_ratio, parser, ratio
from result_line import print_result
from workspace import Log, open_workspace

_SIZES = (2_000_000, 4_000_000, 8_000_000, 12_000_000)
# The others are slower a record, and their times lie on a line with fewer.
_LOOP_SHARE, _PER_ELEMENT_SHARE = 4, 40


def main(argv: Sequence[str] | None = None) -> None:
    """Compares the programs and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    flags = parser(__doc__, _SIZES, rounds=2)
    flags.add_argument(
        "--per_element_sizes", type=int, nargs="+", metavar="N",
        help="numbers of records for the per-element pipeline, which is slow "
        f"(default: 1/{_PER_ELEMENT_SHARE} of --sizes)",
    )  # fmt: skip
    flags.add_argument(
        "--default_sizes", type=int, nargs="+", metavar="N",
        help=f"numbers of records for the job with a center (default: 1/{_LOOP_SHARE} of --sizes)",
    )  # fmt: skip
    flags.add_argument("--files", type=int, default=8, metavar="N", help="files of a log (default: 8)")
    args = flags.parse_args(argv)
    fewer = [size // _LOOP_SHARE for size in args.sizes]
    slow = args.per_element_sizes or [size // _PER_ELEMENT_SHARE for size in args.sizes]
    with open_workspace(args.temp_location) as space:

        def log(size: int) -> Log:
            return space.log("tfrecord", size, args.files)

        def log_of_one_order(size: int) -> Log:
            return space.log("tfrecord", size, args.files, order="fixed")

        measured = compare(
            space,
            [
                Program("labeldp_default", args.default_sizes or fewer, log, space.privatize_by_default, wider=True),
                Program("labeldp", args.sizes, log, space.privatize),
                Program("labeldp_one_order", args.sizes, log_of_one_order, space.privatize),
                Program("codec_loop", fewer, log, space.bare_loop),
                Program("codec_loop_parallel", fewer, log, space.bare_loop, ["--parallel"]),
                Program("per_element_beam", slow, log, space.per_element),
            ],
            args.rounds,
        )
    labeldp, per_element, default = (measured[name] for name in ("labeldp", "per_element_beam", "labeldp_default"))
    loops = [measured["codec_loop"], measured["codec_loop_parallel"]]
    print_result(
        "throughput",
        {
            "default_cost_per_record_over_codec_loop": _over_fastest(ratio, default, loops),
            "default_cpu_per_record_over_codec_loop": _over_fastest(cpu_ratio, default, loops),
            "cost_per_record_over_codec_loop": _over_fastest(ratio, labeldp, loops),
            "cpu_per_record_over_codec_loop": _over_fastest(cpu_ratio, labeldp, loops),
            "speedup_over_per_element_beam": ratio(per_element, labeldp),
            "cpu_speedup_over_per_element_beam": cpu_ratio(per_element, labeldp),
            "fixed_seconds": labeldp["fixed_seconds"],
            "r_squared": labeldp["r_squared"],
            "peak_bytes": max(labeldp["peak_bytes"]),
            "programs": measured,
        },
    )


def _over_fastest(
    ratio: Callable[[Measurement, Measurement], float | None], measured: Measurement, baselines: Sequence[Measurement]
) -> float | None:
    """Ratio to the fastest baseline; None if one ratio is unknown, because that baseline may be the fastest."""
    ratios = [ratio(measured, baseline) for baseline in baselines]
    known = [one for one in ratios if one is not None]
    return max(known) if len(known) == len(ratios) else None


if __name__ == "__main__":
    main()
