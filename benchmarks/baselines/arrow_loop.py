"""Bare loop of pyarrow: copies Parquet files. No Beam, no noise.

pyarrow decodes the columns of a batch in as many threads as there are cores, and encodes in one. Batches, row groups
and compression are those of `labeldp`.
"""

from __future__ import annotations

import argparse
import glob
import os
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

_BATCH_ROWS = 1 << 14
_GROUP_BATCHES = 4


def main(argv: Sequence[str] | None = None) -> None:
    """Copies each input file to a file of the same name.

    Args:
      argv: Arguments; default those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("input", "output"):
        parser.add_argument(f"--{flag}", required=True)
    args = parser.parse_args(argv)
    os.makedirs(args.output)
    for path in sorted(glob.glob(args.input)):
        source = pq.ParquetFile(path)
        target = os.path.join(args.output, os.path.basename(path))
        with pq.ParquetWriter(target, source.schema_arrow, compression="none") as writer:
            group: list[pa.RecordBatch] = []
            for batch in source.iter_batches(batch_size=_BATCH_ROWS):
                group.append(batch)
                if len(group) == _GROUP_BATCHES:
                    writer.write_table(pa.Table.from_batches(group))
                    group = []
            if group:
                writer.write_table(pa.Table.from_batches(group))


if __name__ == "__main__":
    main()
