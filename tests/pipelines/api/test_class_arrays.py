"""Classes in memory: every kind of column comes back in its own kind and type, and requests in memory are checked."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from labeldp import LabelPrivatizer, privatize
from labeldp.mechanisms.core.label_classes import LabelClasses
from labeldp.pipelines.api.memory_release import read_classes

pytestmark = pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")

RECORDS = 600
TEXTS = np.random.default_rng(3).choice(["a", "b", "much longer"], RECORDS)
CLICKS = np.random.default_rng(4).random(RECORDS) < 0.4
CLASSES = LabelClasses(("a", "b", "much longer"))


@pytest.fixture
def privatizer(tmp_path):
    """Function (parameter=value, ...) -> a LabelPrivatizer of these tests."""

    def make(**parameters):
        standard: dict[str, Any] = {
            "epsilon": 4.0,
            "noise_key": bytes(32),
            "ledger": tmp_path / "ledger.jsonl",
            "source": "log",
        }
        return LabelPrivatizer(**(standard | {"label_classes": ["a", "b", "much longer"]} | parameters))

    return make


def missing(values):
    changed = np.array(values, object)
    changed[3] = None
    return changed


KINDS = [
    TEXTS,
    TEXTS.astype(object),
    missing(TEXTS),
    TEXTS.tolist(),
    tuple(TEXTS.tolist()),
    TEXTS[:, None],
    pd.Series(TEXTS, index=range(5, RECORDS + 5), name="y"),
    pd.Series(missing(TEXTS)),
    pd.Series(TEXTS, dtype="string"),
    pd.Series(TEXTS, dtype="category"),
    pd.Series(missing(TEXTS), dtype="category"),
    pd.Series(TEXTS, dtype=pd.ArrowDtype(pa.string())),
    pd.DataFrame({"y": TEXTS}),
    pa.array(TEXTS),
    pa.array(missing(TEXTS)),
    pa.chunked_array([TEXTS[:100], TEXTS[100:]]),
    pa.table({"y": TEXTS}),
]


@pytest.mark.parametrize("labels", KINDS, ids=range(len(KINDS)))
def test_texts_keep_their_kind(privatizer, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        released = privatizer(max_unusable_fraction=0.1).fit_transform(labels)
    assert type(released) is type(labels)
    if hasattr(labels, "dtype"):
        assert released.dtype == labels.dtype or labels.dtype.kind == "U"
    if isinstance(labels, pd.Series):
        assert (released.index == labels.index).all()
        assert released.name == labels.name
    found = read_classes(released, CLASSES, "labels").values
    true = read_classes(labels, CLASSES, "labels").values
    np.testing.assert_array_equal(np.isnan(found), np.isnan(true))
    # Of epsilon 4, e^4 / (e^4 + 2) = 0.965 of the labels are kept: 0.93 is five standard deviations below.
    assert np.nanmean(found == true) > 0.93 - np.isnan(true).mean()


@pytest.mark.parametrize(
    ("labels", "classes", "kind"),
    [
        (CLICKS, [False, True], bool),
        (CLICKS, ["false", "true"], bool),
        (CLICKS.astype(np.int8), [0, 1], np.int8),
        (CLICKS.astype(np.float32), [0, 1], np.float32),
        (CLICKS.astype(float), list(np.unique(CLICKS.astype(float))), np.float64),
        (pd.Series(CLICKS), [False, True], bool),
        (pd.Series(CLICKS.astype(int), dtype="Int64"), [0, 1], "Int64"),
        (pd.Series(np.where(np.arange(RECORDS) == 3, np.nan, CLICKS)), [0, 1], np.float64),
    ],
)
def test_numbers_and_booleans_keep_their_type(privatizer, labels, classes, kind):
    released = privatizer(label_classes=classes, max_unusable_fraction=0.1).fit_transform(labels)
    assert released.dtype == kind
    assert type(released) is type(labels)
    assert (np.asarray(pd.isna(released)) == np.asarray(pd.isna(labels))).all()
    assert set(pd.unique(pd.Series(released).dropna())) == {0, 1}


def test_polars(privatizer):
    polars = pytest.importorskip("polars")
    for dtype in (polars.String, polars.Categorical):
        labels = polars.Series("y", TEXTS.tolist()).cast(dtype)
        released = privatizer().fit_transform(labels)
        assert (released.dtype, released.name) == (labels.dtype, "y")
        assert set(released.to_list()) == set(CLASSES.values)


def test_units_leave_labels_missing(privatizer):
    units = {"unit_column": "user", "max_records_per_unit": 1}
    for labels, absent in ((TEXTS, None), (CLICKS.astype(int), None), (CLICKS.astype(float), np.nan)):
        classes = CLASSES.values if labels is TEXTS else [0, 1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            released = privatizer(label_classes=classes, **units).fit_transform(labels, units=np.arange(RECORDS) // 2)
        left_out = [value is None or value != value for value in released.tolist()]
        assert sum(left_out) == RECORDS // 2
        assert absent is not None or released.dtype == object


def test_a_frame_keeps_its_columns(privatizer, tmp_path):
    frame = pd.DataFrame({"x": np.arange(RECORDS), "y": missing(TEXTS)})
    given = {"epsilon": 4.0, "noise_key": bytes(32), "ledger": tmp_path / "l.jsonl", "max_unusable_fraction": 0.1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        released = privatize(frame, label="y", label_classes="a,b,much longer", center="none", **given)
    assert released.frame["x"].tolist() == [x for x in range(RECORDS) if x != 3]
    assert released.frame.dtypes.equals(frame.dtypes)
    assert (released.center, released.records) == (None, RECORDS - 1)
    assert released.privatizer.classes_ == CLASSES
    released.write_mechanism(tmp_path / "m.json")


def test_features_without_a_center(privatizer):
    found = privatizer(center="none").fit(TEXTS, features=pd.DataFrame({"x": np.arange(RECORDS)}))
    assert found.transform(TEXTS).shape == (RECORDS,)
    assert found.center_ is None
    with pytest.raises(ValueError, match="center linear is for labels that are numbers"):
        privatizer(center="linear").fit(TEXTS, features=pd.DataFrame({"x": np.arange(RECORDS)}))


@pytest.mark.parametrize(
    ("labels", "classes", "problem"),
    [
        (CLICKS.astype(int), ["a", "b"], "label column 'labels' holds int64, and the classes of `label_classes`"),
        (TEXTS[:, None].repeat(2, axis=1), ["a", "b"], "labels must be one column, not 2 columns"),
        (TEXTS, ["a"], "label_classes: there must be 2 to 1,000 classes"),
        (TEXTS, [1.5, 2.5], "label_classes must be a file, or a list of texts, integers or booleans"),
        (TEXTS, 7, "label_classes 7 cannot be read"),
    ],
)
def test_errors(privatizer, labels, classes, problem):
    with pytest.raises(ValueError, match=problem):
        privatizer(label_classes=classes).fit_transform(labels)


def test_other_parameters(privatizer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = privatizer(other_class="b", for_="labels").fit(["x"] * 400 + ["a"] * 200)
    assert found.prior_.weights.argmax() == 1
    with pytest.raises(ValueError, match="classes have no numbers to debias"):
        found.debias([1.0])
