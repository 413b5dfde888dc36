"""Groups of a public column: which record is in which, what is released, and that any change makes fresh noise."""

from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from labeldp.mechanisms.center.group_ranges import GroupRanges
from labeldp.mechanisms.core.budget import BudgetSplit
from labeldp.mechanisms.noise.keyed_words import row_identities, words
from labeldp.mechanisms.release.bound_noise import make_binding
from labeldp.mechanisms.release.prior_release import EarlierMechanism, grouped_prior, histogram_of, release_prior
from labeldp.transforms import (
    BindNoise,
    InputError,
    LabelColumn,
    LabelGroups,
    NoisyPrior,
    PrivatizeLabels,
    SolveRandomizer,
    StreamBinding,
)
from labeldp.transforms.batches import label_values
from labeldp.transforms.label_summary import MergeSummaries, group_indices, summarize

DOMAIN = tuple(float(label) for label in range(201))
GROUPS = LabelGroups("g", ("narrow", "wide"))
COLUMN = LabelColumn("y", DOMAIN, center="c", groups=GROUPS, rounding="randomized")
ROWS = 9000


def columns_of(seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 2, ROWS)
    centers = rng.uniform(0, 200, ROWS)
    labels = np.rint(np.clip(centers + rng.normal(0, np.where(kinds, 40, 4)), 0, 200))
    names = np.array(["narrow", "wide"], object)[kinds]
    names[::100] = [None, "other"] * (len(names[::100]) // 2)
    return {"c": centers, "g": pa.array(names), "y": labels}


COLUMNS = columns_of()


def released(run: Any, key: Any, first: list[Any], second: list[Any], column: LabelColumn = COLUMN) -> Any:
    def build(pipeline):
        prior = pipeline | beam.Create(first) | NoisyPrior(column, 4.0, key)
        randomizer = prior | SolveRandomizer("unbiased")
        again = pipeline | "Again" >> beam.Create(second)
        found = again | PrivatizeLabels(randomizer, prior, column, key)
        return {"prior": prior, "randomizer": randomizer, "batches": found.batches, "digest": found.digest}

    return run(build)


def test_released_labels_are_outputs_in_the_range_of_the_group(labelled, run, key, secret, recut, records_of):
    batch = labelled(COLUMNS)
    found = released(run, key, [batch], [batch])
    (prior,), (randomizer,), (out,) = found["prior"], found["randomizer"], found["batches"]
    assert found["digest"] == [prior.digest]
    assert out.batch.column(1).equals(batch.batch.column(1)), "the column of the groups stays"
    # Without the code of the project, apart from the randomizer and the words.
    narrow, wide, rest = randomizer.group_ranges
    assert wide[1] - wide[0] > 3 * (narrow[1] - narrow[0])
    names = COLUMNS["g"].to_pylist()
    low, high = np.array([{"narrow": narrow, "wide": wide}.get(name, rest) for name in names]).T
    centers = np.floor(COLUMNS["c"].astype(np.float32).astype(float) + 0.5)
    points = len(randomizer.labels)
    exact = (np.clip(COLUMNS["y"] - centers, low, high) - low).astype(int) * (points - 1)
    identities = row_identities("/logs/a", np.arange(ROWS))
    coins = words(secret, b"position y", identities) % (high - low).astype(np.uint64)
    positions = exact // (high - low) + (coins < (exact % (high - low)).astype(np.uint64))
    drawn = randomizer.sample(positions, words(prior.noise_key(secret), randomizer.fingerprint, identities))
    ends = randomizer.labels[[0, -1]]
    expected = centers + low + (drawn - ends[0]) / (ends[1] - ends[0]) * (high - low)
    np.testing.assert_allclose(label_values(out, "y"), expected, atol=1e-9)
    errors = label_values(out, "y") - COLUMNS["y"]
    # Key and names are fixed: draws are the same in every run.
    for group in (np.array(names) == "narrow", np.array(names) == "wide"):
        assert abs(errors[group].mean()) < 5 * errors[group].std() / group.sum() ** 0.5 + 0.5
    assert errors[np.array(names) == "narrow"].std() < errors[np.array(names) == "wide"].std() / 2
    # Retries and other batches give the same labels.
    again = released(run, key, recut(batch, 7, 4000), recut(batch, 100, 101, 8000))
    assert records_of(again["batches"]) == records_of([out])


@pytest.mark.parametrize(
    ("values", "declared", "expected"),
    [
        (pa.array(["a", "b", None, "A", ""]), ("b", "a"), [1, 0, 2, 2, 2]),
        (pa.array([b"a", b"\xff", None], pa.binary()), ("\udcff", "a"), [1, 0, 2]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ("b",), [1, 0, 1]),
        (pa.array([3, -1, None, 30]), ("-1", "3"), [1, 0, 2, 2]),
        (pa.array([3, 1], pa.uint8()), ("3", "-1", "300"), [0, 3]),
        (pa.array([2**64 - 1, 1], pa.uint64()), ("1", str(2**64 - 1)), [1, 0]),
        (pa.array([1, 3]), ("01", "x", "3"), [3, 2]),
        (pa.array([True, False, None]), ("0", "1"), [1, 0, 2]),
        (pa.array([["a"], [], ["a", "b"], None, ["b"]]), ("a", "b"), [0, 2, 2, 2, 1]),
        (pa.nulls(2), ("a",), [1, 1]),
        (pa.nulls(2, pa.float64()), ("1",), [1, 1]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else None,
)
def test_groups_of_values_of_any_kind(labelled, values, declared, expected):
    batch = labelled({"g": values})
    assert group_indices(batch, LabelGroups("g", declared)).tolist() == expected


def test_a_missing_column_is_the_group_of_all_others(labelled):
    assert group_indices(labelled({"y": [1.0, 2.0]}), GROUPS).tolist() == [2, 2]


def test_numbers_with_a_fraction_are_no_groups(labelled, secret):
    batch = labelled({"c": [1.0], "g": [1.5], "y": [1.0]})
    with pytest.raises(InputError, match=r"/logs/a: group column 'g' holds double, neither .*--center_groups"):
        summarize(batch, COLUMN, secret)


def digest_of(batches, column, secret) -> int:
    parts = [summarize(batch, column, secret) for batch in batches]
    summary = MergeSummaries(column.cells).merge_accumulators(parts)
    return make_binding(summary, column, BudgetSplit(0.5, 0.5), secret).digest


def test_a_record_in_another_group_gives_another_digest_and_key(labelled, secret, recut):
    batch = labelled(COLUMNS)
    first = digest_of([batch], COLUMN, secret)
    assert digest_of(recut(batch, 5, 700), COLUMN, secret) == first
    names = COLUMNS["g"].to_pylist()
    names[17] = "narrow" if names[17] != "narrow" else "wide"
    unknown = ["another" if name == "other" else name for name in COLUMNS["g"].to_pylist()]
    assert digest_of([labelled(COLUMNS | {"g": unknown})], COLUMN, secret) == first, "the same group"
    columns = [
        LabelColumn("y", DOMAIN, center="c", rounding="randomized", groups=groups)
        for groups in (None, LabelGroups("g", ("wide", "narrow")), LabelGroups("g", ("narrow",)))
    ]
    digests = [first, digest_of([labelled(COLUMNS | {"g": names})], COLUMN, secret)]
    digests += [digest_of([batch], column, secret) for column in columns]
    assert len(set(digests)) == len(digests)
    bindings = [make_binding(summarize(batch, each, secret), each, BudgetSplit(1, 1), secret) for each in columns]
    assert len({binding.noise_key(secret) for binding in bindings}) == len(bindings)


def test_counts_of_groups_add_up_to_those_without(labelled, secret):
    batch = labelled(COLUMNS)
    plain = summarize(batch, LabelColumn("y", DOMAIN, center="c", rounding="randomized"), secret)
    grouped = summarize(batch, COLUMN, secret)
    assert len(grouped.counts) == COLUMN.cells == 3 * len(plain.counts)
    np.testing.assert_array_equal(grouped.counts.reshape(3, -1).sum(axis=0), plain.counts)
    assert grouped.records == ROWS


def test_few_records_have_one_histogram(labelled, secret):
    names = [name or "none" for name in COLUMNS["g"].to_pylist()[:300]]
    batch = labelled({"c": COLUMNS["c"][:300], "g": names, "y": COLUMNS["y"][:300]})
    release = release_prior(summarize(batch, COLUMN, secret), COLUMN, 1.0, None, secret, "unbiased")
    assert len(release.counts) == COLUMN.residuals.cells
    assert sum(release.group_records) == 300
    many = release_prior(summarize(labelled(COLUMNS), COLUMN, secret), COLUMN, 4.0, None, secret, "unbiased")
    assert len(many.counts) == COLUMN.cells
    names = COLUMNS["g"].to_pylist()
    narrow, wide = names.count("narrow"), names.count("wide")
    assert many.group_records == (narrow, wide, ROWS - narrow - wide)


def test_a_group_that_changes_between_the_passes_fails_the_job(labelled, failure, key):
    names = COLUMNS["g"].to_pylist()
    names[5] = "narrow" if names[5] != "narrow" else "wide"
    batches = [[labelled(COLUMNS)], [labelled(COLUMNS | {"g": names})]]
    text = failure(lambda pipeline: _digest(pipeline, batches, key))
    assert "the input changed while the job ran" in text


def _digest(pipeline: Any, batches: list[list[Any]], key: Any) -> dict[str, Any]:
    prior = pipeline | beam.Create(batches[0]) | NoisyPrior(COLUMN, 1.0, key)
    records = pipeline | "Records" >> beam.Create(batches[1])
    return {"digest": (records | PrivatizeLabels(prior | SolveRandomizer("unbiased"), prior, COLUMN, key)).digest}


def test_a_repetition_takes_the_earlier_mechanism_and_no_other(labelled, secret):
    summary = summarize(labelled(COLUMNS), COLUMN, secret)
    prior = release_prior(summary, COLUMN, 4.0, None, secret, "unbiased")
    from labeldp.mechanisms.analysis.automatic import solve_for_groups
    from labeldp.mechanisms.registry import mechanism_named

    randomizer = solve_for_groups(histogram_of(prior), prior.budget.labels, mechanism_named("unbiased"))
    solved = grouped_prior(histogram_of(prior), randomizer)
    earlier = EarlierMechanism(prior.digest, solved, prior.budget, prior.rounding, randomizer)
    assert earlier.belongs_to(prior, "unbiased")
    ranges = randomizer.group_ranges
    assert ranges is not None
    low, high = ranges[0]
    for ends in ((low, high + 1), (low, 300)):
        other = randomizer.for_groups((ends, *ranges[1:]))
        changed = EarlierMechanism(prior.digest, solved, prior.budget, prior.rounding, other)
        assert not changed.belongs_to(prior, "unbiased")
    with pytest.raises(ValueError, match="another number of groups"):
        grouped_prior(histogram_of(prior), randomizer.for_groups(ranges[:2]))


def test_a_mechanism_for_other_groups_is_refused(labelled, failure, key):
    from labeldp.mechanisms import Prior, solve
    from labeldp.mechanisms.release.label_draws import fits

    randomizer = solve("rr", Prior(np.arange(-3.0, 4.0), np.ones(7)), 1.0)
    assert fits(COLUMN, randomizer.for_groups(((-3, 3),) * 3))
    assert not fits(COLUMN, randomizer.for_groups(((-3, 3),) * 2))
    assert not fits(COLUMN, randomizer.for_groups(((-3, 3), (-3, 3), (0, 201))))
    assert not fits(LabelColumn("y", DOMAIN, center="c"), randomizer.for_groups(((-3, 3),)))

    def build(pipeline):
        binding = pipeline | beam.Create([labelled(COLUMNS)]) | BindNoise(COLUMN, BudgetSplit(0.5, 0.5), key)
        records = pipeline | "Records" >> beam.Create([labelled(COLUMNS)])
        return {"batches": (records | PrivatizeLabels(randomizer, binding, COLUMN, key)).batches}

    assert "the label domain of the mechanism differs from the declared one" in failure(build)


def test_a_stream_draws_another_word_in_another_group(labelled, run, key):
    from labeldp.mechanisms import Prior, solve

    column = LabelColumn("y", DOMAIN, "id", center="c", groups=LabelGroups("g", ("a", "b")))
    ranges = GroupRanges(((-20, 20),) * 3)
    randomizer = solve("rr", Prior(np.arange(-20.0, 21.0), np.ones(41)), 0.5).for_groups(ranges.ends)

    def drawn(group: str) -> np.ndarray:
        batch = labelled({"id": np.arange(500), "c": np.full(500, 50.0), "g": [group] * 500, "y": np.full(500, 55.0)})

        def build(pipeline):
            records = pipeline | beam.Create([batch])
            return {"batches": (records | PrivatizeLabels(randomizer, StreamBinding("s"), column, key)).batches}

        return label_values(run(build)["batches"][0], "y")

    one, again, other = drawn("a"), drawn("a"), drawn("b")
    np.testing.assert_array_equal(one, again)
    assert (one == other).mean() < 0.2


def test_groups_need_a_center_and_values_and_a_column_of_their_own():
    with pytest.raises(ValueError, match="groups need a center"):
        LabelColumn("y", DOMAIN, groups=GROUPS)
    for column in ("y", "id"):
        with pytest.raises(ValueError, match="neither the label nor the id_column"):
            LabelColumn("y", DOMAIN, "id", center="c", groups=LabelGroups(column, ("a",)))
    for values in ((), tuple(map(str, range(16)))):
        with pytest.raises(ValueError, match="1 to 15 values"):
            LabelGroups("g", values)
    with pytest.raises(ValueError, match="the same value"):
        LabelGroups("g", ("a", "a"))
    assert COLUMN.columns == ["y", "c", "g"]
