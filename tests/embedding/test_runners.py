"""Guards look at the runner that will run, and Beam and loggers are as before once a job has ended."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import labeldp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.interactive.interactive_runner import InteractiveRunner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms import core
from apache_beam.transforms.environments import EmbeddedPythonGrpcEnvironment
from labeldp.pipelines.cli import commands
from labeldp.templates.beam_yaml import LabelDP
from labeldp.transforms.beam_internals import kept_results

# Runners and options that would show labels or open ports: refused by each face that applies a transform.
REFUSED: dict[str, tuple[Callable[[], Any], list[str], str]] = {
    "interactive": (InteractiveRunner, [], "InteractiveRunner opens such ports"),
    "gRPC workers": (lambda: FnApiRunner(EmbeddedPythonGrpcEnvironment.default()), [], "opens ports"),
    "threads": (FnApiRunner, ["--direct_running_mode=multi_threading"], "opens ports"),
    "processes": (FnApiRunner, ["--direct_running_mode=multi_processing"], "opens ports"),
    "data sampling": (FnApiRunner, ["--experiments=enable_data_sampling"], "would show raw labels"),
    "exceptions": (FnApiRunner, ["--experiments=enable_always_on_exception_sampling"], "would show raw labels"),
}


@pytest.fixture
def files(rows: list[beam.Row], key: str, tmp_path: Path) -> labeldp.PrivatizeFiles:
    """PrivatizeFiles of the rows in a file."""
    pq.write_table(pa.Table.from_pylist([row.as_dict() for row in rows]), tmp_path / "log.parquet")
    domain: dict[str, Any] = {"label_min": 0, "label_max": 4, "label_step": 1, "mechanism": "rr"}
    return labeldp.PrivatizeFiles(
        tmp_path / "log.parquet", tmp_path / "out", label="y", epsilon=1.0, noise_key_file=key, **domain
    )


@pytest.mark.parametrize("face", ["files", "rows"])
@pytest.mark.parametrize(("runner", "flags", "text"), REFUSED.values(), ids=REFUSED)
def test_what_would_show_labels_is_refused(
    face: str, runner: Any, flags: list[str], text: str, files: Any, rows: Any, label_dp: dict[str, Any], tmp_path: Path
) -> None:
    pipeline = beam.Pipeline(runner(), options=PipelineOptions(flags))
    with pytest.raises(ValueError, match=text):
        _ = pipeline | files if face == "files" else pipeline | beam.Create(rows) | LabelDP(**label_dp)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("face", ["files", "rows"])
def test_exception_sampling_is_switched_off(
    face: str, files: Any, rows: list[beam.Row], label_dp: dict[str, Any]
) -> None:
    with beam.Pipeline(FnApiRunner()) as pipeline:
        _ = pipeline | files if face == "files" else pipeline | beam.Create(rows) | LabelDP(**label_dp)
        experiments = pipeline.options.get_all_options()["experiments"]
        assert "disable_always_on_exception_sampling" in experiments


@pytest.mark.parametrize("name", ["FlinkRunner", "SparkRunner", "PrismRunner"])
def test_local_paths_are_refused_for_a_runner_given_by_name(name: str, files: Any) -> None:
    with pytest.raises(ValueError, match="workers of this runner share"):
        _ = beam.Pipeline(name) | files


def test_beam_and_loggers_are_as_before_after_a_command(files: Any, tmp_path: Path, key: str) -> None:
    levels = {name: logging.getLogger(name).level for name in (None, "apache_beam")}
    flags = ["--input", f"{tmp_path}/log.parquet", "--input_format=parquet", f"--output={tmp_path}/out", "--label=y",
             "--label_min=0", "--label_max=4", "--label_step=1", "--epsilon=1", "--mechanism=rr",
             f"--noise_key_file={key}"]  # fmt: skip
    before = PipelineOptions.view_as, core.get_signature
    assert commands.main(["privatize", *flags]) == 0
    assert (PipelineOptions.view_as, core.get_signature) == before
    assert {name: logging.getLogger(name).level for name in levels} == levels


def test_patches_are_undone_by_the_last_of_several_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    # The tests themselves let Beam keep results.
    internals = vars(labeldp.transforms.beam_internals)
    for name in ("_BLOCKS", "_REPLACED"):
        monkeypatch.setitem(internals, name, [])
    plain = StandardOptions.view_as, core.get_signature
    entered, leave = threading.Event(), threading.Event()

    def other_job() -> None:
        with kept_results():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other_job)
    with kept_results():
        thread.start()
        entered.wait()
        assert StandardOptions.view_as != plain[0]
    assert StandardOptions.view_as != plain[0]
    leave.set()
    thread.join()
    assert (StandardOptions.view_as, core.get_signature) == plain
