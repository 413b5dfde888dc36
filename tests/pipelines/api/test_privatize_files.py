"""PrivatizeFiles: the folder and the charges of the command line, and nothing where it fails."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import labeldp
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing import test_stream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows
from labeldp import PrivatizeFiles


def run(transform: Any, *, wanted: str | None = None) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        folder = pipeline | transform
        if wanted is not None:
            assert_that(folder, equal_to([wanted]))


@pytest.fixture
def files(small_log: Path, outputs: Path, key_file: Path) -> Callable[..., PrivatizeFiles]:
    """Function (arguments) -> PrivatizeFiles of the log of the tests."""
    standard: dict[str, Any] = {
        "input": small_log, "input_format": "csv", "output": outputs / "released", "label": "y", "label_min": 0,
        "label_max": 4, "label_step": 1, "epsilon": 1, "noise_key_file": key_file, "for_": "labels",
    }  # fmt: skip
    return lambda **arguments: PrivatizeFiles(**{**standard, **arguments})


def charges(folder: Path) -> list[Any]:
    lines = map(json.loads, (folder / "labeldp_ledger.jsonl").read_text().splitlines())
    return [[line["command"], line["request"], line["records"], line["charges"]] for line in lines]


def test_the_folder_is_that_of_the_command(
    files: Any, job: Any, invoke: Any, outputs: Path, tmp_path: Path, tree: Any
) -> None:
    run(files(num_shards=3), wanted=str(outputs / "released"))
    by_command = tmp_path / "by command" / "released"
    invoke(job(output=by_command, num_shards=3)).ok()
    assert tree(outputs / "released") == tree(by_command)
    assert charges(outputs) == charges(by_command.parent)
    assert {path.name for path in outputs.iterdir()} == {"released", "labeldp_ledger.jsonl"}
    assert "PASS" in invoke(["audit", str(outputs / "released"), "--data"]).ok().out


def test_two_in_one_pipeline_need_no_labels(files: Any, outputs: Path, invoke: Any) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        for name in ("first", "second"):
            _ = pipeline | files(output=outputs / name, mechanism="rr", for_=None, epsilon=len(name))
        _ = pipeline | "Named" >> files(output=outputs / "third")
    for name in ("first", "second", "third"):
        assert "PASS" in invoke(["audit", str(outputs / name)]).ok().out
    assert len(charges(outputs)) == 3


def test_a_repetition_costs_nothing_and_a_cap_holds(files: Any, outputs: Path, spent: Any) -> None:
    run(files(epsilon_cap=1.5))
    once = spent(outputs)
    run(files(output=outputs / "again", epsilon_cap=1.5))
    assert spent(outputs) == once
    with pytest.raises(ValueError, match=r"^epsilon_cap 1.5 would be exceeded"):
        run(files(output=outputs / "third", epsilon=1.2, epsilon_cap=1.5))
    assert {path.name for path in outputs.iterdir()} == {"released", "again", "labeldp_ledger.jsonl"}


def test_parameters_are_the_fields_of_the_command(files: Any) -> None:
    made = files(
        mechanism="bias_limited:bias=0.25", for_=None, center_features=["a", "b"],
        num_shards=7, prior_epsilon=None,
    )  # fmt: skip
    fields = made._fields
    assert (fields.mechanism, fields.center_features) == ("bias_limited:bias=0.25", ("a", "b"))
    assert (fields.num_shards, fields.prior_epsilon, fields.for_, fields.label_min) == (7, None, None, "0")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"labels": "x"}, "no parameter 'labels'"),
        ({"validate": True}, "run the command labeldp"),
        ({"mechanism_file": "m.json"}, "run the command labeldp"),
        ({"epsilon": "much"}, "^epsilon must be a number, not 'much'"),
        ({"input_format": "json"}, "^input_format: unknown value 'json'; known: tfrecord, parquet, csv, orc"),
    ],
)
def test_wrong_arguments(files: Any, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        files(**arguments)


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ({"epsilon": 0}, [], "^epsilon must be between"),
        ({"mechanism": "rr"}, [], "give for_ or mechanism"),
        ({"ledger": "postgresql://me:secret@host/db"}, [], "^ledger has a password"),
        ({}, ["--runner=FlinkRunner"], "^ledger .* is not on a filesystem that workers of this runner share"),
        ({"ledger": "postgresql://me@host/db"}, ["--runner=FlinkRunner"], "^output .* workers of this runner share"),
        ({"ledger": "sqlite:///l.db"}, ["--runner=FlinkRunner"], "^ledger .* workers of this runner share"),
        ({}, ["--direct_running_mode=multi_processing"], "opens ports"),
        ({}, ["--experiments=enable_data_sampling"], "would show raw labels"),
    ],
)
def test_what_is_refused_when_it_is_applied(
    files: Any, outputs: Path, arguments: dict[str, Any], options: list[str], text: str
) -> None:
    pipeline = beam.Pipeline(options=PipelineOptions(options))
    with pytest.raises(ValueError, match=text) as caught:
        _ = pipeline | files(**arguments)
    assert "secret" not in str(caught.value)
    assert list(outputs.iterdir()) == []


@pytest.mark.parametrize("window", [False, True])
def test_it_waits_for_the_end_of_a_collection(
    files: Any, small_log: Path, job: Any, invoke: Any, outputs: Path, tmp_path: Path, tree: Any, window: bool
) -> None:
    """Its last element changes the labels of the log."""
    changed = small_log.read_text().replace(",1\n", ",2\n")

    def write(number: int) -> int:
        if number == 3:
            small_log.write_text(changed)
        return number

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        numbers = pipeline | beam.Create([1, 2, 3]) | beam.Map(write)
        if window:
            numbers |= beam.WindowInto(FixedWindows(1))
        _ = numbers | files()
    invoke(job(output=tmp_path / "by command" / "released")).ok()
    assert small_log.read_text() == changed
    assert tree(outputs / "released") == tree(tmp_path / "by command" / "released")


def test_it_cannot_wait_for_a_stream(files: Any, outputs: Path) -> None:
    with pytest.raises(ValueError, match=r"^PrivatizeFiles waits for the end of a PCollection, and an unbounded one"):
        _ = beam.Pipeline(runner=FnApiRunner()) | test_stream.TestStream().add_elements([1]) | files()
    assert list(outputs.iterdir()) == []


@pytest.mark.parametrize("ledger", ["", "sqlite:///{}/ledgers/l.db"])
def test_a_pipeline_that_never_runs_leaves_nothing(files: Any, outputs: Path, tmp_path: Path, ledger: str) -> None:
    (outputs / "keys").mkdir()
    place = {"ledger": ledger.format(outputs)} if ledger else {}
    _ = beam.Pipeline(runner=FnApiRunner()) | files(noise_key_file=outputs / "keys" / "k", **place)
    assert [path.name for path in outputs.rglob("*")] == ["keys"]


def test_a_pipeline_may_run_again(files: Any, outputs: Path, tree: Any, spent: Any) -> None:
    """It is refused while the output is there, and then is the same release."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | files()
    pipeline.run()
    first, once = tree(outputs / "released"), spent(outputs)
    with pytest.raises(Exception, match=r"output .*/released exists and is not an empty folder: name another, or del"):
        pipeline.run()
    assert tree(outputs / "released") == first
    shutil.rmtree(outputs / "released")
    pipeline.run()
    assert (tree(outputs / "released"), spent(outputs)) == (first, once)
    assert {path.name for path in outputs.iterdir()} == {"released", "labeldp_ledger.jsonl"}


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("log.csv", "f,y\n1,secret\n", "label column 'y' holds text"),
        ("log.csv", "f,g,y\n1,1,1\n", "the files have other columns than when the pipeline was built"),
        ("log2.csv", "f,y\n1,1\n", "there are other files than when the pipeline was built"),
    ],
)
def test_a_pipeline_that_failed_may_run_again(
    files: Any, small_log: Path, outputs: Path, tmp_path: Path, name: str, text: str, error: str
) -> None:
    folder, log = tmp_path / "logs", small_log.read_text()
    folder.mkdir()
    (folder / "log.csv").write_text(log)
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | files(input=folder / "*.csv", noise_key_file=tmp_path / "new.key")
    (folder / name).write_text(text)
    with pytest.raises(Exception, match=error) as caught:
        pipeline.run()
    assert "secret" not in str(caught.value)
    (folder / name).unlink()
    (folder / "log.csv").write_text(log)
    pipeline.run()
    assert {path.name for path in outputs.iterdir()} == {"released", "labeldp_ledger.jsonl"}
    assert len(charges(outputs)) == 1


@pytest.mark.parametrize("arguments", [{"label_step": 0}, {"noise_key_file": "released/key"}])
def test_a_request_that_is_refused_makes_no_key(
    files: Any, outputs: Path, tmp_path: Path, arguments: dict[str, Any]
) -> None:
    key = outputs / arguments.get("noise_key_file", "../new.key")
    with pytest.raises(ValueError, match=r"label_step|lies inside output"):
        _ = beam.Pipeline(runner=FnApiRunner()) | files(**{**arguments, "noise_key_file": key})
    assert not key.exists()
    assert list(outputs.iterdir()) == []


def test_the_last_stage_may_run_again(files: Any, outputs: Path, tree: Any, monkeypatch: Any) -> None:
    """A runner repeats a bundle whose worker died after it charged, or after it published."""
    from labeldp.pipelines.api import privatize_files
    from labeldp.pipelines.publish import release_steps

    process = privatize_files._Publish.process

    def twice(self: Any, first: None, *written: Any) -> Any:
        publish, calls = release_steps.publish_folder, []

        def die_first(*arguments: Any) -> None:
            calls.append(arguments)
            if len(calls) == 1:
                raise labeldp.InputError("the worker died")
            publish(*arguments)

        monkeypatch.setattr(release_steps, "publish_folder", die_first)
        with pytest.raises(labeldp.InputError, match="the worker died"):
            list(process(self, first, *written))
        list(process(self, first, *written))
        yield from process(self, first, *written)

    monkeypatch.setattr(privatize_files._Publish, "process", twice)
    run(files(), wanted=str(outputs / "released"))
    # The repetition names the same charge, which costs nothing.
    first, again = charges(outputs)
    assert first == again
    assert "release.json" in tree(outputs / "released")
    assert "job_result_0.json" not in tree(outputs / "released")
