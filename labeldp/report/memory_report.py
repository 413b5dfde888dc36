"""HTML report of labels that were released in memory, by the code of `labeldp report`."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labeldp import InputError

from ..audit.audit_release import audit_path
from ..pipelines.publish.released import Released
from ..pipelines.spec.machine import check_extra
from ..pipelines.spec.written_files import write_file


def write_report(path: str, released: Released, ledger: Sequence[dict[str, Any]], measured: Any) -> None:
    """Audits a release in memory and writes its report as HTML; an existing file is replaced.

    `ledger` has the runs in order, and `measured` is what a ridge explains of the true labels.

    Raises UsageError if the extra `evaluation` is not installed, and InputError if the audit fails, or the file cannot
    be written.
    """
    check_extra("report", "evaluation", "jinja2")
    # They need jinja2.
    from .report_input import ReportInput
    from .report_page import report_page

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "mechanism.json")
        file.write_text(released.mechanism.to_text())
        audit = audit_path(str(file))
    if audit.problems:
        raise InputError(f"the mechanism fails the audit; no report is written: {'; '.join(audit.problems)}")
    if released.manifest is not None:
        budget = released.mechanism.drawing.budget
        audit = dataclasses.replace(audit, total_epsilon=released.manifest.epsilon, prior_epsilon=budget.prior)
    page = report_page(ReportInput(released, audit, ledger, measured=measured))
    try:
        write_file(path, page.encode(errors="backslashreplace"))
    except OSError as error:
        raise InputError(f"{os.path.abspath(path)} cannot be written: {error.strerror}") from None
