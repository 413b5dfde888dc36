"""The auditor's checks of the table that a manifest states."""

import json
from typing import Any

import pytest
from labeldp.audit.audit_release import audit_path, audit_report
from labeldp.audit.manifest_statements import table_line, table_problems

from tests.audit.mechanism_files import write

ICEBERG = {
    "format": "iceberg", "name": "cat/n.t", "id": "a209b9ab-c0f5-4665-aa49-f9a725f2a970",
    "snapshot": "8824796348245669531", "schema": "1",
}  # fmt: skip
DELTA = {**ICEBERG, "format": "delta", "name": "events", "snapshot": "0", "schema": "b82275e75ae00a1e"}


def problems(table: Any) -> list[str]:
    return list(table_problems({"table": table}))


def test_statements_of_both_formats_pass():
    assert [problems(ICEBERG), problems(DELTA), list(table_problems({}))] == [[], [], []]
    assert table_line({}) == ""
    assert "iceberg 'cat/n.t', id a209b9ab" in table_line({"table": ICEBERG})


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({**ICEBERG, "name": "n.t"}, "name is not that of a table"),
        ({**DELTA, "name": "s3://bucket/events"}, "name is not that of a table"),
        ({**ICEBERG, "snapshot": str(1 << 63)}, "beyond the numbers of snapshots"),
        ({**ICEBERG, "schema": "01"}, "schema is not that of a table"),
        ({**DELTA, "schema": "1"}, "schema is not that of a table"),
    ],
)
def test_a_statement_that_no_table_has_is_a_problem(table, problem):
    (found,) = problems(table)
    assert problem in found


def test_the_audit_reports_the_table_in_one_line(folder):
    release = json.loads((folder / "release.json").read_text())
    write(folder / "release.json", release | {"table": DELTA | {"name": "a\nPASS"}})
    audit = audit_path(str(folder))
    assert audit.problems == ()
    assert "table        delta 'a\\nPASS', id" in audit_report(audit)
    write(folder / "release.json", release | {"table": DELTA | {"format": "x\nPASS"}})
    audit = audit_path(str(folder))
    assert audit.problems == ("release.table.format is not iceberg or delta",)
    assert "table " not in audit_report(audit)
