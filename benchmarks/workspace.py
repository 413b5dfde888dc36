"""A temporary folder for a run of a benchmark: its logs, made once, a key, a mechanism, and the outputs in turn."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import processes
from layout import EPSILON, ID, LABEL, LABEL_MAX

_SYNTHETIC = Path(__file__).parent / "synthetic.py"
# Generous: a record of the log, of a segment and of a shard takes about 100 bytes each.
_BYTES_PER_RECORD = 400


@dataclass(frozen=True)
class Log:
    """A log on disk. pattern: matches its files. size: of all of them, in bytes."""

    format: str
    records: int
    folder: Path

    @property
    def pattern(self) -> str:
        return str(self.folder / f"part-*.{self.format}")

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.folder.iterdir())

    def delete(self) -> None:
        """Frees the disk."""
        shutil.rmtree(self.folder)


class Workspace:
    """Where a benchmark keeps its files. Use `open_workspace`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.key = folder / "noise.key"
        # A fixed key for made-up labels: the same run gives the same noise.
        self.key.touch(0o600)
        self.key.write_bytes(bytes(range(32)))
        temporary = folder / "tmp"
        temporary.mkdir()
        self._environment = {"TMPDIR": str(temporary), "TF_CPP_MIN_LOG_LEVEL": "3"}

    def run(self, arguments: list[str]) -> processes.Cost:
        """`processes.run_python` with temporary files in the workspace."""
        return processes.run_python(arguments, self._environment)

    def log(self, format: str, records: int, files: int = 8, order: str = "mixed") -> Log:
        """A log of that many records; made when it is asked for the first time.

        Raises RuntimeError when the disk has no room for it and what jobs make of it.
        """
        log = Log(format, records, self.folder / f"log-{format}-{records}-{files}-{order}")
        if not log.folder.exists():
            free, needed = shutil.disk_usage(self.folder).free, records * _BYTES_PER_RECORD
            if free < needed:
                raise RuntimeError(
                    f"{records:,} records need {needed / 1e9:.1f} GB of disk, {free / 1e9:.1f} GB are free: "
                    "name another folder with --temp_location, or smaller --sizes"
                )
            self.run(
                [
                    str(_SYNTHETIC), f"--output={log.folder}", f"--format={format}", f"--records={records}",
                    f"--files={files}", f"--feature_order={order}",
                ]
            )  # fmt: skip
        return log

    def prior(self) -> Path:
        """A file with a prior of the logs' labels, a weight for each."""
        path = self.folder / "prior.csv"
        path.write_text("".join(f"{label},{math.exp(-label / 100)}\n" for label in range(LABEL_MAX + 1)))
        return path

    def mechanism(self) -> Path:
        """A mechanism file for the labels of the logs."""
        path = self.folder / "mechanism.json"
        if not path.exists():
            flags = [f"--prior={self.prior()}", f"--epsilon={EPSILON}", f"--output={path}"]
            self.run(["-m", "labeldp", "solve", *flags])
        return path

    def privatize(self, log: Log, output: Path, *flags: str) -> list[str]:
        """Python's arguments for the whole job: `labeldp privatize` from a log to shards of its format."""
        return [
            "-m", "labeldp", "privatize", f"--input={log.pattern}", f"--input_format={log.format}",
            f"--output={output}", f"--output_format={log.format}", f"--label={LABEL}", "--label_min=0",
            f"--label_max={LABEL_MAX}", "--label_step=1", f"--epsilon={EPSILON}", f"--noise_key_file={self.key}",
            *flags,
        ]  # fmt: skip

    def per_element(self, log: Log, output: Path) -> list[str]:
        """Python's arguments for the usual Beam pipeline."""
        return [
            _rival("per_element_beam"), f"--input={log.pattern}", f"--output={output}", f"--key_file={self.key}",
            f"--mechanism_file={self.mechanism()}", f"--label={LABEL}", f"--id_column={ID}",
        ]  # fmt: skip

    def loop(self, log: Log, output: Path) -> list[str]:
        """Python's arguments for the bare loop of the log's format."""
        rival = _rival({"tfrecord": "codec_loop", "parquet": "arrow_loop"}[log.format])
        return [rival, f"--input={log.pattern}", f"--output={output}"]

    @contextlib.contextmanager
    def output(self) -> Iterator[Path]:
        """The name of a new folder; it is deleted afterwards, with what was written beside it."""
        parent = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            yield parent / "output"
        finally:
            shutil.rmtree(parent)


def _rival(name: str) -> str:
    return str(Path(__file__).parent / "rivals" / f"{name}.py")


def folder_bytes(folder: Path, suffix: str) -> int:
    """The bytes of all files below that end so."""
    return sum(
        os.path.getsize(os.path.join(root, name))
        for root, _, names in os.walk(folder)
        for name in names
        if name.endswith(suffix)
    )


@contextlib.contextmanager
def open_workspace(parent: str | None = None) -> Iterator[Workspace]:
    """A workspace below parent, by default where the system keeps temporary files; nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="labeldp-benchmark-", dir=parent) as folder:
        yield Workspace(Path(folder))
