"""Audit of a release: both of its documents."""

import json

import pytest
from labeldp.audit.audit_release import audit_path, audit_report

from tests.audit.mechanism_files import changed, write


def test_a_release_is_audited_by_folder_or_by_manifest(folder):
    by_folder = audit_path(str(folder))
    assert by_folder == audit_path(str(folder / "release.json"))
    assert by_folder.problems == ()
    assert (by_folder.total_epsilon, by_folder.prior_epsilon) == (1.0, 0.25)
    assert "total epsilon 1.0, including 0.25 for the prior" in audit_report(by_folder)
    assert audit_path(str(folder / "mechanism.json")).total_epsilon is None


def test_a_release_with_a_broken_mechanism_fails(folder):
    write(
        folder / "mechanism.json",
        changed(json.loads((folder / "mechanism.json").read_text()), ("columns", 0, 0, 0), "100"),
    )
    assert len(audit_path(str(folder)).problems) > 2
    (folder / "mechanism.json").write_text("{")
    assert audit_path(str(folder)).problems[0].startswith("'mechanism.json' is not valid JSON")


@pytest.mark.parametrize("missing", ["mechanism.json", "release.json"])
def test_half_a_release_fails(folder, missing):
    (folder / missing).unlink()
    assert audit_path(str(folder)).problems == (f"'{missing}' cannot be read: No such file or directory",)
