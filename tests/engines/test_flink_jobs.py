"""On Flink, a job server of a user's own that uploads Beam's jars, and --validate."""

import importlib
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.engines.local_processes import free_ports


@pytest.fixture
def uploaded_jar(flink: Any, tmp_path: Path) -> Path:
    """Jar of a job server that uploads its class path with each job, as Beam's own does: a copy in another folder."""
    shutil.copytree(flink.jar.parent / "gradle" / "wrapper", tmp_path / "copied")
    with zipfile.ZipFile(flink.jar) as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode()
    # Lines of a manifest have at most 72 bytes and continue after a space.
    lines = manifest.replace("\r\n ", "").replace("gradle/wrapper/", "copied/").split("\r\n")
    with zipfile.ZipFile(tmp_path / "flink.jar", "w") as copy:
        copy.writestr("META-INF/MANIFEST.MF", "\r\n".join("\r\n ".join(re.findall(".{1,70}", line)) for line in lines))
    return tmp_path / "flink.jar"


def downloads(flink: Any) -> int:
    """Number of files that TaskManagers have fetched from the JobManager."""
    return sum(log.read_text().count(" - Downloading ") for log in flink.logs.glob("task-manager-*.log"))


def test_with_the_job_server_that_the_runner_starts(
    flink: Any, uploaded_jar: Path, start: Any, undisturbed: Any, tree: Any, small_log: Path
) -> None:
    """--runner FlinkRunner, which uploads Beam's jars, as a user would submit a job to any cluster."""
    flags = {"input": small_log, "input_format": "csv"}
    others = [flag for flag in flink.flags if not flag.startswith(("--runner=", "--job_endpoint="))]
    runner = ["--runner=FlinkRunner", f"--flink_job_server_jar={uploaded_jar}", "--parallelism=2", *others]
    runner += [f"--job_port={port}" for port in free_ports(1)]
    before = downloads(flink)
    running = start(runner, **flags)
    whole = undisturbed(**flags)
    running.finish().ok()

    assert downloads(flink) > before + 100
    assert tree(running.release) == whole
    assert tree(running.temporary) == {}


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


def test_validated(start: Any, flink: Any, tree: Any, small_log: Path) -> None:
    """--validate: the TFDV pipelines also run on the cluster and find the same statistics."""
    flags = {"input": small_log, "input_format": "csv"}
    before = downloads(flink)
    running = [start([*runner, "--validate"], **flags) for runner in ([], flink.flags)]
    whole, released = (tree(job.finish().ok().ran.release) for job in running)

    for name in ("feature_stats.pb", "output_stats.pb"):
        one, other = (summary(files.pop(f"validation/{name}")) for files in (whole, released))
        assert set(one) == ({"", "f"} if name == "feature_stats.pb" else {"", "f", "y"})
        assert one == other
    assert "validation/schema.pbtxt" in whole
    assert released == whole
    # TaskManagers have Beam's jars: for each of three jobs they fetch the one that names them and no other.
    assert downloads(flink) - before <= 3 * len(flink.task_managers)
