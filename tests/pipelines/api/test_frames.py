"""Labels around a linear center in memory, for data frames of every kind.

That they are those of the command is a law of the releases in tests/pipelines/job.
"""

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import labeldp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from labeldp import InputError, LabelPrivatizer, ReleasedFrame, ReleaseWarning
from labeldp.pipelines.api import frames
from labeldp.pipelines.api.feature_frames import read_frame
from pyarrow import dataset

pytestmark = pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")
ROWS = 20_000
"""More than the sample of a center holds."""
FEATURES = ["age", "visits", "town", "member", "user", "constant", "note", "id"]


def log_frame() -> pd.DataFrame:
    """Numbers, text and booleans, some missing; dates, which are no features; ids and units."""
    rng = np.random.default_rng(11)
    age, visits, town = rng.normal(40, 12, ROWS), rng.poisson(3, ROWS), rng.integers(0, 4, ROWS)
    member = rng.random(ROWS) < 0.4
    label = np.clip(np.rint(0.3 * age + 2 * visits + 3 * town + 4 * member + rng.normal(0, 3, ROWS)), 0, 52)
    rows = np.arange(ROWS)
    return pd.DataFrame(
        {
            "age": np.where(rows % 17 == 3, np.nan, np.round(age, 3)),
            "weeks": np.where(rows % 1999 == 5, np.nan, label),
            "visits": visits,
            "town": [None if row % 23 == 1 else f"town {code}" for row, code in enumerate(town.tolist())],
            "member": member,
            "day": pd.to_datetime("2024-01-31") + pd.to_timedelta(rows % 7, "D"),
            "user": [None if row % 997 == 8 else f"u{row % 4001}" for row in rows],
            "constant": 1.5,
            "note": [f"note {row * 7919 % 300}" for row in rows],
            "id": [f"id {row * 7919 % 100_003}" for row in rows],
        }
    )


LOG = log_frame()
REQUEST: Any = {"label_min": 0, "label_max": 52, "label_step": 1, "epsilon": 1}
OF_KINDS: dict[str, Any] = {
    **REQUEST, "unit_column": "user", "max_records_per_unit": 3, "id_column": "id", "center_features": "age,visits",
}  # fmt: skip


def table_of_kinds() -> pa.Table:
    """The log with labels as lists of the fixed size 1, and ids and units of 16 bytes, one of them as UUID."""
    table = pa.Table.from_pandas(LOG, preserve_index=False)
    weeks = pa.FixedSizeListArray.from_arrays(table["weeks"].combine_chunks(), 1)
    ids, users = (
        pa.array([None if text is None else text.encode().ljust(16) for text in LOG[name].tolist()], pa.binary(16))
        for name in ("id", "user")
    )
    ids = pa.ExtensionArray.from_storage(pa.uuid(), ids) if hasattr(pa, "uuid") else ids
    for name, column in {"weeks": weeks, "id": ids, "user": users}.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def release(frame: Any, **parameters: Any) -> ReleasedFrame:
    return labeldp.privatize(frame, **parameters)


@pytest.fixture
def standard(tmp_path: Path, secret: bytes) -> Any:
    """Parameters of every release: the key of the tests and a ledger of its own."""
    return {"label": "weeks", "source": "log", "noise_key": secret, "ledger": tmp_path / "ledger.jsonl"}


@pytest.fixture
def privatizer(standard: dict[str, Any]) -> Callable[..., LabelPrivatizer]:
    return lambda **parameters: LabelPrivatizer(**{**standard, **REQUEST, **parameters})


def bytes_of(column: Any) -> bytes:
    return np.asarray(column, np.float64).tobytes()


@pytest.mark.parametrize(
    "kind",
    [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas, pa.RecordBatch.from_pandas],
    ids=["pandas", "polars", "table", "batch"],
)
def test_columns_that_stay_home_are_used_and_in_no_frame(standard: Any, kind: Any) -> None:
    parameters = {**REQUEST, "mechanism": "rr", "unit_column": "user", "max_records_per_unit": 3, "id_column": "id"}
    whole = release(kind(LOG[:3000]), **standard, **parameters)
    left = release(kind(LOG[:3000]), **standard, **parameters, leave_out=["user", "id", "note"])
    names = [read_frame(one.frame).names for one in (whole, left)]
    assert [name for name in names[0] if name not in ("user", "id", "note")] == names[1]
    assert bytes_of(left.frame["weeks"]) == bytes_of(whole.frame["weeks"])


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"leave_out": "users"}, r"^leave_out: frame has no column 'users'; did you mean user\?"),
        ({"leave_out": "weeks"}, "^leave_out: 'weeks' is released, as the label or its center"),
        ({"leave_out": "age", "center_features": "age"}, "^center_features and leave_out name 'age'"),
    ],
)
def test_columns_that_cannot_stay_home(standard: Any, parameters: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        release(LOG[:3000], **standard, **REQUEST, **parameters)


def test_no_center_is_made_of_columns_that_stay_home(standard: Any) -> None:
    left = release(LOG[:3000], **standard, **REQUEST, center="linear", center_column="c", mechanism="rr",
                   leave_out="note,town")  # fmt: skip
    features = left.privatizer.get_params()["features"]
    assert features == len(LOG.columns) - 3
    left.predict_center(LOG[:9].drop(columns=["note", "town"]))


def test_lists_runs_and_bytes_are_read_as_numbers(standard: Any, privatizer: Any) -> None:
    """Files of such columns are tested by their readers."""
    table, parameters = table_of_kinds(), {**standard, **OF_KINDS}
    place, weeks = table.schema.get_field_index("weeks"), table["weeks"].combine_chunks()
    numbers = release(table.set_column(place, "weeks", weeks.flatten()), **parameters)
    expected = [[label] for label in numbers.frame["weeks"].to_pylist()]
    lists = [weeks, weeks.cast(pa.list_(pa.float64()))]
    for column in lists:
        assert release(table.set_column(place, "weeks", column), **parameters).frame["weeks"].to_pylist() == expected
    runs = table.set_column(place, "weeks", pc.run_end_encode(weeks.flatten()))  # type: ignore[attr-defined]
    assert release(runs, **parameters).frame["weeks"].to_pylist() == [only for (only,) in expected]
    series = pd.Series(weeks.to_pylist())
    for data in (series, series.to_numpy(), pl.Series(series), weeks.to_pylist(),
                 series.astype(pd.ArrowDtype(lists[1].type))):  # fmt: skip
        made = privatizer(mechanism="rr", source=None).fit_transform(data)
        assert type(made) is type(data)
        assert {len(value) if hasattr(value, "__len__") else None for value in list(made)} == {None, 1}


# Kinds of frames.


def kinds() -> dict[str, Callable[[pd.DataFrame], Any]]:
    return {
        "pandas": lambda log: log,
        "pandas index": lambda log: log.set_axis([f"row {place}" for place in range(len(log))]).rename_axis("row"),
        "pandas nullable": lambda log: log.convert_dtypes(),
        "pandas arrow": lambda log: log.convert_dtypes(dtype_backend="pyarrow"),
        "pandas categories": lambda log: log.assign(town=log["town"].astype("category")),
        "polars": pl.from_pandas,
        "polars categories": lambda log: pl.from_pandas(log).with_columns(pl.col("town").cast(pl.Categorical)),
        "arrow": lambda log: pa.Table.from_pandas(log, preserve_index=False),
        "arrow chunks": lambda log: pa.concat_tables(
            [pa.Table.from_pandas(log, preserve_index=False).slice(start, size) for start, size in ((0, 9), (9, 5000))]
        ),
        "arrow dictionary": lambda log: pa.Table.from_pandas(
            log.assign(town=log["town"].astype("category")), preserve_index=False
        ),
        "batch": lambda log: pa.RecordBatch.from_pandas(log, preserve_index=False),
    }


@pytest.mark.parametrize("kind", kinds())
def test_the_same_kind_comes_out(standard: Any, kind: str) -> None:
    log = LOG[:3000]
    expected = release(log, **standard, **REQUEST)
    given = kinds()[kind](log)
    before = (
        given.copy(deep=True) if kind.startswith("pandas") else given.clone() if kind.startswith("polars") else given
    )

    found = release(given, **standard, **REQUEST)

    assert type(found.frame) is type(given)
    assert bytes_of(found.center) == bytes_of(expected.center)
    assert bytes_of(found.frame["weeks"]) == bytes_of(expected.frame["weeks"])
    assert bytes_of(found.frame["weeks_center"]) == bytes_of(expected.center)
    rest = [name for name in log.columns if name != "weeks"]
    kept = np.flatnonzero(log["weeks"].notna())
    if kind.startswith("pandas"):
        assert found.frame[rest].equals(given.iloc[kept][rest])
        assert found.frame.dtypes[rest].equals(given.dtypes[rest])
    elif kind.startswith("polars"):
        assert found.frame[rest].equals(given[rest][kept])
        assert found.frame.schema["weeks"] == pl.Float64
    else:
        assert found.frame.select(rest).to_pydict() == given.select(rest).take(pa.array(kept)).to_pydict()
        assert found.frame.schema.field("weeks").type == pa.float64()
        assert found.frame.schema.metadata is None
    assert given.equals(before), "the input was changed"


def test_metadata_of_a_frame_is_dropped_and_nothing_holds_true_labels(standard: Any) -> None:
    log = LOG[["age", "weeks", "visits"]][:3000].copy()
    log["weeks"] = np.where(np.arange(3000) % 2, 37.015625, 11.015625)
    log.attrs["sample"] = log["weeks"].tolist()
    table = pa.Table.from_pandas(log, preserve_index=False).replace_schema_metadata({"sample": "37.015625"})
    field = table.schema.field("weeks").with_metadata({"sample": "37.015625"})
    table = table.set_column(1, field, table.column("weeks"))
    for frame in (log, pl.from_pandas(log), table):
        found = release(frame, **standard, **REQUEST)
        pickled, shown = pickle.dumps((found.frame, found.privatizer)), repr(found)
        for hidden in (np.float64(37.015625).tobytes(), b"37.015625"):
            assert hidden not in pickled
        assert "37.0" not in shown
        assert standard["noise_key"] not in pickled
        assert getattr(found.frame, "attrs", {}) == {}


def test_features_of_every_kind(privatizer: Any) -> None:
    numbers = LOG[["age", "visits"]][:2000]
    labels = LOG["weeks"][:2000]
    expected = privatizer().fit_transform(labels, features=numbers)
    for features in (
        numbers.to_dict("series"),
        {name: numbers[name].to_numpy() for name in numbers},
        numbers.rename(columns={"age": "x0", "visits": "x1"}),
        numbers.to_numpy(),
        pa.Table.from_pandas(numbers, preserve_index=False),
        pl.from_pandas(numbers),
    ):
        assert privatizer().fit_transform(labels, features=features).equals(expected)
    fitted = privatizer().fit(labels, features=numbers.to_numpy())
    np.testing.assert_array_equal(fitted.predict_center(numbers.to_numpy()[:7]), fitted.center_[:7])
    assert fitted.randomizer_ == privatizer().fit(labels, features=numbers).randomizer_


def native(column: Any) -> pd.Series:
    """A column as it is compared: dense, in the byte order of this machine."""
    column = column.sparse.to_dense() if isinstance(column.dtype, pd.SparseDtype) else column
    return column.astype(column.dtype.newbyteorder("=")) if isinstance(column.dtype, np.dtype) else column


@pytest.mark.parametrize("label", ["numbers", "classes"])
@pytest.mark.parametrize("kind", ["byte order", "sparse"])
def test_columns_that_arrow_does_not_take_by_itself(standard: Any, kind: str, label: str) -> None:
    plain = LOG[["age", "visits", "weeks"]][:2000].fillna({"age": 0}).astype({"visits": "int32"})
    if kind == "byte order":
        given = plain.astype({name: plain[name].to_numpy().dtype.newbyteorder(">") for name in plain})
    else:
        given = plain.astype({name: pd.SparseDtype(plain[name].dtype, 0) for name in plain})
    domain = REQUEST if label == "numbers" else {"epsilon": 1, "label_classes": list(range(53)), "center": "none"}
    expected, found = (release(frame, **standard, **domain).frame for frame in (plain, given))
    assert len(found) < len(plain)
    for name in expected:
        assert native(found[name]).tolist() == expected[name].tolist(), name
    assert isinstance(found.dtypes["visits"], pd.SparseDtype) == (kind == "sparse")
    at_once = LabelPrivatizer(**standard, **domain).fit_transform(given["weeks"])
    np.testing.assert_array_equal(at_once, LabelPrivatizer(**standard, **domain).fit_transform(plain["weeks"]))


@pytest.mark.skipif(not hasattr(pa, "string_view"), reason="this version of Arrow has no views")
@pytest.mark.parametrize("kind", [pa.table, pa.record_batch])
@pytest.mark.parametrize("units", [{}, {"unit_column": "user", "max_records_per_unit": 1}])
def test_columns_that_arrow_cannot_filter(standard: Any, kind: Any, units: dict[str, Any]) -> None:
    texts = [None if row % 5 == 2 else f"text {row % 9}" for row in range(3000)]
    made = {"text": texts, "lists": [[text] for text in texts], "bytes": [text and text.encode() for text in texts]}
    log = {name: pa.array(LOG[name][:3000], from_pandas=True) for name in ("age", "weeks", "user")}
    runs = pa.RunEndEncodedArray.from_arrays([1000, 3000], ["a", "b"])
    types = (pa.string_view(), pa.list_(pa.string_view()), pa.binary_view())
    plain = (pa.string(), pa.list_(pa.string()), pa.binary())
    given, same = (
        kind({**log, **dict(zip(made, map(pa.array, made.values(), each), strict=True)), "runs": runs})
        for each in (types, plain)
    )
    found, expected = (release(frame, **standard, **REQUEST, **units).frame for frame in (given, same))
    assert isinstance(found, type(given))
    assert found.schema.types == [*given.schema.types, pa.float64()]
    assert found.to_pydict() == expected.to_pydict()
    assert 0 < len(found) < 3000


def test_index_levels_without_a_name_are_neither_features_nor_released(standard: Any, privatizer: Any) -> None:
    log = LOG[["age", "weeks", "visits"]][:2000].fillna({"weeks": 0})
    expected = release(log, **standard, **REQUEST)
    level, row = "__index_level_0__", log["visits"].rename("row")
    copied = log.assign(**{level: log["weeks"]})
    table = pa.Table.from_pandas(log.set_index(log["weeks"].to_numpy()))
    assert level in table.column_names
    for frame, left_out in [
        (log.set_index(log["weeks"].to_numpy()), "(index)"),
        (copied, f"({level})"),
        (pl.from_pandas(copied), f"({level})"),
        (table, f"({level})"),
        (table.to_batches()[0], f"({level})"),
    ]:
        with pytest.warns(ReleaseWarning) as caught:
            found = release(frame, **standard, **REQUEST)
        (text,) = [str(each.message) for each in caught if "index" in str(each.message)]
        assert f"no features: index levels without a name {left_out}" in text
        assert {Path(each.filename).name for each in caught} == {Path(__file__).name}
        released = (
            found.frame
            if isinstance(found.frame, pd.DataFrame)
            else pd.DataFrame(
                found.frame.to_pydict()
                if (isinstance(found.frame, pa.Table | pa.RecordBatch))
                else found.frame.to_dict(as_series=False)
            )
        )
        pd.testing.assert_frame_equal(released, expected.frame)
    with pytest.warns(ReleaseWarning, match="no features: index levels"):
        labels = privatizer().fit_transform(log["weeks"], features=table)
    assert bytes_of(labels) == bytes_of(expected.frame["weeks"])

    # Levels that are named, and the positions in a RangeIndex, are released.
    levels = pd.MultiIndex.from_arrays([row, log["weeks"].to_numpy()])
    named = release(log.set_axis(levels), **standard, **REQUEST).frame
    assert named.index.equals(pd.Index(row))
    assert level in release(copied, **standard, **REQUEST, center_features=f"age,{level}").frame
    assert release(LOG[5:2000], **standard, **REQUEST).frame.index[0] == 6


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_what_has_the_name_of_the_label_is_refused(kind: Any, key_file: Path) -> None:
    frame = LOG[["age", "weeks"]].fillna(0)[:400]
    request: dict[str, Any] = {**REQUEST, "label": "weeks", "noise_key_file": key_file}
    labels = frame["weeks"].tolist()
    copies = {"Weeks ": labels, "event": [{"id": 1, "weeks": y} for y in labels], "e": [[{"weeks": y}] for y in labels]}
    for (column, values), name in zip(copies.items(), ("Weeks ", "event.weeks", "e.weeks"), strict=True):
        log = kind({**frame.to_dict("list"), column: values})
        with pytest.raises(
            ValueError, match=f"'{name}', which would be released as it is.* leave_out=\\['{column}'\\]"
        ):
            labeldp.privatize(log, **request)
        assert labeldp.privatize(log, **request, leave_out=[column]).records == 400


def test_a_key_of_a_map_that_has_the_name_of_the_label_is_refused(key_file: Path) -> None:
    labels = [float(place % 5) for place in range(400)]
    maps = pa.array([[("Weeks", label)] for label in labels], pa.map_(pa.string(), pa.float64()))
    log = pa.table({"age": np.arange(400.0), "weeks": labels, "event": maps})
    request: dict[str, Any] = {**REQUEST, "label": "weeks", "noise_key_file": key_file}
    frames: list[Any] = [log, log.to_reader, dataset.dataset(log)]
    for frame in frames:
        with pytest.raises(ValueError, match=r"'event\.Weeks', which would be released as it is"):
            labeldp.privatize(frame, **request)


def test_an_index_with_the_name_of_the_label_is_refused(standard: Any, privatizer: Any) -> None:
    log = LOG[["age", "weeks", "visits"]][:2000]
    by_label = log.set_index("weeks", drop=False)
    fitted = privatizer().fit(log["weeks"].dropna())
    for call in (
        lambda: release(by_label, **standard, **REQUEST),
        lambda: release(pa.Table.from_pandas(by_label), **standard, **REQUEST),
        lambda: release(log.set_index(["visits", "weeks"], drop=False), **standard, **REQUEST),
        lambda: privatizer().fit_transform(by_label["weeks"]),
        lambda: privatizer(label="label").fit_transform(by_label[["weeks"]]),
        lambda: fitted.transform(by_label["weeks"]),
    ):
        with pytest.raises(ValueError, match="the index has a level 'weeks', the name of the label"):
            call()


def test_an_output_that_cannot_be_made_is_not_charged(standard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    charged_before: list[bool] = []

    def failing(*_: Any) -> Any:
        charged_before.append(Path(standard["ledger"]).exists())
        raise MemoryError

    monkeypatch.setattr(frames, "released_frame", failing)
    classes = {"epsilon": 1, "label_classes": ["false", "true"], "label": "member"}
    for parameters in (REQUEST, {**REQUEST, "center": "none"}, classes):
        with pytest.raises(MemoryError):
            release(LOG[:2000], **{**standard, **parameters})
    assert charged_before == [False, False, False]
    assert not Path(standard["ledger"]).exists()


# Habits of scikit-learn.


@pytest.mark.parametrize("features", [False, True])
def test_labels_of_one_column(privatizer: Any, features: bool) -> None:
    log = LOG[:2000]
    more = {"features": log[FEATURES]} if features else {}
    expected = privatizer().fit_transform(log["weeks"].to_numpy(), **more)

    column = log["weeks"].to_numpy()[:, None]
    np.testing.assert_array_equal(privatizer().fit_transform(column, **more), expected[:, None])
    frame = privatizer().fit_transform(log[["weeks"]], **more)
    assert frame.equals(pd.DataFrame({"weeks": expected}, log.index))
    masked = privatizer().fit_transform(np.ma.masked_invalid(column), **more)
    assert (masked.shape, bytes_of(masked.compressed())) == ((2000, 1), bytes_of(expected[np.isfinite(expected)]))
    polar = privatizer().fit_transform(pl.from_pandas(log[["weeks"]]), **more)
    assert polar.equals(pl.DataFrame({"weeks": expected}).fill_nan(None))
    for kind in (pa.Table, pa.RecordBatch):
        found = privatizer().fit_transform(kind.from_pandas(log[["weeks"]], preserve_index=False), **more)
        assert isinstance(found, kind)
        assert found.column("weeks").to_pylist() == [None if np.isnan(each) else each for each in expected]


def test_ids_units_and_centers_of_one_column(privatizer: Any) -> None:
    log = LOG[:2000]
    named = {"id_column": "id", "unit_column": "user", "max_records_per_unit": 1, "center_column": "visits"}
    given = {"ids": log["id"], "units": log["user"], "center": log["visits"]}
    expected = privatizer(**named).fit_transform(log["weeks"], **given)
    columns = {name: column.to_frame() for name, column in given.items()}
    assert privatizer(**named).fit_transform(log["weeks"], **columns).equals(expected)


def test_labels_and_features_are_told_apart_by_their_shapes(privatizer: Any) -> None:
    log = LOG[:2000]
    features, labels = log[FEATURES], log["weeks"]
    expected = privatizer().fit_transform(labels, features=features)
    assert privatizer().fit_transform(features, labels).equals(expected)
    assert privatizer().fit_transform(features, y=labels).equals(expected)
    assert privatizer().fit_transform(labels, features).equals(expected)
    assert privatizer().fit(features, labels).transform(features, labels).equals(expected)
    assert privatizer().fit_transform(features, labels.to_frame())["weeks"].equals(expected)
    assert privatizer().fit_transform(labels.to_frame(), features.to_dict("list"))["weeks"].equals(expected)

    one = features[["age"]]
    of_one = privatizer().fit_transform(labels, features=one)
    assert privatizer().fit_transform(one, labels).equals(of_one)
    assert privatizer().fit_transform(one.to_numpy(), labels).equals(of_one)
    for first, second in ((one, labels.to_frame()), (labels, features["age"]), (features, features)):
        with pytest.raises(ValueError, match=r"^of two arguments one must be labels, .*\(labels, features=X\)"):
            privatizer().fit_transform(first, second)
    with pytest.raises(ValueError, match=r"^features are given twice"):
        privatizer().fit_transform(features, labels, features=features)


def test_a_part_of_another_model_is_refused(privatizer: Any, standard: Any) -> None:
    pipeline: Any = pytest.importorskip("sklearn.pipeline")
    compose: Any = pytest.importorskip("sklearn.compose")
    models: Any = pytest.importorskip("sklearn.linear_model")
    features, labels = LOG[["visits"]][:2000].to_numpy(), LOG["weeks"][:2000].fillna(0).to_numpy()
    for made in (
        pipeline.make_pipeline(privatizer(), models.Ridge()),
        pipeline.make_pipeline(privatizer()),
        compose.ColumnTransformer([("label", privatizer(), [0])]),
        compose.TransformedTargetRegressor(models.Ridge(), transformer=privatizer()),
    ):
        with pytest.raises(TypeError, match=r"cannot be a step of a Pipeline.* = privatizer.fit_transform\(X, y\)"):
            made.fit(features, labels)
        assert not Path(standard["ledger"]).exists()
    made = privatizer()
    released = made.fit_transform(features, labels)
    pipeline.make_pipeline(models.Ridge()).fit(features, released)


# Decisions and errors.


def test_features_ask_for_a_center_where_a_mechanism_is_named(privatizer: Any) -> None:
    log = LOG[:2000]
    made = privatizer(mechanism="rr_on_bins")
    asked = made.fit_transform(log["weeks"], features=log)
    assert made.center_ is not None
    assert privatizer(mechanism="rr_on_bins", center="linear").fit_transform(log["weeks"], features=log).equals(asked)
    plain = privatizer(mechanism="rr_on_bins").fit_transform(log["weeks"])
    for parameters in ({"center": "none"}, {"center": "none", "center_features": None}):
        made = privatizer(mechanism="rr_on_bins", **parameters)
        assert made.fit_transform(log["weeks"], features=log).equals(plain)
        assert made.center_ is None


def test_without_an_even_domain_features_are_not_used_by_default(privatizer: Any) -> None:
    log, uneven = (
        LOG[:2000],
        {"label_min": None, "label_max": None, "label_step": None, "label_values": [0, 1, 5, 20, 52]},
    )
    made = privatizer(**uneven).fit(log["weeks"], features=log)
    assert made.center_ is None
    made.transform(log["weeks"], features=log)
    with pytest.raises(ValueError, match="there is no linear center: fit with features first"):
        made.predict_center(log)
    with pytest.raises(ValueError, match=r"^center: .*evenly spaced"):
        privatizer(**uneven, center="linear").fit(log["weeks"], features=log)


def test_the_label_is_never_a_feature(privatizer: Any, standard: Any) -> None:
    log = LOG[:2000]
    made = privatizer().fit(log["weeks"], features=log)
    assert "weeks" not in made._latest().mechanism.drawing.made.map.columns
    for labels in (log["weeks"], log[["weeks"]], pl.from_pandas(log)["weeks"], pa.table(log[["weeks"]])):
        with pytest.raises(ValueError, match=r"features has the column 'weeks' of the labels, .*: give label='weeks'"):
            privatizer(label="label").fit(labels, features=log)
    with pytest.raises(ValueError, match=r"^center_features must not name the label"):
        release(log, **standard, **REQUEST, center_features=["age", "weeks"])
    with pytest.raises(ValueError, match="label 'age' is a feature of the center"):
        made.set_params(label="age").transform(log["age"].fillna(0), features=log)


def test_wrong_features_are_named(privatizer: Any) -> None:
    log = LOG[:2000]
    labels = log["weeks"]
    for features, error, text in [
        (log[:7], ValueError, "there are 7 records of features for 2,000 labels"),
        (log[[]], ValueError, "features has no columns"),
        (log["age"], TypeError, "features must be a pandas or polars DataFrame, .*, not Series"),
        (log["age"].to_numpy(), TypeError, r"features must be .*, not an array of shape \(2000,\)"),
        (pl.LazyFrame({"a": [1]}), TypeError, "not LazyFrame: collect it first"),
        (pd.concat([log, log], axis=1), ValueError, "features has several columns 'age'"),
        ({"a": [1.0] * 2000, "b": [2.0]}, ValueError, "features: column 'b' has 1 values, 'a' 2,000"),
        (
            log.assign(town=[1, "x"] * 1000),
            ValueError,
            "features: column 'town' cannot be read as one column of one type .* from object.: give texts",
        ),
        (log.assign(age=1j), ValueError, "column 'age' cannot be read .* from complex128.: give texts, or numbers"),
        (
            pl.DataFrame({"a": pl.Series([1] * 2000, dtype=pl.Int128)}),
            ValueError,
            "column 'a' cannot be read .* from Int128.: give texts, or numbers of at most 64 bits",
        ),
        (log.assign(weeks_center=1.0), ValueError, "features has a column 'weeks_center': name the new column"),
    ]:
        with pytest.raises(error, match=text):
            privatizer().fit(labels, features=features)
    for parameters, given, text in [
        ({"center": "linear"}, {}, "^center linear is made of features"),
        ({"center_features": ["age"]}, {}, "^center linear is made of features"),
        (
            {"center_features": ["aged"]},
            {"features": log},
            "^center_features: features has no column 'aged'; it has: .*age",
        ),
        ({"center_features": ["day"]}, {"features": log}, "^center_features: 'day' holds timestamp"),
        ({"center": "none", "center_column": "c"}, {"features": log}, "^center none has no center_column"),
        ({"center": "near"}, {"features": log}, "^center: unknown value 'near'"),
        ({"center_column": "c"}, {"features": log, "center": labels}, "^center and features are two ways"),
        (
            {"center": "linear"},
            {"features": log[["day"]]},
            "^center linear: features has no column of numbers or texts",
        ),
    ]:
        with pytest.raises(ValueError, match=text) as caught:
            privatizer(**parameters).fit(labels, **given)
        assert "--" not in str(caught.value)


def test_wrong_features_of_a_fitted_center_are_named(privatizer: Any) -> None:
    log = LOG[:2000]
    made = privatizer().fit(log["weeks"], features=log)
    with pytest.raises(ValueError, match="features are missing: the mechanism is for labels around a center"):
        made.transform(log["weeks"])
    for features, text in [
        (log.drop(columns="age"), "features has no column 'age', which the model needs"),
        (log.assign(age="old"), "features: 'age' holds .*string, but the center takes numbers"),
        (log.assign(town=pd.Series([["a", ["b"]]] * 2000)), "features: column 'town' cannot be read"),
        (log.assign(town=pd.Series([{"a": 1}] * 2000)), "features: 'town' holds struct.*, but the center takes text"),
    ]:
        with pytest.raises(ValueError, match=text):
            made.predict_center(features)
        with pytest.raises(ValueError, match=text):
            made.transform(log["weeks"], features=features)


def test_wrong_frames_and_columns_are_named(standard: Any) -> None:
    log = LOG[:2000]
    for frame, parameters, error, text in [
        (log.to_dict("list"), {}, TypeError, "frame must be a pandas or polars DataFrame, or an Arrow table"),
        (log.to_numpy(), {}, TypeError, "frame must be .*, not ndarray"),
        (log.set_axis(range(10), axis=1), {"label": 1}, ValueError, '^label must be text: "1"$'),
        (log, {"id_column": ("l", "y")}, ValueError, r"""^id_column must be text: "\('l', 'y'\)"$"""),
        (log, {"label": "week"}, ValueError, "label: frame has no column 'week'; did you mean weeks?"),
        (log, {"id_column": "idd"}, ValueError, "id_column: frame has no column 'idd'; did you mean id?"),
        (log, {"center_column": "c"}, ValueError, "center_column: frame has no column 'c'"),
        (log, {"epsilom": 1}, ValueError, "no parameter 'epsilom'"),
        (log, {"label": "town"}, ValueError, "labels holds .*string, not numbers"),
        (log.assign(weeks_center=1), {}, ValueError, "frame has a column 'weeks_center'"),
        (log.assign(weeks=np.nan), {}, ValueError, "no record has a usable label"),
    ]:
        with pytest.raises(error, match=text):
            release(frame, **{**standard, **REQUEST, **parameters})
    assert not Path(standard["ledger"]).exists()


# Facts of the release.


def test_the_facts_of_a_release(standard: Any, tmp_path: Path, invoke: Any) -> None:
    log = LOG[:3000]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = release(log, **{**standard, **REQUEST, "label_max": 8, "prior_epsilon": 0.5, "center": "none"})
    assert isinstance(found, ReleasedFrame)
    assert {each.category for each in caught} == {ReleaseWarning}
    assert {Path(each.filename).name for each in caught} == {Path(__file__).name}
    ordinary = ("label_error", "wide_residuals")
    assert [str(each.message) for each in caught] == [w.text for w in found.warnings if w.name not in ordinary]
    assert found.verdict == found.privatizer.verdict_
    assert found.epsilon == 1
    assert 0.99 < found.certified_epsilon <= 1
    assert found.label == "weeks"
    found.write_mechanism(tmp_path / "m.json")
    assert "PASS" in invoke(["audit", str(tmp_path / "m.json")]).ok().out
    found.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert f"This release contains {found.records:,} labels" in page
    assert f"<title>Label privacy report: log: {found.records:,} labels of weeks</title>" in page
    found.privatizer.set_params(source=None).fit([5, 6, 7] * 500).report(tmp_path / "report.html")
    assert (
        "<title>Label privacy report: for 1,500 labels of weeks in memory</title>"
        in (tmp_path / "report.html").read_text()
    )


def test_debiasing_around_a_linear_center(privatizer: Any) -> None:
    log = LOG[np.isfinite(LOG["weeks"])]
    made = privatizer(mechanism="rr_on_bins", epsilon=2)
    released = made.fit_transform(log["weeks"], features=log)
    debiased = made.debias(released, features=log)
    assert debiased.equals(made.debias(released, center=made.center_))
    assert abs(debiased.mean() - log["weeks"].mean()) < 6 * debiased.std() / len(log) ** 0.5 + 0.2
    with pytest.raises(ValueError, match="center is missing"):
        made.debias(released)


# Streams.


def table_of_log() -> pa.Table:
    return pa.Table.from_pandas(LOG[:3000], preserve_index=False)


def test_a_dataset_a_lazy_frame_and_a_function_are_released_as_their_table(tmp_path: Path, standard: Any) -> None:
    table = table_of_log()
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=700)
    asked: Any = {**standard, **REQUEST, "source": "log"}
    expected = labeldp.privatize(table, **asked)
    path = tmp_path / "log.parquet"
    for stream in (dataset.dataset(path), pl.scan_parquet(path), lambda: pq.ParquetFile(path).iter_batches(501)):
        found = labeldp.privatize(stream, **asked)
        read = found.frame.read_all()
        for name in expected.frame.column_names:
            assert read[name].to_pylist() == expected.frame[name].to_pylist()
        np.testing.assert_array_equal(found.center, expected.center)
        assert str(found) == str(expected)


def test_records_that_change_between_passes_are_refused(standard: Any) -> None:
    """A label that moved is found before its block is returned; so is a log that has become shorter or longer."""
    table, reads = table_of_log(), iter(range(99))
    asked: Any = {**standard, **REQUEST, "center": "none"}
    released = labeldp.privatize(lambda: table.to_reader() if next(reads) < 4 else table[1:].to_reader(), **asked)
    with pytest.raises(InputError, match="changed"):
        released.frame.read_all()
    asked["center"] = "linear"
    for other in (table[:-1], pa.concat_tables([table, table[:1]])):
        given = iter([table, table, other])
        with pytest.raises(InputError, match="changed"):
            labeldp.privatize(lambda given=given: next(given).to_reader(), **asked)


def test_what_can_be_read_once_is_refused(standard: Any) -> None:
    table = table_of_log()
    reader, batches = table.to_reader(), iter(table.to_batches())
    stream = SimpleNamespace(__arrow_c_stream__=table.__arrow_c_stream__)
    for once in (reader, batches, stream, lambda: reader, lambda: batches):
        with pytest.raises(TypeError, match=r"can be read once.* give a function that makes one"):
            labeldp.privatize(once, **standard, **REQUEST)
