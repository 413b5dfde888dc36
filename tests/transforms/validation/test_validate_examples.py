"""ValidateExamples: the input of TFDV and its findings. TFDV's own functions read the results."""

import datetime
import decimal
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
from labeldp.transforms import LabelledBatch, ValidateExamples, Validation
from labeldp.transforms.validation.tensorflow_libraries import describe_anomalies, parse_schema, parse_statistics

LABEL = "secret column"
LABELS = [123456.5, 234567.5, 345678.5, 456789.5]

Validate = Callable[..., Validation]


@pytest.fixture
def wired(labelled: Any) -> Callable[..., Any]:
    """(batches as columns by name, arguments) -> a function that builds a pipeline with ValidateExamples on them."""

    def wire(*batches: dict[str, Any], **arguments: Any) -> Any:
        elements = [labelled(columns) for columns in batches]

        def build(pipeline: beam.Pipeline) -> dict[str, Any]:
            created: Any = pipeline | beam.Create(elements).with_output_types(LabelledBatch)
            settings: dict[str, Any] = {"raw_labels": [LABEL], **arguments}
            return {"validations": created | ValidateExamples(**settings)}

        return build

    return wire


@pytest.fixture
def validate(run: Any, wired: Any) -> Validate:
    """(batches as columns by name, arguments) -> the one Validation."""

    def compute(*batches: dict[str, Any], **arguments: Any) -> Validation:
        (only,) = run(wired(*batches, **arguments))["validations"]
        return only

    return compute


def features(validation: Validation) -> dict[str, Any]:
    (dataset,) = parse_statistics(validation.statistics).datasets
    return {feature.path.step[0]: feature for feature in dataset.features}


def types(validation: Validation) -> dict[str, str]:
    return {name: str(feature).split("type: ")[1].split("\n")[0] for name, feature in features(validation).items()}


def test_workers_can_import_tfdv(wired: Any) -> None:
    """The plugin, which workers import before they unpickle stages of TFDV, provides what TFDV imports."""
    with beam.Pipeline(options=PipelineOptions([], runner="FnApiRunner", beam_plugins=["json"])) as pipeline:
        wired({"f": [1.0]})(pipeline)
        plugins = pipeline.options.view_as(SetupOptions).beam_plugins

    assert "json" in plugins
    script = "".join(f"import {plugin}\n" for plugin in plugins) + "from tfx_bsl.arrow import sql_util"
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)


def test_nothing_of_the_raw_label_is_in_it(validate: Validate) -> None:
    batch = {"f": [1.0, 2.0, 3.0, None], LABEL: LABELS}
    schema = (
        f'feature {{ name: "f" type: FLOAT }} feature {{ name: "{LABEL}" type: BYTES presence {{ min_count: 9 }} }}'
    )

    for given in (None, schema):
        found = validate(batch, schema=given)
        assert list(features(found)) == ["f"]
        assert [feature.name for feature in parse_schema(found.schema).feature] == ["f"]
        assert not describe_anomalies(found.anomalies)
        for text in (found.statistics, found.schema.encode(), found.anomalies.encode()):
            assert LABEL.encode() not in text
            for label in LABELS:
                assert np.float64(label).tobytes() not in text
                assert str(label).encode() not in text


def test_it_is_the_same_whatever_the_labels_are(validate: Validate) -> None:
    one, other = ({"f": ["a", "b", "a", None], LABEL: labels} for labels in (LABELS, [None, 0.0, 0.0, float("nan")]))

    assert validate(one) == validate(other)


def test_statistics_are_those_of_the_columns(validate: Validate) -> None:
    batches = [{"n": [1, 2, 3], "t": ["x", None, "y"]}, {"n": [10, None, 0], "t": ["x", "x", None]}]
    found = features(validate(*batches))

    assert found["n"].num_stats.common_stats.num_non_missing == 5
    assert found["n"].num_stats.common_stats.num_missing == 1
    assert (found["n"].num_stats.min, found["n"].num_stats.max) == (0, 10)
    assert found["n"].num_stats.mean == pytest.approx(16 / 5)
    assert found["t"].string_stats.unique == 2
    assert found["t"].string_stats.top_values[0].value == "x"
    assert found["t"].string_stats.top_values[0].frequency == 3


COLUMNS: dict[str, tuple[pa.Array, str]] = {
    "int8": (pa.array([1, None, 3], pa.int8()), "INT"),
    "uint64": (pa.array([1, 2, 3], pa.uint64()), "INT"),
    "bool": (pa.array([True, None, False]), "INT"),
    "float32": (pa.array([1.5, 2.5, None], pa.float32()), "FLOAT"),
    "float64": (pa.array([1.5, 2.5, None]), "FLOAT"),
    "decimal": (pa.array([decimal.Decimal("1.25"), None, None]), "FLOAT"),
    "text": (pa.array(["a", None, "c"]), "STRING"),
    "large text": (pa.array(["a", None, "c"], pa.large_string()), "STRING"),
    "bytes": (pa.array([b"\xff", None, b""]), "STRING"),
    "date": (pa.array([datetime.date(2020, 1, 1), None, None]), "STRING"),
    "time": (pa.array([datetime.datetime(2020, 1, 1, 12), None, None]), "STRING"),
    "dictionary": (pa.array(["a", "b", "a"]).dictionary_encode(), "STRING"),
    "list": (pa.array([[1, 2], [], None]), "INT"),
    "large list": (pa.array([["a"], None, []], pa.large_list(pa.string())), "STRING"),
    "list of floats": (pa.array([[1.5], [2.5, 3.5], [0.5]], pa.list_(pa.float32())), "FLOAT"),
    "nothing": (pa.nulls(3), "STRING"),
}


def test_columns_of_any_type_are_seen_whole(validate: Validate) -> None:
    batch = {name: column for name, (column, _) in COLUMNS.items()}
    found = validate(batch, batch)

    # TFDV omits the value 0, which is its first type, INT.
    assert {name: kind for name, kind in types(found).items() if kind in ("FLOAT", "STRING")} == {
        name: kind for name, (_, kind) in COLUMNS.items() if kind != "INT"
    }
    for name, (column, kind) in COLUMNS.items():
        feature = features(found)[name]
        common = (feature.string_stats if kind == "STRING" else feature.num_stats).common_stats
        assert common.num_non_missing == 2 * (len(column) - column.null_count), name
        values = column.flatten() if "list" in name else column.drop_null()
        assert common.tot_num_values == 2 * len(values), name


def test_slices_are_not_their_parents(validate: Validate) -> None:
    whole = pa.RecordBatch.from_pydict({"f": pa.array([[1], None, [2, 3], [4]]), "g": ["a", "b", None, "d"]})
    sliced = whole.slice(1, 2)
    found = features(validate({"f": sliced.column(0), "g": sliced.column(1)}))

    assert (found["f"].num_stats.min, found["f"].num_stats.max) == (2, 3)
    assert found["f"].num_stats.common_stats.num_non_missing == 1
    assert [top.value for top in found["g"].string_stats.top_values] == ["b"]


def test_floats_as_tf_example_holds_them(validate: Validate) -> None:
    exactly, rounded = (
        features(validate({"f": [0.1, 2.0**24 + 1]}, single_precision=single))["f"].num_stats
        for single in (False, True)
    )

    assert exactly.min == 0.1
    assert rounded.min == float(np.float32(0.1))
    assert (exactly.max, rounded.max) == (2.0**24 + 1, 2.0**24)


F, G = 'feature { name: "f" type: INT %s }', 'feature { name: "g" type: BYTES %s }'


@pytest.mark.parametrize(
    ("schema", "feature", "words"),
    [
        ('feature { name: "f" type: BYTES }' + G % "", "f", "Expected data of type: BYTES"),
        (F % "", "g", "New column"),
        (F % "" + G % "" + 'feature { name: "h" type: INT presence { min_count: 1 } }', "h", "Column dropped"),
        (F % "int_domain { max: 2 }" + G % "", "f", "Out-of-range"),
        (F % "" + G % 'domain: "d"' + 'string_domain { name: "d" value: "a" }', "g", "Unexpected string values"),
        (F % "presence { min_fraction: 1 }" + G % "", "f", "fewer examples"),
    ],
)
def test_what_is_against_the_schema_is_found(validate: Validate, schema: str, feature: str, words: str) -> None:
    found = validate({"f": [1, 2, None, 3], "g": ["a", "b", "a", "a"], LABEL: LABELS}, schema=schema)

    (line,) = describe_anomalies(found.anomalies)
    assert line.startswith(f"feature {feature}: ")
    assert words in line


@pytest.mark.parametrize(
    ("column", "words"),
    [(pa.array([{"a": 1}]), "struct"), (pa.array([2**64 - 1], pa.uint64()), "uint64"), (pa.array([[[1]]]), "list")],
)
def test_what_has_no_statistics_is_named(failure: Any, wired: Any, column: pa.Array, words: str) -> None:
    text = failure(wired({"x": column}))

    assert re.search(rf"InputError: /logs/a: column 'x' holds .*{words}.*, which cannot be validated: cast it", text)


def test_a_schema_that_is_none() -> None:
    with pytest.raises(ValueError, match="not a Schema as a text proto"):
        ValidateExamples([LABEL], "feature: [")
