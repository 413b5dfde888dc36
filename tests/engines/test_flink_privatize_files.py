"""PrivatizeFiles in a pipeline of others on Flink, with input, key, output and ledger on an object store."""

import json
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from labeldp import PrivatizeFiles

from tests.store_emulators import emulator, s3_server

__all__ = ["emulator", "s3_server"]


@pytest.mark.parametrize("emulator", ["s3"], indirect=True)
def test_a_charged_release_on_a_store(
    emulator: Any, flink: Any, secret: bytes, small_log: Any, arguments: Any, tmp_path: Any
) -> None:
    """It waits for a PCollection, and its folder and charges are those of the command."""
    from labeldp.pipelines.cli.commands import main

    emulator.put("key/noise.key", secret)
    for path in small_log.parent.glob(small_log.name):
        emulator.put(f"in/{path.name}", path.read_bytes())
    flags = {"input": emulator.url("in/*.csv"), "input_format": "csv", "noise_key_file": emulator.url("key/noise.key")}
    access = {
        "s3_endpoint_url": emulator.variables["AWS_ENDPOINT_URL"], "s3_region_name": "us-east-1",
        "s3_access_key_id": "tests", "s3_secret_access_key": "tests",
    }  # fmt: skip
    flink.wait_for_task_managers(2)
    options = PipelineOptions([*flink.flags, *(f"--{name}={value}" for name, value in access.items())])
    with beam.Pipeline(options=options) as pipeline:
        _ = pipeline | beam.Create([1, 2, 3]) | PrivatizeFiles(
            output=emulator.url("out/released"), label="y", label_min=0, label_max=19, label_step=1, epsilon=2,
            num_shards=3, for_="labels", **flags,
        )  # fmt: skip
    stored = emulator.objects("out/")
    ledger = stored.pop("labeldp_ledger.jsonl").decode().splitlines()
    released = {name.removeprefix("released/"): content for name, content in stored.items()}
    # Neither claim nor temporary files are left.
    assert sorted(released) == [*(f"data/part-0000{i}-of-00003.parquet" for i in range(3)), "mechanism.json",
                                "release.json"]  # fmt: skip
    assert len(ledger) == 1
    assert main(arguments(tmp_path, **flags, output=emulator.url("out/command"))) == 0
    assert emulator.objects("out/command/") == released
    first, second = map(json.loads, emulator.objects("out/")["labeldp_ledger.jsonl"].decode().splitlines())
    assert second["charges"] == first["charges"]
    assert main(["audit", "--data", emulator.url("out/released")]) == 0
