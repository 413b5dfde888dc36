"""The whole job from one million to ten million records: memory that stays flat, time that grows in proportion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from layout import FORMATS
from race import Rival, parser, race, result
from workspace import Log, Workspace, open_workspace

_SIZES = (1_000_000, 2_000_000, 5_000_000, 10_000_000)
FLAT = 1.2
LINEAR = 0.99


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the job at each size and prints the JSON line."""
    flags = parser(__doc__, _SIZES, rounds=1)
    flags.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS), help="default both")
    args = flags.parse_args(argv)
    with open_workspace(args.temp_location) as space:
        formats = {format: _grow(space, format, args.sizes, args.rounds) for format in args.formats}
    result(
        "memory",
        {
            "flat": all(facts["largest_over_smallest_peak"] <= FLAT for facts in formats.values()),
            "linear": all(facts["r_squared"] >= LINEAR for facts in formats.values()),
            "peak_bytes": max(peak for facts in formats.values() for peak in facts["peak_bytes"]),
            "formats": formats,
        },
    )


def _grow(space: Workspace, format: str, sizes: Sequence[int], rounds: int) -> dict[str, Any]:
    def log(size: int) -> Log:
        return space.log(format, size)

    facts = race(space, [Rival(f"labeldp on {format}", sizes, log, space.privatize)], rounds)[f"labeldp on {format}"]
    for size in sizes:
        log(size).delete()
    return {**facts, "largest_over_smallest_peak": max(facts["peak_bytes"]) / min(facts["peak_bytes"])}


if __name__ == "__main__":
    main()
