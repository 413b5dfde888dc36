"""Linear centers as an attacker sees them: noise of the sums, what elements show, and sizes; order and retries."""

import itertools
import logging
import pickle
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that, equal_to
from labeldp.mechanisms.center.feature_rows import ROW_UNIT, Categories, Number, RowMap
from labeldp.mechanisms.center.linear_center import MOST_SAMPLE, CenterDesign, LinearCenter, noised_sums
from labeldp.mechanisms.release import center_release
from labeldp.mechanisms.release.center_release import (
    CenterFeatures,
    FeatureSample,
    MomentSummary,
    add_moments,
    moments_key,
    smallest,
)
from labeldp.transforms import InputError, LabelColumn
from labeldp.transforms.center import feature_sample, fit_center
from labeldp.transforms.center.feature_columns import concatenated, feature_columns
from labeldp.transforms.center.feature_sample import MergeSamples, SampleFeatures
from labeldp.transforms.center.fit_center import (
    DesignCenter,
    FitLinearCenter,
    MergeSummaries,
    append_center,
    summarize_moments,
)

DOMAIN = tuple(float(label) for label in range(11))
COLUMN = LabelColumn("y", DOMAIN, center="y_center")
FEATURES = CenterFeatures(("a", "b", "word"))
ROWS = 2000
LABEL = 7361.25
"""Outside the domain, so that no output can be equal to it."""


def columns_of(seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    first, second, code = rng.normal(size=ROWS), rng.normal(size=ROWS), rng.integers(0, 3, ROWS)
    labels = np.clip(np.rint(4 + 2 * first - second + code), 0, 10)
    return {"a": first, "b": second, "word": [f"w{value}" for value in code.tolist()], "y": labels}


def fitted(pipeline, batches, key, features=FEATURES, column=COLUMN, epsilon=2.0) -> Any:
    """The LinearCenter of batches that are read twice."""
    public, labels = (pipeline | name >> beam.Create(batches, reshuffle=False) for name in ("features", "labels"))
    design = public | SampleFeatures(features, key) | DesignCenter(epsilon)
    return labels | FitLinearCenter(column, design, key)


def sample_at_most(records: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes samples smaller."""
    for module in (center_release, feature_sample):
        monkeypatch.setattr(module, "MOST_SAMPLE", records)


@pytest.fixture
def fit(run, key):
    """(batches, column, epsilon) -> the LinearCenter that the job makes of them."""

    def compute(batches, column=COLUMN, epsilon=2.0):
        def build(pipeline):
            return {"center": fitted(pipeline, batches, key, column=column, epsilon=epsilon)}

        (center,) = run(build)["center"]
        return center

    return compute


# The noise of the sums.

# One component: the feature x itself, in units of 1 / ROW_UNIT.
ONE = RowMap((Number("x", 0.0, 1.0),), np.array([[1 << 14]]), 8 * ROW_UNIT)
DESIGN = CenterDesign(ONE, 0.5, np.array([[ROW_UNIT**2, 0], [0, ROW_UNIT**2]]), 1, (0.01,), ROWS)


def noise_of(labelled, secret, x, y, column=COLUMN, design=DESIGN) -> tuple[tuple[int, ...], list[int]]:
    """Raw sums of one batch, and the noise that they get."""
    summary = summarize_moments(labelled({"x": np.array(x), "y": np.array(y)}), column, design, secret)
    key = moments_key(summary, column, design, secret)
    noised = noised_sums(list(summary.sums), design.map.norm, len(column.domain), design.epsilon, key)
    return summary.sums, [after - before for after, before in zip(noised, summary.sums, strict=True)]


def test_the_noise_is_fresh_if_sums_stay_and_labels_change(labelled, secret) -> None:
    """Two records with the same features swap their labels: the sums are equal, the labels are not."""
    x = [1.0, 1.0, -1.0, 0.5]
    sums, noise = noise_of(labelled, secret, x, [2.0, 9.0, 4.0, 5.0])
    swapped, other = noise_of(labelled, secret, x, [9.0, 2.0, 4.0, 5.0])
    assert swapped == sums
    assert other != noise


def test_the_noise_is_fresh_if_labels_stay_and_features_change(labelled, secret) -> None:
    """With the noise of the first sums, two releases would show the exact difference, and so a label."""
    y = [2.0, 9.0, 4.0, 5.0]
    sums, noise = noise_of(labelled, secret, [1.0, 1.0, -1.0, 0.5], y)
    moved, other = noise_of(labelled, secret, [1.0, 1.0, -1.25, 0.5], y)
    assert moved != sums
    assert other != noise
    assert moved[0] == sums[0]
    assert other[0] != noise[0], "the first sum stays, and its noise is fresh all the same"


def test_the_noise_is_fresh_if_features_change_and_all_sums_stay(labelled, secret) -> None:
    """A record whose label is the middle one does not count in the sums. Equal releases would show its label."""
    y = [2.0, 9.0, 4.0, 5.0]
    sums, noise = noise_of(labelled, secret, [1.0, 1.0, -1.0, 0.5], y)
    moved, other = noise_of(labelled, secret, [1.0, 1.0, -1.0, 0.75], y)
    assert moved == sums
    assert other != noise
    # Two records of one label swap their features.
    y = [2.0, 2.0, 4.0]
    sums, noise = noise_of(labelled, secret, [1.0, 0.5, 1.0], y)
    swapped, other = noise_of(labelled, secret, [0.5, 1.0, 1.0], y)
    assert swapped == sums
    assert other != noise


def test_everything_else_that_a_release_depends_on_gives_fresh_noise(labelled, secret) -> None:
    x, y = [1.0, 1.0, -1.0, 0.5], [2.0, 9.0, 4.0, 5.0]
    _, first = noise_of(labelled, secret, x, y)
    assert noise_of(labelled, secret, x, y)[1] == first, "the same input has the same noise"
    others = [
        noise_of(labelled, bytes(32), x, y),
        noise_of(labelled, secret, x, y, LabelColumn("y", tuple(10 * label for label in DOMAIN), center="y_center")),
        noise_of(labelled, secret, x, y, LabelColumn("y", DOMAIN, None, "randomized", "y_center")),
        noise_of(labelled, secret, x, y, design=CenterDesign(ONE, 0.25, DESIGN.gram, 1, (0.01,), ROWS)),
    ]
    found = [tuple(first), *(tuple(noise) for _, noise in others)]
    assert len(set(found)) == len(found)


def test_the_noise_of_the_sums_is_not_that_of_the_histogram(labelled, secret) -> None:
    from labeldp.mechanisms.core.budget import BudgetSplit
    from labeldp.mechanisms.noise.noisy_histogram import noisy_counts
    from labeldp.mechanisms.release.bound_noise import make_binding
    from labeldp.transforms.label_summary import summarize

    batch = labelled({"x": np.ones(4), "y_center": np.ones(4), "y": [2.0, 9.0, 4.0, 5.0]})
    binding = make_binding(summarize(batch, COLUMN, secret), COLUMN, BudgetSplit(0.5, 0.5), secret)
    summary = summarize_moments(batch, COLUMN, DESIGN, secret)
    keys = {binding.noise_key(secret), moments_key(summary, COLUMN, DESIGN, secret), secret}
    assert len(keys) == 3
    # Even under one key, the two streams would differ.
    key = binding.noise_key(secret)
    counts = noisy_counts(np.zeros(2, np.int64), 0.5, key).tolist()
    assert counts != list(noised_sums([0, 0], 1, 2, 0.5, key))


# The order of records, bundles and retries.


def test_the_center_does_not_depend_on_batches_or_their_order(labelled, recut, fit, monkeypatch) -> None:
    """More records than a sample holds, in many bundles."""
    sample_at_most(300, monkeypatch)
    whole = labelled(columns_of())
    pieces = recut(whole, 7, 8, 150, 700, 1500)
    one, other, again = fit([whole]), fit(pieces[::-1]), fit([whole])
    assert one.design.sampled == 300
    assert (one.sums, one.coefficients) == (other.sums, other.coefficients) == (again.sums, again.coefficients)
    np.testing.assert_array_equal(one.design.map.weights, other.design.map.weights)
    assert one.design.map.encoders == other.design.map.encoders


def sample(drawn: list[int], **columns: Any) -> FeatureSample:
    return smallest(np.array(drawn, np.uint64), columns, len(drawn))


def same(one: FeatureSample, other: FeatureSample) -> bool:
    def plain(column: Any) -> Any:
        return (
            [None if code < 0 else column.values[code] for code in column.codes]
            if isinstance(column, Categories)
            else [None if np.isnan(value) else value for value in column]
        )

    return (
        one.words.tolist() == other.words.tolist()
        and one.records == other.records
        and {name: plain(column) for name, column in one.columns.items()}
        == {name: plain(column) for name, column in other.columns.items()}
    )


def test_samples_merge_in_any_order(monkeypatch) -> None:
    sample_at_most(4, monkeypatch)
    merge = MergeSamples()
    parts = [
        sample([5, 1, 9], a=np.array([0.5, 0.1, 0.9])),
        sample([2, 8], a=np.array([0.2, 0.8]), w=Categories(np.array([0, 1]), ("x", "y"))),
        merge.extract_output(merge.create_accumulator()),
        sample([3], w=Categories(np.array([-1]), ())),
        sample([7, 4, 6, 0, 11], a=np.array([0.7, 0.4, 0.6, 0.0, np.nan]), w=Categories(np.zeros(5, int), ("y",))),
    ]
    whole = merge.extract_output(merge.merge_accumulators([parts]))
    assert whole.words.tolist() == [0, 1, 2, 3]
    assert (whole.records, np.asarray(whole.columns["a"])[:3].tolist()) == (11, [0.0, 0.1, 0.2])
    for order in itertools.permutations(range(5)):
        first, *others = ([parts[place]] for place in order[:4])
        found = merge.add_input(merge.merge_accumulators([merge.compact(first), *others]), parts[order[4]])
        assert same(merge.extract_output(found), whole)
    assert same(merge.extract_output(merge.merge_accumulators([])), merge.extract_output(merge.create_accumulator()))


def test_samples_that_wait_to_be_merged_are_few(monkeypatch) -> None:
    monkeypatch.setattr(feature_sample, "_MOST_HELD", 8)
    sample_at_most(4, monkeypatch)
    merge = MergeSamples()
    held = merge.create_accumulator()
    for word in range(100):
        held = merge.add_input(held, sample([99 - word], a=np.array([word / 100])))
        assert sum(len(part.words) for part in held) < 8
    found = merge.extract_output(held)
    assert (found.words.tolist(), found.records) == ([0, 1, 2, 3], 100)


def test_moments_merge_in_any_order(labelled, recut, secret) -> None:
    batch = labelled({"x": np.linspace(-1, 1, ROWS), "y": np.arange(ROWS) % 11.0})
    parts = [summarize_moments(each, COLUMN, DESIGN, secret) for each in recut(batch, 3, 100, 1999)]
    parts.append(summarize_moments(labelled({"x": [1.0], "y": [None]}), COLUMN, DESIGN, secret))
    merge = MergeSummaries(add_moments)
    whole = summarize_moments(batch, COLUMN, DESIGN, secret)
    for order in itertools.permutations(range(5)):
        first = merge.merge_accumulators([parts[place] for place in order[:3]])
        found = merge.merge_accumulators([merge.create_accumulator(), first, *(parts[place] for place in order[3:])])
        assert (found.sums, found.records, found.unusable) == (whole.sums, ROWS, 1)
        np.testing.assert_array_equal(found.digest.lanes, whole.digest.lanes)
        np.testing.assert_array_equal(found.rows.lanes, whole.rows.lanes)
    assert merge.merge_accumulators([]).sums == ()


def test_columns_of_two_kinds_are_refused() -> None:
    with pytest.raises(InputError, match="feature 'a' holds numbers in some records and text in others"):
        concatenated([{"a": np.ones(1)}, {"a": Categories(np.zeros(1, int), ("x",))}], [1, 1])


def test_a_mixture_is_refused_even_if_no_such_record_is_sampled(labelled, failure, key, monkeypatch) -> None:
    """Otherwise the error would depend on how records come together in bundles."""
    sample_at_most(1, monkeypatch)
    batches = [labelled({"a": [1.0] * 40, "y": [1.0] * 40}), labelled({"a": ["x"], "y": [1.0]}, "/logs/b")]
    features = CenterFeatures(("a",))

    def build(pipeline):
        return {"center": fitted(pipeline, batches, key, features)}

    assert "feature 'a' holds numbers in some records and text in others" in failure(build)


# What elements show.


def test_sums_have_one_size_and_come_back(labelled, secret) -> None:
    """Runners show the sizes of elements: that of an integer must not tell how large it is."""
    sums = [(0, 0), (1, -1), (127, 1 << 40), (-(1 << 97), (1 << 97) - 1)]
    one = summarize_moments(labelled({"x": [1.0], "y": [1.0]}), COLUMN, DESIGN, secret)
    stored = [pickle.dumps(MomentSummary(each, 5, 0, one.digest, one.rows)) for each in sums]
    assert len({len(each) for each in stored}) == 1
    assert [pickle.loads(each).sums for each in stored] == sums
    assert pickle.loads(pickle.dumps(MergeSummaries(add_moments).create_accumulator())).sums == ()


def test_representations_show_no_sum(labelled, secret) -> None:
    summary = summarize_moments(labelled({"x": [1.0, 0.3], "y": [3.0, LABEL]}), COLUMN, DESIGN, secret)
    shown = f"{summary!r} {summary} {[summary]}"
    for each in (*summary.sums, *summary.digest.lanes.tolist(), *summary.rows.lanes.tolist(), LABEL):
        assert str(each) not in shown


def fail_with_labels(*args: Any, **kwargs: Any) -> Any:
    """Raises an error with a label in its message and in its cause."""
    try:
        raise KeyError(str(LABEL))
    except KeyError as error:
        raise pa.ArrowNotImplementedError(f"cannot cast [{LABEL}]") from error


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("usable_records", "summing features"),
        ("moment_sums", "summing features"),
        ("label_sums", "summing features"),
        ("digest_sums", "summing features"),
        ("moments_key", "noising the center"),
        ("noised_sums", "noising the center"),
    ],
)
def test_a_failing_stage_shows_no_label(labelled, failure, key, monkeypatch, caplog, capfd, name, stage) -> None:
    caplog.set_level(logging.DEBUG)
    columns = columns_of()
    columns["y"][::9] = LABEL
    monkeypatch.setattr(fit_center if name == "usable_records" else center_release, name, fail_with_labels)

    def build(pipeline):
        return {"center": fitted(pipeline, [labelled(columns)], key)}

    text = failure(build)
    assert f"StageError: {stage} failed: ArrowNotImplementedError at test_linear_center_attacks.py:" in text
    printed = capfd.readouterr()
    for shown in (text, caplog.text, printed.out, printed.err):
        assert "7361" not in shown


def test_a_job_that_succeeds_shows_no_sum(labelled, fit, monkeypatch, caplog, capfd, tmp_path) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[int] = []
    noise = center_release.noised_sums

    def spy(sums, *others):
        seen.extend(sums)
        return noise(sums, *others)

    monkeypatch.setattr(center_release, "noised_sums", spy)
    center = fit([labelled(columns_of())])
    assert len(seen) == len(center.sums) > 1
    assert list(center.sums) != seen
    printed = capfd.readouterr()
    for shown in (caplog.text, printed.out, printed.err, repr(center)):
        assert not any(str(each) in shown for each in seen if abs(each) > 999)


# The label is never a feature.


def test_the_label_is_no_feature(labelled, secret) -> None:
    batch = labelled({"x": [1.0]})
    with pytest.raises(InputError, match="the label column 'x' is a feature of the center"):
        summarize_moments(batch, LabelColumn("x", DOMAIN), DESIGN, secret)
    center = LinearCenter.fit(DESIGN, len(DOMAIN), (1, 2))
    with pytest.raises(InputError, match="the label column 'x' is a feature of the center"):
        append_center(batch, center, LabelColumn("x", DOMAIN, center="c"))


def test_the_rest_of_a_batch_stays_as_it_is(labelled) -> None:
    center = LinearCenter.fit(DESIGN, len(DOMAIN), (10**6, 10**7))
    batch = labelled({"x": [1.0, None], "y": [3.0, LABEL], "z": ["p", "q"]})
    found = append_center(batch, center, COLUMN)
    assert all(found.batch.column(name).equals(batch.batch.column(name)) for name in ("x", "y", "z"))
    centers = found.column("y_center")
    assert centers is not None
    assert set(centers.to_pylist()) <= set(DOMAIN)
    kept = append_center(batch, center, COLUMN, ("y",))
    assert kept.batch.schema.names == ["y", "y_center"]
    with pytest.raises(InputError, match="/logs/a: there is a column 'y_center' already"):
        append_center(found, center, COLUMN)


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        (pa.array([True, None, False]), [1.0, None, 0.0]),
        (pa.array([[1], [], [1, 2]]), [1.0, None, None]),
        (pa.array([float("inf"), float("nan"), 2.5]), [None, None, 2.5]),
        (pa.array([1, None, 3], pa.decimal128(9, 2)), [1.0, None, 3.0]),
        (pa.array([1.5, None, 1.5]).dictionary_encode(), [1.5, None, 1.5]),
    ],
    ids=["bool", "lists", "not finite", "decimal", "dictionary"],
)
def test_numbers_of_every_kind(labelled, values, numbers) -> None:
    found = feature_columns(labelled({"a": values}), ["a", "absent"])
    assert [None if np.isnan(value) else value for value in np.asarray(found["a"])] == numbers
    assert "absent" not in found
    as_categories = feature_columns(labelled({"a": values}), ["a", "absent"], ["a", "absent"])
    assert len(as_categories["absent"]) == 3
    with pytest.raises(InputError, match="feature 'a' holds string, but numbers in other files"):
        feature_columns(labelled({"a": ["x", "y"]}), ["a"], [])


def test_a_worker_passes_on_what_may_be_in_the_sample(labelled, key, monkeypatch) -> None:
    """Records are behind a whole sample of all that the worker has seen, of which a retried bundle counts once."""
    sample_at_most(50, monkeypatch)
    batches = [labelled({"a": np.arange(400.0) + 400 * place}, f"/logs/{place}") for place in range(3)]

    def sampled(batches):
        stage: Any = feature_sample._Sample(CenterFeatures(("a",)), key)
        stage.setup()
        return [next(iter(stage.process(batch))) for batch in batches]

    thinned, whole = sampled(batches), [sampled([batch])[0] for batch in batches]
    assert [len(part.words) for part in whole] == [50, 50, 50]
    assert sum(len(part.words) for part in thinned) < 150
    assert same(feature_sample.merged(thinned), feature_sample.merged(whole))
    failed = sampled([batches[0], batches[0], *batches])[2:]
    assert same(feature_sample.merged(failed), feature_sample.merged(whole))
    assert MOST_SAMPLE > 50


def test_a_rare_column_is_in_its_place_whatever_comes_first(labelled, key) -> None:
    batches = [labelled({"b": [1.0, 2.0]}, "/logs/0"), labelled({"a": [3.0, 4.0], "b": [5.0, 6.0]}, "/logs/1")]
    for order in (batches, batches[::-1]):
        with beam.Pipeline() as pipeline:
            found = pipeline | beam.Create(order) | feature_sample.SampleFeatures(CenterFeatures(("a", "b")), key)
            assert_that(found | beam.Map(lambda sample: list(sample.columns)), equal_to([["a", "b"]]))
