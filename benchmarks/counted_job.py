"""Runs `labeldp` in this process and counts the files it creates and the bytes it reads and writes.

A first run on a small log loads all libraries, whose files would be counted otherwise. Linux only: /proc/self/io.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from labeldp.pipelines.cli.commands import main as labeldp

_created: list[str] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str) and arguments[2] & os.O_CREAT:
        _created.append(arguments[0])


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the job twice and prints the counts of the second run as one JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small_input", required=True, help="glob of the log of the first run")
    parser.add_argument("--input", required=True, help="glob of the log of the counted run")
    parser.add_argument("--output", required=True, help="output of the counted run; its folder is the first run's, too")
    args, flags = parser.parse_known_args(argv)
    folder = os.path.dirname(args.output)
    sys.addaudithook(_hook)
    _run(["privatize", f"--input={args.small_input}", f"--output={folder}/small", *flags])
    _created.clear()
    before, started = _counts(), time.process_time()
    _run(["privatize", f"--input={args.input}", f"--output={args.output}", *flags])
    seconds = time.process_time() - started
    read, written = (after - earlier for after, earlier in zip(_counts(), before, strict=True))
    created = [path for path in _created if path.startswith(folder)]
    segments = sum("/segments/" in path for path in created)
    print(
        json.dumps(
            {"files": len(created), "segments": segments, "read": read, "written": written, "cpu_seconds": seconds}
        )
    )


def _run(argv: list[str]) -> None:
    with contextlib.redirect_stdout(sys.stderr):
        if labeldp(argv):
            raise RuntimeError("the job failed")


def _counts() -> tuple[int, int]:
    """Bytes that this process has read and written, from pipes and the page cache, too."""
    with open("/proc/self/io", encoding="ascii") as file:
        found = dict(line.split(": ") for line in file.read().splitlines())
    return int(found["rchar"]), int(found["wchar"])


if __name__ == "__main__":
    main()
