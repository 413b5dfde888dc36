"""HTML report of labels that were released in memory, by the code of `labeldp report`."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..audit.audit_release import audit_path
from ..mechanisms.analysis.release_warnings import release_warnings
from ..mechanisms.analysis.utility import ReleasedFacts
from ..pipelines.api.memory_release import MemoryRelease
from ..pipelines.publish.job_result import JobResult
from ..pipelines.publish.manifest import make_manifest, parse_manifest
from ..pipelines.spec.machine import check_extra
from ..pipelines.spec.mechanism_file import MECHANISM_NAME, MechanismFile
from ..pipelines.spec.written_files import write_file
from ..transforms.errors import InputError


def write_report(
    path: str,
    release: MemoryRelease,
    facts: ReleasedFacts,
    ledger: Sequence[dict[str, Any]],
    name: str,
    id_column: str | None,
) -> None:
    """Audits a release in memory and writes its report as HTML; an existing file is replaced.

    `ledger` has the runs in order. `name` is that of the release, for the title. Without `id_column`, records are
    identified by source and row.

    Raises UsageError if the extra `evaluation` is not installed, and InputError if the audit fails, or the file cannot
    be written.
    """
    check_extra("report", "evaluation", "jinja2")
    # They need jinja2, and Beam for the validation of files.
    from .release_summary import unit_summary
    from .report_input import ReportInput
    from .report_page import report_page

    binding, mechanism, epsilon = release.binding, release.mechanism, release.epsilon
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, MECHANISM_NAME)
        file.write_text(mechanism.to_text())
        audit = audit_path(str(file))
    if audit.problems:
        raise InputError(f"the mechanism fails the audit; no report is written: {'; '.join(audit.problems)}")
    document: dict[str, Any] | None = None
    if release.command != "fit":
        document = _document(
            JobResult(binding, binding.digest, {}, units=release.counts), mechanism, epsilon, facts, id_column
        )
        audit = dataclasses.replace(audit, total_epsilon=epsilon, prior_epsilon=binding.budget.prior)
    manifest = None if document is None else parse_manifest(document)
    unit = unit_summary(mechanism, None if document is None else document.get("unit"))
    page = report_page(ReportInput(name, audit, mechanism, manifest, ledger, unit=unit, measured=release.measured))
    try:
        write_file(path, page.encode(errors="backslashreplace"))
    except OSError as error:
        raise InputError(f"{os.path.abspath(path)} cannot be written: {error.strerror}") from None


def _document(
    result: JobResult, mechanism: MechanismFile, epsilon: float, facts: ReleasedFacts, id_column: str | None
) -> dict[str, Any]:
    """The manifest as the document of release.json."""
    details: dict[str, Any] = {
        "label": result.binding.column,
        "identity": id_column or "file and row",
        "where": None,
        "loss": facts.loss,
        "features": facts.features,
        "warnings": [warning.name for warning in release_warnings(facts)],
    }
    # Through JSON, as a manifest is read.
    document: dict[str, Any] = json.loads(json.dumps(make_manifest(result, mechanism, epsilon, details)))
    return document
