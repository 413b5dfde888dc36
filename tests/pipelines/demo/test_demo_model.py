"""Models that the demo trains: the test errors are those of the labels that they were trained on."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytestmark = pytest.mark.xdist_group("demo")


@pytest.fixture(scope="module")
def precise(tmp_path_factory: pytest.TempPathFactory, invoke: Any) -> tuple[Path, dict[str, float]]:
    """Folder and errors of a demo of 20,000 clicks whose labels are hardly noised."""
    folder = tmp_path_factory.mktemp("demo") / "output"
    outcome = invoke(["demo", f"--output={folder}", "--clicks=20000", "--epsilon=30"]).ok()
    line = next(line for line in outcome.out.splitlines() if line.startswith("Trained"))
    numbers = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", line)]
    return folder, dict(zip(("records", "released", "true", "mean"), numbers, strict=True))


def test_labels_with_little_noise_train_as_good_a_model(precise: tuple[Path, dict[str, float]]) -> None:
    _, errors = precise
    # Each run has its own key. Draws at epsilon 30 are those of the nearest outputs: the errors agree to 0.04 %.
    assert errors["released"] == pytest.approx(errors["true"], rel=0.1)
    assert errors["true"] < 0.8 * errors["mean"]


def test_the_mean_is_tested_on_clicks_that_are_not_in_the_log(precise: tuple[Path, dict[str, float]]) -> None:
    from labeldp.pipelines.cli.demo_command import LABEL, click_batches, new_clicks

    _, errors = precise
    new = new_clicks(2500, 1)
    labels = new.column(LABEL).drop_null().to_numpy().astype(float)
    assert errors["records"] == len(labels)
    # The mean of the released labels is off by little.
    assert errors["mean"] == pytest.approx(labels.var(), rel=0.05)
    log = pa.Table.from_batches(list(click_batches(20_000, 1, 2500)))
    assert set(new.column("nb_clicks_1week").to_pylist()[:50]) != set(log["nb_clicks_1week"].to_pylist()[:50])
    for name in ("product_brand", "partner_id"):
        known, found = set(log[name].to_pylist()), new.column(name).to_pylist()
        assert sum(value in known for value in found) > 0.9 * len(found)


def test_few_conversions_train_no_model(tmp_path: Path, invoke: Any) -> None:
    outcome = invoke(["demo", f"--output={tmp_path / 'output'}", "--clicks=400"]).ok()
    assert "Trained   No model: there are too few conversions." in outcome.out.splitlines()
