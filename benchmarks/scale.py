"""Files and bytes of `labeldp privatize`, by numbers of files and shards.

Counts the segments, and the bytes that are read and written for each byte of input. They follow from the layout, not
from the machine: the second pass reads the input once more, and a shard that is one segment is written once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparison import parser
from log_schema import FORMATS
from result_line import print_result, progress
from workspace import Workspace, folder_bytes, open_workspace

_SIZES = (2_000_000,)
_SMALL = 2_000
# Files, shards and further flags.
LAYOUTS: dict[str, tuple[Any, ...]] = {
    "64_files_64_shards": (64, 64),
    "1_file_64_shards": (1, 64),
    "64_files_8_shards": (64, 8),
    # So small that one worker reads them, unless flags say otherwise.
    "1000_files_8_shards": (1000, 8),
    "1000_files_8_shards_2_workers": (1000, 8, "--direct_num_workers=2"),
}
_PROGRAM = str(Path(__file__).parent / "counted_job.py")


def main(argv: Sequence[str] | None = None) -> None:
    """Counts every layout in every format and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    flags = parser(__doc__, _SIZES, rounds=1)
    flags.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS), help="default: all")
    flags.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS), help="default: all")
    args = flags.parse_args(argv)
    with open_workspace(args.temp_location) as space:
        counts = {
            f"{format} {name} {size}": _count(space, format, size, *LAYOUTS[name])
            for format in args.formats
            for name in args.layouts
            for size in args.sizes
        }
    print_result("scale", {"layouts": counts})


def _count(space: Workspace, format: str, size: int, files: int, shards: int, *flags: str) -> dict[str, Any]:
    log, small = space.log(format, size, files), space.log(format, _SMALL, 1)
    with space.output() as output:
        # Without the first two words, python -m labeldp, and the command.
        job = space.privatize(log, output, f"--num_shards={shards}", *flags)[3:]
        cost = space.run([_PROGRAM, f"--small_input={small.pattern}", *job])
        found = json.loads(cost.output.splitlines()[-1])
        released = folder_bytes(output / "data", f".{format}")
    facts = {
        "segments": found["segments"],
        "files_created": found["files"],
        "read_over_input": found["read"] / log.size,
        "written_over_output": found["written"] / released,
        "cpu_seconds": found["cpu_seconds"],
    }
    progress(f"{format}, {size:,} records, {files} files, {shards} shards {' '.join(flags)}: {facts}")
    log.delete()
    return facts


if __name__ == "__main__":
    main()
