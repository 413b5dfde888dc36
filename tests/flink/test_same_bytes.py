"""On Flink a job releases the same bytes as on DirectRunner."""

import importlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from labeldp.templates.local_processes import free_ports


@pytest.fixture(params=["parquet", "tfrecord"])
def flags(request: pytest.FixtureRequest, parquet_log: Path, reference: Callable[..., Path]) -> dict[str, Any]:
    """Flags of a job that reads and writes a format. The TFRecord input is a release, privatized once more."""
    tfrecord = request.param == "tfrecord"
    log = reference(output_format="tfrecord") / "data" / "part-*" if tfrecord else parquet_log
    return {"input": log, "input_format": request.param, "output_format": request.param}


def test_of_either_format(
    flags: dict[str, Any], start: Any, on_flink: list[str], undisturbed: Any, tree: Any, charges: Any
) -> None:
    """Shards, mechanism and manifest are the same. The audit passes, and the ledger is charged once."""
    running = start(on_flink, **flags)
    whole = undisturbed(**flags)
    running.finish().ok()

    assert tree(running.release) == whole
    assert len(charges(running.outputs)) == 2  # the prior and the labels
    audit = [sys.executable, "-m", "labeldp", "audit", str(running.release)]
    assert subprocess.run(audit, check=False, capture_output=True).returncode == 0


def test_of_privacy_units(start: Any, on_flink: list[str], undisturbed: Any, tree: Any, small_log: Path) -> None:
    """Each unit has one record in each of the two files, which two workers read: one of them is released."""
    flags = {"input": small_log, "input_format": "csv", "unit_column": "f", "max_records_per_unit": 1}
    running = start(on_flink, **flags)
    whole = undisturbed(**flags)
    outcome = running.finish().ok()

    assert tree(running.release) == whole
    assert "units      f: 4,000, at most 1 record each, 4,000 left out" in outcome.out


def test_of_several_labels(
    start: Any, cluster: Any, on_flink: list[str], undisturbed: Any, tree: Any, small_log: Path
) -> None:
    """Each has a histogram, a randomizer and a stage of its own in one job."""
    flags = {"input": small_log, "input_format": "csv", "label": "y,f", "label_max": "19,4000"}
    before = downloads(cluster)
    running = start(on_flink, **flags)
    whole = undisturbed(**flags)
    outcome = running.finish().ok()

    # TaskManagers have Beam's jars: they fetch the one that names them and no other.
    assert downloads(cluster) - before <= len(cluster.task_managers)
    assert tree(running.release) == whole
    assert "together   epsilon 2 for all labels of a record" in outcome.out


@pytest.fixture
def uploaded_jar(cluster: Any, tmp_path: Path) -> Path:
    """Jar of a job server that uploads its class path with each job, as Beam's own does: a copy in another folder."""
    shutil.copytree(cluster.jar.parent / "gradle" / "wrapper", tmp_path / "copied")
    with zipfile.ZipFile(cluster.jar) as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode()
    # Lines of a manifest have at most 72 bytes and continue after a space.
    lines = manifest.replace("\r\n ", "").replace("gradle/wrapper/", "copied/").split("\r\n")
    with zipfile.ZipFile(tmp_path / "flink.jar", "w") as copy:
        copy.writestr("META-INF/MANIFEST.MF", "\r\n".join("\r\n ".join(re.findall(".{1,70}", line)) for line in lines))
    return tmp_path / "flink.jar"


def downloads(cluster: Any) -> int:
    """Number of files that TaskManagers have fetched from the JobManager."""
    return sum(log.read_text().count(" - Downloading ") for log in cluster.logs.glob("task-manager-*.log"))


def test_with_the_job_server_that_the_runner_starts(
    cluster: Any, uploaded_jar: Path, start: Any, undisturbed: Any, tree: Any, small_log: Path
) -> None:
    """--runner FlinkRunner, which uploads Beam's jars, as a user would submit a job to any cluster."""
    flags = {"input": small_log, "input_format": "csv"}
    others = [flag for flag in cluster.flags if not flag.startswith(("--runner=", "--job_endpoint="))]
    runner = ["--runner=FlinkRunner", f"--flink_job_server_jar={uploaded_jar}", "--parallelism=2", *others]
    runner += [f"--job_port={port}" for port in free_ports(1)]
    before = downloads(cluster)
    running = start(runner, **flags)
    whole = undisturbed(**flags)
    running.finish().ok()

    assert downloads(cluster) > before + 100
    assert tree(running.release) == whole
    assert tree(running.temporary) == {}


def test_in_two_halves(
    start: Any, on_flink: list[str], undisturbed: Any, tree: Any, small_log: Path, tmp_path: Path
) -> None:
    """`fit` and `apply` release the same shards as `privatize`."""
    flags = {"input": small_log, "input_format": "csv"}
    mechanism = tmp_path / "mechanism.json"
    start(on_flink, "fit", mechanism_file=mechanism, output=None, num_shards=None, **flags).finish().ok()
    settled = dict.fromkeys(("label_min", "label_max", "label_step", "epsilon"))
    outcome = start(on_flink, "apply", mechanism_file=mechanism, **settled, **flags).finish().ok()

    whole, found = undisturbed(**flags), tree(outcome.ran.release)
    shards = {name for name in whole | found if name.startswith("data/")}
    assert len(shards) == 3
    assert {name: found.get(name) for name in shards} == {name: whole.get(name) for name in shards}


def summary(content: bytes) -> dict[str, tuple[Any, ...]]:
    """TFDV statistics by feature, without sums of floats and quantiles that depend on the order of the workers."""
    statistics: Any = importlib.import_module("tensorflow_metadata.proto.v0.statistics_pb2")
    statistics = statistics.DatasetFeatureStatisticsList()
    statistics.ParseFromString(content)
    [dataset] = statistics.datasets
    return {"": (dataset.num_examples,)} | {
        feature.path.step[0]: (
            feature.type, feature.num_stats.common_stats.num_non_missing, feature.num_stats.common_stats.tot_num_values,
            feature.num_stats.num_zeros, feature.num_stats.min, feature.num_stats.max,
            pytest.approx(feature.num_stats.mean), pytest.approx(feature.num_stats.std_dev),
        )
        for feature in dataset.features
    }  # fmt: skip


def test_validated(start: Any, on_flink: list[str], tree: Any, small_log: Path) -> None:
    """--validate: the TFDV pipelines also run on the cluster and find the same statistics."""
    flags = {"input": small_log, "input_format": "csv"}
    running = [start([*runner, "--validate"], **flags) for runner in ([], on_flink)]
    whole, found = (tree(each.finish().ok().ran.release) for each in running)

    for name in ("feature_stats.pb", "output_stats.pb"):
        one, other = (summary(files.pop(f"validation/{name}")) for files in (whole, found))
        assert set(one) == ({"", "f"} if name == "feature_stats.pb" else {"", "f", "y"})
        assert one == other
    assert "validation/schema.pbtxt" in whole
    assert found == whole
