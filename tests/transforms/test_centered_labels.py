"""Labels around a center: the flow draws c + M(clip(y - c)), and any change of a center makes fresh noise."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from labeldp.mechanisms.core.budget import BudgetSplit, split_budget
from labeldp.mechanisms.core.label_grid import LabelRounder
from labeldp.mechanisms.noise.keyed_words import row_identities, words
from labeldp.mechanisms.release.bound_noise import make_binding
from labeldp.mechanisms.release.label_records import add_passes
from labeldp.transforms import (
    BindNoise,
    InputError,
    LabelColumn,
    NoisyPrior,
    PrivatizeLabels,
    SolveRandomizer,
    StreamBinding,
)
from labeldp.transforms.batches import center_values, label_values
from labeldp.transforms.missing_labels import Threshold

from tests.label_counts import summarize

DOMAIN = tuple(float(label) for label in range(21))
COLUMN = LabelColumn("y", DOMAIN, center="c")
ROWS = 3000


def columns_of(seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-2, 23, ROWS)
    labels = np.clip(np.rint(np.clip(centers, 0, 20) + rng.normal(0, 2, ROWS)), 0, 20)
    return {"c": centers, "y": labels}


@pytest.fixture
def release(run, key):
    """(batches, column) -> everything that the job computes from them."""

    def compute(batches, column=COLUMN, epsilon=2.0, **solve: Any):
        def build(pipeline):
            read = pipeline | beam.Create(batches)
            prior = read | NoisyPrior(column, epsilon, key)
            randomizer = prior | SolveRandomizer("unbiased", **solve)
            again = pipeline | "Again" >> beam.Create(batches)
            found = again | PrivatizeLabels(randomizer, prior, column, key)
            bound = pipeline | "Fit" >> beam.Create(batches)
            binding = bound | BindNoise(column, split_budget(epsilon, column.cells, ROWS, None, Fraction(1, 8)), key)
            return {
                "prior": prior, "drawing": randomizer, "batches": found.batches, "digest": found.digest,
                "binding": binding, "letters": found.dead_letters,
            }  # fmt: skip

        return run(build)

    return compute


def test_released_labels_are_center_plus_a_draw_for_the_clipped_residual(labelled, release, secret):
    columns = columns_of()
    found = release([labelled(columns)])
    (prior,), (drawing,), (batch,) = found["prior"], found["drawing"], found["batches"]
    randomizer = drawing.randomizer
    assert found["digest"] == [prior.digest]
    assert batch.batch.column(0).to_pylist() == columns["c"].tolist(), "the center column stays"
    # Without the code of the project, apart from the randomizer and the words.
    centers = np.clip(np.floor(columns["c"].astype(np.float32).astype(float) + 0.5), 0, 20)
    low, high = randomizer.labels[0], randomizer.labels[-1]
    residuals = np.clip(columns["y"] - centers, low, high)
    drawn = words(prior.noise_key(secret), randomizer.fingerprint, row_identities("/logs/a", np.arange(ROWS)))
    expected = centers + randomizer.sample((residuals - low).astype(int), drawn)
    np.testing.assert_array_equal(label_values(batch, "y"), expected)
    assert -20 < low < 0 < high < 20, "residuals have a spread of 2, so their range is short"
    assert prior.prior.labels.tolist() == list(range(-20, 21))
    assert len(prior.counts) == COLUMN.cells
    assert prior.budget == split_budget(2.0, COLUMN.cells, ROWS, None, Fraction(1, 8))
    (binding,) = found["binding"]
    assert vars(binding) == {name: vars(prior)[name] for name in vars(binding)}


def test_the_randomizer_is_unbiased_around_the_center(labelled, release):
    columns = columns_of()
    found = release([labelled(columns)])
    (drawing,) = found["drawing"]
    assert np.abs(drawing.randomizer.bias()).max() < 1e-9
    errors = label_values(found["batches"][0], "y") - columns["y"]
    # Key and names are fixed: draws are the same in every run.
    assert abs(errors.mean()) < 5 * errors.std() / ROWS**0.5 + 0.1


def test_missing_and_infinite_centers_are_the_middle_label(labelled, secret):
    batch = labelled({"c": [None, np.nan, np.inf, -np.inf, 1e300, 7.5, -3.0, 99.0], "y": [0.0] * 8})
    indices, missing = COLUMN.center_indices(center_values(batch, "c"))
    assert indices.tolist() == [10] * 5 + [8, 0, 20]
    assert missing == 5
    summary = summarize(batch, COLUMN, secret)
    assert (summary.missing_centers, summary.records) == (5, 8)
    lists = labelled({"c": pa.array([[1.0], [], [2.0, 3.0], None, [4.0]]), "y": [0.0] * 5})
    assert COLUMN.center_indices(center_values(lists, "c"))[0].tolist() == [1, 10, 10, 10, 4]


def test_centers_are_read_as_float32(labelled):
    """A center that is written as a float32 feature and read back gives the same label."""
    values = np.nextafter(np.arange(20) + 0.5, 0.0)
    ours = COLUMN.center_indices(values)[0]
    back = COLUMN.center_indices(values.astype(np.float32).astype(float))[0]
    np.testing.assert_array_equal(ours, back)
    np.testing.assert_array_equal(ours, LabelRounder(np.array(DOMAIN)).nearest(values.astype(np.float32).astype(float)))


@pytest.mark.parametrize(
    "columns", [{"y": [1.0, 2.0]}, {"y": [1.0, 2.0], "c": [None, np.inf]}], ids=["none", "unusable"]
)
def test_an_input_without_a_center_fails(labelled, secret, columns):
    summary = summarize(labelled(columns), COLUMN, secret)
    with pytest.raises(InputError, match=r"no record has a usable center in 'c' .*: check `center_column`"):
        Threshold().check_sums(summary, COLUMN)


def digest_of(batches, column, secret) -> int:
    parts = [summarize(batch, column, secret) for batch in batches]
    summary = add_passes(parts)
    assert summary is not None
    return make_binding(summary, column, BudgetSplit(0.5, 0.5), secret).digest


def test_any_other_center_gives_another_digest(labelled, secret, recut):
    columns = columns_of()
    batch = labelled(columns)
    first = digest_of([batch], COLUMN, secret)
    assert digest_of(recut(batch, 5, 700), COLUMN, secret) == first
    moved = columns["c"].copy()
    moved[17] = 3.0 if not 2.5 <= moved[17] < 3.5 else 5.0
    both = {"c": columns["c"].copy(), "y": columns["y"].copy()}
    place = int(np.argmax((columns["c"] > 5) & (columns["c"] < 6) & (columns["y"] < 15)))
    both["c"][place] += 1
    both["y"][place] += 1  # the residual stays
    swapped = columns["c"].copy()
    swapped[[0, 1]] = [2.0, 9.0] if columns["c"][0] > 4 else [9.0, 2.0]
    others = [columns | {"c": moved}, both, columns | {"c": swapped}]
    digests = [first, *(digest_of([labelled(other)], COLUMN, secret) for other in others)]
    digests.append(digest_of([batch], LabelColumn("y", DOMAIN), secret))
    digests.append(digest_of([labelled(columns | {"d": columns["c"]})], LabelColumn("y", DOMAIN, center="d"), secret))
    assert len(set(digests)) == len(digests)


def test_a_center_that_changes_between_the_passes_fails_the_job(labelled, failure, key):
    columns = columns_of()
    changed = columns | {"c": np.where(np.arange(ROWS) == 5, 20.0 - columns["c"], columns["c"])}

    def build(pipeline):
        prior = pipeline | beam.Create([labelled(columns)]) | NoisyPrior(COLUMN, 1.0, key)
        records = pipeline | "Records" >> beam.Create([labelled(changed)])
        return {"digest": (records | PrivatizeLabels(prior | SolveRandomizer("rr"), prior, COLUMN, key)).digest}

    assert "the input changed while the job ran" in failure(build)


def test_a_repetition_takes_the_earlier_mechanism(labelled, release):
    from labeldp.mechanisms.release.conclude import EarlierMechanism

    batches = [labelled(columns_of())]
    found = release(batches)
    (prior,), (drawing,) = found["prior"], found["drawing"]
    assert EarlierMechanism(prior.digest, drawing).belongs_to(prior, "unbiased")
    other = replace(drawing, prior=prior.prior)
    assert not EarlierMechanism(prior.digest, other).belongs_to(prior, "unbiased")


def test_a_mechanism_for_other_residuals_is_refused(labelled, failure, key):
    from labeldp.mechanisms import Prior, solve

    batches = [labelled(columns_of())]
    half = np.arange(-3, 4) / 2
    randomizer = solve("rr", Prior(half, np.ones(7)), 1.0)

    def build(pipeline):
        prior = pipeline | beam.Create(batches) | NoisyPrior(COLUMN, 1.0, key)
        records = pipeline | "Records" >> beam.Create(batches)
        return {"batches": (records | PrivatizeLabels(randomizer, prior, COLUMN, key)).batches}

    assert "the label domain of the mechanism differs from the declared one" in failure(build)


def test_a_stream_draws_another_word_for_another_center(labelled, run, key):
    from labeldp.mechanisms import Prior, solve

    column = LabelColumn("y", DOMAIN, "id", center="c")
    randomizer = solve("rr", Prior(np.arange(-20.0, 21.0), np.ones(41)), 0.5)

    def drawn(center: float) -> np.ndarray:
        batch = labelled({"id": np.arange(500), "c": np.full(500, center), "y": np.full(500, 5.0)})

        def build(pipeline):
            records = pipeline | beam.Create([batch])
            return {"batches": (records | PrivatizeLabels(randomizer, StreamBinding("s"), column, key)).batches}

        return label_values(run(build)["batches"][0], "y") - center

    one, again, other = drawn(5.0), drawn(5.0), drawn(6.0)
    np.testing.assert_array_equal(one, again)
    # Under the same words, almost all outputs would be equal: only one weight in 41 differs.
    assert (one == other).mean() < 0.2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("y", DOMAIN, None, "nearest", "y"), "must not be the label column"),
        (("y", (0.0, 1.0, 3.0), None, "nearest", "c"), "evenly spaced"),
        (("y", (1.0,), None, "nearest", "c"), "at least two labels"),
    ],
)
def test_a_center_needs_a_column_of_its_own_and_a_grid(arguments, message):
    with pytest.raises(ValueError, match=message):
        LabelColumn(*arguments)


def test_columns_that_fitting_reads():
    assert LabelColumn("y", DOMAIN, "id", center="c").columns == ["y", "id", "c"]
    assert LabelColumn("y", DOMAIN, "id", center="id").columns == ["y", "id"]


def test_a_stream_without_centers_takes_the_middle_label_and_refuses_text(labelled, run, failure, key):
    """The presence of a center is public. A stream is never complete, so none need have one."""
    from labeldp.mechanisms import Prior, solve

    column = LabelColumn("y", DOMAIN, "id", center="c")
    randomizer = solve("rr", Prior(np.arange(-20.0, 21.0), np.ones(41)), 0.5)

    def released(**centers: Any):
        batch = labelled({"id": np.arange(50), **centers, "y": np.full(50, 5.0)})

        def build(pipeline):
            records = pipeline | beam.Create([batch])
            return {"batches": (records | PrivatizeLabels(randomizer, StreamBinding("s"), column, key)).batches}

        return build

    def drawn(**centers: Any) -> list[float]:
        return label_values(run(released(**centers))["batches"][0], "y").tolist()

    middle = drawn(c=np.full(50, 10.0))
    assert drawn() == drawn(c=pa.nulls(50)) == drawn(c=np.full(50, np.inf)) == middle
    assert drawn(c=np.full(50, 10.4)) == middle, "a center that rounds to the same label has the same noise"
    assert "center column 'c' holds string" in failure(released(c=["10"] * 50))


def test_a_center_that_rounds_to_the_same_label_is_the_same_release(labelled, secret):
    """The released label is a function of the rounded center: equal noise shows nothing."""
    columns = columns_of()
    rounded = np.clip(np.floor(columns["c"].astype(np.float32).astype(float) + 0.5), 0, 20)
    first, other = ([labelled(columns | {"c": centers})] for centers in (columns["c"], rounded))
    assert digest_of(first, COLUMN, secret) == digest_of(other, COLUMN, secret)


def test_too_many_labels_for_a_center_are_refused_before_any_noise(labelled, release):
    """A shorter range for the sake of the mechanism would clip residuals; `working_grid` has fewer labels."""
    column = LabelColumn("y", tuple(np.linspace(0, 20, 4001).tolist()), center="c")
    with pytest.raises(InputError, match=r"4,001 labels have more residuals around a center than the 4,096"):
        release([labelled(columns_of())], column)
