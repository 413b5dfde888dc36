"""Logs that tests release: one table in any input format."""

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
