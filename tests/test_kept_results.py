"""What kept_by_beam.py, kept_between_jobs.py and kept_solutions.py keep: the results of Beam and of solvers."""

import runpy
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.metrics import Metrics
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import core, userstate
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer
from labeldp.mechanisms.core.prior import Prior
from labeldp.mechanisms.registry import MECHANISMS

COUNT = ReadModifyWriteStateSpec("count", VarIntCoder())
TIMER = TimerSpec("timer", beam.TimeDomain.WATERMARK)


class Plain(beam.DoFn):
    def __init__(self, suffix: str):
        self.suffix = suffix

    def process(self, element: str, *others: str) -> Any:
        yield element + self.suffix


class Stateful(beam.DoFn):
    def process(self, element: Any, count: Any = beam.DoFn.StateParam(COUNT)) -> Any:  # noqa: B008
        yield element

    @on_timer(TIMER)
    def end(self, timer: Any = beam.DoFn.TimerParam(TIMER)) -> None:  # noqa: B008
        pass


class Twice(beam.DoFn):
    def process(self, element: Any, a: Any = beam.DoFn.TimestampParam, b: Any = beam.DoFn.TimestampParam) -> Any:
        yield element


def wrapped(function: Any) -> Any:
    """Beam's own function."""
    return function.__wrapped__


@pytest.mark.parametrize("make", [lambda: Plain("a"), Stateful, lambda: core.CallableWrapperDoFn(str.upper),
                                  lambda: core.CallableWrapperDoFn(Plain("b").process)])  # fmt: skip
def test_the_specifications_and_signatures_of_a_dofn(make: Any) -> None:
    for dofn in (make(), make()):
        assert userstate.get_dofn_specs(dofn) == wrapped(userstate.get_dofn_specs)(dofn)
        for name in ("process", "start_bundle", "finish_bundle", "setup", "teardown"):
            method = getattr(dofn, name)
            assert core.get_signature(method) == wrapped(core.get_signature)(method)


def test_state_and_errors_are_found() -> None:
    for _ in range(2):
        assert userstate.get_dofn_specs(Stateful()) == ({COUNT}, {TIMER})
        with pytest.raises(ValueError, match="duplicate process"):
            userstate.get_dofn_specs(Twice())


class Numbered(beam.DoFn):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def process(self, element: str) -> Any:
        self.seen.append(element)
        Metrics.counter("kept", element[0]).inc()
        yield element + str(len(self.seen))


def test_each_use_of_a_dofn_is_one_of_its_own_and_its_counters_are_reported() -> None:
    one = Numbered()
    for _ in range(2):
        with beam.Pipeline("FnApiRunner") as pipeline:
            twice = pipeline | beam.Create(["a"]) | "one" >> beam.ParDo(one) | "other" >> beam.ParDo(one)
            assert_that(twice | beam.Reshuffle() | "third" >> beam.ParDo(one), equal_to(["a111"]))
        counters = pipeline.result.metrics().query()["counters"]
        assert {(each.key.metric.name, each.committed) for each in counters} == {("a", 1)}
        assert len(counters) == 3
    assert one.seen == []


@pytest.mark.parametrize(("name", "parameters"), [("unbiased", {"gap": 0.25}), ("quantizer", {"outputs": 3})])
def test_a_kept_solution_is_the_solved_one(name: str, parameters: dict[str, Any]) -> None:
    kept = runpy.run_path(str(Path(__file__).with_name("kept_solutions.py")))["KeptSolutions"]()
    family, solved = MECHANISMS[name], []

    def solve(mechanism: Any, prior: Prior, epsilon: float) -> Any:
        randomizer = family.solve(mechanism, prior, epsilon)
        solved.append(randomizer.to_json())
        return randomizer

    keeping = kept._keeping(solve)
    one, other = (Prior(np.arange(4.0), np.array([4.0, 3, 2, last])) for last in (1, 2))
    requests = [(family(), one, 1.0), (family(), other, 1.0), (family(), one, 2.0), (family(**parameters), one, 1.0)]
    for number in range(2):
        kept.used = True
        for place, request in enumerate(requests):
            randomizer = keeping(*request)
            assert randomizer.to_json() == solved[place], "not what another caller made of it"
            randomizer.choice = {"number": number}
        assert len(solved) == len(requests), "each is solved once"
    kept.used = False
    keeping(*requests[0])
    assert len(solved) > len(requests), "tests of solvers solve"
