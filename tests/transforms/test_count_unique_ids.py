"""Duplicate ids are found across batches and files, and reported without the id."""

import re

import apache_beam as beam
import numpy as np
import pytest
from labeldp.transforms import CountUniqueIds, input_checks
from labeldp.transforms.input_checks import ID_GROUPS, _group


@pytest.fixture
def count(run):
    """Batches -> the number of ids, by CountUniqueIds."""

    def compute(*batches):
        def build(pipeline):
            return {"count": pipeline | beam.Create(batches) | CountUniqueIds("id")}

        (found,) = run(build)["count"]
        return found

    return compute


@pytest.fixture
def complaint(failure):
    """Batches -> the error's text."""

    def compute(*batches):
        return failure(lambda pipeline: {"count": pipeline | beam.Create(batches) | CountUniqueIds("id")})

    return compute


def places(text: str) -> set[tuple[str, int]]:
    """The two records that the error names."""
    found = re.search(r"InputError: (\S+) row (\d+) and (\S+) row (\d+) have the same id in `id_column` id", text)
    assert found is not None
    return {(found[1], int(found[2])), (found[3], int(found[4]))}


# Counting.


def test_count_is_the_number_of_records(labelled, count):
    assert count(labelled({"id": [3, 1, 2]}), labelled({"id": [7, 8]}, start=3), labelled({"id": [9]}, "/logs/b")) == 6


def test_count_of_nothing_is_zero(run):
    assert run(lambda p: {"count": p | beam.Create([]) | CountUniqueIds("id")})["count"] == [0]


@pytest.mark.parametrize("groups", [16, 100, ID_GROUPS])
@pytest.mark.parametrize("step", [1, -1, 2, 256, 1 << 20, 1 << 40])
def test_consecutive_ids_spread_over_the_groups(step, groups, labelled):
    from labeldp.transforms.batches import record_identities

    ids = np.arange(320_000, dtype=np.int64) * step
    sizes = np.bincount(_group(record_identities(labelled({"id": ids}), "id").blocks, groups), minlength=groups)
    assert len(sizes) == groups
    assert sizes.max() < 320_000 / groups * 3


# Finding.


@pytest.mark.parametrize("ids", [[5, 6, 7, 6], ["e", "f", "g", "f"], [[5], [6], [7], [6]]], ids=["int", "text", "list"])
def test_twice_in_a_batch(ids, labelled, complaint):
    assert places(complaint(labelled({"id": ids}, start=100))) == {("/logs/a", 101), ("/logs/a", 103)}


def test_twice_over_files(labelled, complaint):
    text = complaint(labelled({"id": ["a", "b"]}, "/logs/a"), labelled({"id": ["c", "a"]}, "/logs/b", 50))
    assert places(text) == {("/logs/a", 0), ("/logs/b", 51)}


def test_rows_are_those_of_the_file_after_a_filter(labelled, complaint):
    kept = labelled({"id": [1, 2, 3, 4, 2]}, start=10).keep(np.array([False, True, False, True, True]))
    assert places(complaint(kept)) == {("/logs/a", 11), ("/logs/a", 14)}


@pytest.mark.parametrize("held", [1, 700, 1 << 19])
def test_one_pair_among_many_files_however_many_ids_a_bundle_holds(labelled, complaint, monkeypatch, held):
    """Ids of several files are passed on together."""
    monkeypatch.setattr(input_checks, "HELD_IDS", held)
    ids = np.arange(3_000)
    ids[2_987] = 413
    batches = [labelled({"id": ids[s : s + 100]}, f"/logs/{s:04d}", 7) for s in range(0, 3_000, 100)]
    assert places(complaint(*batches)) == {("/logs/0400", 20), ("/logs/2900", 94)}


def test_the_error_does_not_show_the_id(labelled, complaint):
    assert "SENTINEL123" not in complaint(labelled({"id": ["SENTINEL123", "SENTINEL123"]}))
