"""Runner of jobs that go on elsewhere: it keeps the graph, and a worker of the tests runs it later, or never."""

import os
import time
from pathlib import Path
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pipeline import Pipeline
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.pipeline_utils import group_by_key_input_visitor
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineRunner
from apache_beam.transforms import environments

GRAPH = "LABELDP_TESTS_GRAPH"
"""Environment variable with the path of the graph."""


class Job:
    """A job whose client would wait for it without end."""

    state = "RUNNING"

    def wait_until_finish(self, *_: Any) -> None:
        """Waits."""
        while True:
            time.sleep(1)

    def cancel(self) -> None:
        """Cancels nothing."""


class DetachedRunner(PipelineRunner):
    """Keeps the graph of the job in a file."""

    def run_pipeline(self, pipeline: Pipeline, options: PipelineOptions) -> Any:
        """Submits the job."""
        # As every runner does, so that keys have the coders of keys.
        pipeline.visit(group_by_key_input_visitor(deterministic_key_coders=True))
        environment = environments.EmbeddedPythonEnvironment.default()
        partial = Path(os.environ[GRAPH] + ".partial")
        partial.write_bytes(pipeline.to_runner_api(default_environment=environment).SerializeToString())
        partial.rename(os.environ[GRAPH])
        return Job()


def run_graph(path: str) -> None:
    """Runs the job of a graph in this process to its end."""
    graph = beam_runner_api_pb2.Pipeline.FromString(Path(path).read_bytes())
    FnApiRunner().run_via_runner_api(graph, PipelineOptions([])).wait_until_finish()
