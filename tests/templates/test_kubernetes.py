"""Kubernetes manifests: they agree with the flags, the versions and each other."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
import yaml

KEY = "/var/run/labeldp/noise.key"


@pytest.fixture(scope="module")
def session(templates: Path) -> dict[str, Any]:
    """Manifest of the cluster."""
    documents = yaml.safe_load_all((templates / "kubernetes" / "flink-session.yaml").read_text())
    return next(document for document in documents if document["kind"] == "FlinkDeployment")


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


@pytest.fixture(scope="module")
def documents(templates: Path) -> list[dict[str, Any]]:
    """All objects of all manifests."""
    files = sorted((templates / "kubernetes").glob("*.yaml"))
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


@pytest.fixture(scope="module")
def problems() -> Callable[[dict[str, Any]], list[str]]:
    """Function (object) -> what is wrong with it by the schema of its kind."""
    schemas = yaml.safe_load((Path(__file__).parent / "kubernetes_schemas.yaml").read_text())

    def check(document: dict[str, Any]) -> list[str]:
        own = schemas[f"{document['apiVersion']} {document['kind']}"]
        general = {"apiVersion": True, "kind": True, "metadata": {"$ref": "#/$defs/metadata"}}
        schema = {
            "$defs": schemas["$defs"], "additionalProperties": False,
            "required": ["metadata", *own.get("required", [])], "properties": general | own["properties"],
        }  # fmt: skip
        return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(document)]

    return check


def arguments(job: dict[str, Any]) -> list[str]:
    """The arguments of the command."""
    return job["spec"]["template"]["spec"]["containers"][0]["args"]


def test_the_manifests_are_valid_without_unknown_members(documents: list[dict[str, Any]], problems: Any) -> None:
    kinds = [document["kind"] for document in documents]
    assert kinds == ["ServiceAccount", "Role", "RoleBinding", "FlinkDeployment", "NetworkPolicy", "Job"]
    for document in documents:
        assert problems(document) == [], document["kind"]


def places(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in an object, but maps of texts."""
    if isinstance(value, dict):
        yield value
        for name, inner in value.items():
            if name not in ("flinkConfiguration", "matchLabels", "requests"):
                yield from places(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from places(inner)


def test_an_unknown_member_is_found_wherever_it_is(documents: list[dict[str, Any]], problems: Any) -> None:
    """Such as a misspelled one, which a server that is not strict would drop."""
    for document in documents:
        for place in [*places(document)]:
            place["readonly"] = True
            assert problems(document), place
            del place["readonly"]
        assert problems(document) == []


def test_the_service_account_of_flink_is_there(documents: list[dict[str, Any]], session: dict[str, Any]) -> None:
    """The operator makes it only in namespaces that it was told to watch."""
    account, role, binding = documents[:3]
    name, namespace = session["spec"]["serviceAccount"], session["metadata"]["namespace"]
    for document in (account, role, binding):
        assert document["metadata"] == {"name": name, "namespace": namespace}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    granted = {(group, each) for rule in role["rules"] for group in rule["apiGroups"] for each in rule["resources"]}
    assert granted == {("", "pods"), ("", "configmaps"), ("apps", "deployments"), ("apps", "deployments/finalizers")}


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
