"""Everything that the README and the docs name exists: files, headings, commands, flags, make targets, public names."""

import argparse
import ast
import contextlib
import importlib
import io
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from labeldp.mechanisms.registry import MECHANISMS
from labeldp.pipelines.cli.commands import COMMANDS, main

from tests.docs.pages import FENCE, ROOT, blocks

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SHELLS = ("", "sh", "shell", "text")
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^()\s]+)\)")
COMMAND = re.compile(r"(?:^\s*|python -m |bin/)labeldp ([a-z]\w*)\b([^|;&]*)")
FOLDERS = ("mechanisms", "transforms", "pipelines", "templates", "tests", "benchmarks", "docs")
# Commands that run a Beam pipeline also accept the flags of its runner.
WITH_RUNNER = ("privatize", "fit", "apply", "evaluate")


@cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text()


@cache
def prose_of(page: str) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", text_of(page))


def code_of(page: str) -> Iterator[str]:
    """Yields the lines of shell blocks, with continued lines joined, and inline code."""
    for block in blocks(page):
        if block.kind in SHELLS:
            yield from block.text.replace("\\\n", " ").splitlines()
    for code in re.findall(r"`([^`]+)`", prose_of(page)):
        yield " ".join(code.split())


@cache
def anchors_of(page: str) -> set[str]:
    """Anchors of the headings, as links name them."""
    headings = re.findall(r"^#+ (.*)$", prose_of(page), re.MULTILINE)
    plain = [re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in plain}


@cache
def flags_of(command: str) -> set[str]:
    """Flags in the help of a command, and the flags of Beam's runners if the command accepts them."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([command, "--help"]) == 0
    return set(re.findall(r"--\w+", out.getvalue())) | (_runner_flags() if command in WITH_RUNNER else set())


@cache
def _runner_flags() -> set[str]:
    parser = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
    families: list[Any] = PipelineOptions.__subclasses__()
    for family in families:
        families += family.__subclasses__()
        family._add_argparse_args(parser)
    return {flag for action in parser._actions for flag in action.option_strings}


def test_pages_are_found() -> None:
    assert {"README.md", "docs/threat_model.md", "docs/tutorial.md", "docs/guides/release.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for link in LINK.findall(prose_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors_of(target.resolve().relative_to(ROOT).as_posix()), link


def test_the_index_leads_to_the_section_of_each_mechanism() -> None:
    index = text_of("docs/mechanisms/index.md")
    for name in MECHANISMS:
        (link,) = re.findall(rf"^\| \[{name}\]\(([^)]*)\) \|", index, re.MULTILINE)
        page, _, anchor = link.partition("#")
        assert anchor == name or re.search(rf"^# .*{name}", text_of(f"docs/mechanisms/{page}"))


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_flags_exist(page: str) -> None:
    for line in code_of(page):
        for name, rest in COMMAND.findall(line.partition("  #")[0]):
            assert name in COMMANDS, line
            assert set(re.findall(r"(?<![\w-])--\w+", rest)) <= flags_of(name), line


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_exist(page: str) -> None:
    rules = re.findall(r"^([a-z -]+):", text_of("Makefile"), re.MULTILINE)
    targets = {target for names in rules for target in names.split()}
    for line in code_of(page):
        for target in re.findall(r"(?:^|\s)make ([a-z-]+)", line.partition("  #")[0]):
            assert target in targets, line


@pytest.mark.parametrize("page", PAGES)
def test_files_named_exist(page: str) -> None:
    """Checks paths relative to the root of the repository, such as `tests/docs/test_readme.py`."""
    pattern = re.compile(rf"(?<![\w./-])((?:{'|'.join(FOLDERS)})/[\w./-]*\w\.\w+)")
    for line in code_of(page):
        for path in pattern.findall(line):
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", PAGES)
def test_python_examples_import_what_exists(page: str) -> None:
    for block in blocks(page, kind="python"):
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("labeldp"):
                module = importlib.import_module(str(node.module))
                assert all(hasattr(module, alias.name) for alias in node.names), page
