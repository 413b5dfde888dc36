"""Examples of docs/choosing.md: every command runs on the prior shown there and prints the output shown there."""

import contextlib
import io
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from labeldp.pipelines.cli.commands import main

PAGE = (Path(__file__).parents[2] / "docs" / "choosing.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PRIOR = next(text for kind, text in BLOCKS if kind == "csv")
EXAMPLES = [
    (command, output)
    for (kind, command), (next_kind, output) in pairwise(BLOCKS)
    if (kind, next_kind) == ("sh", "text")
]
# These columns depend on the machine: the running time, and how far below its tolerance a solver stops.
UNSTABLE = ("seconds", "gap")


def run(command: str) -> str:
    """Runs a command of the page in this process and returns its standard output."""
    program, *argv = shlex.split(command.replace("\\\n", " "))
    assert program == "labeldp"
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert main([*argv, "--processes=1"]) == 0
    return out.getvalue()


def assert_same_line(ours: str, theirs: str, columns: list[str]) -> None:
    """Compares words exactly and numbers to three digits; cells of unstable columns only have to exist."""
    left, right = ours.split(), theirs.split()
    assert len(left) == len(right), (ours, theirs)
    names = columns if len(columns) == len(left) else [""] * len(left)
    for name, one, other in zip(names, left, right, strict=True):
        if one != other and name not in UNSTABLE:
            assert float(one.rstrip(";")) == pytest.approx(float(other.rstrip(";")), rel=1e-3, abs=1e-9), (
                name,
                ours,
                theirs,
            )


def test_every_shell_block_of_the_page_is_an_example() -> None:
    assert [kind for kind, _ in BLOCKS].count("sh") == len(EXAMPLES) >= 4


@pytest.mark.parametrize(("command", "output"), EXAMPLES, ids=[command.split("--", 2)[0] for command, _ in EXAMPLES])
def test_a_command_prints_what_the_page_shows(
    command: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tqdm", reason="the extra evaluation is not installed")
    (tmp_path / "weeks.csv").write_text(PRIOR)
    users = [user for user in range(1, 901) for _ in range(900 // user)]
    clicks = [f"u{user},{row % 41}\n" for row, user in enumerate(users)]
    (tmp_path / "clicks.csv").write_text("".join(["user,minutes\n", *clicks]))
    monkeypatch.chdir(tmp_path)

    printed, shown = run(command).splitlines(), output.splitlines()

    assert len(printed) == len(shown)
    columns: list[str] = []
    for ours, theirs in zip(printed, shown, strict=True):
        if "epsilon" in theirs.split():
            columns = theirs.split()
        assert_same_line(ours, theirs, columns)


def test_the_job_that_the_page_recommends_is_that_of_its_table() -> None:
    job = re.search(r"--epsilon (\S+) --prior_epsilon (\S+) --mechanism\s+(\w+:\S+?)`", PAGE)
    assert job is not None
    epsilon, prior_epsilon, mechanism = job.groups()
    row = next(line.split() for line in PAGE.splitlines() if line.split()[:2] == [epsilon, mechanism])
    assert row[2] == prior_epsilon
