"""Cost of `labeldp privatize` over object stores, beside the same job on disk: for each record and each small file.

S3 and Google Cloud Storage are emulators, moto and gcp-storage-emulator, each in a process of its own on the same
machine: their time is part of the wall time of a job, not of its CPU time, and there is no network. Wall times over one
store are therefore not comparable with those over the other. Requests and bytes for each shard do not depend on the
machine. Google's emulator keeps the log and the output in memory: 1.8 GB with 8 million records.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from comparison import Runs, cpu_ratio, parser, ratio
from labeldp.transforms.io.filesystems import store_of
from labeldp.transforms.stores.object_store import ObjectStore
from result_line import print_result, progress
from workspace import Log, Workspace, folder_bytes, open_workspace

# Segments of more than 4 MiB: Google's emulator takes 0.1 seconds to parse an upload of 4 MiB in one request, in which
# smaller ones are sent.
_SIZES = (1_200_000, 4_000_000, 8_000_000)
_MANY = (100, 500, 1500)
_RECORDS_OF_SMALL_FILE = 20
_LAYOUTS = ("records", "small_files")
_BUCKET = "benchmark"
_SIZE_TOLERANCE = 0.05
_VARIABLES = {
    "s3": {
        "AWS_ENDPOINT_URL": "{url}",
        "AWS_ACCESS_KEY_ID": "benchmark",
        "AWS_SECRET_ACCESS_KEY": "benchmark",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    },
    "gs": {"STORAGE_EMULATOR_HOST": "{url}"},
}


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the layouts and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    flags = parser(__doc__, _SIZES, rounds=2)
    flags.add_argument("--files", type=int, default=24, metavar="N", help="files of a large log (default: 24)")
    flags.add_argument("--small_files", type=int, nargs="+", default=_MANY, metavar="N", help="numbers of small files")
    flags.add_argument("--layouts", nargs="+", choices=_LAYOUTS, default=list(_LAYOUTS), help="default: both")
    flags.add_argument("--stores", nargs="+", choices=_VARIABLES, default=list(_VARIABLES), help="default: both")
    args = flags.parse_args(argv)
    sizes = {
        "records": {size: (size, args.files) for size in args.sizes},
        "small_files": {files: (files * _RECORDS_OF_SMALL_FILE, files) for files in args.small_files},
    }
    with open_workspace(args.temp_location) as space, contextlib.ExitStack() as running:
        stores = {scheme: running.enter_context(_Store(scheme)) for scheme in args.stores}
        layouts = {name: _compared(space, stores, sizes[name], args.rounds) for name in args.layouts}
    print_result("stores", {"layouts": layouts})


def _compared(
    space: Workspace, stores: dict[str, _Store], layout: dict[int, tuple[int, int]], rounds: int
) -> dict[str, Any]:
    """Runs the job on disk and over the stores, with a shard for each file.

    Args:
      space: Folder of the logs and outputs.
      stores: The stores, by scheme.
      layout: Numbers of records and of files, by the size that costs are measured against.
      rounds: Runs of each program at each size.

    Returns:
      The figures of the layout.

    Raises:
      RuntimeError: If a job fails, or the output on a store is not as large as that on disk.
    """
    runs = {program: Runs() for program in ("disk", *stores)}
    counts: dict[str, dict[str, float]] = {}
    for number in range(rounds):
        for size, (records, files) in layout.items():
            log = space.log("tfrecord", records, files)
            flag = f"--num_shards={files}"
            with space.output() as output:
                costs = {"disk": space.run(space.privatize(log, output, flag))}
                written = folder_bytes(output, ".tfrecord")
            for scheme, store in stores.items():
                with store.copied(log) as (source, target):
                    # The last flag of a name counts.
                    job = [*space.privatize(log, Path("unused"), flag), f"--input={source}", f"--output={target}"]
                    store.counts()
                    costs[scheme] = space.run(job)
                    counts[scheme] = {name: count / files for name, count in store.counts().items()}
                    stored = store.size(f"{target}/data/")
                if not 1 - _SIZE_TOLERANCE <= stored / written <= 1 + _SIZE_TOLERANCE:
                    raise RuntimeError(f"the job wrote {stored:,} bytes to {scheme}:// and {written:,} to the disk")
            for program, cost in costs.items():
                runs[program].costs.setdefault(size, []).append(cost)
                progress(
                    f"round {number + 1} of {rounds}: {program}, {records:,} records in {files} files: "
                    f"{cost.wall_seconds:.2f} s, {cost.cpu_seconds:.2f} s of CPU time"
                    + (f"; for each shard {counts[program]}" if program in counts else "")
                )
            if number == rounds - 1:
                log.delete()
    programs = {program: of_program.measurement() for program, of_program in runs.items()}
    return {
        "programs": programs,
        "stores": {
            scheme: {
                "cost_over_disk": ratio(programs[scheme], programs["disk"]),
                "cpu_over_disk": cpu_ratio(programs[scheme], programs["disk"]),
                # Of the largest size.
                "requests_per_shard": counts[scheme].get("requests", 0),
                "bytes_read_per_shard": counts[scheme].get("bytes_out", 0),
                "bytes_written_per_shard": counts[scheme].get("bytes_in", 0),
            }
            for scheme in stores
        },
    }


class _Store:
    """An emulator with a bucket; as a context manager, the environment names it."""

    def __init__(self, scheme: str):
        self._bucket = f"{scheme}://{_BUCKET}/"
        self._scheme = scheme

    def __enter__(self) -> _Store:
        self._until_the_end = contextlib.ExitStack()
        program = str(Path(__file__).with_name("store_server.py"))
        self._server = self._until_the_end.enter_context(
            subprocess.Popen(
                [sys.executable, program, self._scheme, _BUCKET],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert self._server.stdout is not None
        self._url = f"http://127.0.0.1:{int(self._server.stdout.readline())}"
        variables = {name: value.format(url=self._url) for name, value in _VARIABLES[self._scheme].items()}
        # A profile or a session of the user must not join the emulator's credentials.
        prefix = "AWS_" if self._scheme == "s3" else "STORAGE_"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(prefix)}
        self._until_the_end.enter_context(mock.patch.dict(os.environ, {**kept, **variables}, clear=True))
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._until_the_end.close()

    @contextlib.contextmanager
    def copied(self, log: Log) -> Iterator[tuple[str, str]]:
        """Copies a log to the store: gives its glob and a URL for the output; both are deleted afterwards."""
        for path in log.folder.iterdir():
            with path.open("rb") as file, self._client.create(f"{self._bucket}in/{path.name}") as copy:
                shutil.copyfileobj(file, copy)
        try:
            yield f"{self._bucket}in/part-*.{log.format}", f"{self._bucket}out/released"
        finally:
            self._client.delete([found.path for found in self._client.list(self._bucket)])

    def counts(self) -> dict[str, int]:
        """Requests for segments and shards, and their bytes, since the last call."""
        with urllib.request.urlopen(f"{self._url}/counts") as answer:
            return json.load(answer)

    def size(self, prefix: str) -> int:
        """Bytes of all objects below a URL."""
        return sum(found.size for found in self._client.list(prefix))

    @property
    def _client(self) -> ObjectStore:
        return store_of(self._bucket)


if __name__ == "__main__":
    main()
