"""Beam's type checks at run time hold in every graph of the project, and public transforms have type hints."""

import typing
from pathlib import Path
from typing import Any

import apache_beam as beam
import labeldp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from labeldp.templates.beam_yaml import LabelDP

CHECKS = ["--runtime_type_check", "--performance_runtime_type_check"]
RELEASES: dict[str, dict[str, Any]] = {
    "tfrecord": {"center": "none", "output_format": "tfrecord"},
    "ids": {"center": "cells", "id_column": "id"},
    "units": {"unit_column": "unit", "max_records_per_unit": 2, "for_": None, "mechanism": "rr"},
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
def test_files_are_released_under_type_checks(
    release: dict[str, Any], check: str, rows: list[beam.Row], key: str, tmp_path: Path
) -> None:
    pq.write_table(pa.Table.from_pylist([row.as_dict() for row in rows]), tmp_path / "log.parquet")
    arguments: dict[str, Any] = {
        "label": "y", "label_min": 0, "label_max": 4, "label_step": 1, "epsilon": 8.0, "for_": "log_features",
    }  # fmt: skip
    with beam.Pipeline("FnApiRunner", options=PipelineOptions([check])) as pipeline:
        arguments |= {"noise_key_file": key, **release}
        _ = pipeline | labeldp.PrivatizeFiles(tmp_path / "log.parquet", tmp_path / "out", **arguments)
    assert (tmp_path / "out" / "release.json").exists()


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("unit", [{}, {"unit_column": "unit", "max_records_per_unit": 2}], ids=["records", "units"])
def test_rows_are_released_under_type_checks(
    unit: dict[str, Any], check: str, rows: list[beam.Row], label_dp: dict[str, Any]
) -> None:
    with beam.Pipeline("FnApiRunner", options=PipelineOptions([check])) as pipeline:
        _ = pipeline | beam.Create(rows) | LabelDP(**label_dp, **unit)


def test_public_transforms_have_type_hints() -> None:
    public = [getattr(labeldp.transforms, name) for name in labeldp.transforms.__all__]
    transforms = [each for each in public if isinstance(each, type) and issubclass(each, beam.PTransform)]
    assert len(transforms) > 10
    for transform in [*transforms, labeldp.PrivatizeFiles, LabelDP]:
        hints = typing.get_type_hints(transform.expand)
        assert len(hints) == 2, transform


def test_outputs_of_a_stage_have_their_own_types(key: str) -> None:
    column = labeldp.LabelColumn("y", (0.0, 1.0))
    batches: Any = beam.Pipeline() | beam.Create([], reshuffle=False).with_output_types(labeldp.LabelledBatch)
    prior = batches | labeldp.NoisyPrior(column, 1.0, labeldp.NoiseKeyFile(key))
    randomizer = prior | labeldp.SolveRandomizer("rr")
    private: Any = batches | labeldp.PrivatizeLabels(randomizer, prior, column, labeldp.NoiseKeyFile(key))
    assert private.batches.element_type is labeldp.LabelledBatch
    assert private.dead_letters.element_type is labeldp.DeadLetter
