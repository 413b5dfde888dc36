"""Faults that a group of tests must catch, each planted in a copy of the checkout: `python tests/planted_faults.py`.

Whoever shortens the tests runs it before and after. With names as arguments, only those faults are planted. It prints
the test that failed first, and exits with 1 if the tests of a fault pass.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
_LEFT_OUT = shutil.ignore_patterns(".venv", ".git", "__pycache__", ".*_cache", "demo_output", "build")


class Fault(NamedTuple):
    """A fault: `old` text of a product file becomes `new`, and the tests at these paths must fail."""

    file: str
    old: str
    new: str
    tests: str


_MALFORMED = "tests/audit/test_malformed_documents.py"

FAULTS = {
    "sensitivity": Fault(
        "mechanisms/noise/noisy_histogram.py",
        "HISTOGRAM_SENSITIVITY = 2\n",
        "HISTOGRAM_SENSITIVITY = 1\n",
        "tests/mechanisms/noise/test_noisy_histogram.py",
    ),
    "key binding": Fault(
        "mechanisms/noise/keyed_words.py",
        '"missing": None if self.missing is None else float(self.missing).hex(),',
        '"missing": None,',
        "tests/pipelines/spec/test_bound_fields.py",
    ),
    "budget": Fault(
        "mechanisms/core/budget.py",
        "return BudgetSplit(float(first), round_down(second))",
        "return BudgetSplit(float(first), float(second))",
        "tests/mechanisms/core/test_budget.py",
    ),
    "unit bound": Fault(
        "mechanisms/release/unit_bound.py",
        "found[order[rank >= max_records]] = True",
        "found[order[rank > max_records]] = True",
        "tests/mechanisms/release/test_unit_bound.py",
    ),
    "lease": Fault(
        "transforms/stores/object_store.py",
        'if found is None or json.loads(found[0]).get("run") != self.run:\n            raise',
        "if found is None:\n            raise",
        "tests/pipelines/stores/test_object_stores.py tests/pipelines/stores/test_stopped_runs.py",
    ),
    "charge": Fault(
        "pipelines/ledger/spent_budget.py",
        "max(decimal_value(entry.epsilon), epsilon)",
        "decimal_value(entry.epsilon)",
        "tests/pipelines/ledger/test_composition.py tests/pipelines/ledger/test_ledger.py",
    ),
    "encoding": Fault(
        "mechanisms/noise/keyed_words.py",
        'b"".join(len(part).to_bytes(8, "little") + part for part in encoded)',
        'b"".join(encoded)',
        "tests/mechanisms/noise/test_keyed_words.py",
    ),
    "clamp": Fault(
        "mechanisms/core/label_grid.py",
        "values = np.clip(values, self._labels[0], self._labels[-1])",
        "values = np.maximum(values, self._labels[0])",
        "tests/mechanisms/core/test_label_grid.py",
    ),
    "rounding": Fault(
        "mechanisms/core/budget.py",
        "round_up(Fraction(above.next_plus(above.ln(argument))))",
        "float(Fraction(above.next_plus(above.ln(argument))))",
        "tests/mechanisms/core/test_budget.py tests/mechanisms/core/test_certificate.py",
    ),
    "digest": Fault(
        "mechanisms/noise/input_digest.py",
        "low, high = bits & _LOW, (bits >> _HALF) + np.uint64(1)",
        "low, high = bits & _LOW, bits >> _HALF",
        "tests/mechanisms/noise/test_input_digest.py",
    ),
    "shard order": Fault(
        "transforms/shards/shard_ranges.py",
        "for source in sorted(found):",
        "for source in found:",
        "tests/transforms/shards/test_shard_ranges.py",
    ),
    "audit": Fault(
        "labeldp/audit/audit_mechanism.py",
        "not ln_at_most(ratio, mechanism.certified_epsilon):",
        "not ln_at_most(ratio, mechanism.certified_epsilon + 1):",
        "tests/audit/test_audit_mechanism.py",
    ),
    "auditor of documents": Fault(
        "labeldp/audit/documents.py",
        "if not all(type(value) is int and least <= value <= most for value in values):",
        "if not all(isinstance(value, int) and least <= value <= most for value in values):",
        _MALFORMED,
    ),
    "reader of documents": Fault(
        "pipelines/publish/manifest.py",
        "if not isinstance(document[key], kind) or isinstance(document[key], bool):",
        "if not isinstance(document[key], kind):",
        _MALFORMED,
    ),
}  # fmt: skip


def planted(fault: Fault, folder: str) -> str | None:
    """Runs the tests on a copy of the checkout with the fault: the first test that fails; None if all pass."""
    copy = Path(shutil.copytree(ROOT, Path(folder, "copy"), ignore=_LEFT_OUT))
    for part in ("mechanisms", "pipelines", "templates", "transforms"):
        # So that Python finds the copy before the installed package.
        (copy / "labeldp" / part).symlink_to(copy / part)
    path = copy / fault.file
    text = path.read_text()
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.file} does not have exactly once: {fault.old}")
    path.write_text(text.replace(fault.old, fault.new))
    command = [sys.executable, "-m", "pytest", "-x", "-rfE", "-p", "no:cacheprovider", *fault.tests.split()]
    run = subprocess.run(
        command, cwd=copy, env=os.environ | {"PYTHONPATH": str(copy)}, capture_output=True, text=True, check=False
    )
    if run.returncode not in (0, 1):
        raise RuntimeError(run.stdout + run.stderr)
    found = re.search("^(?:FAILED|ERROR) (tests/.*?)(?: - |$)", run.stdout, re.MULTILINE)
    return found and found[1]


def main(names: list[str]) -> int:
    """Plants the faults of these names, or all; the exit code."""
    missed = 0
    for name in names or FAULTS:
        with tempfile.TemporaryDirectory() as folder:
            test = planted(FAULTS[name], folder)
        missed += test is None
        print(f"{name:20} {test or 'NOT CAUGHT by ' + FAULTS[name].tests}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
