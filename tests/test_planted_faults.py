"""Each planted fault has a place: its old text is in the product exactly once, and its tests exist."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_each_fault_has_one_place() -> None:
    for fault in runpy.run_path(str(ROOT / "tests" / "planted_faults.py"))["FAULTS"].values():
        assert (ROOT / fault.file).read_text().count(fault.old) == 1, fault
        assert all((ROOT / path).is_file() for path in fault.tests.split()), fault
