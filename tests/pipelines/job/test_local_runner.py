"""Order of the stages of the local runner, whatever order Beam's sets of stages have."""

import itertools
import random
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pvalue import AsList, AsSingleton
from apache_beam.runners.portability.fn_api_runner import translations
from apache_beam.runners.portability.fn_api_runner.execution import FnApiRunnerExecutionContext
from apache_beam.runners.worker.bundle_processor import DATA_OUTPUT_URN
from apache_beam.testing.util import assert_that, equal_to
from labeldp.transforms.beam_internals import LocalRunner

_SEEDS = 60


@pytest.fixture
def shuffled(monkeypatch: pytest.MonkeyPatch) -> random.Random:
    """A source of the hashes of stages, on which the order of Beam's sets of them depends. Nothing is fused."""
    source = random.Random(0)
    hashes: dict[int, tuple[Any, int]] = {}
    # A stage is kept with its hash, so that its address is not used again.
    monkeypatch.setattr(
        translations.Stage, "__hash__", lambda self: hashes.setdefault(id(self), (self, source.getrandbits(60)))[1]
    )
    monkeypatch.setattr(translations.Stage, "can_fuse", lambda *_: False)
    return source


def _result(element: int, text: str, others: list[int]) -> str:
    return f"{element}, {text}, {sorted(others)}"


def _wire(pipeline: beam.Pipeline) -> beam.PCollection[str]:
    """Collections that are read both as main and as side inputs, as the binding and the mechanism of a release are."""
    binding = pipeline | "Binding" >> beam.Create([1])
    randomizer = binding | "Randomizer" >> beam.Map(lambda x: x + 1)
    text = randomizer | "Text" >> beam.Map(lambda x, y: f"{x} {y}", AsSingleton(binding))
    _ = text | "Mechanism" >> beam.Map(len)
    numbers = pipeline | "Numbers" >> beam.Create([3, 4])
    shards = numbers | "Draw" >> beam.Map(lambda x, y: x + y, AsSingleton(randomizer))
    return binding | "Result" >> beam.Map(_result, AsSingleton(text), AsList(shards))


def _stages(seed: int, source: random.Random) -> list[Any]:
    source.seed(seed)
    pipeline = beam.Pipeline(runner=LocalRunner())
    _wire(pipeline)
    return LocalRunner().create_stages(pipeline.to_runner_api())[1]


def test_side_inputs_are_filled_by_the_stage_that_writes_them(shuffled: random.Random) -> None:
    orders = set()
    for seed in range(_SEEDS):
        stages = _stages(seed, shuffled)
        orders.add(tuple(stage.name for stage in stages))
        writers = {
            transform.spec.payload: stage.name
            for stage in stages
            for transform in stage.transforms
            if transform.spec.urn == DATA_OUTPUT_URN
        }
        filled = FnApiRunnerExecutionContext._build_data_side_inputs_map(stages)
        found = [(name, buffer) for name, inputs in filled.items() for buffer, _ in inputs.values()]
        assert len(found) == 4
        assert all(writers[buffer] == name for name, buffer in found)
    assert len(orders) > 1


def test_stages_come_after_those_that_they_must_follow(shuffled: random.Random) -> None:
    for seed in range(_SEEDS):
        stages = _stages(seed, shuffled)
        for earlier, later in itertools.combinations(stages, 2):
            assert later not in earlier.must_follow


@pytest.mark.parametrize("seed", range(4))
def test_a_job_reads_whole_side_inputs(seed: int, shuffled: random.Random) -> None:
    shuffled.seed(seed)
    with beam.Pipeline(runner=LocalRunner()) as pipeline:
        assert_that(_wire(pipeline), equal_to(["1, 2 1, [5, 6]"]))
