"""LabelPrivatizer: charges, columns of every kind, scikit-learn's conventions, no Beam."""

import copy
import datetime
import itertools
import json
import os
import pickle
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import labeldp
import numpy as np
import pyarrow as pa
import pytest
from labeldp import LabelPrivatizer, NotFittedError, ReleaseWarning
from labeldp.mechanisms.registry import MECHANISMS

from tests.false_alarms import share_bound

pytestmark = pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")
ROWS = 400
# Values between grid points and outside of the domain; the numbers in a file are those of the array.
LABELS = np.round(np.random.default_rng(5).gamma(1.5, 1.1, ROWS), 2) - 0.3


ON_GRID = np.clip(np.round(2 * LABELS) / 2, 0, 4)


def with_gaps(labels: np.ndarray) -> np.ndarray:
    """Every 37th label is missing."""
    return np.where(np.arange(len(labels)) % 37 == 5, np.nan, labels)


def request(**more: Any) -> dict[str, Any]:
    return {"label_min": 0, "label_max": 4, "label_step": 0.5, "epsilon": 2, "max_unusable_fraction": 0.5, **more}


GUESSES = np.round(np.clip(LABELS + np.random.default_rng(6).normal(0, 0.7, ROWS), 0, 4), 3)
IDS = [f"user {(i * 7919) % 100_003}" for i in range(ROWS)]
# Some have many records, and every 50th record has none.
USERS = ["" if row % 50 == 7 else f"u{row % 90 if row % 3 else 0}" for row in range(ROWS)]


def charges(ledger: Path) -> list[Any]:
    return [[line["command"], line["charges"]] for line in map(json.loads, ledger.read_text().splitlines())]


@pytest.fixture
def privatizer(tmp_path: Path, secret: bytes) -> Callable[..., LabelPrivatizer]:
    """Function (parameters) -> a LabelPrivatizer with the key of the tests and a ledger of its own."""
    standard: dict[str, Any] = {
        "label": "y", "source": "labels", "noise_key": secret, "ledger": tmp_path / "ledger.jsonl"
    }  # fmt: skip
    return lambda **parameters: LabelPrivatizer(**{**standard, **request(), **parameters})


def drawn_independently(outputs: Sequence[np.ndarray], fitted: Sequence[Any]) -> bool:
    """Tells whether as many of two releases of ON_GRID differ as if they were drawn independently.

    Noise of fresh sources differs between runs, so the share has a bound; it is far from 0.
    """
    one, other = (
        each.mechanism_.randomizer.probabilities()[np.searchsorted(each.mechanism_.randomizer.labels, ON_GRID)]
        for each in fitted
    )
    points, others = (each.mechanism_.randomizer.outputs for each in fitted)
    differ = 1 - np.einsum("ni,nj,ij->n", one, other, points[:, None] == others)
    bound = share_bound(differ)
    assert differ.mean() > bound
    return bool(abs(np.mean(outputs[0] != outputs[1]) - differ.mean()) < bound)


def test_labels_beyond_the_bound_of_their_unit_are_missing(privatizer: Any) -> None:
    bounded = privatizer(unit_column="user", max_records_per_unit=2)
    with pytest.raises(ValueError, match="units and unit_column belong together"):
        bounded.fit(LABELS)
    with pytest.raises(ValueError, match="there are 3 units for 400 labels"):
        bounded.fit(LABELS, units=["a", "b", "c"])
    released = bounded.fit_transform(LABELS, units=USERS)
    expected = sum(min(USERS.count(user), 2) for user in set(USERS) - {""})
    assert bounded.records_ == expected
    kept = np.isfinite(released)
    assert kept.sum() == expected
    assert not kept[7::50].any()
    # Labels beyond the bound have no effect on anything that is released.
    again = bounded.fit_transform(np.where(kept, LABELS, 3.0), units=USERS)
    np.testing.assert_array_equal(again, released)
    with pytest.raises(ValueError, match="are not those of fit: fit again"):
        bounded.set_params(max_records_per_unit=3).transform(LABELS, units=USERS)


def spent(ledger: Path) -> float:
    return sum({each["release"]: each["epsilon"] for _, run in charges(ledger) for each in run}.values())


def test_a_repetition_is_the_same_and_free_and_changed_labels_get_fresh_noise(privatizer: Any, tmp_path: Path) -> None:
    ledger, first = tmp_path / "ledger.jsonl", privatizer().fit_transform(LABELS)
    once = spent(ledger)
    assert np.array_equal(privatizer().fit_transform(LABELS.tolist()), first)
    assert spent(ledger) == once <= 2

    changed = LABELS.copy()
    changed[17] += 1
    other = privatizer().fit_transform(changed)
    assert np.mean(other != first) > 0.5
    assert 1.9 * once < spent(ledger) <= 4


def test_without_a_source_every_call_is_a_release_of_its_own(privatizer: Any, tmp_path: Path) -> None:
    """Groups with equal labels, as in groupby().transform: with the same noise, twice epsilon would tell of both."""
    labels, ledger = np.tile([0.0, 0.5, 1.5, 3.5], 1000), tmp_path / "ledger.jsonl"
    made = privatizer(source=None, mechanism="rr", prior_epsilon=0.2)
    first, source = made.fit_transform(labels), made.source_
    once = spent(ledger)
    second = made.fit_transform(labels)

    assert 1.9 * once < spent(ledger) <= 4
    assert made.source_ != source
    assert [json.loads(line)["output"] for line in ledger.read_text().splitlines()] == [
        f"LabelPrivatizer: {name}" for name in (source, made.source_)
    ]
    # Independent: for records with one label, each pair of outputs is as frequent as the product of both.
    assert len(set(first.tolist())) > 2
    for label, one, other in itertools.product(set(labels.tolist()), set(first.tolist()), set(first.tolist())):
        of_one, of_other = (drawn[labels == label] for drawn in (first, second))
        expected = (of_one == one).mean() * (of_other == other).mean()
        bound = share_bound(np.full(len(of_one), expected))
        assert abs(((of_one == one) & (of_other == other)).mean() - expected) < bound
    again = privatizer(source=source, mechanism="rr", prior_epsilon=0.2).fit_transform(labels)
    before = spent(ledger)
    np.testing.assert_array_equal(again, first)
    assert spent(ledger) == before


def test_without_a_source_fit_and_each_transform_are_charged(privatizer: Any, tmp_path: Path) -> None:
    fitted = privatizer(source=None).fit(ON_GRID)
    outputs = [fitted.transform(ON_GRID) for _ in range(2)]
    assert drawn_independently(outputs, [fitted, fitted])
    names = [[charge["release"] for charge in run] for _, run in charges(tmp_path / "ledger.jsonl")]
    # The histogram is one release, each transform another.
    assert names[0] == names[1][:1] == names[2][:1]
    assert len({name for run in names for name in run}) == 3
    assert spent(tmp_path / "ledger.jsonl") <= 2 * 2


def test_with_ids_and_without_a_source_a_call_is_repeated(privatizer: Any, tmp_path: Path) -> None:
    made = privatizer(source=None, id_column="id")
    first = made.fit_transform(LABELS, ids=IDS)
    once = spent(tmp_path / "ledger.jsonl")
    order = np.random.default_rng(1).permutation(ROWS)
    again = made.fit_transform(LABELS[order], ids=[IDS[row] for row in order])
    np.testing.assert_array_equal(again, first[order])
    assert spent(tmp_path / "ledger.jsonl") == once


def test_a_cap_refuses_before_anything_is_released_or_written(privatizer: Any, tmp_path: Path) -> None:
    capped = privatizer(epsilon_cap=3)
    capped.fit_transform(LABELS)
    before = (tmp_path / "ledger.jsonl").read_text()
    with pytest.raises(labeldp.InputError, match=r"^epsilon_cap 3 would be exceeded"):
        capped.fit_transform(LABELS + 1)
    frame = pa.table({"f": np.arange(ROWS) % 7, "y": LABELS + 2})
    with pytest.raises(labeldp.InputError, match=r"^epsilon_cap 3 would be exceeded"):
        labeldp.privatize(frame, **capped.get_params())
    assert (tmp_path / "ledger.jsonl").read_text() == before
    capped.fit_transform(LABELS)


def kinds() -> dict[str, tuple[Any, Any]]:
    """Columns of the same labels, one missing: as given, and as expected for the released labels `out`."""
    pandas: Any = pytest.importorskip("pandas")
    polars: Any = pytest.importorskip("polars")
    whole: list[Any] = [int(label) for label in range(5)] * 40
    gap: list[Any] = [None if row == 3 else label for row, label in enumerate(whole)]
    floats = np.array([np.nan if label is None else label for label in gap])
    index = [f"row {row}" for row in range(200)]
    return {
        "numpy": (floats, lambda out: out),
        "numpy integers": (np.array(whole, np.int16), lambda out: out),
        "numpy objects": (np.array(gap, object), lambda out: out),
        "numpy float32": (floats.astype(np.float32), lambda out: out),
        "masked": (np.ma.MaskedArray(whole, [row == 3 for row in range(200)]), np.ma.masked_invalid),
        "list": (gap, lambda out: [None if np.isnan(x) else x for x in out]),
        "tuple": (tuple(whole), lambda out: tuple(out.tolist())),
        "pandas": (pandas.Series(floats, index, name="y"), lambda out: pandas.Series(out, index, name="y")),
        "pandas objects": (pandas.Series(gap, index, object), lambda out: pandas.Series(out, index)),
        "pandas nullable": (
            pandas.Series(gap, index, "Int64", name="y"), lambda out: pandas.Series(out, index, "Float64", name="y"),
        ),
        "pandas arrow": (
            pandas.Series(gap, index, pandas.ArrowDtype(pa.int32())),
            lambda out: pandas.Series(pa.array(out, from_pandas=True), index, pandas.ArrowDtype(pa.float64())),
        ),
        "polars": (polars.Series("y", gap), lambda out: polars.Series("y", out).fill_nan(None)),
        "arrow": (pa.array(gap), lambda out: pa.array(out, from_pandas=True)),
        "arrow decimals": (pa.array(gap).cast(pa.decimal128(30, 2)), lambda out: pa.array(out, from_pandas=True)),
        "arrow slices": (pa.array([9, *gap]).slice(1), lambda out: pa.array(out, from_pandas=True)),
        "arrow chunks": (
            pa.chunked_array([gap[:7], [], gap[7:]], pa.int64()),
            lambda out: pa.chunked_array([out[:7], [], pa.array(out[7:])], pa.float64()),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("kind", kinds())
def test_the_same_kind_comes_out(privatizer: Any, kind: str) -> None:
    given, expected = kinds()[kind]
    before = copy.deepcopy(given)
    complete = "integers" in kind or kind == "tuple"
    values = np.array([np.nan if not complete and row == 3 else row % 5 for row in range(200)])
    out = privatizer(label_step=1).fit_transform(values)
    assert np.array_equal(np.isnan(out), np.isnan(values))

    found = privatizer(label_step=1).fit_transform(given)

    assert isinstance(found, pa.DoubleArray) if isinstance(given, pa.Array) else type(found) is type(given)
    if kind == "arrow chunks":
        out = [None if np.isnan(x) else x for x in out.tolist()]
    wanted = expected(out)
    if "pandas" in kind:
        assert found.equals(wanted), (found.dtype, wanted.dtype)
        assert found.name == wanted.name
    elif kind in ("list", "tuple") or "arrow" in kind:
        assert found == wanted
        assert getattr(found, "num_chunks", None) == getattr(given, "num_chunks", None)
    elif kind == "polars":
        assert found.equals(wanted, check_names=True)
    else:
        assert found.dtype == np.float64
        assert np.array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(wanted))
        assert np.array_equal(np.ma.filled(found, -1), np.ma.filled(wanted, -1), equal_nan=True)
    assert str(before) == str(given), "the input was changed"


@pytest.mark.parametrize(
    ("kind", "restored"),
    [
        ("numpy", "float64"),
        ("numpy objects", "float64"),
        ("pandas", "float64"),
        ("pandas nullable", "Float64"),
        ("pandas categories", "float64"),
        ("pandas categories of numbers", "float64"),
        ("polars", "Float64"),
        ("arrow", "double"),
        ("arrow dictionary", "double"),
        ("list", None),
    ],
)
def test_booleans_and_categories_are_labels_of_0_and_1(privatizer: Any, kind: str, restored: str | None) -> None:
    pandas: Any = pytest.importorskip("pandas")
    polars: Any = pytest.importorskip("polars")
    truth: list[Any] = [row % 3 == 0 for row in range(ROWS)]
    numbers = [int(each) for each in truth]
    given = {
        "numpy": lambda: np.array(truth),
        "numpy objects": lambda: np.array(truth, object),
        "pandas": lambda: pandas.Series(truth),
        "pandas nullable": lambda: pandas.Series(truth, dtype="boolean"),
        "pandas categories": lambda: pandas.Series(pandas.Categorical(truth)),
        # The codes are not the values.
        "pandas categories of numbers": lambda: pandas.Series(pandas.Categorical(numbers, [7, 1, 0])),
        "polars": lambda: polars.Series(truth),
        "arrow": lambda: pa.array(truth),
        "arrow dictionary": lambda: pa.array(numbers).dictionary_encode(),
        "list": lambda: truth,
    }[kind]()
    released = privatizer(label_max=1).fit_transform(given)
    assert type(released) is type(given) or kind.startswith("arrow")
    assert restored is None or str(getattr(released, "dtype", getattr(released, "type", None))) == restored
    values = np.asarray(released.to_numpy() if hasattr(released, "to_numpy") else released, np.float64)
    np.testing.assert_array_equal(values, privatizer(label_max=1).fit_transform(np.array(numbers, np.float64)))


@pytest.mark.parametrize("column", ["ids", "units"])
def test_whole_floats_are_ids_and_units_of_integers(privatizer: Any, column: str) -> None:
    named = {"ids": {"id_column": "user"}, "units": {"unit_column": "user", "max_records_per_unit": 1}}[column]
    values = np.arange(len(LABELS)) // (1 if column == "ids" else 2)
    found = [
        privatizer(**named).fit_transform(LABELS, **{column: each}) for each in (values, values.astype(np.float64))
    ]
    np.testing.assert_array_equal(*found)
    with pytest.raises(ValueError, match=r"row 1: its (id|unit) is a number that is not whole"):
        privatizer(**named).fit_transform(LABELS, **{column: values + 0.5 * (np.arange(len(LABELS)) == 1)})


@pytest.mark.parametrize("column", ["ids", "units"])
def test_ids_and_units_of_64_bits_without_a_sign(privatizer: Any, column: str) -> None:
    pandas: Any = pytest.importorskip("pandas")
    polars: Any = pytest.importorskip("polars")
    plain = [2**64 - 1 - row for row in range(ROWS)]
    named = {"ids": {"id_column": "user"}, "units": {"unit_column": "user", "max_records_per_unit": 1}}[column]
    released = []
    for given in (
        np.array(plain, np.uint64),
        plain,
        tuple(plain),
        np.array(plain, object),
        pandas.Series(plain),
        pandas.Series(plain, dtype="UInt64"),
        pandas.Series(pandas.Categorical(plain)),
        polars.Series(plain, dtype=polars.UInt64),
        pa.array(plain, pa.uint64()),
    ):
        released.append(privatizer(**named).fit_transform(LABELS, **{column: given}))
    assert all(np.array_equal(released[0], other) for other in released[1:])
    assert np.isfinite(released[0]).all()
    with pytest.raises(ValueError, match=rf"{column} cannot be read as one column of one type \(.* beyond 64 bits"):
        privatizer(**named).fit_transform(LABELS, **{column: [*plain[:-1], 2**64]})


def test_missing_labels_of_every_kind_count_as_the_given_one(privatizer: Any) -> None:
    """The noise is that of the labels with that one in them, so none is missing any more."""
    pandas: Any = pytest.importorskip("pandas")
    gaps = with_gaps(LABELS)
    expected = privatizer(missing_label=0.5).fit_transform(np.where(np.isnan(gaps), 0.5, gaps))
    series, column = pandas.Series(gaps), pa.array(gaps, from_pandas=True)
    for given in (gaps, column, column.to_pylist(), np.ma.masked_invalid(gaps), series, series.astype("Float64")):
        found = privatizer(missing_label=0.5).fit_transform(given)
        assert list(found.to_pylist() if isinstance(found, pa.Array) else found) == expected.tolist()
    fitted = privatizer(missing_label=0.5).fit(series)
    with pytest.raises(ValueError, match="missing_label is not that of fit"):
        fitted.set_params(missing_label=1).transform(series)


def test_infinite_labels_are_missing_labels(privatizer: Any) -> None:
    labels = LABELS.copy()
    labels[[4, 9]] = np.inf, -np.inf
    assert np.flatnonzero(np.isnan(privatizer().fit_transform(labels))).tolist() == [4, 9]


@pytest.mark.parametrize(
    ("labels", "error", "text"),
    [
        (np.zeros((3, 2)), ValueError, "labels must be one column, not 2 columns; features are given as"),
        (np.zeros((3, 1, 1)), ValueError, r"labels must be one-dimensional, not of shape \(3, 1, 1\)"),
        (["31415.926", "271.8281"], ValueError, "labels holds string, not numbers"),
        ([31415.926, "271.8281"], ValueError, r"labels cannot be read as one column of one type \(Arrow\w+\)"),
        ([2**70], ValueError, r"labels cannot be read as one column of one type \(it holds integers beyond 64 bits"),
        ([[[31415.926]]], ValueError, "labels holds list<item: double>, not numbers: write it as a number"),
        ([datetime.timedelta(31415)], ValueError, r"labels holds duration.*: write it as a number, such as its days$"),
        ({31415.926}, TypeError, "labels must be a one-dimensional numpy array, .*, not set"),
        ([], ValueError, "there are no records"),
        ([None, np.nan], ValueError, "no record has a usable label"),
    ],
)
def test_refused_labels_are_not_quoted(privatizer: Any, labels: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        privatizer().fit(labels)
    shown: Any = caught.value
    while shown is not None:
        assert "31415" not in str(shown)
        assert "271.8" not in str(shown)
        shown = shown.__context__


def test_too_many_unusable_labels_and_wrong_companions(privatizer: Any) -> None:
    with pytest.raises(ValueError, match=r"11 of 400 records have no usable label .* max_unusable_fraction 0.001"):
        privatizer(max_unusable_fraction=0.001).fit(with_gaps(LABELS))
    for parameters, given, text in [
        ({}, {"center": GUESSES}, "center and center_column belong together"),
        ({"center_column": "c"}, {}, "center and center_column belong together"),
        ({"center_column": "c"}, {"center": GUESSES[1:]}, "399 centers for 400"),
        ({"center_column": "c"}, {"center": np.full(ROWS, np.nan)}, "no record has a usable center"),
        ({"center_column": "c"}, {"center": ["x"] * ROWS}, "center holds string"),
        ({"id_column": "id"}, {}, "ids and id_column belong together"),
        ({"id_column": "id"}, {"ids": IDS[1:]}, "399 ids for 400"),
        ({"id_column": "id"}, {"ids": [*IDS[1:], IDS[5]]}, "rows 4 and 399 have the same id"),
        ({"id_column": "id"}, {"ids": [None, *IDS[1:]]}, "row 0 has no id"),
        ({"id_column": "id"}, {"ids": [True] * 400}, "ids hold bool"),
    ]:
        with pytest.raises(ValueError, match=text):
            privatizer(**parameters).fit_transform(LABELS, **given)


@pytest.mark.parametrize("scheme", ["postgresql", "postgresq", "POSTGRESQL", "mysql"])
def test_a_password_of_the_ledger_is_neither_shown_nor_pickled(scheme: str, secret: bytes) -> None:
    privatizer = LabelPrivatizer(
        epsilon=1, label_min=0, label_max=4, label_step=1, noise_key=secret, ledger=f"{scheme}://me:hidden@host/db"
    )
    assert "hidden" not in repr(privatizer)
    assert b"hidden" not in pickle.dumps(privatizer)
    if scheme != "postgresql":
        with pytest.raises(labeldp.InputError) as caught:
            privatizer.fit_transform(np.arange(400) % 5)
        assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"label_max": None}, "label domain is missing"),
        ({"mechanism": "rr", "for_": "labels"}, "give for_ or mechanism"),
        ({"for_": "fun"}, "^for_: unknown value 'fun'; known: models, log_features, labels"),
        ({"mechanism": "bias_limited:loss=squared"}, "^mechanism bias_limited: loss: give it as loss"),
        ({"label": 3}, "label must be text"),
        *(({"label": label}, "label must be the name of one column") for label in (["a"], ["a", "b"], "")),
        *(
            ({"features": each}, "features must be a whole number of at least 0")
            for each in (-1, "x", True, 1.5, np.nan)
        ),
        ({"mechanism": "quantizer:outputs=1"}, "^mechanism quantizer: "),
        ({"center_column": "y"}, "^center_column must be another column than label: "),
        ({"max_unusable_fraction": 2}, "max_unusable_fraction must be"),
        ({"epsilon_cap": 0}, "epsilon_cap must be above 0"),
        ({"delta_cap": 1}, "delta_cap must be"),
        ({"noise_key": b"short"}, "noise_key must be 32 bytes"),
        ({"noise_key_file": "k"}, "leave one of them out"),
    ],
)
def test_wrong_parameters_are_named(privatizer: Any, tmp_path: Path, parameters: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        privatizer(**parameters).fit(LABELS)
    assert "--" not in str(caught.value)
    assert not (tmp_path / "ledger.jsonl").exists()


def test_the_key_is_made_once_with_mode_0600_and_kept(privatizer: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    named = tmp_path / "keys" / "mine.key"
    for parameters, path in [({"noise_key_file": named}, named), ({}, tmp_path / "config" / "labeldp" / "noise.key")]:
        first = privatizer(noise_key=None, **parameters).fit_transform(LABELS)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert len(path.read_bytes()) == 32
        assert np.array_equal(privatizer(noise_key=None, **parameters).fit_transform(LABELS), first)
        assert np.array_equal(privatizer(noise_key=path.read_bytes()).fit_transform(LABELS), first)
    named.chmod(0o644)
    with pytest.raises(labeldp.InputError, match="accessible to other users"):
        privatizer(noise_key=None, noise_key_file=named).fit(LABELS)


def test_neither_key_nor_labels_are_in_what_is_shown_or_pickled(privatizer: Any, secret: bytes) -> None:
    sentinel = 3.0517578125
    labels = np.append(LABELS, [sentinel] * 5)
    fitted = privatizer().fit(labels)
    fitted.transform(labels)

    assert "noise_key='...'" in repr(fitted)
    pickled = pickle.dumps(fitted)
    for hidden in (secret, np.float64(sentinel).tobytes(), np.float64(sentinel).byteswap().tobytes()):
        assert hidden not in pickled
        assert repr(hidden)[2:-1] not in repr(fitted)
    restored = pickle.loads(pickled)
    assert restored.randomizer_ == fitted.randomizer_
    with pytest.raises(ValueError, match="no noise_key"):
        restored.transform(labels)
    restored.set_params(noise_key=secret)
    assert np.array_equal(restored.transform(labels), fitted.transform(labels))
    features = {"a": np.append(2 * LABELS, [1.0] * 5)}
    made = privatizer(center="linear").fit(labels, features=features)
    restored = pickle.loads(pickle.dumps(made)).set_params(noise_key=secret)
    assert np.array_equal(restored.transform(labels, features=features), made.transform(labels, features=features))
    assert np.array_equal(restored.predict_center(features), made.center_)


def test_conventions_of_scikit_learn(privatizer: Any) -> None:
    base: Any = pytest.importorskip("sklearn.base")
    validation: Any = pytest.importorskip("sklearn.utils.validation")
    exceptions: Any = pytest.importorskip("sklearn.exceptions")
    made = privatizer(mechanism="rr_on_bins")
    with pytest.raises(NotFittedError, match="call fit or fit_transform first"):
        made.transform(LABELS)
    for attribute in ("randomizer_", "verdict_"):
        assert not hasattr(made, attribute)
    assert made.fit(LABELS) is made
    validation.check_is_fitted(made)
    with pytest.raises(exceptions.NotFittedError):
        validation.check_is_fitted(base.clone(made))
    assert vars(base.clone(made)).keys() == set(made.get_params())
    assert base.clone(made).get_params() == made.get_params()
    with pytest.raises(NotFittedError):
        base.clone(made).debias(LABELS)
    assert made.set_params(epsilon=3).get_params()["epsilon"] == 3
    with pytest.raises(ValueError, match="no parameter 'epsilom'; it has: label, epsilon, label_min"):
        made.set_params(epsilom=1)
    assert issubclass(NotFittedError, (ValueError, AttributeError))


def test_fitted_attributes(privatizer: Any) -> None:
    fitted = privatizer().fit(LABELS)
    assert fitted.records_ == ROWS
    assert fitted.labels_.tolist() == [x / 2 for x in range(9)]
    assert fitted.budget_.total <= 2
    assert fitted.certificate_.epsilon <= fitted.budget_.labels
    assert np.array_equal(fitted.prior_.labels, fitted.labels_)
    assert fitted.randomizer_.mechanism in MECHANISMS
    assert fitted.verdict_.line
    assert "--" not in fitted.verdict_.line


def _called_for(made: Any) -> list[str]:
    """Texts of the warnings that call for an act: that a single label says little is no mistake."""
    texts = [warning.text for warning in made.warnings_ if warning.name not in ("label_error", "wide_residuals")]
    assert texts
    return texts


def test_warnings_are_of_an_own_category(privatizer: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = privatizer(mechanism="unbiased", epsilon=0.1, features=50).fit(LABELS)
    assert {each.category for each in caught} == {ReleaseWarning}
    assert [str(each.message) for each in caught] == _called_for(fitted)
    assert {"label_error", "few_records"} <= {warning.name for warning in fitted.warnings_}
    assert all("--" not in str(each.message) for each in caught)
    assert {Path(each.filename).name for each in caught} == {Path(__file__).name}


def test_warnings_as_errors_do_not_take_the_place_of_what_is_charged(privatizer: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        made = privatizer(mechanism="unbiased", epsilon=0.1, features=50)
        released = made.fit_transform(LABELS)
    assert len(released) == ROWS
    assert made.warnings_
    assert [str(each.message) for each in caught] == _called_for(made)


@pytest.mark.parametrize("center", [False, True])
def test_debiasing_makes_averages_right(privatizer: Any, center: bool) -> None:
    labels = np.tile(np.array([0.5, 1, 1, 1.5, 3]), 20_000)
    around: dict[str, Any] = {"center": np.tile([1.0, 1.5, 2.0, 1.0, 3.0], 20_000)} if center else {}
    parameters: dict[str, Any] = {"center_column": "guess"} if center else {}
    made = privatizer(mechanism="rr_on_bins", epsilon=1, **parameters)
    released = made.fit_transform(labels, **around)
    debiased = made.debias(released, **around)
    # The line is that of the noised histogram, so the mean over that distribution is right, up to the noise.
    noise = debiased.std() / len(labels) ** 0.5
    assert abs(debiased.mean() - labels.mean()) < 6 * noise + 0.02
    unbiased = privatizer(mechanism="unbiased").fit(labels)
    assert unbiased.debias([1.5, None, 2.0]) == [1.5, None, 2.0]


def test_the_report_is_that_of_the_command(privatizer: Any, tmp_path: Path, invoke: Any) -> None:
    made = privatizer(source="weekly log", mechanism="rr_on_bins").fit(LABELS)
    made.report(tmp_path / "fit.html")
    made.write_mechanism(tmp_path / "weekly log")
    command = ["report", str(tmp_path / "weekly log"), f"--ledger={tmp_path / 'ledger.jsonl'}"]
    invoke([*command, f"--output={tmp_path / 'command.html'}"]).ok()
    # In memory the title says how many labels of which name.
    page = (tmp_path / "fit.html").read_text().replace(f"for weekly log: {ROWS} labels of y", "weekly log")
    assert page == (tmp_path / "command.html").read_text()
    assert "PASS" in invoke(["audit", str(tmp_path / "weekly log")]).ok().out

    made.transform(LABELS)
    made.report(tmp_path / "applied.html")
    page = (tmp_path / "applied.html").read_text()
    assert f"This release contains {ROWS} labels. Each label" in page
    assert "0 files" not in page
    with pytest.raises(labeldp.InputError, match="cannot be written"):
        made.report(tmp_path / "missing" / "page.html")


def test_nothing_of_beam_is_imported(tmp_path: Path) -> None:
    script = """
import os, sys
from labeldp import LabelPrivatizer, NotFittedError, ReleaseWarning
made = LabelPrivatizer(label_min=0, label_max=4, label_step=1, epsilon=1, center_column="c", noise_key_file="noise.key",
    max_unusable_fraction=0.5)
released = made.fit_transform([0, 1, 2, None, 3] * 50, center=[1.0] * 250)
LabelPrivatizer(**made.get_params()).fit([2.0] * 90, center=[1.0] * 90).transform([1] * 9, center=[1.0] * 9)
made.debias(released, center=[1.0] * 250), made.verdict_, made.write_mechanism("m.json")
import numpy, pyarrow, labeldp
numbers = numpy.arange(3000.0) % 53
table = {"a": numbers + numpy.arange(3000) % 5, "w": ["x", "y", None] * 1000}
grid = dict(label_min=0, label_max=52, label_step=1, epsilon=1, noise_key_file="noise.key")
made = LabelPrivatizer(**grid)
released = made.fit_transform(numbers, table)
made.transform(numbers, features=table), made.predict_center(table), made.debias(released, features=table)
facts = labeldp.privatize(pyarrow.table({**table, "y": numbers}), label="y", **grid)
assert facts.center is not None and made.center_ is not None
heavy = {"apache_beam", "tensorflow", "sklearn", "jinja2", "polars"}
print(sorted(heavy & {name.split(".")[0] for name in sys.modules}))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n", done.stderr
    assert {"noise.key", "labeldp_ledger.jsonl", "m.json"} == set(os.listdir(tmp_path))
