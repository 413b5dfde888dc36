"""The tutorial runs as printed: its commands in order, its programs saved under their titles, and its outputs compared.

`labeldp` runs in this process, which has imported Beam; the shell runs everything else.
Blocks ```sh are run; a ```text block that follows one is its standard output. Blocks ```python with a title are files.
The key is the same in every run, so numbers match those of the page up to a tolerance for other library versions.
LABELDP_RENEW=1 writes the outputs into the page instead.
"""

import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.commands import write_key

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
KEY = bytes(range(32))
# The folder that the page shows instead of the temporary folder of this run.
FOLDER = "/home/you/labeldp/tutorial"
SECONDS = 120
FENCE = re.compile(r"^```(\w.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HASH = re.compile(r"\b[0-9a-f]{32,}\b")
NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")

pytest.importorskip("sklearn", reason="the extra evaluation is not installed")


class Step(NamedTuple):
    """One step of the tutorial: a program to save, or commands to run with their expected output.

    kind: the first line of the block. printed: the expected output, None if the page shows none.
    """

    kind: str
    text: str
    printed: str | None


def steps() -> Iterator[Step]:
    blocks = FENCE.findall(PAGE.read_text())
    for (kind, text), (following, printed) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind == "sh" or kind.startswith("python"):
            yield Step(kind, text, printed if following == "text" else None)


def assert_same(printed: str, expected: str) -> None:
    """Checks that the words are equal and the numbers agree within a relative error of 0.001."""
    found, wanted = (_without_seconds(text).splitlines() for text in (printed, expected))
    assert [_words(line) for line in found] == [_words(line) for line in wanted]
    for line, other in zip(found, wanted, strict=True):
        assert HASH.findall(line) == HASH.findall(other)
        for first, second in zip(*(NUMBER.findall(HASH.sub("", text)) for text in (line, other)), strict=True):
            one, two = (float(text.replace(",", "")) for text in (first, second))
            assert math.isclose(one, two, rel_tol=1e-3, abs_tol=1e-9), line


def _words(line: str) -> str:
    return re.sub(r" +", " ", NUMBER.sub("#", HASH.sub("HASH", line)))


def _without_seconds(text: str) -> str:
    """Removes the last column of a table if it holds running times."""
    before, header, rows = text.partition(" seconds\n")
    return before + re.sub(r" +\S+$", "", rows, flags=re.MULTILINE) if header else text


@pytest.fixture
def run(
    run_labeldp: Callable[[Sequence[str]], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[str], str]:
    """Function (commands) -> their output. They run in the tutorial's folder with a known default key."""
    folder, key = tmp_path / "tutorial", tmp_path / "config" / "labeldp" / "noise.key"
    folder.mkdir()
    key.parent.mkdir(parents=True)
    write_key(key, KEY)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def in_shell(commands: str) -> str:
        done = subprocess.run(
            ["sh", "-e", "-c", commands], check=False, capture_output=True, text=True, timeout=SECONDS
        )
        assert done.returncode == 0, f"{commands}\n{done.stderr}"
        return done.stdout

    def labeldp(line: str) -> str:
        assert not set(line) & set("|&;<>()$`*?[~#{"), f"{line} needs a shell"
        code, printed = run_labeldp(shlex.split(line)[1:]), capsys.readouterr()
        assert code == 0, f"{line}\n{printed.err}"
        return printed.out

    def printed(commands: str) -> str:
        if "\nlabeldp " not in f"\n{commands}":
            return in_shell(commands).replace(str(folder), FOLDER)
        lines = commands.replace("\\\n", " ").splitlines()
        found = [labeldp(line) if line.startswith("labeldp ") else in_shell(line) for line in lines]
        text = "".join(found).replace(str(folder), FOLDER)
        return text.replace(str(tmp_path / "config"), "/home/you/.config")

    return printed


def test_the_tutorial_runs_as_printed(run: Callable[[str], str], tmp_path: Path) -> None:
    page, compared, renew = PAGE.read_text(), 0, bool(os.environ.get("LABELDP_RENEW"))
    for step in steps():
        if step.kind != "sh":
            title = re.fullmatch(r'python title="([\w.]+)"', step.kind)
            assert title is not None, step.kind
            (tmp_path / "tutorial" / title[1]).write_text(step.text)
            continue
        printed = run(step.text)
        if step.printed is None:
            continue
        compared += 1
        if renew:
            before = f"{step.text}```\n\n```text\n"
            page = page.replace(before + step.printed, before + printed)
        else:
            assert_same(printed, step.printed)
    assert compared >= 8
    if renew:
        PAGE.write_text(page)
