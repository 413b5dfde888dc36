"""Claim files in the guide for auditors: its example is that of the demo, its tables have all facts and groups."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from labeldp.pipelines.cli.commands import main
from labeldp.report.claim_file import FACTS

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/auditors.md").read_text()
GUIDE = GUIDE.partition("\n## Claim files\n")[2].partition("\n## ")[0]
EXAMPLE = ROOT / "docs/examples/claim_facts.yaml"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("demo") / "demo_output"
    assert main(["demo", f"--output={output}", "--clicks=40000"]) == 0
    return output


@pytest.fixture(scope="module")
def claim(demo: Path) -> Path:
    path = demo / "claim.yaml"
    assert main(["report", str(demo / "released"), f"--claim={path}", f"--claim_facts={EXAMPLE}"]) == 0
    return path


def _without_records(line: str) -> str:
    """Without the number of records, which depends on that of the clicks, and the last digits of what is certified."""
    return re.sub(r"(number_of_privacy_units: )\d+|(epsilon 0\.99999999)\d+", r"\1\2N", line)


def test_the_claim_of_the_demo_has_the_lines_that_the_guide_shows(claim: Path) -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    lines = [_without_records(line) for line in claim.read_text().splitlines()]
    start = lines.index("  privacy_loss:")
    assert lines[start : start + len(shown.splitlines())] == [_without_records(line) for line in shown.splitlines()]


def _fields(document: dict) -> Iterator[str]:
    deployment = document["deployment"]
    return (name for group in deployment.values() for name in group)


def test_the_guide_counts_the_fields_of_the_demo(claim: Path) -> None:
    fields = list(_fields(yaml.safe_load(claim.read_text())))
    assert f"has {len(fields)} fields" in GUIDE


def test_the_error_of_a_wrong_claim_is_the_one_shown(
    demo: Path, claim: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (shown,) = re.findall(r"^labeldp report: error: .*$", GUIDE, re.MULTILINE)
    text = claim.read_text()
    monkeypatch.chdir(demo.parent)
    Path("claim.yaml").write_text(text.replace("epsilon: 1.0", "epsilon: 0.1"))
    assert main(["report", "demo_output/released", "--check_claim=claim.yaml"]) == 1
    assert capsys.readouterr().err.strip() == shown
    Path("claim.yaml").write_text(text)
    assert main(["report", "demo_output/released", "--check_claim=claim.yaml"]) == 0
    assert capsys.readouterr().out == "claim      claim.yaml states this release\n"


def test_the_tables_have_every_fact_and_every_group(claim: Path) -> None:
    section = GUIDE.partition("## What the deployer states")[2].partition("## Example")[0]
    named = re.findall(
        r"`(\w+)`", "".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
    )
    assert named == [fact.name for fact in FACTS]
    section = GUIDE.partition("## What the release states")[2].partition("## What the deployer")[0]
    groups = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
    assert groups == list(yaml.safe_load(claim.read_text())["deployment"])


def test_the_example_has_only_what_the_release_needs(demo: Path) -> None:
    assert set(yaml.safe_load(EXAMPLE.read_text())) >= {fact.name for fact in FACTS} - {"prior_origin", "center_origin"}
    assert json.loads((demo / "released" / "release.json").read_text())["center"]["linear"]
