"""Stages that a runner in Java can fuse: side inputs are taken where files are read, or units are bounded."""

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pipeline import PipelineVisitor
from labeldp.transforms import LabelledBatch
from labeldp.transforms.errors import InputError

WIRED = "the job is wired"


class _TakingSideInputs(PipelineVisitor):
    """Finds the stages that take batches and side inputs."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def visit_transform(self, transform_node: Any) -> None:
        if isinstance(transform_node.transform, beam.ParDo) and transform_node.side_inputs:
            (taken,) = transform_node.inputs
            if taken.element_type is LabelledBatch:
                self.found.append(transform_node.full_label)


@pytest.fixture
def stages_with_side_inputs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the stages of the next job that take batches and side inputs. The job ends once it is wired."""
    from labeldp.pipelines.job import job_graph

    build, visitor = job_graph.build, _TakingSideInputs()

    def watched(pipeline: beam.Pipeline, *arguments: Any) -> Any:
        build(pipeline, *arguments)
        pipeline.visit(visitor)
        raise InputError(WIRED)

    monkeypatch.setattr(job_graph, "build", watched)
    return visitor.found


@pytest.fixture
def log(write_csv: Any, tmp_path: Path) -> Path:
    lines = [f"r{i},u{i % 100},{i % 7},{i % 5},{i % 2}" for i in range(600)]
    return write_csv(tmp_path / "log.csv", lines, "id,user,x,y,z")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, []),
        ({"id_column": "id", "num_shards": 3}, []),
        ({"center": "linear"}, []),
        ({"label": "y,z", "label_min": "0", "label_max": "4,1", "label_step": "1", "center": "linear"}, []),
        (
            {"unit_column": "user", "max_records_per_unit": 2, "center": "none"},
            ["BoundLabels/LeaveOut", "BoundRecords/LeaveOut"],
        ),
    ],
    ids=["standard", "ids", "center", "labels", "units"],
)
def test_stages_that_take_batches_and_side_inputs(
    job: Any, invoke: Any, log: Path, stages_with_side_inputs: list[str], flags: dict[str, Any], expected: list[str]
) -> None:
    """Flink's runner takes every batch from Python to Java and back before such a stage: none may be added unseen."""
    outcome = invoke(job(input=log, **flags))
    assert (outcome.code, WIRED in outcome.error) == (1, True)
    assert stages_with_side_inputs == expected


def test_an_applied_mechanism_meets_no_side_input(
    job: Any, invoke: Any, log: Path, outputs: Path, tmp_path: Path, stages_with_side_inputs: list[str]
) -> None:
    (tmp_path / "prior.csv").write_text("".join(f"{label},1\n" for label in range(5)))
    flags = {"prior": tmp_path / "prior.csv", "epsilon": 1, "mechanism": "rr", "output": outputs / "mechanism.json"}
    invoke(["solve", *(f"--{name}={value}" for name, value in flags.items())]).ok()
    outcome = invoke(job("apply", input=log))
    assert (outcome.code, WIRED in outcome.error) == (1, True)
    assert stages_with_side_inputs == []
