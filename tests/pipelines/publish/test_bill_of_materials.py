"""Software bill of materials: that of the lock, pin by pin, the same on every machine; what a release says of it."""

import hashlib
import json
import re
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from labeldp.pipelines.publish.locked_versions import LOCKED, bill_statement, statement

from docs.bill_of_materials import BILL, LOCK, ROOT, bill_text, locked_text

RENEW = "run `make sbom`, and commit what it writes"


def pins(lock: Path) -> dict[str, tuple[str, set[str]]]:
    """Version and hashes of each package of a lock."""
    found: dict[str, tuple[str, set[str]]] = {}
    for entry in re.split(r"\n(?=[a-z])", lock.read_text()):
        pin = re.match(r"([a-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)", entry)
        if pin is not None:
            assert pin[1] not in found
            found[pin[1]] = pin[2], set(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry))
    return found


def packages() -> list[dict[str, Any]]:
    return json.loads(BILL.read_text())["components"]


def test_the_bill_has_every_pin_of_the_lock_once() -> None:
    expected = pins(LOCK)
    assert len(expected) == len(re.findall(r"^[a-z0-9].*==", LOCK.read_text(), re.MULTILINE)) > 200
    listed = {
        package["name"]: (
            package["version"],
            {digest["content"] for each in package["externalReferences"] for digest in each["hashes"]},
        )
        for package in packages()
    }
    assert len(listed) == len(packages())
    assert listed == expected, RENEW
    assert all(package["purl"] == f"pkg:pypi/{package['name']}@{package['version']}" for package in packages())


def test_the_lock_of_jobs_is_a_part_of_it() -> None:
    of_jobs, whole = pins(ROOT / "templates" / "dataflow" / "requirements.lock"), pins(LOCK)
    assert of_jobs
    assert of_jobs.items() <= whole.items()


def test_the_bill_depends_on_the_lock_alone() -> None:
    text, document = BILL.read_text(), json.loads(BILL.read_text())
    assert set(document) == {"$schema", "bomFormat", "specVersion", "version", "metadata", "components"}
    assert set(document["metadata"]) == {"tools", "component", "properties"}
    properties = {each["name"]: each["value"] for each in document["metadata"]["properties"]}
    assert properties["labeldp:requirements.lock:sha256"] == hashlib.sha256(LOCK.read_bytes()).hexdigest(), RENEW
    assert re.findall(r"[a-z+]+://[^\"]*", text) == ["http://cyclonedx.org/schema/bom-1.6.schema.json"]
    assert not re.search(r"\"/|file:|\d{4}-\d\d-\d\dT|urn:uuid", text)
    assert bill_text(document, LOCK.read_bytes()) == text, RENEW


def test_what_the_package_has_of_it() -> None:
    assert LOCKED.read_text() == locked_text(BILL.read_text()), RENEW
    locked = json.loads(LOCKED.read_text())
    assert locked["sbom_sha256"] == hashlib.sha256(BILL.read_bytes()).hexdigest()
    assert locked["versions"] == {name: pin for name, (pin, _) in pins(LOCK).items()}


def test_the_order_and_the_lines_of_the_tool_do_not_matter() -> None:
    def component(name: str, line: int) -> dict[str, Any]:
        return {
            "bom-ref": f"requirements-L{line}", "description": f"requirements line {line}", "name": name,
            "type": "library", "version": "1.0", "purl": f"pkg:pypi/{name}@1.0",
            "externalReferences": [
                {"type": "distribution", "url": f"https://mirror.example/{name}/", "hashes": [
                    {"alg": "SHA-256", "content": "0" * 64}
                ]}
            ],
        }  # fmt: skip

    def bill(*components: dict[str, Any]) -> str:
        tool = {"type": "application", "group": "g", "name": "t", "version": "1", "description": "d"}
        document = {"$schema": "s", "bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": "urn:uuid:1"}
        metadata = {"tools": {"components": [tool]}, "timestamp": "2026-01-01T00:00:00Z"}
        return bill_text({**document, "metadata": metadata, "components": components}, b"lock")

    first = bill(component("a", 1), component("b", 2))
    assert first == bill(component("b", 7), component("a", 9))
    assert "mirror" not in first
    assert json.loads(first)["components"][1]["name"] == "b"


LOCKED_TWO = {"sbom_sha256": "ab" * 32, "versions": {"a": "1.0", "b": "2.0"}}


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        ({"a": "1.0", "b": "2.0"}, ""),
        ({"a": "1.0"}, ""),
        ({"a": "1.0", "b": "2.1"}, ", but 1 installed package has another version"),
        ({"a": "0.9", "b": "2.0.post1", "c": "1"}, ", but 2 installed packages have another version"),
    ],
)
def test_other_versions_than_the_bill_are_counted(installed: dict[str, str], expected: str) -> None:
    assert statement(LOCKED_TWO, installed.get) == f"sha256:{'ab' * 32}{expected}"


def test_a_release_points_to_it(after_job: Callable[..., None], outputs: Path) -> None:
    after_job()
    versions = json.loads((outputs / "released" / "release.json").read_text())["versions"]
    assert versions["sbom"] == bill_statement()
    assert versions["sbom"].startswith(f"sha256:{hashlib.sha256(BILL.read_bytes()).hexdigest()}")
    others = 0
    for name, (pinned, _) in pins(LOCK).items():
        try:
            others += version(name) != pinned
        except PackageNotFoundError:
            continue
    assert ("have another version" in versions["sbom"] or "has another version" in versions["sbom"]) == (others > 0)
