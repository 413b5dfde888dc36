"""The whole job on TFRecord files against the usual Beam pipeline and the bare loop of C++ codecs.

The rivals are `rivals/per_element_beam.py` and `rivals/codec_loop.py`; what they do is said there. The loop reads in
two ways; which is faster depends on the machine, and the faster one counts. `labeldp privatize` reads the log twice,
counts, binds its noise to the data, solves, randomizes and writes shards with a manifest; the first rival only
randomizes and the second only copies. Costs per record are slopes of time against size, so that start-up and imports
are in the fixed seconds.

The features of a tf.Example come in any order, as C++ writes them; the job is also run on logs in which all records
have one order, as Python writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from race import Facts, Rival, cpu_ratio, parser, race, ratio, result
from workspace import Log, open_workspace

_SIZES = (600_000, 1_500_000, 3_000_000, 6_000_000)
_PER_ELEMENT_SHARE = 10


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the race and prints its JSON line."""
    flags = parser(__doc__, _SIZES, rounds=3)
    flags.add_argument(
        "--per_element_sizes", type=int, nargs="+", metavar="N",
        help=f"records for the per-element pipeline, which is slow; default 1/{_PER_ELEMENT_SHARE} of --sizes",
    )  # fmt: skip
    flags.add_argument("--files", type=int, default=8, metavar="N", help="files of a log; default 8")
    args = flags.parse_args(argv)
    slow = args.per_element_sizes or [size // _PER_ELEMENT_SHARE for size in args.sizes]
    with open_workspace(args.temp_location) as space:

        def log(size: int) -> Log:
            return space.log("tfrecord", size, args.files)

        def log_of_one_order(size: int) -> Log:
            return space.log("tfrecord", size, args.files, order="fixed")

        facts = race(
            space,
            [
                Rival("labeldp", args.sizes, log, space.privatize),
                Rival("labeldp_one_order", args.sizes, log_of_one_order, space.privatize),
                Rival("codec_loop", args.sizes, log, space.loop),
                Rival("codec_loop_parallel", args.sizes, log, space.loop, ["--parallel"]),
                Rival("per_element_beam", slow, log, space.per_element),
            ],
            args.rounds,
        )
    ours, usual = facts["labeldp"], facts["per_element_beam"]
    loops = [facts["codec_loop"], facts["codec_loop_parallel"]]
    result(
        "throughput",
        {
            "cost_per_record_over_codec_loop": _over_fastest(ratio, ours, loops),
            "cpu_per_record_over_codec_loop": _over_fastest(cpu_ratio, ours, loops),
            "speedup_over_per_element_beam": ratio(usual, ours),
            "cpu_speedup_over_per_element_beam": cpu_ratio(usual, ours),
            "fixed_seconds": ours["fixed_seconds"],
            "r_squared": ours["r_squared"],
            "peak_bytes": max(ours["peak_bytes"]),
            "rivals": facts,
        },
    )


def _over_fastest(ratio: Callable[[Facts, Facts], float | None], ours: Facts, rivals: Sequence[Facts]) -> float | None:
    """The ratio to the best of some rivals; None when that of one is not known, which may be the best."""
    ratios = [ratio(ours, rival) for rival in rivals]
    known = [one for one in ratios if one is not None]
    return max(known) if len(known) == len(ratios) else None


if __name__ == "__main__":
    main()
