"""Releases as the kit reads them, from files of a job and privatizers, with and without a center."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp import InputError, LabelPrivatizer
from labeldp.training import Release

from tests.release_cases import CASES, RECORDS, over

pytestmark = pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")


def table_of(folder: Path) -> Any:
    return pa.concat_tables([pq.read_table(path) for path in sorted((folder / "data").iterdir())])


def test_a_release_without_a_center(release: Any, mechanism_of: Any) -> None:
    folder = release("mechanism unbiased")
    found, table = Release.open(folder), table_of(folder)
    labels, outputs, probabilities = mechanism_of(folder)
    assert (found.label, found.center, found.records) == ("y", None, RECORDS)
    assert (found.mechanism, found.unbiased, found.line, found.clipped) == ("unbiased", True, (0.0, 1.0), 0.0)
    assert 0 < found.epsilon <= 2
    assert found.domain.tolist() == [label / 2 for label in range(21)] == labels.tolist()
    z = table["y"].to_numpy()
    likelihood = found.likelihood(z)
    for row in range(0, RECORDS, 97):
        (place,) = np.flatnonzero(np.isclose(outputs, z[row]))
        assert likelihood[row] == pytest.approx(probabilities[:, place])
    assert found.debiased(z).tolist() == z.tolist()
    variances = probabilities @ outputs**2 - (probabilities @ outputs) ** 2
    assert found.noise == pytest.approx(found.channel.prior @ variances)


@over(["center column", "center column of tfrecords", "center column c32 to parquet"])
def test_a_release_around_a_center(release: Any, mechanism_of: Any, name: str) -> None:
    """The likelihood of z is that of the output z - c for the residual y - c, clipped: by hand, label by label."""
    folder, column = release(name), CASES[name].flags["center_column"]
    found = Release.open(folder)
    if "tfrecords" in name:
        columns = read_columns(folder, column)
    else:
        columns = {each: table_of(folder)[each].to_numpy() for each in ("y", column)}
    labels, outputs, probabilities = mechanism_of(folder)
    assert found.center == column
    assert 0 <= found.clipped < 1
    z, guess = columns["y"].astype(float), columns[column].astype(float)
    likelihood = found.likelihood(z, guess)
    assert likelihood.shape == (len(z), 21)
    step = found.domain[1]
    for row in range(0, len(z), 29):
        missing = not np.isfinite(guess[row])
        center = step * (10 if missing else np.clip(np.floor(guess[row] / step + 0.5), 0, 20))
        place = int(np.abs(outputs - (z[row] - center)).argmin())
        assert outputs[place] == pytest.approx(z[row] - center, abs=1e-4 * step)
        for label in range(21):
            residual = np.clip(label * step - center, labels[0], labels[-1])
            (own,) = np.flatnonzero(np.isclose(labels, residual))
            assert likelihood[row, label] == pytest.approx(probabilities[own, place])
    if found.unbiased:
        assert found.debiased(z, guess).tolist() == z.tolist()
        assert found.noise_variance(z, guess).mean() == pytest.approx(found.noise, rel=0.2)


def read_columns(folder: Path, center: str) -> dict[str, np.ndarray]:
    """Label and guess of TFRecord shards; NaN where there is none."""
    tensorflow: Any = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    layout = {
        name: tensorflow.io.FixedLenFeature([], tensorflow.float32, default_value=float("nan"))
        for name in ("y", center)
    }
    shards = sorted(str(path) for path in (folder / "data").iterdir())
    parts = [
        tensorflow.io.parse_example(batch, layout) for batch in tensorflow.data.TFRecordDataset(shards).batch(10_000)
    ]
    return {name: np.concatenate([part[name].numpy() for part in parts]) for name in layout}


@pytest.mark.parametrize("mechanism", ["rr", "rr_on_bins"])
@pytest.mark.parametrize("centered", [False, True])
def test_debiased_labels_are_those_of_the_privatizer(tmp_path: Path, mechanism: str, centered: bool) -> None:
    rng = np.random.default_rng(5)
    guess = rng.integers(0, 11, 3000).astype(float)
    labels = np.clip(guess + rng.integers(-2, 3, 3000), 0, 10)
    arguments: dict[str, Any] = {"center_column": "guess"} if centered else {}
    given: dict[str, Any] = {"center": guess} if centered else {}
    privatizer = LabelPrivatizer(
        label_min=0, label_max=10, label_step=1, epsilon=3, mechanism=mechanism, noise_key=rng.bytes(32),
        ledger=str(tmp_path / "ledger.jsonl"), source="labels", **arguments,
    )  # fmt: skip
    z = privatizer.fit_transform(labels, **given)
    release = Release.from_privatizer(privatizer)
    assert release.records == 3000
    assert not release.unbiased
    assert release.debiased(z, **given).tolist() == privatizer.debias(z, **given).tolist()
    # Each output appears with about its probability under the prior.
    places, _ = release.places(z, **given)
    expected = release.channel.prior @ release.channel.probabilities
    assert np.bincount(places, minlength=len(expected)) / 3000 == pytest.approx(expected, abs=0.08)


def test_one_of_several_labels(release: Any) -> None:
    folder = release("several labels")
    with pytest.raises(InputError, match="holds 2 labels: name the folder of one of them below it, of labels/y"):
        Release.open(folder)
    assert Release.open(folder / "labels" / "z").label == "z"


def test_files_that_do_not_belong_together(copied: Any, tmp_path: Path) -> None:
    folder = copied("mechanism unbiased")
    manifest = json.loads((folder / "release.json").read_text())
    for change in ({"mechanism_fingerprint": "00" * 32}, {"domain": manifest["domain"] | {"labels": 3}}):
        (folder / "release.json").write_text(json.dumps(manifest | change))
        with pytest.raises(InputError, match="the files do not belong to one release; run labeldp audit"):
            Release.open(folder)
    for text in ("{", "[1]", '{"format": "labeldp-labels-1", "labels": 3}'):
        (folder / "release.json").write_text(text)
        with pytest.raises(InputError):
            Release.open(folder)
    with pytest.raises(InputError):
        Release.open(tmp_path / "nothing")


def test_errors_name_the_argument_and_the_row(release: Any) -> None:
    plain, around = (Release.open(release(name)) for name in ("mechanism unbiased", "center column"))
    z = plain.channel.outputs[:3]
    for arguments, message in (
        (([0.123456],), "row 0 of z is no output of the mechanism: pass the labels as they were released"),
        (([z[0], float("nan")],), "row 1 of z is missing or infinite"),
        ((np.ones((2, 2)),), r"z must have shape \(n,\)"),
        (([],), r"z must have shape \(n,\)"),
        ((z, z), "the labels of this release have no center"),
    ):
        with pytest.raises(ValueError, match=message):
            plain.likelihood(*arguments)
    with pytest.raises(ValueError, match="center is missing: pass the column 'p' of the release"):
        around.debiased(z)
    with pytest.raises(ValueError, match="center has shape"):
        around.debiased(z, [1.0])


def test_the_import_needs_numpy_alone() -> None:
    loaded = "{'scipy', 'pyarrow', 'apache_beam'} & {*sys.modules}"
    code = f"import sys, labeldp; labeldp.training.estimate; print(*sorted({loaded}))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "\n"
