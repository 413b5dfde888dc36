"""Files of a release that a test changes, written as the job writes them: other bytes fail the audit."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from labeldp.transforms.shards.shard_formats import GroupWriter


def write_document(path: Path, document: Any) -> None:
    """Writes a JSON document of a release."""
    path.write_text(json.dumps(document, indent=2 if path.name == "release.json" else None) + "\n")


def write_shard(table: pa.Table, path: Path, compression: str = "none") -> None:
    """Writes a Parquet shard."""
    with path.open("wb") as file, GroupWriter(file, table.schema.remove_metadata(), compression) as writer:
        for batch in table.to_batches():
            writer.write(batch)
