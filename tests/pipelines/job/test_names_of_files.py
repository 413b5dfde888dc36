"""Names and metadata of an input file mean nothing to the job, whatever the job or its libraries call things inside."""

import builtins
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import translations

ROWS = 400


class Planted:
    """Leaves a trace when it is unpickled."""

    def __reduce__(self):
        return exec, ("import builtins; builtins.labeldp_planted = True",)


@pytest.mark.parametrize("unit", [None, "user"])
def test_nothing_of_a_file_is_unpickled_where_every_stage_encodes_batches(
    job, invoke, outputs, tmp_path, monkeypatch, tree, unit
):
    """No stage is fused with another, as on clusters; the release is that of fused stages."""
    planted = pickle.dumps(Planted())
    columns = {"v": [planted] * ROWS, "user": np.arange(ROWS) % 100, "y": np.arange(ROWS) % 5}
    keys = ("labeldp.carried", "labeldp.batch", "carried", "ARROW:extension:metadata")
    table = pa.table(columns)
    fields = [field.with_metadata(dict.fromkeys(keys, planted)) for field in table.schema]
    schema = pa.schema(fields, metadata=dict.fromkeys(keys, planted))
    pq.write_table(table.cast(schema), tmp_path / "in.parquet")
    flags = {"input": tmp_path / "in.parquet", "input_format": "parquet", "unit_column": unit}
    flags["max_records_per_unit"] = None if unit is None else 2
    invoke(job(**flags)).ok()
    fused = tree(outputs / "released" / "data")
    monkeypatch.setattr(translations.Stage, "can_fuse", lambda *_: False)
    invoke(job(**flags, output=outputs / "again")).ok()
    assert tree(outputs / "again" / "data") == fused
    assert not hasattr(builtins, "labeldp_planted")
