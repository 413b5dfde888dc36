"""Two releases side by side: each column has the facts of its release, and what differs is marked."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="the extra evaluation is not installed")

CAPTION = (
    "Certified values are recomputed from the integer weights of the mechanisms. Errors are under the released prior "
    "of each."
)


@pytest.fixture(scope="module")
def compared(released: Path, invoke: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The comparison of the two releases of the ledger."""
    output = tmp_path_factory.mktemp("compared") / "page.html"
    invoke(["report", str(released.parent / "other"), str(released), f"--output={output}", "--party=<i>us</i>"]).ok()
    return output.read_text()


def test_each_column_has_the_facts_of_its_release(compared: str, released: Path, read_page: Any) -> None:
    page = read_page(compared)
    head, *rows = page.tables[CAPTION]
    assert head == ["Fact", "other", "released"]
    facts = {row[0]: row[1:] for row in rows}
    documents = [json.loads((released.parent / name / "release.json").read_text()) for name in ("other", "released")]
    assert facts["records"] == [f"{document['records']:,}" for document in documents]
    assert facts["mechanism"] == [document["mechanism"] for document in documents]
    assert facts["label"] == [documents[0]["label"]] * 2
    assert [float(text) for text in facts["epsilon, certified"]] == pytest.approx([0.5, 1.0], rel=1e-3)
    for place, document in enumerate(documents):
        parts = [float(facts[name][place]) for name in facts if name.startswith("of which")]
        assert sum(parts) == pytest.approx(document["certified_epsilon"], rel=1e-3)
        squared = document["expected_loss"]["squared"]
        assert float(facts["root mean squared error of one label"][place]) == pytest.approx(squared**0.5, rel=1e-3)


def test_what_differs_is_marked(compared: str) -> None:
    for row in re.findall(r'<tr(?: class="differs")?><th scope="row".*?</tr>', compared, re.DOTALL):
        one, other = re.findall(r"<td>(.*?)</td>", row)
        assert ('class="differs"' in row) == (one != other)
    assert 'class="differs"' in compared


def test_it_is_text_without_scripts_and_shows_both(compared: str, read_page: Any) -> None:
    page = read_page(compared)
    assert not {"script", "i", "link", "img"} & {tag for tag, _ in page.elements}
    assert "by <i>us</i>" in page.text
    assert page.text.count("Verdict:") == 2
    assert compared.count("<svg ") == 6
    assert page.headings == ["Facts", "Charts"]


def test_a_release_and_a_mechanism_file(
    released: Path, solved: Any, invoke: Any, tmp_path: Path, read_page: Any
) -> None:
    output = tmp_path / "page.html"
    invoke(["report", str(released), str(solved({0: 1, 1: 3})), f"--output={output}"]).ok()
    facts = {row[0]: row[1:] for row in read_page(output.read_text()).tables[CAPTION]}
    assert facts["records"][1] == facts["released on"][1] == "-"


def test_releases_of_one_name_are_told_apart(released: Path, copied: Path, invoke: Any, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    invoke(["report", str(released), str(copied), f"--output={output}"]).ok()
    assert {"released (first)", "released (second)"} <= set(re.findall(r"<bdi[^>]*>(.*?)</bdi>", output.read_text()))


def test_nothing_is_written_if_one_of_them_fails_the_audit(
    released: Path, copied: Path, invoke: Any, tmp_path: Path
) -> None:
    path = copied / "release.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"epsilon": 0.1}))
    outcome = invoke(["report", str(released), str(copied), f"--output={tmp_path / 'page.html'}"])
    assert outcome.code == 1
    assert f"{copied} fails the audit" in outcome.error
    assert not (tmp_path / "page.html").exists()
