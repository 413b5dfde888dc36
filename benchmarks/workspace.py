"""Temporary folder of a benchmark: synthetic logs, a key, a mechanism file and the output of the present run."""

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
from log_schema import CONVERSION_LABEL, EPSILON, ID, LABEL, LABEL_MAX

_SYNTHETIC = Path(__file__).parent / "synthetic.py"
# A record takes about 100 bytes in the log, in a temporary segment and in a shard; the rest is margin.
_BYTES_PER_RECORD = {"synthetic": 400, "conversions": 1500, "clicks": 300, "wide": 6000, "sequence": 6000}


@dataclass(frozen=True)
class Log:
    """Synthetic log on disk.

    Attributes:
      format: tfrecord, parquet or csv.
      records: Number of records.
      folder: Folder with its files and nothing else.
      columns: One of `log_schema.COLUMNS`.
      encoded: Bytes of the same records as TFRecords, if a job is to write these, whatever the format; 0 if not.
    """

    format: str
    records: int
    folder: Path
    columns: str = "synthetic"
    encoded: int = 0

    @property
    def output_format(self) -> str:
        """Format of a job's output: the same, where the job can write it, unless it is encoded."""
        if self.encoded:
            return "tfrecord"
        return "parquet" if self.format == "csv" else self.format

    @property
    def pattern(self) -> str:
        """Glob pattern of its files."""
        return str(self.folder / f"part-*.{self.format}")

    @property
    def size(self) -> int:
        """Size of all files, in bytes."""
        return sum(path.stat().st_size for path in self.folder.iterdir())

    def delete(self) -> None:
        """Deletes the files."""
        shutil.rmtree(self.folder)


class Workspace:
    """Files of a benchmark. Made by `open_workspace`."""

    def __init__(self, folder: Path):
        """Sets up an empty folder.

        Args:
          folder: The folder.
        """
        self.folder = folder
        self.key = folder / "noise.key"
        # The labels are synthetic. A fixed key makes runs comparable: the same noise every time.
        self.key.touch(0o600)
        self.key.write_bytes(bytes(range(32)))
        temporary = folder / "tmp"
        temporary.mkdir()
        self._environment = {"TMPDIR": str(temporary), "TF_CPP_MIN_LOG_LEVEL": "3"}

    def run(self, arguments: list[str]) -> processes.Cost:
        """Runs Python with temporary files in the workspace.

        Args:
          arguments: Python's arguments.

        Returns:
          The cost.

        Raises:
          RuntimeError: If the program fails.
        """
        # Or the system would write logs and the last output to the disk beside this run.
        os.sync()
        return processes.run_python(arguments, self._environment)

    def log(self, format: str, records: int, files: int = 8, order: str = "mixed", columns: str = "synthetic") -> Log:
        """Returns a log, which is made on first use.

        Args:
          format: tfrecord or parquet; also csv for conversions.
          records: Number of records.
          files: Number of files of equal length.
          order: Order of the features of a tf.Example: mixed or fixed.
          columns: synthetic; clicks: with a user; conversions: the form of the demo's log, with a prediction of the
            label; wide: 40 features, 300 columns of Parquet; or sequence: wide with a sequence of 200 floats.

        Returns:
          The log.

        Raises:
          RuntimeError: If the disk has too little space for the log and the output of a job.
        """
        folder = self.folder / f"log-{columns}-{format}-{records}-{files}-{order}"
        log = Log(format, records, folder, columns)
        if not log.folder.exists():
            free, needed = shutil.disk_usage(self.folder).free, records * _BYTES_PER_RECORD[columns]
            if free < needed:
                raise RuntimeError(
                    f"{records:,} records need {needed / 1e9:.1f} GB of disk space, but {free / 1e9:.1f} GB are free; "
                    "choose another --temp_location or smaller --sizes"
                )
            self.run(
                [
                    str(_SYNTHETIC), f"--output={log.folder}", f"--format={format}", f"--records={records}",
                    f"--files={files}", f"--feature_order={order}", f"--columns={columns}",
                ]
            )  # fmt: skip
        return log

    def prior(self) -> Path:
        """Writes a prior of the logs' labels.

        Returns:
          A CSV file with a label and its weight in each row.
        """
        path = self.folder / "prior.csv"
        path.write_text("".join(f"{label},{math.exp(-label / 100)}\n" for label in range(LABEL_MAX + 1)))
        return path

    def mechanism(self) -> Path:
        """Solves a mechanism for the labels of the logs, on first use.

        Returns:
          The mechanism file.
        """
        path = self.folder / "mechanism.json"
        if not path.exists():
            flags = [f"--prior={self.prior()}", f"--epsilon={EPSILON}", f"--output={path}"]
            self.run(["-m", "labeldp", "solve", *flags])
        return path

    def privatize(self, log: Log, output: Path, *flags: str) -> list[str]:
        """Composes the command line of `labeldp privatize` without a center, unless flags ask for one.

        Args:
          log: The input.
          output: Folder to write.
          flags: Further flags.

        Returns:
          Python's arguments.
        """
        return self.privatize_by_default(log, output, "--mechanism=rr_on_bins", *flags)

    def privatize_by_default(self, log: Log, output: Path, *flags: str) -> list[str]:
        """Composes the command line of `labeldp privatize`, from a log to shards of its format (Parquet for CSV).

        Args:
          log: The input.
          output: Folder to write.
          flags: Further flags.

        Returns:
          Python's arguments.
        """
        return [
            "-m", "labeldp", "privatize", f"--input={log.pattern}", f"--input_format={log.format}",
            f"--output={output}", f"--output_format={log.output_format}",
            f"--label={CONVERSION_LABEL if log.columns == 'conversions' else LABEL}", "--label_min=0",
            f"--label_max={LABEL_MAX}", "--label_step=1", f"--epsilon={EPSILON}", f"--noise_key_file={self.key}",
            *flags,
        ]  # fmt: skip

    def per_element(self, log: Log, output: Path) -> list[str]:
        """Composes the command line of the per-element Beam pipeline.

        Args:
          log: The input, TFRecord.
          output: Folder to write.

        Returns:
          Python's arguments.
        """
        return [
            _baseline("per_element_beam"), f"--input={log.pattern}", f"--output={output}", f"--key_file={self.key}",
            f"--mechanism_file={self.mechanism()}", f"--label={LABEL}", f"--id_column={ID}",
        ]  # fmt: skip

    def bare_loop(self, log: Log, output: Path) -> list[str]:
        """Composes the command line of the loop that only decodes and encodes records.

        Args:
          log: The input.
          output: Folder to write.

        Returns:
          Python's arguments.
        """
        program = _baseline({"tfrecord": "codec_loop", "parquet": "arrow_loop"}[log.format])
        return [program, f"--input={log.pattern}", f"--output={output}"]

    @contextlib.contextmanager
    def output(self) -> Iterator[Path]:
        """Reserves an output folder. Afterwards it is deleted, with all files beside it.

        Yields:
          Its path; the folder does not exist yet.
        """
        parent = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            yield parent / "output"
        finally:
            shutil.rmtree(parent)


def _baseline(name: str) -> str:
    return str(Path(__file__).parent / "baselines" / f"{name}.py")


def folder_bytes(folder: Path, suffix: str) -> int:
    """Adds up the sizes of files.

    Args:
      folder: Folder to search, with all folders below.
      suffix: Ending of the names of the files.

    Returns:
      Their size, in bytes.
    """
    return sum(
        os.path.getsize(os.path.join(root, name))
        for root, _, names in os.walk(folder)
        for name in names
        if name.endswith(suffix)
    )


@contextlib.contextmanager
def open_workspace(parent: str | None = None) -> Iterator[Workspace]:
    """Makes a workspace, which is deleted afterwards.

    Args:
      parent: Folder in which it is made; default the system's folder for temporary files.

    Yields:
      The workspace.
    """
    with tempfile.TemporaryDirectory(prefix="labeldp-benchmark-", dir=parent) as folder:
        yield Workspace(Path(folder))
