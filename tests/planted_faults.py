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
    "words of a mechanism": Fault(
        "mechanisms/release/drawing.py",
        "purpose = self.table.fingerprint",
        'purpose = b"labels"',
        "tests/transforms/test_privatize_labels.py",
    ),
    "claim": Fault(
        "transforms/stores/claim.py",
        "self.store.abort_uploads(begin)",
        "pass",
        "tests/pipelines/stores/test_claims.py",
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
        "labeldp/audit/document_members.py",
        "if type(value) not in map(_TYPES.get, kinds):",
        "if not isinstance(value, tuple(map(_TYPES.get, kinds))):",
        _MALFORMED,
    ),
    "reader of documents": Fault(
        "mechanisms/core/document_form.py",
        "if type(value) not in [_TYPES[kind] for kind in types]:",
        "if not isinstance(value, tuple(_TYPES[kind] for kind in types)):",
        _MALFORMED,
    ),
    "noise at zero": Fault(
        "mechanisms/noise/discrete_laplace.py",
        "if negative and magnitude == 0:",
        "if negative and magnitude < 0:",
        "tests/mechanisms/noise/test_discrete_laplace.py",
    ),
    "sums of cells": Fault(
        "mechanisms/center/cell_center.py",
        "return (ends[1] - ends[0]) / Fraction(epsilon)",
        "return max(ends[1], -ends[0]) / Fraction(epsilon)",
        "tests/mechanisms/center/test_cell_center.py",
    ),
    "largest weight": Fault(
        "mechanisms/core/integer_weights.py",
        "min(lowest * top // bottom, TOTAL)",
        "min(-(-lowest * top // bottom), TOTAL)",
        "tests/mechanisms/core/test_integer_weights.py",
    ),
    "share of a record": Fault(
        "mechanisms/release/unit_bound.py",
        "return round_down(Fraction(decimal_budget(budget)) / self.max_records)",
        "return budget / self.max_records",
        "tests/mechanisms/release/test_unit_bound.py",
    ),
    "words of a stream": Fault(
        "mechanisms/release/drawing.py",
        "purpose, records.identities, records.values, records.centers)",
        "purpose, records.identities, records.values)",
        "tests/transforms/test_unbounded.py tests/transforms/test_centered_labels.py",
    ),
    "key of a center": Fault(
        "mechanisms/release/center_passes.py",
        "sums.digest.to_bytes().hex(), sums.places.to_bytes().hex(), raw,",
        "sums.digest.to_bytes().hex(), raw,",
        "tests/transforms/test_center_attacks.py",
    ),
    "drawn classes": Fault(
        "mechanisms/center/class_center.py",
        "(np.cumsum(probabilities, axis=1) <= places[:, None])",
        "(np.cumsum(probabilities, axis=1) < places[:, None])",
        "tests/mechanisms/center/test_class_center.py",
    ),
    "two randomizers": Fault(
        "transforms/privatize_labels.py",
        "if drawn.mechanisms - {mechanism}:",
        "if drawn.mechanisms and mechanism not in drawn.mechanisms:",
        "tests/transforms/test_privatize_labels.py",
    ),
    "labels of others": Fault(
        "transforms/batches.py",
        "for other in column.others:",
        "for other in column.others[:1]:",
        "tests/transforms/test_batches.py tests/pipelines/job/test_release_facts.py",
    ),
    "changed mechanism": Fault(
        "pipelines/publish/sealed_result.py",
        "if of_mechanism != mechanism_digest(mechanism):",
        "if not of_mechanism:",
        "tests/pipelines/finish/test_finish_command.py",
    ),
    "clocks": Fault(
        "pipelines/ledger/charged_runs.py",
        "return window.seconds + 2 * CLOCK_TOLERANCE",
        "return window.seconds",
        "tests/pipelines/ledger/test_cap_window.py",
    ),
    "key in the release": Fault(
        "pipelines/spec/target_checks.py",
        """if _inside(key.path, target):
        raise FieldError(
            "{noise_key_file}""",
        """if path is None and _inside(key.path, target):
        raise FieldError(
            "{noise_key_file}""",
        "tests/pipelines/spec/test_refused_requests.py",
    ),
    "delta of labels": Fault(
        "pipelines/spec/several_labels.py",
        "deltas = split_exactly(fields.delta, even)",
        "deltas = [fields.delta for _ in even]",
        "tests/pipelines/spec/test_release.py",
    ),
    "names of no record": Fault(
        "pipelines/publish/removal.py",
        "if found.missing and not missing_ok:",
        "if found.missing and not found.records and not missing_ok:",
        "tests/pipelines/remove/test_remove_command.py",
    ),
    "audited sum": Fault(
        "labeldp/audit/manifest_audit.py",
        "if most * (center + prior + Fraction(audit.certified_epsilon)) > certified:",
        "if most * (prior + Fraction(audit.certified_epsilon)) > certified:",
        "tests/audit/test_planted_statements.py",
    ),
    "audited units": Fault(
        "labeldp/audit/audit_data.py",
        "over = int((records > self._most).sum())",
        "over = int((records > self._most + 1).sum())",
        "tests/audit/test_planted_records.py",
    ),
    "audited labels": Fault(
        "labeldp/audit/manifest_audit.py",
        "if sum(Fraction(document[key]) for document in documents.values()) > Fraction(release[key]):",
        "if max(Fraction(document[key]) for document in documents.values()) > Fraction(release[key]):",
        "tests/audit/test_planted_statements.py",
    ),
    "unsigned file": Fault(
        "labeldp/audit/signature_audit.py",
        "elif name not in signed:",
        'elif name not in signed and not name.endswith(".json"):',
        "tests/audit/test_signature_audit.py",
    ),
    "claimed prefix": Fault(
        "labeldp/report/claim_file.py",
        'f"{str(value).rstrip()}\\n".startswith(f"{again}\\n")',
        "str(value).startswith(str(again))",
        "tests/report/test_claim_file.py",
    ),
    "claimed alone": Fault(
        "labeldp/report/claim_file.py",
        'if run.get("command") not in ("fit", "domain") else []',
        'if run.get("command") == "privatize" else []',
        "tests/report/test_claim_facts.py",
    ),
    "squared error": Fault(
        "labeldp/training/estimates.py",
        "terms = (f**2 - 2 * f * first + second[places]) / size",
        "terms = (f**2 - 2 * f * first + first**2) / size",
        "tests/training/test_estimates.py",
    ),
    "sign of a gradient": Fault(
        "labeldp/training/objectives.py",
        "return -step * spread[outputs] / likely,",
        "return step * spread[outputs] / likely,",
        "tests/training/test_class_training.py",
    ),
    "weights of releases": Fault(
        "labeldp/training/block_weights.py",
        "weights = 1 / variances",
        "weights = 1 / np.sqrt(variances)",
        "tests/training/test_objectives.py",
    ),
    "contradicted epsilon": Fault(
        "labeldp/attack/reconstruction.py",
        "added = Advantage.of(self.known, self.learned)",
        "added = Advantage.of(self.features, self.learned)",
        "tests/attack/test_label_beliefs.py",
    ),
    "hidden copy": Fault(
        "labeldp/attack/feature_leaks.py",
        "max(explained) if all(map(math.isfinite, explained)) else math.nan",
        "max(filter(math.isfinite, explained), default=math.nan)",
        "tests/attack/test_feature_leaks.py",
    ),
    "name of a range": Fault(
        "pipelines/cli/domain_command.py",
        "            self.budget.epsilon, where and [where.column, where.value],\n",
        "            where and [where.column, where.value],\n",
        "tests/pipelines/cli/test_domain_command.py",
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
