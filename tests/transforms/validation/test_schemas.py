"""Schemas, statistics and anomalies as text and bytes."""

import numpy as np
import pytest
from labeldp.transforms.validation.tensorflow_libraries import (
    describe_anomalies,
    parse_schema,
    parse_statistics,
    to_text,
    with_privatized_label,
    without_features,
)

SCHEMA = """
feature { name: "f" type: INT }
feature { name: "y" type: INT int_domain { min: 3 } }
sparse_feature { name: "y" }
weighted_feature { name: "w" }
"""


def test_a_feature_is_taken_out_in_all_its_forms() -> None:
    left = parse_schema(without_features(SCHEMA, ["y"]))

    assert [feature.name for feature in left.feature] == ["f"]
    assert list(left.sparse_feature) == []
    assert [feature.name for feature in left.weighted_feature] == ["w"]
    assert without_features(SCHEMA, []) == to_text(parse_schema(SCHEMA))


def test_the_privatized_label_is_a_float_in_the_range_of_the_outputs() -> None:
    outputs = np.array([-0.1, 7.3])
    *_, label = parse_schema(with_privatized_label(without_features(SCHEMA, ["y"]), "y", outputs)).feature

    assert label.name == "y"
    assert label.presence.min_fraction == 1
    assert label.shape.dim[0].size == 1
    # Labels are float64 in Parquet and float32 in TFRecords.
    for values in (outputs, outputs.astype(np.float32).astype(np.float64)):
        assert label.float_domain.min < values[0]
        assert values[1] < label.float_domain.max
    assert label.float_domain.max - label.float_domain.min == pytest.approx(7.4, rel=1e-6)
    assert "privatized" in label.annotation.comment[0]


@pytest.mark.parametrize("parse", [parse_schema, describe_anomalies])
def test_what_is_no_text_proto_is_refused_with_its_place(parse) -> None:
    with pytest.raises(ValueError, match=r"as a text proto, at line and column 2:1"):
        parse("\nnonsense")


def test_what_is_no_statistics_is_refused() -> None:
    with pytest.raises(ValueError, match="not a DatasetFeatureStatisticsList"):
        parse_statistics(b"\xff\xff")
    assert len(parse_statistics(b"").datasets) == 0
