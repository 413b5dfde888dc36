"""Input files that cannot be read to their end: the run names the file and the system's text, and leaves nothing.

A filesystem of Beam's, registered in the command's process, fails in the middle of a file in the second pass.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet
import pytest

pytestmark = pytest.mark.xdist_group("faults")

EIO = "Input/output error"

# A filesystem `faulty://` over local files. The read that goes past the middle of a file fails with EIO, from the
# given number of opened files on. The error's own text must not be shown.
FAULTY = """
import errno, io, itertools, os
from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.localfilesystem import LocalFileSystem

opened = itertools.count(1)


class FaultyFile(io.FileIO):
    def __init__(self, path):
        super().__init__(path)
        self._fails = next(opened) >= {first}
        self._middle = os.path.getsize(path) // 2

    def readinto(self, buffer):
        count = super().readinto(buffer)
        if self._fails and self.tell() > self._middle:
            raise OSError(errno.EIO, "label 48613.71529", "48613.71529")
        return count

    def readall(self):
        return b"".join(iter(lambda: self.read(100), b""))

    def read(self, size=-1):
        if size < 0:
            return self.readall()
        buffer = bytearray(size)
        return bytes(buffer[: self.readinto(buffer)])


class FaultyFileSystem(LocalFileSystem):
    @classmethod
    def scheme(cls):
        return "faulty"

    def exists(self, path):
        return os.path.exists(local(path))

    def metadata(self, path):
        return FileMetadata(path, os.path.getsize(local(path)))

    def open(self, path, mime_type="", compression_type=""):
        return FaultyFile(local(path))


def local(path):
    return path.removeprefix("faulty://")
"""
# The checks before the job and the first pass open a file so many times less one, for its columns and to read it.
SECOND_PASS, NEVER = {"csv": 6, "tfrecord": 6, "parquet": 7}, 1 << 30


@pytest.fixture(scope="session")
def logs(small_log: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same log by format."""
    path = tmp_path_factory.mktemp("read_errors") / "log.parquet"
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(small_log), path)
    return {"csv": small_log, "parquet": path}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_an_error_in_the_middle_of_a_file(
    kind: str, logs: dict[str, Path], fork: Any, job: Any, outputs: Path, tree: Any, spent: Any
) -> None:
    path = f"faulty://{logs[kind]}"
    run = job(input=path, input_format=kind, epsilon_cap=1)
    fork(run, FAULTY.format(first=NEVER))[0].ok()
    undisturbed = tree(outputs / "released"), spent(outputs)
    shutil.rmtree(outputs)
    outputs.mkdir()

    outcome, _ = fork(run, FAULTY.format(first=SECOND_PASS[kind]))
    assert (outcome.code, outcome.error) == (1, f"labeldp privatize: error: {path}: cannot be read: {EIO}")
    assert "solving" in outcome.err
    assert "48613" not in outcome.err
    assert list(outputs.iterdir()) == []

    fork(run, FAULTY.format(first=NEVER))[0].ok()
    assert (tree(outputs / "released"), spent(outputs)) == undisturbed


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="no /proc/self/mem, which the kernel fails to read")
def test_an_error_of_the_kernel(fork: Any, job: Any, outputs: Path) -> None:
    outcome, _ = fork(job(input="/proc/self/mem"))
    assert (outcome.code, outcome.error) == (1, f"labeldp privatize: error: /proc/self/mem: cannot be read: {EIO}")
    assert list(outputs.iterdir()) == []
