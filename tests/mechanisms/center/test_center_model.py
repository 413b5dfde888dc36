"""center.json as a model: its predictions, documents that are refused, and the documented example."""

import json

import labeldp
import numpy as np
import pytest
from labeldp.mechanisms.center.feature_rows import Categories
from labeldp.mechanisms.center.linear_center import LinearCenter, design_center, moment_sums, noised_sums

from tests.docs.pages import blocks

RECORDS, LABELS = 400, 21


@pytest.fixture(scope="module")
def model():
    random = np.random.default_rng(3)
    ages, codes = random.integers(18, 80, RECORDS).astype(float), random.integers(0, 2, RECORDS)
    columns = {"age": ages, "city": Categories(codes, ("Lima", "Oslo"))}
    design = design_center(columns, 1000, 0.5, 64)
    sums = moment_sums(design.map.rows(columns), (ages / 4).astype(int), LABELS)
    sums = noised_sums(sums, design.map.norm, LABELS, design.epsilon, bytes(32))
    linear = LinearCenter.fit(design, LABELS, sums)
    return labeldp.CenterModel("y_center", tuple(0.5 * i for i in range(LABELS)), linear)


def test_predictions_are_those_of_the_center(model):
    again = labeldp.CenterModel.from_json(json.dumps(model.to_document()))
    assert again.to_document() == model.to_document()
    assert (again.features, again.epsilon) == (("age", "city"), model.linear.epsilon)
    columns = {
        "age": np.array([20.0, 79.0, np.nan, 40.0]),
        "city": Categories(np.array([0, 1, -1, -1]), ("Lima", "Oslo")),
    }
    expected = 0.5 * model.linear.indices(columns)
    assert len(set(expected.tolist())) > 1
    for ages, cities in [
        ([20, 79, None, 40], ["Lima", b"Oslo", None, "Rome"]),
        (columns["age"], np.array(["Lima", "Oslo", None, float("nan")], object)),
    ]:
        np.testing.assert_array_equal(again.predict({"age": ages, "city": cities, "more": [0] * 4}), expected)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"age": [1]}, "needs a column 'city'"),
        ({"age": [1], "city": ["a", "b"]}, "all of one length"),
        ({"age": ["1"], "city": ["a"]}, "takes column 'age' as numbers, but it has text"),
        ({"age": [[]], "city": ["a"]}, "takes column 'age' as numbers, but it has other values"),
    ],
)
def test_columns_that_do_not_fit(model, columns, message):
    with pytest.raises(ValueError, match=message):
        model.predict(columns)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "format is not one of labeldp-center-1"),
        ({"domain": [0.0, 1.0, 5.0]}, "evenly spaced"),
        ({"domain": [0.0, 1.0]}, "another number of labels"),
    ],
)
def test_documents_that_are_refused(model, change, message):
    with pytest.raises(ValueError, match=message):
        labeldp.CenterModel.from_json(json.dumps(model.to_document() | change))


def test_changed_coefficients_are_refused(model):
    document = model.to_document()
    document["linear"]["coefficients"][1] += 1
    with pytest.raises(ValueError, match="do not follow from its sums"):
        labeldp.CenterModel.from_json(json.dumps(document))


def test_the_documented_example(model, tmp_path, monkeypatch):
    (tmp_path / "released").mkdir()
    (tmp_path / "released" / "center.json").write_text(json.dumps(model.to_document()))
    monkeypatch.chdir(tmp_path)
    examples = [block.text for block in blocks("docs/mechanisms/center.md", kind="python")]
    (example,) = [text for text in examples if "CenterModel" in text]
    names = {}
    exec(example, names)
    columns = {"age": np.array([31.0, np.nan]), "city": Categories(np.array([1, 0]), ("Lima", "Oslo"))}
    np.testing.assert_array_equal(names["center_of_new_records"], 0.5 * model.linear.indices(columns))
