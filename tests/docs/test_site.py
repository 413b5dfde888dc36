"""The documentation site builds with warnings as errors, loads nothing from other hosts and documents every module."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
# Without ruff, mkdocstrings does not wrap long signatures, which takes a process for each of them.
MKDOCS = "import sys; sys.modules['ruff'] = None; from mkdocs.__main__ import cli; cli()"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # --quiet would hide warnings from --strict.
    command = [sys.executable, "-c", MKDOCS, "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.xdist_group("site")
def test_every_module_is_in_the_reference(site: Path, reference: ModuleType) -> None:
    for folder, modules in reference.packages().items():
        name = f"labeldp.{folder.replace('/', '.')}".replace("labeldp.labeldp", "labeldp")
        if folder in reference.PROGRAMS or not modules:
            continue
        page = (site / "reference" / name / "index.html").read_text()
        for path in modules:
            assert f'id="{path.stem}"' in page, path


@pytest.mark.xdist_group("site")
def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text()
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", text):
            source = re.search(r'(?:src|href)="([^"]*)"', tag)
            if source is not None and 'rel="canonical"' not in tag:
                assert not re.match(r"(?:https?:)?//", source[1]), f"{page}: {tag}"


@pytest.mark.xdist_group("site")
def test_notebooks_are_pages_with_their_pictures(site: Path) -> None:
    for path in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        folder = site / "notebooks" / path.stem
        page = (folder / "index.html").read_text()
        pictures = re.findall(r'<img alt="Output of the code above" src="([^"]*)"', page)
        assert len(pictures) == path.read_text().count('"image/png"') > 0
        assert all((folder / picture).read_bytes().startswith(b"\x89PNG") for picture in pictures)


def test_the_page_of_modules_has_every_module(reference: ModuleType) -> None:
    page = reference.reference_pages()[reference.MODULES]
    for folder, modules in reference.packages().items():
        assert f"## {folder}/\n" in page
        assert all(f"| `{path.stem}` |" in page for path in modules)


def test_the_page_of_documents_has_every_member(reference: ModuleType) -> None:
    page = reference.reference_pages()[reference.DOCUMENTS]
    schema = json.loads((ROOT / "labeldp" / "documents.json").read_text())
    for name, form in schema["$defs"].items():
        section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
        assert re.findall(r"^\| `([^`]+)` \| \S", section, re.MULTILINE) == [*form["properties"]]
        assert form["additionalProperties"] is False
        assert {*form["required"]} <= {*form["properties"]}


def test_the_example_of_the_reference_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "reference" / "index.md").read_text(), re.DOTALL)
    exec(code, {})
    epsilon, loss = map(float, capsys.readouterr().out.split())
    assert 0.99 < epsilon <= 1
    assert loss > 0
