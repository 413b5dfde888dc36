"""Releases of classes as the kit reads them, from files of a job and privatizers, in each type of a column."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp import InputError, LabelPrivatizer
from labeldp.training import Release

from tests.release_cases import ILL, over

pytestmark = pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")
VALUES: dict[str, list[Any]] = {
    "ill": [*ILL], "level": [1, 2, -3], "visits": [0.0, 1.0, 2.0], "bought": [False, True],
}  # fmt: skip


def test_classes_of_a_center_need_no_correction(release: Any) -> None:
    with pytest.raises(ValueError, match="train on the column 'grade_probabilities'"):
        Release.open(release("center of classes"))


@over(f"{column} to parquet" for column in VALUES)
def test_released_classes_of_each_type(base: Any, mechanism_of: Any, name: str) -> None:
    """Likelihoods are the columns of the mechanism's probabilities, and targets those of their inverse."""
    folder, (column,) = base(name).folder, base(name).case.labels
    release = Release.open(folder)
    shards = sorted((folder / "data").iterdir())
    drawn = pa.concat_tables([pq.read_table(path) for path in shards])[column]
    values, (_, _, probabilities) = VALUES[column], mechanism_of(folder)
    assert release.classes == tuple(str(value).lower().removesuffix(".0") for value in values)
    assert (release.label, release.center, release.records) == (column, None, len(drawn))
    assert (release.mechanism, release.line, release.unbiased, release.clipped) == ("rr", None, False, 0)
    expected = [values.index(value) for value in drawn.to_pylist()]
    forms: list[Any] = [drawn, drawn.to_numpy(), drawn.to_pylist(), drawn.to_pandas()]
    if column == "ill":
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


def test_tfrecords_have_bytes(base: Any) -> None:
    tensorflow: Any = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    folder = base("ill to tfrecord").folder
    release = Release.open(folder)
    layout = {"ill": tensorflow.io.FixedLenFeature([], tensorflow.string)}
    shards = sorted(str(path) for path in (folder / "data").iterdir())
    (batch,) = tensorflow.data.TFRecordDataset(shards, "GZIP").batch(10_000)
    z = tensorflow.io.parse_example(batch, layout)["ill"].numpy()
    values = [value.decode() for value in z]
    assert release.class_places(z).tolist() == [VALUES["ill"].index(value) for value in values]


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


def test_files_that_do_not_belong_together(copied: Any) -> None:
    """The order of the classes is that of the columns, and must be the same in both files."""
    folder = copied("ill to parquet")
    manifest = json.loads((folder / "release.json").read_text())
    for classes in (
        {"values": [*reversed(ILL)], "other": 0},
        {"values": [*ILL], "other": 1},
        None,
    ):
        changed = {name: value for name, value in manifest.items() if name != "classes"}
        changed |= {"max_bias": 0.0} if classes is None else {"classes": classes}
        (folder / "release.json").write_text(json.dumps(changed))
        with pytest.raises(InputError, match="the files do not belong to one release; run labeldp audit"):
            Release.open(folder)


def test_errors_name_the_row(release: Any, made: Any) -> None:
    text, number = (Release.open(release(f"{label} to parquet")) for label in ("ill", "level"))
    plain = made("unbiased", 1)[1]
    for call, message in (
        (lambda: text.likelihood(["flu", "fluu"]), "row 1 of z is missing, or none of the classes of the release"),
        (lambda: text.likelihood(["flu", None]), "row 1 of z is missing, or none of the classes"),  # type: ignore[arg-type]
        (lambda: text.likelihood([0, 1]), "row 0 of z is missing, or none"),
        (lambda: text.likelihood([["flu"], ["cold"]]), r"z must have shape \(n,\)"),
        (lambda: text.likelihood([]), r"z must have shape \(n,\)"),
        (lambda: text.likelihood(pa.array([["flu"], ["cold"]]).to_pandas()), "and not lists of them"),
        (lambda: text.likelihood(["flu"], center=[1.0]), "have no center: leave out center"),
        (lambda: number.debiased([1, 1.5]), "row 1 of z is missing, or none"),
        (lambda: number.debiased([1, np.nan]), "row 1 of z is missing, or none"),
        (lambda: plain.class_places([1.0]), "are numbers, without classes"),
        (lambda: plain.inverse, "are numbers, without classes"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call()
