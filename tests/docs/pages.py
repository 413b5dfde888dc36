"""Pages of the documentation: their fenced blocks, and the runner of the blocks in a working folder of their own."""

import itertools
import math
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.commands import write_key

ROOT = Path(__file__).parents[2]
KEY = bytes(range(32))
SECONDS = 120
FENCE = re.compile(
    r'^ *(?:<!-- needs (\w+) -->\n)?```(\w*)(?: title="([\w.]+)")?[^\n]*\n(.*?)^ *```$', re.MULTILINE | re.DOTALL
)
HASH = re.compile(r"\b[0-9a-f]{32,}\b")
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


class Block(NamedTuple):
    """A fenced block.

    Attributes:
      needs: A library without which it is left out; empty if it needs none.
      kind: sh, python, text, ...
      title: Name of the file that it is.
      text: Its lines.
      shown: The text block that comes next: what it prints; None without one.
    """

    needs: str
    kind: str
    title: str
    text: str
    shown: str | None = None


def section_of(page: str, heading: str = "") -> str:
    """Text of a page below a heading of the second level, up to the next one; the whole page without a heading."""
    text = (ROOT / page).read_text()
    if not heading:
        return text
    _, marked, after = text.partition(f"\n## {heading}\n")
    assert marked, f"{page} has no section {heading}"
    return after.partition("\n## ")[0]


def blocks(page: str, heading: str = "", kind: str = "") -> list[Block]:
    """The blocks of a page, or of a section of it, in order; those of a kind if it is named."""
    found = [Block(*match) for match in FENCE.findall(section_of(page, heading))]
    following = [block.text if block.kind == "text" else None for block in found[1:]]
    shown = [block._replace(shown=text) for block, text in itertools.zip_longest(found, following)]
    return [block for block in shown if kind in ("", block.kind)]


class Runner:
    """Runs blocks in a working folder, which has a default key: `labeldp` and Python in this process.

    Attributes:
      folder: The working folder.
      names: Names that the blocks in Python have bound.
      said: What the last command of `labeldp` wrote to standard error.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        self.folder = folder / "work"
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.said = ""
        self._config = folder / "config"
        self._capsys = capsys
        self.folder.mkdir()
        (self._config / "labeldp").mkdir(parents=True)
        write_key(self._config / "labeldp" / "noise.key", KEY)
        monkeypatch.chdir(self.folder)
        monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(self._config))

    def labeldp(self, line: str, *more: str, code: int = 0) -> str:
        """Runs a command of `labeldp`; what it prints: of one that fails, on standard error."""
        from labeldp.pipelines.cli.commands import main

        assert not set(line) & set("|&;<>()$`*?[~#{"), f"{line} needs a shell"
        self._capsys.readouterr()
        found, printed = main([*shlex.split(line)[1:], *more]), self._capsys.readouterr()
        assert found == code, f"{line}\n{printed.err}"
        self.said = printed.err
        return self.without_paths(printed.out or printed.err)

    def without_paths(self, text: str) -> str:
        """A text with the folders of the tutorial."""
        text = text.replace(str(self.folder), "/home/you/labeldp/tutorial")
        return text.replace(str(self._config), "/home/you/.config")

    def run(self, block: Block, *more: str) -> str:
        """Runs a block; what it prints. `more` are arguments of its commands of `labeldp`."""
        if block.title:
            Path(block.title).write_text(block.text)
            return ""
        if block.kind == "python":
            self._capsys.readouterr()
            if not block.needs or find_spec(block.needs):
                exec(compile(block.text, "a block of a page", "exec"), self.names)
            return self._capsys.readouterr().out
        if "\nlabeldp " not in f"\n{block.text}":
            return self.without_paths(in_shell(block.text))
        lines = block.text.replace("\\\n", " ").splitlines()
        return "".join(
            self.labeldp(line, *more) if line.startswith("labeldp ") else self.without_paths(in_shell(line))
            for line in lines
        )


def in_shell(commands: str) -> str:
    """Runs commands in a shell, until one fails; what they print."""
    done = subprocess.run(["sh", "-e", "-c", commands], check=False, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{commands}\n{done.stderr}"
    return done.stdout


def words_of(text: str) -> list[str]:
    """Lines with their numbers and hashes replaced, and runs of spaces by one."""
    lines = _without_seconds(text).splitlines()
    return [re.sub(" +", " ", NUMBER.sub("#", HASH.sub("HASH", line))).strip() for line in lines]


def assert_same(printed: str, shown: str, unstable: tuple[str, ...] = ()) -> None:
    """Checks that words are equal, and numbers up to a relative error of 0.001.

    Running times are not compared, nor are the columns of tables that are named `unstable`.
    """
    assert words_of(printed) == words_of(shown)
    names: list[str] = []
    for ours, theirs in zip(*(_without_seconds(text).splitlines() for text in (printed, shown)), strict=True):
        assert HASH.findall(ours) == HASH.findall(theirs)
        if {*unstable} & {*theirs.split()}:
            names = theirs.split()
        cells = ours.split(), theirs.split()
        tabular = len(names) == len(cells[0]) == len(cells[1])
        for place, (mine, yours) in enumerate(zip(*cells, strict=True)):
            if tabular and names[place] in unstable:
                continue
            for first, second in zip(*(NUMBER.findall(HASH.sub("", cell)) for cell in (mine, yours)), strict=True):
                one, two = (float(text.replace(",", "")) for text in (first, second))
                assert math.isclose(one, two, rel_tol=1e-3, abs_tol=1e-9), ours


def _without_seconds(text: str) -> str:
    """Removes the last column of a table if it holds running times."""
    before, header, rows = text.partition(" seconds\n")
    return before + re.sub(r" +\S+$", "", rows, flags=re.MULTILINE) if header else text
