"""Throughput of `labeldp privatize` on wide records, beside the bare loops: 40 features, and 300 columns of Parquet.

The records are as in logs of ads: 13 integers, 26 hashed texts and a float label, about 735 bytes as a tf.Example. They
are measured with the features of each record in an order of its own, as C++ writes them; in one order, as Python does;
and with a sequence of 200 floats in each record. The command is run with its defaults, which find a center from the
features, and without a center.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from comparison import Program, compare, cpu_ratio, parser, ratio
from result_line import print_result
from workspace import Log, Workspace, open_workspace

# The job takes a fifth of the loop's time a record: fewer records would tell little about its slope.
_SIZES = (400_000, 1_200_000, 2_400_000)
_LOOP_SHARE = 4


@dataclass(frozen=True)
class Layout:
    """Log of wide records.

    Attributes:
      format: tfrecord or parquet.
      columns: wide or sequence.
      order: Order of the features of a tf.Example: mixed or fixed.
      share: The job runs on this share of the sizes, the loop on a fourth of it.
    """

    format: str
    columns: str
    order: str = "fixed"
    share: float = 1.0


LAYOUTS = {
    "any_order": Layout("tfrecord", "wide", "mixed"),
    "one_order": Layout("tfrecord", "wide"),
    "sequence": Layout("tfrecord", "sequence", share=0.5),
    "parquet": Layout("parquet", "wide", share=0.25),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Runs every layout and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    flags = parser(__doc__, _SIZES, rounds=1)
    flags.add_argument(
        "--default_sizes", type=int, nargs="+", metavar="N",
        help=f"numbers of records for the job with a center (default: those of the loop, 1/{_LOOP_SHARE} of the job's)",
    )  # fmt: skip
    flags.add_argument("--files", type=int, default=8, metavar="N", help="files of a log (default: 8)")
    flags.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS), help="default: all")
    args = flags.parse_args(argv)
    with open_workspace(args.temp_location) as space:
        layouts = {name: _measured(space, name, args) for name in args.layouts}
    print_result("wide", {"layouts": layouts})


def _measured(space: Workspace, name: str, args: Any) -> dict[str, Any]:
    layout = LAYOUTS[name]

    def log(size: int) -> Log:
        return space.log(layout.format, size, args.files, layout.order, layout.columns)

    sizes = [int(size * layout.share) for size in args.sizes]
    fewer = [size // _LOOP_SHARE for size in sizes]
    default_sizes = args.default_sizes or fewer
    programs = [
        Program(f"{name} labeldp_default", default_sizes, log, space.privatize_by_default, wider=True),
        Program(f"{name} labeldp", sizes, log, space.privatize),
        Program(f"{name} bare_loop", fewer, log, space.bare_loop),
    ]
    measured = compare(space, programs, args.rounds)
    for size in {*sizes, *fewer, *default_sizes}:
        log(size).delete()
    default, labeldp, loop = (measured[program.name] for program in programs)
    return {
        "default_cost_per_record_over_bare_loop": ratio(default, loop),
        "default_cpu_per_record_over_bare_loop": cpu_ratio(default, loop),
        "cost_per_record_over_bare_loop": ratio(labeldp, loop),
        "cpu_per_record_over_bare_loop": cpu_ratio(labeldp, loop),
        "programs": {"labeldp_default": default, "labeldp": labeldp, "bare_loop": loop},
    }


if __name__ == "__main__":
    main()
