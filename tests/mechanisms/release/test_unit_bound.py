"""Bounded records of privacy units: which ones are kept, what each may spend, and the epsilon of whole units."""

import functools
import hashlib
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.core.budget import decimal_budget
from labeldp.mechanisms.noise.keyed_words import integer_identities
from labeldp.mechanisms.release import prior_release
from labeldp.mechanisms.release.drawing import drawing_of
from labeldp.mechanisms.release.label_column import LabelColumn
from labeldp.mechanisms.release.label_records import LabelRecords
from labeldp.mechanisms.release.prior_release import release_prior
from labeldp.mechanisms.release.unit_bound import (
    SINGLE,
    UnitBound,
    first_beyond,
    over_limit,
    priorities,
    unit_words,
)

from tests.label_counts import count_labels
from tests.privacy.sampling_bounds import epsilon_at_least

SECRET = bytes(range(32))
UNITS = st.lists(st.integers(0, 5), max_size=60)


@given(st.floats(1e-6, 30), st.integers(1, 1_000_000))
def test_the_parts_of_all_records_add_up_to_the_budget_and_no_more(epsilon: float, most: int) -> None:
    unit = UnitBound("user", most)
    part = unit.record_share(epsilon)
    budget = Fraction(decimal_budget(epsilon))
    assert unit.total(part) <= budget < unit.total(math.nextafter(part, math.inf))
    assert Fraction(epsilon) >= Fraction(unit.spent(part)) >= unit.total(part)
    assert SINGLE.spent(epsilon) == epsilon


@given(UNITS, st.integers(1, 4))
def test_of_each_unit_the_records_of_lowest_priority_are_kept(units: list[int], most: int) -> None:
    priority = np.random.default_rng(len(units)).permutation(len(units)).astype(np.uint64)
    beyond = over_limit(np.array(units, np.uint64), priority, most)
    for unit, records in Counter(units).items():
        mine = [index for index, each in enumerate(units) if each == unit]
        kept = sorted(int(priority[index]) for index in mine if not beyond[index])
        assert kept == sorted(int(priority[index]) for index in mine)[: min(most, records)]
    over, limits = first_beyond(np.array(units, np.uint64), priority, most)
    assert dict(zip(over.tolist(), limits.tolist(), strict=True)) == {
        unit: sorted(int(priority[index]) for index, each in enumerate(units) if each == unit)[most]
        for unit, records in Counter(units).items()
        if records > most
    }


def test_records_of_equal_priority_never_exceed_the_bound() -> None:
    units, priority = np.zeros(9, np.uint64), np.zeros(9, np.uint64)
    assert (~over_limit(units, priority, 4)).sum() == 4
    _, limits = first_beyond(units, priority, 4)
    assert (priority < limits[0]).sum() <= 4


def test_priorities_and_hashes_of_units_depend_on_the_key_and_on_nothing_else() -> None:
    ids = integer_identities("id", np.arange(1000))
    for function in (priorities, unit_words):
        words = function(SECRET, ids)
        assert len(set(words.tolist())) == 1000
        np.testing.assert_array_equal(words, function(SECRET, ids))
        assert not np.any(words == function(bytes(32), ids))
    assert not np.any(priorities(SECRET, ids) == unit_words(SECRET, ids))


@pytest.mark.parametrize("most", [0, -1, 1_000_001])
def test_a_bound_out_of_range_is_refused(most: int) -> None:
    with pytest.raises(ValueError, match="max_records_per_unit must be from 1"):
        UnitBound("user", most)


def test_the_unit_is_not_the_label() -> None:
    with pytest.raises(ValueError, match="units must not be the label"):
        LabelColumn("y", (0.0, 1.0), unit=UnitBound("y", 1))


DOMAIN = (0.0, 1.0)
OTHERS = np.arange(20) % 2.0
FLAT = Prior(np.array(DOMAIN), np.ones(2))
solved = functools.cache(lambda epsilon: solve("rr", FLAT, epsilon))


def hits_of(label: float, column: LabelColumn, epsilon: float, most: int, least: float, draws: int) -> tuple[int, int]:
    """Releases in which the log likelihood ratio of two inputs is at least `least`, and the number of releases.

    All labels of a unit are 0 in one input and 1 in the other; the release is that of an input in which they are
    `label`, by the functions that the job calls, under fresh keys. The ratio is that of a correct release whose labels
    and histogram have half of `epsilon` each, of one record: no set of outcomes tells such inputs apart better.
    """
    labels = np.concatenate([np.full(most, label), OTHERS])
    identities, hits = integer_identities("id", np.arange(len(labels))), 0
    zeros, ones = (np.bincount(OTHERS.astype(int)) + np.array(more) for more in ((most, 0), (0, most)))
    for draw in range(draws):
        secret = hashlib.blake2b(f"{label} {draw}".encode(), digest_size=32).digest()
        records = LabelRecords(column, labels, identities)
        release = release_prior(count_labels(records, secret), column, epsilon, epsilon / 2, secret, "rr")
        randomizer, key = solved(release.budget.labels), release.noise_key(secret)
        released = drawing_of(randomizer, records.column).draw(records, key, secret)[:most]
        counts = np.array(release.counts)
        ratio = (np.abs(counts - ones).sum() - np.abs(counts - zeros).sum()) * release.budget.prior / 2
        hits += bool(ratio + release.budget.labels * (most - 2 * released.sum()) >= least)
    return hits, draws


@pytest.fixture
def no_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out the estimate of the prior, which takes most of the time: the attacker sees the noised counts."""
    monkeypatch.setattr(prior_release, "estimated_prior", lambda *_: FLAT)


@pytest.mark.usefixtures("no_estimate")
@pytest.mark.parametrize("most", [1, 3, 10])
def test_the_loss_of_a_whole_unit_stays_below_epsilon_and_comes_close(most: int) -> None:
    """All labels of a unit change at once; the attacker sees the histogram and all released labels."""
    epsilon = 3.0
    unit = UnitBound("user", most)
    column, share = LabelColumn("y", DOMAIN, unit=unit), unit.record_share(epsilon)
    found = [hits_of(label, column, share, most, 0.5 * epsilon, 4000) for label in DOMAIN]
    bound = epsilon_at_least(*found, alpha=1e-6)
    assert bound <= epsilon
    assert bound > 0.4 * epsilon, "an attack that finds nothing would find no mistake either"


@pytest.mark.usefixtures("no_estimate")
def test_a_release_in_which_each_record_spends_the_whole_budget_is_caught() -> None:
    epsilon, most = 1.0, 5
    column = LabelColumn("y", DOMAIN, unit=UnitBound("user", most))
    found = [hits_of(label, column, epsilon, most, 1.5 * epsilon, 600) for label in DOMAIN]
    assert epsilon_at_least(*found, alpha=1e-6) > epsilon


def test_another_bound_has_fresh_noise() -> None:
    identities, labels = integer_identities("id", np.arange(500)), np.arange(500) % 2.0
    names = set()
    for unit in (SINGLE, UnitBound("user", 1), UnitBound("user", 2), UnitBound("device", 1)):
        column = LabelColumn("y", DOMAIN, unit=unit)
        summary = count_labels(LabelRecords(column, labels, identities), SECRET)
        release = release_prior(summary, column, 1.0, 0.5, SECRET, "rr")
        names.add((release.digest, release.noise_key(SECRET)))
    assert len(names) == 4
    assert len({digest for digest, _ in names}) == 4
