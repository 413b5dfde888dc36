"""Releases as the kit reads them, from files of a job and privatizers, with and without a center."""

import json
import shutil
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

pytestmark = pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")
ROWS = 6000


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labels y in 0..20, a guess of each, missing at times, and a second label."""
    rng = np.random.default_rng(2)
    guess = rng.uniform(0, 20, ROWS)
    labels = np.clip(np.rint(guess + rng.normal(0, 2, ROWS)), 0, 20)
    guess[::100] = np.nan
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    columns = {"guess": guess, "x": rng.normal(size=ROWS), "kind": rng.integers(0, 2, ROWS), "y": labels, "w": labels}
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture(scope="module")
def released(log: Path, key_file: Path, invoke: Any, command: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Function (flag=value, ...) -> the folder of a release of `log`; kept."""
    kept: dict[Any, Path] = {}

    def run(**flags: Any) -> Path:
        key = tuple(sorted(flags.items()))
        if key not in kept:
            kept[key] = tmp_path_factory.mktemp("release") / "released"
            asked: dict[str, Any] = {
                "input": log, "input_format": "parquet", "label": "y", "label_min": 0, "label_max": 20,
                "label_step": 1, "epsilon": 2, "noise_key_file": key_file, "output": kept[key],
                "mechanism": "unbiased",
            }  # fmt: skip
            invoke(command("privatize", asked | flags)).ok()
        return kept[key]

    return run


def table_of(folder: Path) -> Any:
    return pa.concat_tables([pq.read_table(path) for path in sorted((folder / "data").iterdir())])


def test_a_release_without_a_center(released: Any, mechanism_of: Any) -> None:
    folder = released(center="none")
    release, table = Release.open(folder), table_of(folder)
    labels, outputs, probabilities = mechanism_of(folder)
    assert (release.label, release.center, release.records) == ("y", None, ROWS)
    assert (release.mechanism, release.unbiased, release.line, release.clipped) == ("unbiased", True, (0.0, 1.0), 0.0)
    assert 0 < release.epsilon <= 2
    assert release.domain.tolist() == list(range(21)) == labels.tolist()
    z = table["y"].to_numpy()
    likelihood = release.likelihood(z)
    for row in range(0, ROWS, 997):
        (place,) = np.flatnonzero(np.isclose(outputs, z[row]))
        assert likelihood[row] == pytest.approx(probabilities[:, place])
    assert release.debiased(z).tolist() == z.tolist()
    variances = probabilities @ outputs**2 - (probabilities @ outputs) ** 2
    assert release.noise == pytest.approx(release.channel.prior @ variances)


@pytest.mark.parametrize("output_format", ["parquet", "tfrecord"])
def test_a_release_around_a_center(released: Any, mechanism_of: Any, output_format: str) -> None:
    """The likelihood of z is that of the output z - c for the residual y - c, clipped: by hand, label by label."""
    folder = released(center_column="guess", output_format=output_format)
    release = Release.open(folder)
    if output_format == "parquet":
        columns = {name: table_of(folder)[name].to_numpy() for name in ("y", "guess")}
    else:
        columns = read_columns(folder)
    labels, outputs, probabilities = mechanism_of(folder)
    assert release.center == "guess"
    assert 0 <= release.clipped < 0.2
    z, guess = columns["y"].astype(float), columns["guess"].astype(float)
    likelihood = release.likelihood(z, guess)
    assert likelihood.shape == (ROWS, 21)
    for row in [0, 100, *range(1, ROWS, 499)]:
        center = 10 if np.isnan(guess[row]) else int(np.clip(np.floor(guess[row] + 0.5), 0, 20))
        place = int(np.abs(outputs - (z[row] - center)).argmin())
        assert outputs[place] == pytest.approx(z[row] - center, abs=1e-4)
        for label in range(21):
            residual = np.clip(label - center, labels[0], labels[-1])
            (own,) = np.flatnonzero(labels == residual)
            assert likelihood[row, label] == pytest.approx(probabilities[own, place])
    assert release.debiased(z, guess).tolist() == z.tolist()
    assert release.noise_variance(z, guess).mean() == pytest.approx(release.noise, rel=0.05)


def read_columns(folder: Path) -> dict[str, np.ndarray]:
    """Label and guess of TFRecord shards; NaN where there is none."""
    tensorflow: Any = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    layout = {
        name: tensorflow.io.FixedLenFeature([], tensorflow.float32, default_value=float("nan"))
        for name in ("y", "guess")
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


def test_one_of_several_labels(released: Any) -> None:
    folder = released(label="y,w", center="none", epsilon=4)
    with pytest.raises(InputError, match="holds 2 labels: name the folder of one of them below it, of labels/y"):
        Release.open(folder)
    assert Release.open(folder / "labels" / "w").label == "w"


def test_files_that_do_not_belong_together(released: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(released(center="none"), tmp_path / "released")
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


def test_errors_name_the_argument_and_the_row(released: Any) -> None:
    plain, around = Release.open(released(center="none")), Release.open(released(center_column="guess"))
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
    with pytest.raises(ValueError, match="center is missing: pass the column 'guess' of the release"):
        around.debiased(z)
    with pytest.raises(ValueError, match="center has shape"):
        around.debiased(z, [1.0])


def test_the_import_needs_numpy_alone() -> None:
    loaded = "{'scipy', 'pyarrow', 'apache_beam'} & {*sys.modules}"
    code = f"import sys, labeldp; labeldp.training.estimate; print(*sorted({loaded}))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "\n"
