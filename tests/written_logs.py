"""Logs that tests release: one table in any input format."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq


def write_log(path: Path, table: pa.Table | dict[str, Any], format: str | None = None) -> Path:
    """Writes a table in a format, by default that of the path's ending. A tf.Example lacks the features that are null.

    Returns:
      The path.
    """
    table = table if isinstance(table, pa.Table) else pa.table(table)
    format = format or path.suffix[1:]
    path.parent.mkdir(parents=True, exist_ok=True)
    if format == "tfrecord":
        from labeldp.transforms.tfrecord.example_encoder import encode_examples
        from labeldp.transforms.tfrecord.framing import frame

        batches = table.combine_chunks().to_batches()
        path.write_bytes(frame([each for batch in batches for each in encode_examples(batch, with_nulls=False)]))
    else:
        write = {"csv": pa_csv.write_csv, "parquet": pq.write_table, "orc": pa_orc.write_table}[format]
        write(table, path)
    return path


def write_parts(folder: Path, table: pa.Table, rows: int, formats: Iterable[str], name: str = "log") -> Path:
    """Writes NAME-0.FORMAT, NAME-1.FORMAT, ... of that many records each, the last one of fewer.

    Returns:
      The folder.
    """
    for number, start in enumerate(range(0, len(table), rows)):
        for format in formats:
            write_log(folder / f"{name}-{number}.{format}", table.slice(start, rows))
    return folder
