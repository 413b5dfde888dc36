"""Reads Parquet files in a process of its own, which is started again if a file kills it. Run as a script, it reads."""

import atexit
import functools
import json
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

_SECONDS = 50.0


class ParquetProcess:
    """A process that reads one Parquet file after the other."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    @functools.cache
    def shared() -> "ParquetProcess":
        """The one reader of this process.

        Returns:
          The reader.
        """
        process = ParquetProcess()
        atexit.register(process.close)
        return process

    def accepts(self, content: bytes) -> bool:
        """Reads a file.

        Args:
          content: The file.

        Returns:
          True if it was read, False if it was refused by an InputError.

        Raises:
          AssertionError: At any other outcome: another exception, other records than pyarrow's own, a crash, a hang.
        """
        if self._process is None:
            script = str(Path(__file__))
            self._process = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process: Any = self._process
        try:
            process.stdin.write(len(content).to_bytes(8, "little") + content)
            process.stdin.flush()
            ready = select.select([process.stdout], [], [], _SECONDS)[0]
            answer = process.stdout.readline() if ready else None
        except BrokenPipeError:
            answer = b""
        if not answer:
            self.close()
            raise AssertionError("hangs" if answer is None else f"the reader died with exit code {process.returncode}")
        outcome = json.loads(answer)
        assert outcome["kind"] != "failed", outcome["text"]
        return outcome["kind"] == "read"

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            process, self._process = self._process, None
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _serve() -> None:
    import tempfile

    from harness import memory_limit
    from labeldp.transforms import InputError

    with tempfile.NamedTemporaryFile(suffix=".parquet") as file, memory_limit(2 << 30):
        while size := sys.stdin.buffer.read(8):
            content = sys.stdin.buffer.read(int.from_bytes(size, "little"))
            file.seek(0)
            file.truncate()
            file.write(content)
            file.flush()
            outcome = {"kind": "read", "text": ""}
            try:
                _read(file.name)
            except InputError as error:
                bad = "31337" in str(error) or not str(error).isprintable()
                outcome = {"kind": "failed" if bad else "refused", "text": str(error)}
            except BaseException as error:
                outcome = {"kind": "failed", "text": f"{type(error).__name__}: {error}"}
            print(json.dumps(outcome), flush=True)


def _read(path: str) -> None:
    """Reads a file in parts, as a job does, and compares the labels with pyarrow's own reading of the whole file."""
    import numpy as np
    import pyarrow.parquet as pq
    from labeldp.transforms import Format
    from labeldp.transforms.batches import label_values
    from labeldp.transforms.io.input_format import FilePart
    from labeldp.transforms.readers.file_reader import FileReader
    from labeldp.transforms.readers.parquet_reader import split_parquet

    whole = FilePart(path, path)
    batches = [
        batch for part in split_parquet(whole) for batch in FileReader(Format("parquet"), label_column="y").read(part)
    ]
    labels = [label_values(batch, "y") for batch in batches]
    again = [label_values(batch, "y") for batch in FileReader(Format("parquet"), ["y"], label_column="y").read(whole)]
    rows = pq.ParquetFile(path).metadata.num_rows
    assert np.array_equal(np.concatenate([[], *labels]), np.concatenate([[], *again]), equal_nan=True), "other labels"
    assert sum(map(len, labels)) == rows, f"{sum(map(len, labels))} records, the metadata has {rows}"


if __name__ == "__main__":
    _serve()
