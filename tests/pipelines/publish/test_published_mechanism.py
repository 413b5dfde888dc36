"""The mechanism that is published drew every label: a solver that gives two results makes the job fail."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from labeldp.mechanisms import Randomizer
from labeldp.mechanisms.core.budget import BudgetSplit
from labeldp.mechanisms.release.drawing import Table
from labeldp.transforms.batches import Carried

MESSAGE = "labels were drawn by another mechanism than the one of this release"


def elsewhere(drawing: Any) -> Any:
    """The drawing as another CPU might compute it: its outputs differ in the last bit."""
    of, outputs = drawing.table, np.nextafter(drawing.table.outputs, np.inf)
    table = Randomizer(of.labels, outputs, of.weights, of.epsilon, of.mechanism, of.parameters, of.gap)
    return dataclasses.replace(drawing, table=table)


def computed_again(randomizer: Any) -> Any:
    """The drawing of a second consumer, as a PCollection for `privatize` and as a value for `apply`."""
    if isinstance(randomizer, Carried):
        randomizer = randomizer.value
    return elsewhere(randomizer) if isinstance(randomizer, Table) else randomizer | beam.Map(elsewhere)


@pytest.fixture
def drawn_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a solve stage that is computed once for each consumer, on two kinds of CPU."""
    from labeldp.pipelines.job import job_graph
    from labeldp.transforms import PrivatizeLabels

    def computed_twice(randomizer: Any, *others: Any) -> PrivatizeLabels:
        return PrivatizeLabels(computed_again(randomizer), *others)

    monkeypatch.setattr(job_graph, "PrivatizeLabels", computed_twice)


@pytest.fixture
def drawn_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a runner that computes the privatizing stage once for each consumer: shards, and digest."""
    from labeldp.pipelines.job import job_graph
    from labeldp.transforms import PrivatizeLabels

    class Twice(beam.PTransform):
        def __init__(self, randomizer: Any, *others: Any):
            super().__init__()
            self.arguments = randomizer, others

        def expand(self, batches: Any) -> Any:
            randomizer, others = self.arguments
            digests: Any = batches | "Digests" >> PrivatizeLabels(randomizer, *others)
            shards: Any = batches | "Shards" >> PrivatizeLabels(computed_again(randomizer), *others)
            return digests._replace(batches=shards.batches)

    monkeypatch.setattr(job_graph, "PrivatizeLabels", Twice)


@pytest.mark.parametrize("command", ["privatize", "apply"])
@pytest.mark.parametrize("simulation", ["drawn_by_another", "drawn_twice"])
def test_nothing_is_published_when_another_mechanism_drew_the_labels(
    request: Any, job: Any, invoke: Callable[..., Any], outputs: Path, tree: Any, command: str, simulation: str
) -> None:
    if command == "apply":
        invoke(job("fit")).ok()
    before = tree(outputs)
    request.getfixturevalue(simulation)

    outcome = invoke(job(command, num_shards=9))

    assert outcome.code == 1
    assert MESSAGE in outcome.error
    assert tree(outputs) == before


@pytest.mark.parametrize("command", ["privatize", "apply"])
def test_a_mixture_of_batches_is_not_published(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, write_csv: Any, tree: Any, monkeypatch: Any, command: str
) -> None:
    """Simulates workers of two kinds: the second input file is drawn by the mechanism of the second kind."""
    from labeldp.transforms import privatize_labels

    for name in ("a", "b"):
        write_csv(tmp_path / "log" / f"{name}.csv", [f"{i},{i % 5}" for i in range(600)])
    log = tmp_path / "log" / "*.csv"
    if command == "apply":
        invoke(job("fit", input=log)).ok()
    before = tree(outputs)
    process = privatize_labels._Randomize.process

    def on_one_of_two_workers(self: Any, batch: Any, randomizer: Any, binding: Any) -> Any:
        randomizer = batch.resolve(randomizer)
        yield from process(
            self, batch, elsewhere(randomizer) if batch.source.endswith("b.csv") else randomizer, binding
        )

    monkeypatch.setattr(privatize_labels._Randomize, "process", on_one_of_two_workers)
    outcome = invoke(job(command, input=log))

    assert outcome.code == 1
    assert MESSAGE in outcome.error
    assert tree(outputs) == before


def test_empty_shards_name_no_mechanism_and_are_published(job: Any, invoke: Any, outputs: Path) -> None:
    """1,000 records are four blocks, so five of nine shards are empty."""
    invoke(job(num_shards=9)).ok()
    assert len(list((outputs / "released" / "data").iterdir())) == 9


def test_the_result_of_a_job_compares_the_mechanisms() -> None:
    from labeldp.pipelines.publish.job_result import JobResult
    from labeldp.transforms import InputError, NoiseBinding

    binding = NoiseBinding(1, "y", (0.0, 1.0), BudgetSplit(0.1, 0.9), 3, 0)
    JobResult(binding, 1, {"part": 3}, frozenset(["ab"])).check_same_mechanism("ab")
    JobResult(binding, None, {}).check_same_mechanism("ab")  # fit draws no label
    for mechanisms in (["cd"], ["ab", "cd"], ["ab", None], [None], []):
        with pytest.raises(InputError, match=MESSAGE):
            JobResult(binding, 1, {"part": 3}, frozenset(mechanisms)).check_same_mechanism("ab")


def test_equal_columns_have_different_digests_and_ledger_names(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, write_csv: Any, entries: Any
) -> None:
    """Label columns y and z are equal, and so are id columns u and v: nothing that is published shows it."""
    lines = [f"{i},{i},{i % 5},{i % 5}" for i in range(300)]
    log = write_csv(tmp_path / "log.csv", lines, "u,v,y,z")
    requests = [
        {"label": "y", "id_column": "u"},
        {"label": "z", "id_column": "u"},
        {"label": "y", "id_column": "v"},
        {"label": "y"},
        {"label": "y", "id_column": "u", "epsilon": 2},
        {"label": "y", "id_column": "u", "label_max": 5},
        {"label": "y", "id_column": "u", "rounding": "randomized"},
        {"label": "y", "id_column": "u"},
    ]
    for place, flags in enumerate(requests):
        invoke(job(input=log, output=outputs / f"{place}", **flags)).ok()
    *different, first_again = entries(outputs)

    assert len({run["input_digest"] for run in different}) == len(different)
    names = [charge["release"] for run in different for charge in run["charges"]]
    assert len(set(names)) == len(names) == 2 * len(different)
    assert len({name[:32] for name in names}) == len(different)
    priors = {(outputs / f"{place}" / "mechanism.json").read_text() for place in range(len(different))}
    assert len(priors) == len(different)
    for key in ("input_digest", "charges", "mechanism_fingerprint"):
        assert first_again[key] == different[0][key]
