"""Software bill of materials (CycloneDX) of requirements.lock, and whether a release was made with its packages.

`make sbom` pipes what cyclonedx-py makes of the lock through this module, which writes sbom.cdx.json beside the lock
and `locked_versions.json` beside itself: the digest of the bill and its versions, which an installed labeldp has. The
bill depends on the lock alone: it has no time, no serial number, no path and no address of a registry.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

LOCKED = Path(__file__).with_name("locked_versions.json")
_LOCK_DIGEST = "labeldp:requirements.lock:sha256"
_TOOL_MEMBERS = ("type", "group", "name", "version")


def bill_text(document: Mapping[str, Any], lock: bytes) -> str:
    """Makes the bill, with one package a line, from what cyclonedx-py writes.

    Args:
      document: Bill in CycloneDX 1.6, as JSON.
      lock: Content of the lock that it was made of.

    Returns:
      The text of sbom.cdx.json.
    """
    header = {
        "$schema": document["$schema"],
        "bomFormat": document["bomFormat"],
        "specVersion": document["specVersion"],
        "version": 1,
        "metadata": {
            "tools": {"components": [_tool(tool) for tool in document["metadata"]["tools"]["components"]]},
            "component": {
                "type": "application",
                "bom-ref": "labeldp",
                "name": "labeldp",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
            "properties": [
                {"name": "cdx:reproducible", "value": "true"},
                {"name": _LOCK_DIGEST, "value": hashlib.sha256(lock).hexdigest()},
            ],
        },
    }
    packages = sorted(map(_package, document["components"]), key=lambda package: package["name"])
    lines = ",\n".join(f"    {json.dumps(package)}" for package in packages)
    return f'{json.dumps(header, indent=2)[:-2]},\n  "components": [\n{lines}\n  ]\n}}\n'


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tool[name] for name in _TOOL_MEMBERS}


def _package(component: Mapping[str, Any]) -> dict[str, Any]:
    """A package by its purl, with the SHA-256 of all its files that the lock allows."""
    purl = component["purl"]
    hashes = [digest for reference in component["externalReferences"] for digest in reference["hashes"]]
    return {
        "type": component["type"],
        "bom-ref": purl,
        "name": component["name"],
        "version": component["version"],
        "purl": purl,
        # The address of a registry would differ from machine to machine.
        "externalReferences": [{"type": "distribution", "url": purl, "hashes": hashes}],
    }


def locked_text(bill: str) -> str:
    """Makes the text of locked_versions.json from that of the bill."""
    versions = {package["name"]: package["version"] for package in json.loads(bill)["components"]}
    return json.dumps({"sbom_sha256": hashlib.sha256(bill.encode()).hexdigest(), "versions": versions}, indent=2) + "\n"


@functools.cache
def bill_statement() -> str:
    """Tells which bill this version of labeldp has, and how many installed packages have other versions than it."""
    return statement(json.loads(LOCKED.read_text()), _installed)


def statement(locked: Mapping[str, Any], installed: Callable[[str], str | None]) -> str:
    """The statement for the content of locked_versions.json; `installed` gives the version of a package by its name."""
    found = {name: installed(name) for name in locked["versions"]}
    others = sum(found[name] not in (None, pinned) for name, pinned in locked["versions"].items())
    digest = f"sha256:{locked['sbom_sha256']}"
    if not others:
        return digest
    return f"{digest}, but {others} installed {'package has' if others == 1 else 'packages have'} another version"


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def main(lock: str, bill: str) -> None:
    """Writes both files; the output of cyclonedx-py is on standard input."""
    text = bill_text(json.load(sys.stdin), Path(lock).read_bytes())
    Path(bill).write_text(text)
    LOCKED.write_text(locked_text(text))


if __name__ == "__main__":
    main(*sys.argv[1:])
