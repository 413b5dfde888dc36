"""Releases of classes as the kit reads them, from files of a job and privatizers, in each type of a column."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp import InputError, LabelPrivatizer
from labeldp.training import Release

pytestmark = pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")
ROWS = 3000


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes as text, integers and floats, and two as booleans; some texts are not listed."""
    rng = np.random.default_rng(2)
    places = rng.choice(3, ROWS, p=[0.5, 0.3, 0.2])
    names = np.array(["low", "mid", "high"])[places]
    names[::500] = "other"
    columns = {"text": names, "number": 10 - places, "float": (10 - places) * 1.0, "flag": places > 0}
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    pq.write_table(pa.table(columns), path)
    return path


CLASSES = {"text": "low,mid,high", "number": "10,9,8", "float": "10,9,8", "flag": "false,true"}
VALUES: dict[str, list[Any]] = {
    "text": ["low", "mid", "high"], "number": [10, 9, 8], "float": [10.0, 9.0, 8.0], "flag": [False, True],
}  # fmt: skip


@pytest.fixture(scope="module")
def released(log: Path, key_file: Path, invoke: Any, command: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Function (column, flag=value, ...) -> the folder of a release of one column of `log`; kept."""
    kept: dict[Any, Path] = {}

    def run(column: str, **flags: Any) -> Path:
        key = column, *sorted(flags.items())
        if key not in kept:
            kept[key] = tmp_path_factory.mktemp("release") / "released"
            asked: dict[str, Any] = {
                "input": log, "input_format": "parquet", "label": column, "label_classes": CLASSES[column],
                "epsilon": 1, "mechanism": "rr", "noise_key_file": key_file, "output": kept[key],
            }  # fmt: skip
            invoke(command("privatize", asked | flags)).ok()
        return kept[key]

    return run


def test_classes_of_a_center_need_no_correction(released: Any, log: Path) -> None:
    folder = released("flag", mechanism=None, center_features="number")
    with pytest.raises(ValueError, match="train on the column 'flag_probabilities'"):
        Release.open(folder)


@pytest.mark.parametrize("column", CLASSES)
def test_released_classes_of_each_type(released: Any, mechanism_of: Any, column: str) -> None:
    """Likelihoods are the columns of the mechanism's probabilities, and targets those of their inverse."""
    folder = released(column)
    release = Release.open(folder)
    shards = sorted((folder / "data").iterdir())
    drawn = pa.concat_tables([pq.read_table(path) for path in shards])[column]
    _, _, probabilities = mechanism_of(folder)
    assert release.classes == tuple(CLASSES[column].split(","))
    assert (release.label, release.center, release.records) == (column, None, ROWS)
    assert (release.mechanism, release.line, release.unbiased, release.clipped) == ("rr", None, False, 0)
    expected = [VALUES[column].index(value) for value in drawn.to_pylist()]
    forms: list[Any] = [drawn, drawn.to_numpy(), drawn.to_pylist(), drawn.to_pandas()]
    if column == "text":
        forms += [
            drawn.to_pandas().astype("category"),
            np.array(drawn.to_pylist()),
            drawn.cast(pa.binary()).to_pylist(),
        ]
    for z in forms:
        assert release.class_places(z).tolist() == expected
    assert release.places(drawn)[0].tolist() == expected
    assert release.likelihood(drawn) == pytest.approx(probabilities[:, expected].T)
    targets = release.debiased(drawn)
    assert targets == pytest.approx(np.linalg.inv(probabilities)[expected])
    assert targets.sum(axis=1) == pytest.approx(1)
    inverse = np.linalg.inv(probabilities)
    variances = np.sum(probabilities @ inverse**2 - np.eye(len(inverse)), axis=1)
    assert release.noise == pytest.approx(release.channel.prior @ variances)
    assert release.noise_variance(drawn) == pytest.approx((release.channel.posterior @ variances)[expected])


def test_tfrecords_have_bytes(released: Any) -> None:
    tensorflow: Any = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    folder = released("text", output_format="tfrecord", epsilon=2)
    release = Release.open(folder)
    layout = {"text": tensorflow.io.FixedLenFeature([], tensorflow.string)}
    shards = sorted(str(path) for path in (folder / "data").iterdir())
    (batch,) = tensorflow.data.TFRecordDataset(shards).batch(ROWS)
    z = tensorflow.io.parse_example(batch, layout)["text"].numpy()
    values = [value.decode() for value in z]
    assert release.class_places(z).tolist() == [VALUES["text"].index(value) for value in values]


@pytest.mark.parametrize("kind", [str, int, float, bool])
def test_a_release_in_memory(tmp_path: Path, kind: type) -> None:
    classes = {str: ["b", "a"], int: [0, 1], float: [0, 1], bool: [False, True]}[kind]
    labels = np.array([kind(classes[place]) for place in np.arange(400) % 2])
    privatizer = LabelPrivatizer(
        label_classes=classes, epsilon=1, noise_key=bytes(32), ledger=str(tmp_path / "ledger.jsonl")
    )
    with pytest.raises(ValueError, match="not fitted yet"):
        Release.from_privatizer(privatizer)
    z = privatizer.fit_transform(labels)
    release = Release.from_privatizer(privatizer)
    assert privatizer.mechanism_.randomizer is privatizer.randomizer_
    assert privatizer.classes_ is not None
    assert release.classes == privatizer.classes_.values
    assert release.records == 400
    assert release.class_places(z).tolist() == [classes.index(value) for value in z.tolist()]


def test_files_that_do_not_belong_together(released: Any, tmp_path: Path) -> None:
    """The order of the classes is that of the columns, and must be the same in both files."""
    folder = shutil.copytree(released("text"), tmp_path / "released")
    manifest = json.loads((folder / "release.json").read_text())
    for classes in (
        {"values": ["mid", "low", "high"], "other": 0},
        {"values": ["low", "mid", "high"], "other": 1},
        None,
    ):
        (folder / "release.json").write_text(json.dumps(manifest | {"classes": classes}))
        with pytest.raises(InputError, match="the files do not belong to one release; run labeldp audit"):
            Release.open(folder)


def test_errors_name_the_row(released: Any, made: Any) -> None:
    text, number = Release.open(released("text")), Release.open(released("number"))
    plain = made("unbiased", 1)[1]
    for call, message in (
        (lambda: text.likelihood(["low", "lowest"]), "row 1 of z is missing, or none of the classes of the release"),
        (lambda: text.likelihood(["low", None]), "row 1 of z is missing, or none of the classes"),
        (lambda: text.likelihood([0, 1]), "row 0 of z is missing, or none"),
        (lambda: text.likelihood([["low"], ["mid"]]), r"z must have shape \(n,\)"),
        (lambda: text.likelihood([]), r"z must have shape \(n,\)"),
        (lambda: text.likelihood(pa.array([["low"], ["mid"]]).to_pandas()), "and not lists of them"),
        (lambda: text.likelihood(["low"], center=[1.0]), "have no center: leave out center"),
        (lambda: number.debiased([10, 9.5]), "row 1 of z is missing, or none"),
        (lambda: number.debiased([10, np.nan]), "row 1 of z is missing, or none"),
        (lambda: plain.class_places([1.0]), "are numbers, without classes"),
        (lambda: plain.inverse, "are numbers, without classes"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call()
