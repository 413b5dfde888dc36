"""Short run of the fuzzer with fixed seeds; the targets of formats run from the tests of their readers."""

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from format_targets import FORMATS
from fuzz import all_targets
from harness import Campaign, Target, assert_holds, read_case
from hypothesis import strategies as st

TARGETS = ("mechanism", "manifest", "ledger", "prior", "schema", "command_line", "job", "names", "center_mechanism",
           "cells", "center_job", "classes", "class_labels")  # fmt: skip


@pytest.fixture(scope="module")
def targets() -> dict[str, Target]:
    """The targets by name."""
    found = {target.name: target for target in all_targets()}
    assert tuple(found) == FORMATS + TARGETS
    return found


@pytest.mark.xdist_group("fuzz")
@pytest.mark.parametrize("name", TARGETS)
def test_every_input_is_accepted_or_refused(name, targets):
    assert_holds(targets[name])


# The fuzzer itself.


def check_small(case):
    assert len(case["file"]) < 5
    return case["file"] != b""


SMALL = Target("small", st.fixed_dictionaries({"file": st.binary(max_size=9)}), check_small, 100)


def test_a_failing_input_is_made_small_and_kept(tmp_path):
    from fuzz import save

    campaign = Campaign(tmp_path)
    failure = campaign.run(SMALL, 1, 200)
    assert failure is not None
    assert failure.case == {"file": bytes(5)}
    path = save(failure, tmp_path)
    assert read_case(path) == ("small", failure.case)
    assert "AssertionError" in path.with_suffix(".txt").read_text()
    assert save(failure, tmp_path) != path
    assert not (tmp_path / "in_progress.json").exists()


def test_memory_and_time_are_limited(monkeypatch):
    import harness

    def allocate(case):
        return bool(bytearray(1 << 32))

    def wait(case):
        while True:
            pass

    one = st.just({"file": b""})
    failure = Campaign().run(Target("large", one, allocate, 1), 1, 1)
    assert failure is not None
    assert "MemoryError" in failure.error
    monkeypatch.setattr(harness, "SECONDS", 0.2)
    failure = Campaign().run(Target("slow", one, wait, 1), 1, 1)
    assert failure is not None
    assert "not done after 0.2 s" in failure.error
