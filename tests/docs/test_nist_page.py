"""NIST SP 800-226 in the guide for auditors: each answer names tests that exist, or says that none can."""

import re
from pathlib import Path

import pytest
from labeldp.report.claim_file import FACTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/guides/auditors.md").read_text().partition("\n## NIST SP 800-226\n")[2]
HEAD = ["Question or hazard", "What labeldp does", "Test", "Left to the operator"]
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line.startswith("| ")]
# Parts of the pyramid, from its top to its bottom, by words of the first column.
PYRAMID = {
    "Top: the guarantee": ["epsilon", "Delta", "Unit of privacy", "Bounded", "variants", "Comparison", "Composition",
                           "Mixing", "Testing"],
    "Middle: algorithms, utility, bias": ["implementation", "Sensitivity", "Utility", "systemic bias", "human bias",
                                          "Statistical bias", "Machine learning", "Synthetic", "Unstructured"],
    "Bottom: deployment": ["Query model", "Trust model", "Floating point", "Timing", "Error messages", "Tuning", "key",
                           "Security", "Data collection exposure", "Data retention"],
}  # fmt: skip


@pytest.mark.parametrize("row", [row for row in ROWS if row != HEAD], ids=lambda row: row[0].strip("| "))
def test_every_answer_has_its_test(row: list[str]) -> None:
    assert len(row) == len(HEAD)
    assert all(row)
    tests = re.findall(r"`([^`]*)`", row[2])
    assert row[2] == (", ".join(f"`{path}`" for path in tests) or "-")
    for path in tests:
        assert re.search(r"^(async )?def test_", (ROOT / path).read_text(), re.MULTILINE), path


def test_few_answers_have_no_test() -> None:
    """No test can time a job of the operator, or see what he collects."""
    assert [row[0].strip("| ") for row in ROWS if row[2] == "-"] == ["Timing", "Data collection exposure"]


@pytest.mark.parametrize("level", PYRAMID)
def test_each_part_of_the_pyramid_is_answered(level: str) -> None:
    section = PAGE.partition(f"### {level}\n")[2].partition("\n### ")[0]
    questions = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| ")]
    for word in PYRAMID[level]:
        assert any(word in question for question in questions), word


def test_what_is_left_to_the_operator_is_asked_by_a_claim() -> None:
    facts = {fact.name for fact in FACTS}
    named = {
        fact for row in ROWS for group in re.findall(r"\((`[^)]*`)\)", row[3]) for fact in re.findall(r"\w+", group)
    }
    assert named <= facts
    assert named >= {"persons", "features", "tuning", "security", "trust", "justification", "recipients"}
