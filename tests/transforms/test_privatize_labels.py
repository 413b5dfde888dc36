"""Labels are drawn from the randomizer with the keyed words of their records; all runs give the same outputs."""

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.pvalue import AsSingleton
from labeldp.mechanisms import Prior, Randomizer, solve
from labeldp.mechanisms.core.budget import BudgetSplit
from labeldp.mechanisms.noise.input_digest import add_sums
from labeldp.mechanisms.noise.keyed_words import row_identities, words
from labeldp.mechanisms.release.bound_noise import make_binding
from labeldp.mechanisms.release.drawing import drawing_of
from labeldp.mechanisms.release.label_records import PassSums, add_passes
from labeldp.transforms import (
    Carried,
    DeadLetter,
    LabelColumn,
    LabelledBatch,
    NoiseBinding,
    PrivatizedLabels,
    PrivatizeLabels,
    ReleaseShards,
    WriteParquet,
)
from labeldp.transforms.batches import LabelledBatchCoder, label_values
from labeldp.transforms.privatize_labels import privatize_batch
from labeldp.transforms.usable_records import usable_records

from tests.false_alarms import count_bounds
from tests.label_counts import summarize

DOMAIN = (0.0, 1.0, 2.0, 3.0)
COLUMN = LabelColumn("y", DOMAIN)
UNIFORM = Prior(np.array(DOMAIN), np.ones(4))
RR = solve("rr", UNIFORM, 1.0)
BUDGET = BudgetSplit(0.25, 1.0)


def labels_of(rows: int, seed: int = 1) -> list[float]:
    return np.random.default_rng(seed).choice(DOMAIN, rows).tolist()


def binding_of(*batches: LabelledBatch, column=COLUMN, secret: bytes, budget=BUDGET) -> NoiseBinding:
    parts = [summarize(batch, column, secret) for batch in batches]
    summary = add_passes(parts) or PassSums(np.zeros(len(column.domain), np.int64), 0, 0, add_sums([]))
    return make_binding(summary, column, budget, secret)


def drawn(batch: LabelledBatch, noise_key: bytes, randomizer=RR, column=COLUMN) -> np.ndarray:
    """The privatized labels of a batch all of whose labels are usable."""
    result = privatize_batch(usable_records(batch, column), drawing_of(randomizer, column), noise_key, bytes(32))
    return label_values(result, column.name)


@pytest.fixture
def privatize(run, key, secret):
    """Batches -> {batches, letters, digest}, bound to those batches unless a binding is given."""

    def compute(batches, randomizer=RR, column=COLUMN, binding=None):
        bound = binding or binding_of(*batches, column=column, secret=secret)

        def build(pipeline):
            found = pipeline | beam.Create(batches) | PrivatizeLabels(
                randomizer, pipeline | "Binding" >> beam.Create([bound]), column, key
            )  # fmt: skip
            assert isinstance(found, PrivatizedLabels)
            return {"batches": found.batches, "letters": found.dead_letters, "digest": found.digest}

        return run(build)

    return compute


def bytes_of(batches: list[LabelledBatch]) -> list[bytes]:
    return sorted(map(LabelledBatchCoder().encode, batches))


def test_the_draw_is_the_randomizers_under_the_records_word(labelled, secret):
    batch = labelled({"y": [-9.0, 0.4, 0.5, 2.0, 99.0]}, start=3)
    noise_key = binding_of(batch, secret=secret).noise_key(secret)
    record_words = words(noise_key, RR.fingerprint, row_identities("/logs/a", np.arange(3, 8)))
    np.testing.assert_array_equal(drawn(batch, noise_key), RR.sample(np.array([0, 0, 1, 2, 3]), record_words))


# Reproducibility.


def test_output_does_not_depend_on_how_the_records_are_cut(labelled, recut, privatize, records_of):
    one, two = labelled({"y": labels_of(90)}), labelled({"y": labels_of(40, 2)}, "/logs/b")
    expected = records_of(privatize([one, two])["batches"])
    assert len(expected) == 130
    pieces = [*recut(one, 1, 50, 50, 77), *recut(two, 13)]
    random.Random(5).shuffle(pieces)
    again = privatize(pieces)
    assert records_of(again["batches"]) == expected
    single = [*recut(one, *range(1, 90)), two]
    assert records_of(privatize(single[::-1])["batches"]) == expected


# Fresh noise for changed input.

PAIR = LabelColumn("y", (0.0, 1.0))


def test_one_changed_label_redraws_every_other_record_independently(labelled, secret):
    """Otherwise the two outputs would differ in the changed record only and reveal its label.

    Two independent draws under randomized response agree with probability p^2 + q^2, so agreements are binomial.
    """
    rows, epsilon = 20_000, 0.5
    randomizer = solve("rr", Prior(np.array([0.0, 1.0]), np.ones(2)), epsilon)
    labels = np.random.default_rng(3).integers(0, 2, rows).astype(float)
    changed = labels.copy()
    changed[11] = 1 - changed[11]
    outputs, digests = [], set()
    for values in (labels, changed):
        batch = labelled({"y": values})
        binding = binding_of(batch, column=PAIR, secret=secret)
        digests.add(binding.digest)
        outputs.append(drawn(batch, binding.noise_key(secret), randomizer, PAIR))
    assert len(digests) == 2
    others = np.arange(rows) != 11
    keep = 1 / (1 + math.exp(-epsilon))
    for label in (0.0, 1.0):
        alike = others & (labels == label)
        agreements = int((outputs[0] == outputs[1])[alike].sum())
        low, high = count_bounds(int(alike.sum()), keep**2 + (1 - keep) ** 2)
        assert low <= agreements <= high


# Rounding.

ROUNDED = LabelColumn("y", DOMAIN, rounding="randomized")


def test_two_mechanisms_over_the_same_records_draw_independently(labelled, secret):
    """Uses rr at two epsilons. Words are bound to the mechanism, so draws are independent and agreements binomial."""
    rows, pair = 20_000, LabelColumn("y", (0.0, 1.0))
    prior = Prior(np.array([0.0, 1.0]), np.ones(2))
    batch = labelled({"y": np.zeros(rows)})
    noise_key = binding_of(batch, column=pair, secret=secret).noise_key(secret)
    one, two = (drawn(batch, noise_key, solve("rr", prior, epsilon), pair) for epsilon in (0.5, 0.6))
    keep, other = (1 / (1 + math.exp(-epsilon)) for epsilon in (0.5, 0.6))
    low, high = count_bounds(rows, keep * other + (1 - keep) * (1 - other))
    assert low <= int((one == two).sum()) <= high


def test_counting_and_privatizing_round_alike(labelled, recut, privatize, secret):
    """At epsilon 30 an output differs from the rounded label with a probability of about 1e-12."""
    values = np.random.default_rng(5).uniform(-0.5, 3.5, 3_000)
    values[::7] = np.round(values[::7])
    batch = labelled({"y": values})
    summary = summarize(batch, ROUNDED, secret)
    same = solve("rr", UNIFORM, 30.0)
    results = privatize(recut(batch, 1, 500, 2_000), same, ROUNDED)["batches"]
    outputs = np.full(3_000, math.nan)
    for result in results:
        outputs[result.rows] = label_values(result, "y")
    assert [(outputs == label).sum() for label in DOMAIN] == summary.sums.tolist()
    assert np.all(np.abs(outputs - np.clip(values, 0, 3)) < 1)
    assert np.all(outputs[::7] == np.clip(values[::7], 0, 3))
    nearest = summarize(batch, COLUMN, secret)
    assert nearest.sums.tolist() != summary.sums.tolist()
    assert nearest.digest.lanes.tolist() == summary.digest.lanes.tolist()


# Ids.

WITH_IDS = LabelColumn("y", DOMAIN, "id")


@pytest.mark.parametrize("ids", [list(range(200)), [f"user {i}" for i in range(200)]], ids=["int", "text"])
def test_with_ids_the_draw_follows_the_record_wherever_it_moves(labelled, secret, ids):
    order = np.random.default_rng(2).permutation(200)
    labels = np.array(labels_of(200))
    here = labelled({"id": ids, "y": labels}, "/logs/a")
    there = labelled({"y": labels[order], "id": [ids[i] for i in order]}, "/elsewhere/b", 1_000)
    one, two = (binding_of(batch, column=WITH_IDS, secret=secret) for batch in (here, there))
    assert one == two
    noise_key = one.noise_key(secret)
    np.testing.assert_array_equal(
        drawn(here, noise_key, column=WITH_IDS)[order], drawn(there, noise_key, column=WITH_IDS)
    )


def test_without_ids_the_draw_is_bound_to_file_and_row(labelled):
    labels = {"y": [1.0] * 500}
    noise_key = bytes(range(32))
    one, file, row = (drawn(labelled(labels, *place), noise_key) for place in (("/a", 0), ("/b", 0), ("/a", 1)))
    assert (one != file).any()
    np.testing.assert_array_equal(one[1:], row[:-1])


# Records without a usable label.


def test_unusable_records_become_dead_letters_and_the_rest_keep_their_rows(labelled, privatize, records_of):
    values = [1.0, None, math.nan, 2.0, math.inf, 48613.5, -math.inf, 0.0]
    batch = labelled({"t": list("abcdefgh"), "y": values}, start=100)
    found = privatize([batch])
    assert sorted(found["letters"], key=lambda letter: letter.row) == [
        DeadLetter("/logs/a", row, "privatize", "unusable label") for row in (101, 102, 104, 106)
    ]
    (result,) = found["batches"]
    assert (result.start, result.stop, result.rows.tolist()) == (100, 108, [100, 103, 105, 107])
    assert result.batch.to_pydict()["t"] == ["a", "d", "f", "h"]


def test_a_dead_letter_says_where_and_why_and_nothing_else():
    letter = DeadLetter("/logs/a", 7, "privatize", "unusable label")
    assert json.loads(letter.to_json()) == {
        "source": "/logs/a", "row": 7, "stage": "privatize", "error": "unusable label",
    }  # fmt: skip
    assert "\n" not in DeadLetter("/logs/a\n", 7, "privatize", "unusable label").to_json()


# Digest.


@pytest.mark.parametrize("column", [COLUMN, WITH_IDS], ids=["rows", "ids"])
def test_the_digest_is_that_of_the_binding(labelled, recut, privatize, secret, column):
    values = [*labels_of(50), None, math.nan, -77.5]
    batch = labelled({"id": np.arange(53), "y": values})
    expected = binding_of(batch, column=column, secret=secret).digest
    assert privatize(recut(batch, 10, 51), column=column)["digest"] == [expected]


@pytest.fixture
def changed_between(labelled, secret, key) -> Callable[..., PrivatizedLabels]:
    """(pipeline) -> the outputs for batches in which one label was changed after the noise was bound to the input."""

    def privatized(pipeline):
        labels = labels_of(50)
        before, after = labelled({"y": labels}), labelled({"y": [labels[0] + 0.001, *labels[1:]]})
        bound = pipeline | "Binding" >> beam.Create([binding_of(before, secret=secret)])
        found: Any = pipeline | beam.Create([after]) | PrivatizeLabels(RR, bound, COLUMN, key)
        return found

    return privatized


def test_the_job_fails_when_the_input_changed_in_between(changed_between, failure):
    """The job fails even if the author of the pipeline does not use the digest."""
    text = failure(lambda pipeline: {"batches": changed_between(pipeline).batches})
    assert "InputError: the input changed while the job ran, so nothing may be released" in text


def test_what_waits_for_the_digest_never_sees_a_changed_input(changed_between, failure, tmp_path):
    def build(pipeline):
        digest = AsSingleton(changed_between(pipeline).digest)
        waiting = pipeline | "One" >> beam.Create([1])
        return {"out": waiting | beam.Map(lambda _, digest: (tmp_path / "seen").touch(), digest)}

    assert "the input changed" in failure(build)
    assert not (tmp_path / "seen").exists()


# Mechanism.


def elsewhere(found: Randomizer) -> Randomizer:
    """The randomizer as another CPU might compute it: its outputs differ in the last bit."""
    outputs = np.nextafter(found.outputs, np.inf)
    return Randomizer(found.labels, outputs, found.weights, found.epsilon, found.mechanism, found.parameters, found.gap)


def test_the_mechanism_is_that_of_the_randomizer_and_stays_with_the_batches(labelled, recut, run, key, secret):
    batches = recut(labelled({"y": [*labels_of(50), None]}), 10, 50)
    binding = binding_of(*batches, secret=secret)

    def build(pipeline):
        bound = pipeline | "Binding" >> beam.Create([binding])
        found: Any = pipeline | beam.Create(batches) | PrivatizeLabels(RR, bound, COLUMN, key)
        return {"batches": found.batches, "mechanism": found.mechanism}

    found = run(build)
    assert found["mechanism"] == [RR.fingerprint.hex()]
    assert [batch.mechanism for batch in found["batches"]] == [RR.fingerprint.hex()] * 2
    assert all(batch.mechanism is None for batch in batches)


@pytest.mark.parametrize("mixed", [True, False], ids=["some batches", "all batches"])
def test_what_waits_for_the_digest_never_sees_a_mixture_of_mechanisms(
    labelled, recut, failure, key, secret, tmp_path, monkeypatch, mixed
):
    """The stage is given another randomizer than its consumers: for all batches, or for those of a second worker."""
    from labeldp.transforms import privatize_labels

    batches = recut(labelled({"y": labels_of(60)}), 20, 40)
    process = privatize_labels._Randomize.process

    def on_another_worker(self, batch, randomizer, binding):
        other = elsewhere(randomizer) if batch.start or not mixed else randomizer
        yield from process(self, batch, other, binding)

    monkeypatch.setattr(privatize_labels._Randomize, "process", on_another_worker)

    def build(pipeline):
        bound = pipeline | "Binding" >> beam.Create([binding_of(*batches, secret=secret)])
        found: Any = pipeline | beam.Create(batches) | PrivatizeLabels(RR, bound, COLUMN, key)
        shards = found.batches | WriteParquet(str(tmp_path / "temp" / "shards"), str(tmp_path / "temp"), 1)
        return {"out": shards | ReleaseShards(str(tmp_path / "out"), found.digest)}

    text = failure(build)
    assert "InputError: labels were drawn by another mechanism than the one of this release" in text
    assert RR.fingerprint.hex() not in text
    assert not (tmp_path / "out").exists()


# Side inputs that batches carry.


def test_a_randomizer_and_a_binding_that_batches_carry(labelled, recut, run, privatize, key, secret):
    batches = recut(labelled({"y": [*labels_of(50), None]}), 10, 50)
    carrying = [batch.carry(["r", "b"], [RR, binding_of(*batches, secret=secret)]) for batch in batches]

    def build(pipeline):
        randomizer = Carried("r", pipeline | "Randomizer" >> beam.Create([RR]))
        binding = Carried("b", pipeline | "Binding" >> beam.Create([binding_of(*batches, secret=secret)]))
        found: Any = pipeline | beam.Create(carrying) | PrivatizeLabels(randomizer, binding, COLUMN, key)
        return {"batches": found.batches, "letters": found.dead_letters, "digest": found.digest}

    expected = privatize(batches)
    found = run(build)
    assert bytes_of([replace(batch, carried={}) for batch in found["batches"]]) == bytes_of(expected["batches"])
    assert found["letters"] == expected["letters"]
    assert found["digest"] == expected["digest"]


def test_a_carried_randomizer_that_is_not_the_published_one_releases_nothing(labelled, failure, key, secret):
    """Batches may be read by a worker for which the solving stage was computed once more."""
    batch = labelled({"y": labels_of(50)})
    binding = binding_of(batch, secret=secret)

    def build(pipeline):
        randomizer = Carried("r", pipeline | "Randomizer" >> beam.Create([RR]))
        bound = pipeline | "Binding" >> beam.Create([binding])
        records = pipeline | beam.Create([batch.carry(["r"], [elsewhere(RR)])])
        return {"digest": (records | PrivatizeLabels(randomizer, bound, COLUMN, key)).digest}

    assert "labels were drawn by another mechanism than the one of this release" in failure(build)


# Releasing shards.


def test_no_shard_is_released_when_the_input_changed_in_between(changed_between, failure, tmp_path):
    def build(pipeline):
        found = changed_between(pipeline)
        shards = found.batches | WriteParquet(str(tmp_path / "temp" / "shards"), str(tmp_path / "temp"), 1)
        return {"out": shards | ReleaseShards(str(tmp_path / "out"), found.digest)}

    assert "the input changed" in failure(build)
    assert not (tmp_path / "out").exists()


# Refused arguments and input.


def test_a_randomizer_for_another_domain(labelled, failure, key, secret):
    batch = labelled({"y": [1.0]})
    column = LabelColumn("y", (0.0, 1.0, 2.0, 3.5))
    binding = binding_of(batch, column=column, secret=secret)

    def build(pipeline):
        bound = pipeline | "Binding" >> beam.Create([binding])
        return {"out": (pipeline | beam.Create([batch]) | PrivatizeLabels(RR, bound, column, key)).batches}

    assert "InputError: the label domain of the mechanism differs from the declared one" in failure(build)
