"""Shared fixtures of the report tests: a release, its page, and a parser of pages."""

import csv
import re
import shutil
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from labeldp import ReleaseWarning

from tests.gallery import Base
from tests.release_cases import CASES, GRID

from .release_states import STATES, Shown, announced

# A release of each kind: those of the gallery, one by `fit` and `apply`, and one of a public prior.
KINDS = (
    "mechanism unbiased", "missing labels", "parquet to parquet, linear", "cells", "marginals", "center column",
    "gaussian", "units", "units, linear", "several labels", "several labels, units", "classes", "center of classes",
    "units, center of classes", "applied", "public",
)  # fmt: skip
LABEL = "<script>alert('y')</script>"
VOID = ("meta", "rect", "path", "circle")
LINES = ("h1", "h2", "h3", "p", "tr", "caption", "dt", "dd", "div", "figcaption", "li", "pre", "title", "svg", "footer")


@dataclass
class Page(HTMLParser):
    """A page parsed with the standard library: its text, its elements, its tables by caption, and what a reader sees.

    shown: Lines, with the descriptions of pictures in their places.
    """

    text: str = ""
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    headings: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=lambda: [""])

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self._rows: list[list[str]] = []
        self._caption = ""

    @classmethod
    def of(cls, text: str) -> "Page":
        page = cls()
        page.feed(text)
        page.close()
        page.text = re.sub(r"\s+", " ", page.text)
        page.shown = [line for each in page.shown for line in textwrap.wrap(each, 118, break_long_words=False)]
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)
        if tag in LINES:
            self.shown.append({"h1": "# ", "h2": "## ", "h3": "### ", "li": "- "}.get(tag, ""))
        if tag == "sup":
            self.shown[-1] += "^"
        if tag in ("td", "th") and self.shown[-1]:
            self.shown[-1] += " | "
        if dict(attrs).get("role") == "img":
            self.shown[-1] += f"[{dict(attrs)['aria-label']}]"
        if tag == "table":
            self._rows, self._caption = [], ""
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
        elif tag == "h2":
            self.headings.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass
        if tag in LINES:
            self.shown.append("")
        if tag == "table":
            self.tables[self._caption.strip()] = [[cell.strip() for cell in row] for row in self._rows]

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.text += data
        if "pre" in self._open:
            self.shown += data.splitlines()
        elif "svg" not in self._open:
            self.shown[-1] += re.sub(r"\s+", " ", data)
        if "caption" in self._open:
            self._caption += data
        elif "td" in self._open or "th" in self._open:
            self._rows[-1][-1] += data
        elif "h2" in self._open:
            self.headings[-1] += data

    def facts(self, caption: str) -> dict[str, str]:
        """A table of two columns as a dictionary."""
        return {row[0]: row[1] for row in self.tables[caption][1:]}


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory, invoke: Any, command: Any, key_file: Path) -> Path:
    """A release of a log of 2,000 records whose label name contains markup; its ledger has two runs."""
    folder = tmp_path_factory.mktemp("report")
    log = folder / "log.csv"
    with log.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["<b>f</b>", LABEL])
        writer.writerows([i % 3, (i * i) % 7 % 5] for i in range(2000))
    flags = {
        "input": log, "input_format": "csv", "label": LABEL, "label_min": 0, "label_max": 6, "label_step": 1,
        "noise_key_file": key_file, "output_format": "parquet",
    }  # fmt: skip
    # Half of epsilon for the prior: with the split for so few records, noise decides what the report warns of.
    for name, epsilon, where in (("other", 0.5, None), ("released", 1, "<b>f</b>=1")):
        budget = {"epsilon": epsilon, "prior_epsilon": epsilon / 2}
        invoke(command("privatize", flags | budget | {"output": folder / name, "where": where})).ok()
    return folder / "released"


@pytest.fixture(scope="session")
def page_text(released: Path, invoke: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    output = tmp_path_factory.mktemp("page") / "page.html"
    outcome = invoke(["report", str(released), f"--output={output}"]).ok()
    assert outcome.out == f"report     {output}\n"
    assert outcome.err == ""
    return output.read_text()


@pytest.fixture(scope="session")
def page(page_text: str) -> Page:
    return Page.of(page_text)


@pytest.fixture(scope="session")
def read_page() -> Callable[[str], Page]:
    """Function (HTML) -> the page."""
    return Page.of


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory, key_file: Path) -> Callable[[str], Shown]:
    """Function (name in STATES) -> what users see of that release, which is made once."""

    @cache
    def make(name: str) -> Shown:
        folder, pages, warned = tmp_path_factory.mktemp("state"), [], []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReleaseWarning)
            for privatizer in STATES[name].releases(folder, key_file):
                privatizer.report(folder / "page.html")
                pages.append(Page.of((folder / "page.html").read_text()))
                warned.append(privatizer.warnings_)
        return Shown(privatizer, pages, warned, announced(privatizer, privatizer.mechanism_))

    return make


@pytest.fixture(scope="session")
def kind(
    base: Callable[[str], Base], invoke: Any, command: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Base]:
    """Function (name in KINDS) -> that release of the gallery, or one by `fit` and `apply`, or of a public prior."""

    @cache
    def find(name: str) -> Base:
        if name not in ("applied", "public"):
            return base(name)
        plain, folder = base(KINDS[0]), tmp_path_factory.mktemp(name)
        log = {flag: plain.flags[flag] for flag in ("input", "input_format", "noise_key_file", "id_column")}
        files = {"mechanism_file": folder / "mechanism.json", "ledger": folder / "ledger.jsonl"}
        if name == "applied":
            invoke(command("fit", GRID | log | CASES[KINDS[0]].flags | files)).ok()
        else:
            (folder / "prior.csv").write_text("".join(f"{value / 2},{21 - value}\n" for value in range(21)))
            solved = {"prior": folder / "prior.csv", "output": files["mechanism_file"], "epsilon": 1}
            invoke(command("solve", solved | {"mechanism": "unbiased"})).ok()
        flags = {**log, "label": "y", **files}
        outcome = invoke(command("apply", {**flags, "output": folder / "out"})).ok()
        return Base(plain.case, folder / "out", folder / "ledger.jsonl", flags, outcome)

    return find


@pytest.fixture
def damaged(released: Path, tmp_path: Path) -> Path:
    """A copy of the release that a test may damage."""
    shutil.copy(released.parent / "labeldp_ledger.jsonl", tmp_path)
    return Path(shutil.copytree(released, tmp_path / "released"))


@pytest.fixture
def solved(tmp_path: Path, invoke: Any) -> Callable[..., Path]:
    """Function (prior as label: weight, flag=value, ...) -> the mechanism file solved for it."""

    def run(prior: dict[float, float], **flags: Any) -> Path:
        (tmp_path / "prior.csv").write_text("".join(f"{label},{weight}\n" for label, weight in prior.items()))
        output = tmp_path / "mechanism.json"
        given = {"prior": tmp_path / "prior.csv", "output": output, "epsilon": 1, **flags}
        invoke(["solve", *(f"--{name}={value}" for name, value in given.items())]).ok()
        return output

    return run


@pytest.fixture(scope="session")
def report_on(invoke: Any) -> Callable[..., Page]:
    """Function (release or mechanism file, flags) -> its page."""

    def run(path: Path, *flags: str) -> Page:
        output = path.parent / "page.html"
        invoke(["report", str(path), f"--output={output}", *flags]).ok()
        text = output.read_text()
        output.unlink()
        assert len(text) < 1_000_000
        return Page.of(text)

    return run
