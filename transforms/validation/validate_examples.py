"""Statistics of examples, and their anomalies against a schema.

The only module that imports tensorflow_data_validation (TFDV), of the extra `validation`, when a pipeline validates.

TFDV computes exact statistics, which are not private. Therefore the raw label is removed from the batches before TFDV
sees them, and from a schema before the comparison, so that no count, histogram or anomaly depends on it. Features are
public under label DP, and a privatized label may be summarized like any other column.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.options.pipeline_options import SetupOptions
from apache_beam.pvalue import PCollection

from ..arrow_values import all_values, float_values
from ..batches import LabelledBatch
from ..errors import InputError, redact_errors
from ..shown_transform import ShownTransform
from .tensorflow_libraries import import_quietly, parse_schema, to_text, without_features

# TFDV before 1.21 imports this module for slices by SQL queries, which are not used here; tfx-bsl 1.21 has none.
sys.modules.setdefault("tfx_bsl.arrow.sql_util", types.ModuleType("tfx_bsl.arrow.sql_util"))


@dataclass(frozen=True)
class Validation:
    """Result of a validation.

    Attributes:
      statistics: A serialized DatasetFeatureStatisticsList.
      schema: A text proto of Schema, without the raw label.
      anomalies: A text proto of Anomalies.
    """

    statistics: bytes
    schema: str
    anomalies: str


@dataclass
class ValidateExamples(ShownTransform):
    """Compares examples with a schema, given or inferred from them.

    Takes a PCollection of LabelledBatch; gives exactly one Validation.

    Attributes:
      raw_labels: Columns that must not be read; none where the batches have none, as after PrivatizeLabels.
      schema: A text proto of tensorflow_metadata's Schema; None infers one.
      single_precision: Whether floats are rounded to float32 first, as in tf.Example.
    """

    raw_labels: Sequence[str]
    schema: str | None = None
    single_precision: bool = False

    def __post_init__(self) -> None:
        """Removes the raw labels from the schema. Raises ValueError if the schema is not a text proto of Schema."""
        if self.schema is not None:
            self.schema = without_features(self.schema, self.raw_labels)

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[Validation]:
        # Workers on clusters import this module before they unpickle stages of TFDV and so import TFDV.
        setup = batches.pipeline.options.view_as(SetupOptions)
        setup.beam_plugins = sorted({*(setup.beam_plugins or ()), __name__})
        return (
            batches
            | "Columns"
            >> beam.ParDo(_Columns(self.raw_labels, self.single_precision)).with_output_types(pa.RecordBatch)
            | "Statistics" >> _tfdv().GenerateStatistics()
            | "Compare" >> beam.Map(_compare, self.schema).with_output_types(Validation)
        )


def _tfdv() -> ModuleType:
    return import_quietly("tensorflow_data_validation")


class _Columns(beam.DoFn):
    """Converts batches for TFDV: large lists of int64, floats or bytes, without the raw labels."""

    def __init__(self, raw_labels: Sequence[str], single_precision: bool):
        self._raw_labels = raw_labels
        self._single_precision = single_precision

    @redact_errors("validating")
    def process(self, batch: LabelledBatch) -> Iterator[pa.RecordBatch]:
        names = [name for name in batch.batch.schema.names if name not in self._raw_labels]
        columns = [self._lists(name, batch) for name in names]
        if batch.batch.num_rows:
            # A batch without columns has no length, so it gets a column of nulls.
            yield pa.RecordBatch.from_arrays(columns or [pa.nulls(batch.batch.num_rows)], names or [""])

    def _lists(self, name: str, batch: LabelledBatch) -> pa.Array:
        column = batch.batch.column(batch.batch.schema.get_field_index(name))
        if pa.types.is_null(column.type):
            return column
        values, counts, present = all_values(column)
        offsets = pa.array(np.append(0, np.cumsum(counts)), pa.int64())
        mask = None if present.all() else pa.array(~present)
        return pa.LargeListArray.from_arrays(offsets, self._values(name, batch, values), mask=mask)

    def _values(self, name: str, batch: LabelledBatch, values: pa.Array) -> pa.Array:
        kind = values.type
        try:
            if pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind):
                return values.cast(pa.int64())
            if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
                floats = float_values(values)
                with np.errstate(over="ignore"):
                    return pa.array(floats.astype(np.float32) if self._single_precision else floats)
            if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
                values = values.cast(pa.large_string())
            return values.cast(pa.large_binary())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InputError(
                f"{batch.source}: column {name!r} holds {kind}, which cannot be validated: "
                "cast it to int64, a float or text first, or leave it out"
            ) from None


def _compare(statistics: Any, schema: str | None) -> Validation:
    for dataset in statistics.datasets:
        # Workers give features in any order.
        dataset.features.sort(key=lambda feature: tuple(feature.path.step) or (feature.name,))
    expected = _tfdv().infer_schema(statistics) if schema is None else parse_schema(schema)
    anomalies = _tfdv().validate_statistics(statistics, expected)
    return Validation(statistics.SerializeToString(), to_text(expected), to_text(anomalies))
