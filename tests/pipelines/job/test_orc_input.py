"""ORC files by the command line. Their releases are under the laws of `release_cases`."""

import numpy as np
import pyarrow as pa
from pyarrow import orc

ROWS = 40_000


def test_a_dry_run_counts_records_and_init_knows_the_format(job, invoke, tmp_path):
    path = tmp_path / "log.orc"
    orc.write_table(pa.table({"f": np.arange(ROWS) / 7, "y": np.arange(ROWS) % 5}), str(path), stripe_size=1 << 16)
    assert orc.ORCFile(str(path)).nstripes > 1
    outcome = invoke([*job(input=path, input_format="orc"), "--dry_run"]).ok()
    assert f"1 orc file, {ROWS:,} records" in outcome.out
    invoke(["init", str(path), "--output", str(tmp_path / "job.yaml")]).ok()
    assert "input_format: orc" in (tmp_path / "job.yaml").read_text()
    assert "is an ORC file: give --input_format orc" in invoke(job(input=path)).error
