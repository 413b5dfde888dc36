"""Models of `release.fit`: they learn, keep the center inside, are chosen by released labels, and say what they do."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from labeldp import LabelPrivatizer
from labeldp.pipelines.errors import UsageError
from labeldp.training import Release

pytestmark = pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")
RECORDS, KEY = 6000, bytes(range(32))


def made(curved: bool, **parameters: Any) -> tuple[pd.DataFrame, np.ndarray, Release]:
    """A released frame with label and center, the true labels, and the release."""
    rng = np.random.default_rng(1)
    x, kind = rng.uniform(-2, 2, (RECORDS, 2)), rng.choice(["a", "b", "c"], RECORDS)
    signal = np.where(np.abs(x[:, 0]) < 1, 6.0, -2.0) if curved else 4 * x[:, 0]
    truth = np.clip(np.rint(10 + signal + 2 * (kind == "b") + rng.normal(0, 1, RECORDS)), 0, 20)
    frame = pd.DataFrame({"x": x[:, 0], "other": x[:, 1], "kind": kind})
    domain: dict[str, Any] = {
        "label_min": 0,
        "label_max": 20,
        "label_step": 1,
        "epsilon": 3,
        "label": "y",
        "center_column": "y_center",
    }
    privatizer = LabelPrivatizer(**(domain | parameters), noise_key=KEY, ledger="ledger.jsonl")
    frame["y"] = privatizer.fit_transform(truth, features=frame)
    if privatizer.center_ is not None:
        frame["y_center"] = privatizer.center_
    return frame, truth, Release.from_privatizer(privatizer)


@pytest.fixture(autouse=True)
def folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize("mechanism", ["unbiased", "bias_limited"])
def test_regressor_predicts_what_it_says_it_explains(curved: bool, mechanism: str) -> None:
    frame, truth, release = made(curved, mechanism=mechanism)
    model = release.fit(frame)
    assert model.around_center_
    features = frame.drop(columns=["y", "y_center"])
    predictions = model.predict(features)
    explained = 1 - np.mean((predictions - truth) ** 2) / truth.var()
    center = 1 - np.mean((release.predict_center(features) - truth) ** 2) / truth.var()
    assert explained > (max(center, 0.75) if curved else center - 0.01)
    assert abs(model.explained_.value - explained) < 3 * model.explained_.standard_error + 0.02
    assert model.explained_.value <= 1
    assert "around the center: explains" in model.line_ or "the center alone: explains" in model.line_
    # The same arguments give the same model, which may be stored; labels given by themselves are those of the frame.
    # Ids say nothing, and new records need none.
    again = release.fit(features.assign(id=np.arange(RECORDS)), frame["y"], frame["y_center"])
    np.testing.assert_array_equal(again.predict(features), predictions)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(features), predictions)
    assert predictions.min() >= 0
    assert predictions.max() <= 20


def test_center_alone_where_nothing_is_left_to_learn() -> None:
    """Noise decides between models that all explain the same: none is much worse than the center."""
    frame, truth, release = made(False, epsilon=1)
    missed = np.mean((release.predict_center(frame) - truth) ** 2)
    for model in (release.trees(frame), release.fit(frame, kinds=["ridge"])):
        assert np.mean((model.predict(frame) - truth) ** 2) < 1.1 * missed


def test_models_that_noise_hides_from_each_other_share_the_weight() -> None:
    """The best of all has nearly all weight if noise is small; if it is large, kinds and center have equal ones."""
    from labeldp.training.release_models import _weights

    rng = np.random.default_rng(3)
    truth = rng.normal(size=(2000, 2))
    models = {"ridge": [0.5 * truth, 0.9 * truth], "trees": [0.0 * truth, truth, -truth]}
    everything = np.ones(len(truth), bool)
    sure = _weights(models, truth + 0.1 * rng.normal(size=truth.shape), everything)
    assert list(sure) == ["trees"]
    np.testing.assert_allclose(sure["trees"], [0, 1, 0], atol=1e-3)
    unsure = _weights(models, truth + 1000 * rng.normal(size=truth.shape), everything)
    np.testing.assert_allclose(unsure["ridge"], 1 / 6, atol=0.02)
    np.testing.assert_allclose(unsure["trees"], 1 / 9, atol=0.02)


def test_a_share_is_at_most_all() -> None:
    from labeldp.mechanisms.analysis.explained import EstimatedLabels
    from labeldp.mechanisms.center.residuals import Moment
    from labeldp.training.feature_matrix import stated_share

    labels = np.arange(100.0)
    found = stated_share(EstimatedLabels(labels, 0.0, Moment(400.0, 1.0), bias=2.0), labels, labels)
    assert found is not None
    assert found.value == 1
    assert found.standard_error > 2 * labels.std() / 400
    assert stated_share(EstimatedLabels(labels, 0.0, Moment(400.0, 200.0)), labels, labels) is None


def test_the_center_is_not_rounded_for_recipients() -> None:
    frame, _, release = made(False)
    unrounded = release.predict_center(frame[["kind", "other", "x"]])
    np.testing.assert_array_equal(np.rint(unrounded), frame["y_center"])
    assert np.any(unrounded != frame["y_center"])


def test_features_without_those_of_the_center_start_from_the_mean() -> None:
    frame, truth, release = made(True)
    features = frame[["x"]].to_numpy()
    model = release.fit(features, frame["y"], frame["y_center"])
    assert not model.around_center_
    assert 1 - np.mean((model.predict(features) - truth) ** 2) / truth.var() > 0.5
    with pytest.raises(ValueError, match="x0"):
        model.predict(frame[["x"]])


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_other_libraries_of_trees(library: str) -> None:
    pytest.importorskip(library)
    frame, truth, release = made(True)
    model = release.trees(frame, library=library)
    assert 1 - np.mean((model.predict(frame) - truth) ** 2) / truth.var() > 0.75


@pytest.mark.parametrize("classes", [2, 3])
def test_classifier(classes: int) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(RECORDS, 2))
    truth = np.digitize(x[:, 0] ** 2 + rng.normal(0, 0.3, RECORDS), [0.5, 1.5][: classes - 1]) + 4
    privatizer = LabelPrivatizer(
        label_classes=list(range(4, 4 + classes)), epsilon=2, mechanism="rr", noise_key=KEY, ledger="ledger.jsonl"
    )
    z = privatizer.fit_transform(truth)
    release = Release.from_privatizer(privatizer)
    model: Any = release.fit(x, z)
    chances = model.predict_proba(x)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert chances.min() > 0
    assert model.classes_.tolist() == list(range(4, 4 + classes))
    assert np.mean(model.predict(x) == truth) > 0.75
    indicators = np.eye(classes)[truth - 4]
    explained = 1 - np.mean((chances - indicators) ** 2) / np.mean(indicators.var(axis=0))
    assert abs(model.explained_.value - explained) < 3 * model.explained_.standard_error + 0.03
    stated = release.explained(z=z, predictions=chances)
    assert abs(stated.value - explained) < 3 * stated.standard_error + 0.03


def test_explained_share_of_features_and_of_predictions() -> None:
    frame, truth, release = made(False)
    true = 1 - np.mean((release.predict_center(frame) - truth) ** 2) / truth.var()
    by_ridge = release.explained(frame)
    given = release.explained(z=frame["y"], center=frame["y_center"], predictions=release.predict_center(frame))
    for found in (by_ridge, given):
        assert abs(found.value - true) < 3 * found.standard_error + 0.02


def test_errors_say_what_to_pass() -> None:
    frame, _, release = made(False)
    for arguments, options, message in (
        ((frame[["x"]],), {}, "z is missing: pass the released labels, or X with their column 'y'"),
        ((frame[["x"]], frame["y"]), {}, "center is missing"),
        ((frame[:10],), {}, "at least 20"),
        ((frame,), {"kinds": ["forest"]}, "kinds must be some of ridge, kernel, trees"),
        ((frame,), {"library": "catboost"}, "library must be one of sklearn, lightgbm, xgboost"),
        ((frame[["y", "y_center"]],), {}, "X has no column of numbers or texts besides label, center and ids"),
        ((frame.drop(columns="x").assign(x=1.0, other=1.0, kind="a"),), {}, "tells records apart"),
    ):
        with pytest.raises(ValueError, match=message):
            release.fit(*arguments, **options)  # type: ignore[arg-type]


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import labeldp.training.release_models as models

    monkeypatch.setattr(models, "find_spec", lambda name: None)
    frame, _, release = made(False)
    with pytest.raises(UsageError, match="pip install lightgbm"):
        release.trees(frame, library="lightgbm")


def test_a_model_is_trained_where_noise_hides_the_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    frame, _, release = made(False)
    found = release.estimates(frame["y"], frame["y_center"])
    hidden = found._replace(variance=found.variance._replace(value=0.0))
    monkeypatch.setattr(Release, "estimates", lambda self, z, center=None: hidden)
    model = release.fit(frame)
    assert np.isnan(model.explained_.value)
    assert model.line_.endswith("what it explains cannot be told from these records")
    with pytest.raises(ValueError, match="cannot be told"):
        release.explained(frame)
