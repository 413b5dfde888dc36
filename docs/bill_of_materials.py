"""Software bill of materials (CycloneDX) of requirements.lock.

`make sbom` pipes what cyclonedx-py makes of the lock through this script, which writes sbom.cdx.json beside the lock,
and its digest and versions into the package, where releases state them. The bill depends on the lock alone: it has no
time, no serial number, no path and no address of a registry.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BILL, LOCK = ROOT / "sbom.cdx.json", ROOT / "requirements.lock"
LOCKED = ROOT / "pipelines" / "publish" / "locked_versions.json"


def bill_text(document: Mapping[str, Any], lock: bytes) -> str:
    """Makes the bill, with one package a line, from the CycloneDX 1.6 that cyclonedx-py makes of the lock."""
    tools = [{name: tool[name] for name in ("type", "group", "name", "version")}
             for tool in document["metadata"]["tools"]["components"]]  # fmt: skip
    header = {
        "$schema": document["$schema"],
        "bomFormat": document["bomFormat"],
        "specVersion": document["specVersion"],
        "version": 1,
        "metadata": {
            "tools": {"components": tools},
            "component": {
                "type": "application",
                "bom-ref": "labeldp",
                "name": "labeldp",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
            "properties": [
                {"name": "cdx:reproducible", "value": "true"},
                {"name": "labeldp:requirements.lock:sha256", "value": hashlib.sha256(lock).hexdigest()},
            ],
        },
    }
    packages = sorted(map(_package, document["components"]), key=lambda package: package["name"])
    lines = ",\n".join(f"    {json.dumps(package)}" for package in packages)
    return f'{json.dumps(header, indent=2)[:-2]},\n  "components": [\n{lines}\n  ]\n}}\n'


def _package(component: Mapping[str, Any]) -> dict[str, Any]:
    """A package by its purl, with the SHA-256 of all its files that the lock allows."""
    purl = component["purl"]
    hashes = [digest for reference in component["externalReferences"] for digest in reference["hashes"]]
    named = {name: component[name] for name in ("name", "version")}
    # The address of a registry would differ from machine to machine.
    references = [{"type": "distribution", "url": purl, "hashes": hashes}]
    return {"type": component["type"], "bom-ref": purl, **named, "purl": purl, "externalReferences": references}


def locked_text(bill: str) -> str:
    """Makes the text of locked_versions.json from that of the bill."""
    versions = {package["name"]: package["version"] for package in json.loads(bill)["components"]}
    return json.dumps({"sbom_sha256": hashlib.sha256(bill.encode()).hexdigest(), "versions": versions}, indent=2) + "\n"


if __name__ == "__main__":
    text = bill_text(json.load(sys.stdin), LOCK.read_bytes())
    BILL.write_text(text)
    LOCKED.write_text(locked_text(text))
