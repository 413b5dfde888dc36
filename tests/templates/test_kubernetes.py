"""Kubernetes manifests: they agree with the flags, the versions and each other."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

KEY = "/var/run/labeldp/noise.key"


@pytest.fixture(scope="module")
def session(templates: Path) -> dict[str, Any]:
    """Manifest of the cluster."""
    return yaml.safe_load((templates / "kubernetes" / "flink-session.yaml").read_text())


@pytest.fixture(scope="module")
def job(templates: Path) -> dict[str, Any]:
    """Manifest of the job that runs on the cluster."""
    return yaml.safe_load((templates / "kubernetes" / "privatize-job.yaml").read_text())


@pytest.fixture(scope="module")
def versions(templates: Path) -> dict[str, str]:
    """Versions of Flink and Beam in the tested cluster."""
    root = ElementTree.parse(templates / "flink" / "pom.xml").getroot()
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    return {name: root.findtext(f"m:properties/m:{name}.version", None, space) or "" for name in ("flink", "beam")}


def arguments(job: dict[str, Any]) -> list[str]:
    """The arguments of the command."""
    return job["spec"]["template"]["spec"]["containers"][0]["args"]


def test_the_flags_are_flags_of_the_command(job: dict[str, Any]) -> None:
    from labeldp.pipelines.cli.commands import parse

    # A missing flag would end the parser.
    args, flags = parse(["privatize", *arguments(job)])

    assert args.epsilon is not None
    assert "--environment_type=EXTERNAL" in flags


def test_the_key_is_a_mounted_secret_and_nothing_else(session: dict[str, Any], job: dict[str, Any]) -> None:
    assert f"--noise_key_file={KEY}" in arguments(job)
    for pod in (session["spec"]["taskManager"]["podTemplate"]["spec"], job["spec"]["template"]["spec"]):
        (volume,) = pod["volumes"]
        assert volume["secret"] == {"secretName": "labeldp-noise-key", "defaultMode": 0o400}
        mounts = [m for c in pod["containers"] for m in c.get("volumeMounts", [])]
        assert mounts == [{"name": volume["name"], "mountPath": str(Path(KEY).parent), "readOnly": True}]


def test_nobody_connects_from_outside_but_the_operator(templates: Path, session: dict[str, Any]) -> None:
    """Worker pools and Flink execute code from anyone who can connect."""
    policy = yaml.safe_load((templates / "kubernetes" / "network-policy.yaml").read_text())

    assert policy["metadata"]["namespace"] == session["metadata"]["namespace"]
    assert policy["spec"]["podSelector"] == {}
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    own, operator = policy["spec"]["ingress"]
    assert own == {"from": [{"podSelector": {}}]}
    assert [list(peer) for peer in operator["from"]] == [["namespaceSelector"]]
    assert operator["ports"] == [{"port": 8081}]


def test_versions_are_those_of_the_tested_cluster(
    session: dict[str, Any], job: dict[str, Any], versions: dict[str, str]
) -> None:
    minor = ".".join(versions["flink"].split(".")[:2])

    assert session["spec"]["image"].startswith(f"flink:{minor}-")
    assert session["spec"]["flinkVersion"] == f"v{minor.replace('.', '_')}"
    (server,) = job["spec"]["template"]["spec"]["initContainers"]
    assert server["image"] == f"apache/beam_flink{minor}_job_server:{versions['beam']}"


def test_the_job_finds_the_cluster_and_its_workers(session: dict[str, Any], job: dict[str, Any]) -> None:
    (server,) = job["spec"]["template"]["spec"]["initContainers"]
    pool = session["spec"]["taskManager"]["podTemplate"]["spec"]["containers"][1]

    assert f"--flink-master={session['metadata']['name']}-rest:8081" in server["args"]
    assert f"--environment_config=localhost:{pool['ports'][0]['containerPort']}" in arguments(job)
    assert pool["args"] == ["--worker_pool"]
    assert session["metadata"]["namespace"] == job["metadata"]["namespace"]
