"""Display data of the public transforms: facts of the request, and neither the key nor where it or the data lies."""

import base64
from pathlib import Path
from typing import Any

import apache_beam as beam
import labeldp.transforms
import numpy as np
import pytest
from apache_beam.transforms.display import DisplayData
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.core.budget import BudgetSplit
from labeldp.transforms import Format, LabelColumn, NoiseKeyFile, UnitBound

from tests.commands import write_key

SECRET = b"marked secret key of 32 octets.."
MARK = "marked"
COLUMN = LabelColumn("weeks", (0.0, 1.0, 2.0, 3.0), "id", unit=UnitBound("user", 2))
OF_COLUMN = {"label": "weeks", "domain": "0 to 3, 4 labels", "rounding": "nearest", "id_column": "id", "unit": "user"}
PUBLIC = {
    name: value
    for name in labeldp.transforms.__all__
    if isinstance(value := getattr(labeldp.transforms, name), type) and issubclass(value, beam.PTransform)
}


def cases(folder: Path) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """By transform: its arguments, with a key and paths of a marked name, and its display data."""
    path, key = str(folder / MARK), NoiseKeyFile(str(folder / MARK / "key"))
    column, shards = {"column": COLUMN, "key": key}, {"directory": path, "temp_directory": path, "num_shards": 3}
    written = {"num_shards": 3, "compression": "none"}
    randomizer = solve("rr", Prior(np.array(COLUMN.domain), np.ones(4)), 1.0)
    return {
        "BatchesToRows": ({"fields": {"f": int}, "private": "weeks"}, {"private": "weeks"}),
        "BindNoise": (
            {**column, "budget": BudgetSplit(0.25, 0.75)},
            {**OF_COLUMN, "prior_epsilon": 0.25, "label_epsilon": 0.75},
        ),
        "BoundUnits": (column, OF_COLUMN),
        "BoundUnitsById": (column, OF_COLUMN),
        "CountRows": ({}, {}),
        "CountUniqueIds": ({"id_column": "id"}, {"id_column": "id"}),
        "CountUnits": ({"column": "weeks", "unit": "user", "key": key}, {"label": "weeks", "unit": "user"}),
        "DivideRows": ({"num_shards": 3}, {"num_shards": 3}),
        "LeaveOut": ({"exclusions": None, "unit": COLUMN.unit}, {"unit": "user"}),
        "NoisyPrior": (
            {**column, "epsilon": 1.5, "mechanism": "rr"},
            {**OF_COLUMN, "epsilon": 1.5, "mechanism": "rr"},
        ),
        "PrivatizeLabels": (
            {**column, "randomizer": randomizer, "binding": None},
            {**OF_COLUMN, "mechanism": "rr"},
        ),
        "ReadRecordBatches": (
            {"pattern": path, "format": Format("csv"), "label_column": "weeks", "other_labels": ["a", "b"]},
            {"format": "csv", "label_column": "weeks", "other_labels": "a, b"},
        ),
        "ReleaseShards": ({"directory": path, "digest": None}, {}),
        "RowsToBatches": ({"id_column": "id"}, {"id_column": "id"}),
        "SolveRandomizer": ({"mechanism": "rr", "earlier": [MARK]}, {"mechanism": "rr"}),
        "ValidateExamples": ({"raw_labels": ["weeks"]}, {"raw_labels": "weeks"}),
        "WriteParquet": (shards, written),
        "WriteTFRecords": (shards, written),
    }


@pytest.mark.parametrize("name", PUBLIC)
def test_it_has_facts_of_the_request_and_no_key(tmp_path: Path, name: str) -> None:
    (tmp_path / MARK).mkdir()
    write_key(tmp_path / MARK / "key", SECRET)
    arguments, expected = cases(tmp_path)[name]
    items = DisplayData.create_from(PUBLIC[name](**arguments)).items
    assert {item.key: item.value for item in items} == expected
    shown = str([item.get_dict() for item in items])
    for spelling in (MARK, SECRET.hex(), base64.b64encode(SECRET).decode()):
        assert spelling not in shown
