"""Sources of a prior. test_solve_command.py tests the errors in its text."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labeldp.pipelines.errors import UsageError
from labeldp.pipelines.spec.prior_file import read_prior


def test_a_public_prior_has_spent_nothing(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("0,1\n1,3\n")
    (tmp_path / "p.json").write_text('{"labels": [0, 1], "weights": [1, 3]}')

    for name in ("p.csv", "p.json"):
        found = read_prior(str(tmp_path / name))
        assert found.prior.weights.tolist() == [0.25, 0.75]
        assert (found.prior_epsilon, found.records) == (0.0, None)


def test_the_prior_of_classes_is_none_of_numbers(tmp_path: Path) -> None:
    document = {"labels": [0, 1], "weights": [1, 3], "classes": {"values": ["no", "yes"], "other": 0}}
    (tmp_path / "p.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"p\.json: its labels are classes, whose places in a list mean nothing"):
        read_prior(str(tmp_path / "p.json"))


@pytest.fixture
def released(invoke: Any, job: Any, outputs: Path) -> Path:
    """A release of the small log: 1,000 records, 5 labels."""
    invoke(job()).ok()
    return outputs / "released"


def test_a_release_and_its_mechanism_file(released: Path, tmp_path: Path) -> None:
    manifest = json.loads((released / "release.json").read_text())
    weights = json.loads((released / "mechanism.json").read_text())["prior"]["weights"]

    whole, alone = read_prior(str(released)), read_prior(os.path.join(released, "mechanism.json"))
    # An editor may write a byte order mark, with which the file states the same.
    marked = tmp_path / "marked.json"
    marked.write_text((released / "mechanism.json").read_text(), encoding="utf-8-sig")

    for found in (whole, alone, read_prior(str(marked))):
        np.testing.assert_array_equal(found.prior.labels, [0, 1, 2, 3, 4])
        np.testing.assert_array_equal(found.prior.weights, weights)
        assert found.prior_epsilon == manifest["prior_epsilon"] > 0
    assert (whole.records, alone.records) == (1000, None)


@pytest.fixture(scope="module")
def centered(invoke: Any, command: Any, key_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release around a center, of 400 records."""
    folder = tmp_path_factory.mktemp("centered")
    rows = "".join(f"{i % 7},{(i % 7 + i % 3) % 9}\n" for i in range(400))
    (folder / "log.csv").write_text("guess,y\n" + rows)
    flags = {"input": folder / "log.csv", "input_format": "csv", "output_format": "parquet", "label": "y"}
    grid = {"label_min": 0, "label_max": 8, "label_step": 1, "epsilon": 1, "center_column": "guess"}
    invoke(command("privatize", flags | grid | {"output": folder / "released", "noise_key_file": key_file})).ok()
    return folder / "released"


@pytest.mark.parametrize("file", ["mechanism.json", "release.json"])
def test_links_out_of_a_release_are_not_followed(released: Path, tmp_path: Path, file: str) -> None:
    folder = tmp_path / "linked"
    shutil.copytree(released, folder)
    (folder / file).rename(tmp_path / file)
    (folder / file).symlink_to(tmp_path / file)
    with pytest.raises(UsageError, match=rf"--prior {folder}: {folder}/{file} is a link"):
        read_prior(str(folder))


@pytest.mark.parametrize("file", ["", "mechanism.json"])
def test_no_mechanism_is_solved_for_a_prior_of_residuals(
    centered: Path, invoke: Any, tmp_path: Path, file: str
) -> None:
    """`solve` would write a mechanism of residuals without their center, which `apply` would give labels to."""
    outcome = invoke(["solve", "--epsilon=1", f"--prior={centered / file}", f"--output={tmp_path / 'm.json'}"])
    assert outcome.code == 2
    assert f"--prior {centered / file}" in outcome.error
    assert "its prior is that of residuals around a center" in outcome.error
    assert not (tmp_path / "m.json").exists()


@pytest.fixture(scope="module")
def default_release(invoke: Any, command: Any, key_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of 2,000 records as the README makes it: around a linear center."""
    folder = tmp_path_factory.mktemp("default")
    rows = "".join(f"{i % 7},{(i % 7 + i % 3) % 9}\n" for i in range(2000))
    (folder / "log.csv").write_text("x,y\n" + rows)
    flags = {"input": folder / "log.csv", "input_format": "csv", "output_format": "parquet", "label": "y"}
    grid = {"label_min": 0, "label_max": 8, "label_step": 1, "epsilon": 1, "for": "models"}
    invoke(command("privatize", flags | grid | {"output": folder / "released", "noise_key_file": key_file})).ok()
    return folder / "released"


def test_mechanisms_are_compared_for_the_residuals_of_a_default_release(
    default_release: Path, invoke: Any, tmp_path: Path
) -> None:
    """The first of the README's two commands. The released mechanism's error is that of its manifest."""
    document = json.loads((default_release / "mechanism.json").read_text())
    manifest = json.loads((default_release / "release.json").read_text())
    spec = document["mechanism"] + "".join(f":bias={bias}" for bias in [document["parameters"].get("bias")] if bias)
    mechanisms = list(dict.fromkeys(["rr_on_bins", "bias_limited:bias=0.05", "unbiased", spec]))
    flags = ["--mechanism", *mechanisms, "--epsilon", "1", repr(manifest["randomizer_epsilon"])]
    found = invoke(
        [
            "compare",
            f"--prior={default_release}",
            *flags,
            f"--json={tmp_path / 'c.json'}",
        ]
    ).ok()

    rows = json.loads((tmp_path / "c.json").read_text())["rows"]
    (own,) = [r for r in rows if r["mechanism"] == spec and r["epsilon"] == manifest["randomizer_epsilon"]]
    assert own["mse"] == pytest.approx(manifest["expected_loss"]["squared"], rel=1e-6)
    low, high = document["labels"][0], document["labels"][-1]
    assert f"{len(document['labels'])} residuals from {low:g} to {high:g} around the center y_center" in found.out
    assert (
        "clipped to this range, which a job chooses anew for each epsilon; that adds an expected squared" in found.out
    )
    assert f"without that of the center, which spent {manifest['center_epsilon']:.6g}" in found.out


def test_a_budget_is_planned_for_the_residuals_of_a_default_release(
    default_release: Path, invoke: Any, tmp_path: Path
) -> None:
    """The second of the README's two commands. Its default split is that of a job."""
    manifest = json.loads((default_release / "release.json").read_text())
    rest = manifest["epsilon"] - manifest["center_epsilon"]
    found = invoke(
        ["plan", f"--prior={default_release}", "--features=10", f"--epsilon={rest!r}", "--draws=2",
         f"--json={tmp_path / 'p.json'}"]
    ).ok()  # fmt: skip

    (row,) = json.loads((tmp_path / "p.json").read_text())["rows"]
    assert rest / 32 <= row["default_e1"] * 1.001
    assert row["default_e1"] <= rest / 8
    assert "2,000 records" in found.out
    assert "for scale: the residuals' variance is" in found.out
    assert "these are errors of residuals" in found.out


def test_a_folder_that_is_no_release(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"--prior {tmp_path}: {tmp_path}/mechanism.json cannot be read"):
        read_prior(str(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        '{"labels": ' + "[" * 100_000 + "]" * 100_000 + ', "weights": [1]}',
        '{"labels": [0, 1], "weights": [1, ' + "1" * 400 + "]}",
    ],
    ids=["nested too deeply", "larger than any float"],
)
def test_json_that_python_reads_with_other_errors(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(ValueError, match="must be an object with the lists labels and weights"):
        read_prior(str(tmp_path / "p.json"))
