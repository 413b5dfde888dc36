"""Cost of `labeldp privatize` over S3, beside the same job on disk: for each record, and for each of many small files.

S3 is moto's emulator in a process of its own, on the same machine: its time is part of the wall time of a job, not of
its CPU time, and there is no network. Requests and bytes for each shard do not depend on the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import boto3
from comparison import Runs, cpu_ratio, parser, ratio
from result_line import print_result, progress
from workspace import Log, Workspace, folder_bytes, open_workspace

_SIZES = (1_000_000, 4_000_000, 8_000_000)
_MANY = (100, 500, 1500)
_RECORDS_OF_SMALL_FILE = 20
_BUCKET = "benchmark"
_SIZE_TOLERANCE = 0.05


def main(argv: Sequence[str] | None = None) -> None:
    """Runs both layouts and prints the JSON line.

    Args:
      argv: Arguments; default those of the process.
    """
    flags = parser(__doc__, _SIZES, rounds=2)
    flags.add_argument("--files", type=int, default=24, metavar="N", help="files of a large log (default: 24)")
    flags.add_argument("--small_files", type=int, nargs="+", default=_MANY, metavar="N", help="numbers of small files")
    args = flags.parse_args(argv)
    with open_workspace(args.temp_location) as space, _Store() as store:
        records = _compared(space, store, {size: (size, args.files) for size in args.sizes}, args.rounds)
        small = {files: (files * _RECORDS_OF_SMALL_FILE, files) for files in args.small_files}
        layouts = {"records": records, "small_files": _compared(space, store, small, args.rounds)}
    print_result("stores", {"layouts": layouts})


def _compared(space: Workspace, store: _Store, layout: dict[int, tuple[int, int]], rounds: int) -> dict[str, Any]:
    """Runs the job on disk and over S3, with a shard for each file; sizes are those of the layout's keys."""
    disk, s3, counts = Runs(), Runs(), {}
    for number in range(rounds):
        for size, (records, files) in layout.items():
            log = space.log("tfrecord", records, files)
            flag = f"--num_shards={files}"
            with space.output() as output:
                costs = [space.run(space.privatize(log, output, flag))]
                written = folder_bytes(output, ".tfrecord")
            with store.copied(log) as (source, target):
                # The last flag of a name counts.
                job = [*space.privatize(log, Path("unused"), flag), f"--input={source}", f"--output={target}"]
                store.counts()
                costs.append(space.run(job))
                counts = {name: count / files for name, count in store.counts().items()}
                stored = store.size(f"{target}/data/")
            if not 1 - _SIZE_TOLERANCE <= stored / written <= 1 + _SIZE_TOLERANCE:
                raise RuntimeError(f"the job wrote {stored:,} bytes to the store and {written:,} to the disk")
            for runs, cost in zip((disk, s3), costs, strict=True):
                runs.costs.setdefault(size, []).append(cost)
            progress(
                f"round {number + 1} of {rounds}: {records:,} records in {files} files: "
                + ", ".join(f"{cost.wall_seconds:.2f} s, {cost.cpu_seconds:.2f} s of CPU time" for cost in costs)
                + f" over S3; {counts}"
            )
            if number == rounds - 1:
                log.delete()
    on_disk, on_store = disk.measurement(), s3.measurement()
    return {
        "cost_over_disk": ratio(on_store, on_disk),
        "cpu_over_disk": cpu_ratio(on_store, on_disk),
        # Of the largest size.
        "requests_per_shard": sum(counts.get(method, 0) for method in ("GET", "HEAD", "PUT", "POST", "DELETE")),
        "bytes_read_per_shard": counts.get("bytes_out", 0),
        "bytes_written_per_shard": counts.get("bytes_in", 0),
        "programs": {"disk": on_disk, "s3": on_store},
    }


class _Store:
    """The emulator; as a context manager, the environment names it."""

    def __enter__(self) -> _Store:
        self._until_the_end = contextlib.ExitStack()
        program = str(Path(__file__).with_name("store_server.py"))
        self._server = self._until_the_end.enter_context(
            subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        assert self._server.stdout is not None
        self._url = f"http://127.0.0.1:{int(self._server.stdout.readline())}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        variables = {
            "AWS_ENDPOINT_URL": self._url,
            "AWS_ACCESS_KEY_ID": "benchmark",
            "AWS_SECRET_ACCESS_KEY": "benchmark",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self._until_the_end.enter_context(mock.patch.dict(os.environ, {**kept, **variables}, clear=True))
        self._client = boto3.client("s3")
        self._client.create_bucket(Bucket=_BUCKET)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._until_the_end.close()

    @contextlib.contextmanager
    def copied(self, log: Log) -> Iterator[tuple[str, str]]:
        """Copies a log to the store: gives its glob and a URL for the output; both are deleted afterwards."""
        for path in log.folder.iterdir():
            self._client.upload_file(str(path), _BUCKET, f"in/{path.name}")
        try:
            yield f"s3://{_BUCKET}/in/part-*.{log.format}", f"s3://{_BUCKET}/out/released"
        finally:
            self._objects().delete()

    def counts(self) -> dict[str, int]:
        """Requests for segments and shards, and their bytes, since the last call."""
        with urllib.request.urlopen(f"{self._url}/counts") as answer:
            return json.load(answer)

    def size(self, url: str) -> int:
        """Bytes of all objects below a URL."""
        prefix = url.removeprefix(f"s3://{_BUCKET}/")
        return sum(found.size for found in self._objects().filter(Prefix=prefix))

    def _objects(self) -> Any:
        """All objects, which boto3 declares no type for."""
        resource: Any = boto3.resource("s3")
        return resource.Bucket(_BUCKET).objects


if __name__ == "__main__":
    main()
