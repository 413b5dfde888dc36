"""The Dataflow template: the launcher stages the graph and returns; `labeldp finish` publishes what the job has made.

The service is not there: its client records the job, and the graph of the job runs in this process.
"""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms import environments

pytestmark = pytest.mark.xdist_group("stores")
apiclient: Any = pytest.importorskip("apache_beam.runners.dataflow.internal.apiclient", reason="no extra gcp")
auth: Any = pytest.importorskip("apache_beam.internal.gcp.auth", reason="no extra gcp")

MAIN = Path(__file__).parents[3] / "templates" / "dataflow" / "main.py"
GS = pytest.mark.parametrize("emulator", ["gs"], indirect=True)


def run_elsewhere(graph: bytes) -> None:
    """Runs a graph for Dataflow, whose workers would be containers, in this process."""
    pipeline = beam_runner_api_pb2.Pipeline.FromString(graph)
    here = environments.EmbeddedPythonEnvironment.default().to_runner_api(None)  # type: ignore[arg-type]
    for environment in pipeline.components.environments.values():
        environment.CopyFrom(here)
    FnApiRunner().run_via_runner_api(pipeline, PipelineOptions([])).wait_until_finish()


@GS
@pytest.mark.parametrize("flex", [True, False], ids=["template", "service"])
def test_the_launcher_returns_and_finish_publishes(
    flex: bool, emulator: Any, on_store: Any, invoke: Any, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    from google.cloud.dataflow_v1beta3 import Job
    from labeldp.transforms.io.filesystems import store_of

    invoke(on_store()).ok()
    waited = emulator.objects("out/")
    store_of(emulator.url("")).delete([emulator.url(f"out/{name}") for name in waited])
    submitted: list[Any] = []

    def create(self: Any, request: Any, **_: Any) -> Any:
        submitted.append(request)
        return Job(id="2030-01-01_1", name=request.job.name, project_id="project-1")

    # Otherwise Beam looks for credentials for half a minute.
    monkeypatch.setattr(auth._Credentials, "_credentials_init", True)
    monkeypatch.setattr(apiclient.dataflow.JobsV1Beta3Client, "create_job", create)
    flags = [
        "--project=project-1", "--region=us-central1", "--no_auth", "--job_name=labeldp-1",
        "--sdk_container_image=registry/image:1",
        f"--staging_location={emulator.url('staging')}", f"--temp_location={emulator.url('temp')}",
    ]  # fmt: skip
    if flex:
        flags.append(f"--template_location={emulator.url('staging/job_object')}")
    monkeypatch.setattr(sys, "argv", [str(MAIN), *on_store()[1:], *flags])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(MAIN), run_name="__main__")
    assert ended.value.code == 0, capsys.readouterr().err
    assert len(submitted) == (not flex)
    staged = emulator.objects("staging/")
    assert any(name.endswith("job_object") for name in staged) == flex
    [graph] = [content for name, content in staged.items() if name.endswith("pipeline.pb")]
    assert "labeldp_ledger.jsonl" not in emulator.objects("out/")

    finish = ["finish", emulator.url("out/released"), "--timeout=0"]
    assert "the results of its job are not all there" in invoke(finish).error
    run_elsewhere(graph)
    invoke(finish).ok()
    found = emulator.objects("out/")
    assert sorted(found) == sorted(waited)
    assert {name: content for name, content in found.items() if "ledger" not in name} == {
        name: content for name, content in waited.items() if "ledger" not in name
    }
    assert found["labeldp_ledger.jsonl"].count(b"\n") == 1
