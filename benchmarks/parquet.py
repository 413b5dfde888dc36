"""The whole job on Parquet files against the bare loop of pyarrow, `rivals/arrow_loop.py`.

`labeldp privatize` reads the label column first, counts, binds its noise to the data, solves, then reads everything,
randomizes and writes shards with a manifest; the rival only copies. Costs per record are slopes of time against size.
"""

from __future__ import annotations

from collections.abc import Sequence

from race import Rival, cpu_ratio, parser, race, ratio, result
from workspace import Log, open_workspace

_SIZES = (1_000_000, 2_500_000, 5_000_000, 10_000_000)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the race and prints its JSON line."""
    flags = parser(__doc__, _SIZES, rounds=3)
    flags.add_argument("--files", type=int, default=8, metavar="N", help="files of a log; default 8")
    args = flags.parse_args(argv)
    with open_workspace(args.temp_location) as space:

        def log(size: int) -> Log:
            return space.log("parquet", size, args.files)

        facts = race(
            space,
            [Rival("labeldp", args.sizes, log, space.privatize), Rival("arrow_loop", args.sizes, log, space.loop)],
            args.rounds,
        )
    ours, loop = facts["labeldp"], facts["arrow_loop"]
    result(
        "parquet",
        {
            "cost_per_record_over_arrow_loop": ratio(ours, loop),
            "cpu_per_record_over_arrow_loop": cpu_ratio(ours, loop),
            "fixed_seconds": ours["fixed_seconds"],
            "r_squared": ours["r_squared"],
            "peak_bytes": max(ours["peak_bytes"]),
            "rivals": facts,
        },
    )


if __name__ == "__main__":
    main()
