"""`labeldp completion`: bash runs the script and completes commands, flags, values and files."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TRY = """
source {script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
_shtab_labeldp
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory, invoke: Any) -> Path:
    """The script for bash."""
    path = tmp_path_factory.mktemp("completion") / "labeldp.bash"
    path.write_text(invoke(["completion", "bash"]).ok().out)
    return path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["pri"], {"privatize"}),
        (["co"], {"compare", "completion"}),
        (["privatize", "--label_m"], {"--label_min", "--label_max"}),
        (["privatize", "--mechanism", "unb"], {"unbiased", "unbiased_grid"}),
        (["privatize", "--input_format", "t"], {"tfrecord"}),
        (["fit", "--outp"], {"--output_format"}),
        (["apply", "--eps"], {"--epsilon_cap"}),
        (["audit", "part"], {"part-0.csv"}),
        (["audit", "released", "--signer", "part"], {"part-0.csv"}),
        (["privatize", "--sign", "part"], {"part-0.csv"}),
        (["completion", ""], {"bash", "zsh"}),
    ],
)
def test_bash_completes(script: Path, tmp_path: Path, words: list[str], expected: set[str]) -> None:
    (tmp_path / "part-0.csv").touch()
    text = TRY.format(script=shlex.quote(str(script)), words=shlex.join(["labeldp", *words]))
    done = subprocess.run(["bash", "-c", text], check=True, cwd=tmp_path, capture_output=True, text=True, timeout=20)

    assert set(done.stdout.split()) == expected


def test_the_script_for_zsh_has_every_command(invoke: Any) -> None:
    from labeldp.pipelines.cli.commands import COMMANDS

    text = invoke(["completion", "zsh"]).ok().out
    assert text.startswith("#compdef labeldp\n")
    assert all(f"{name}:" in text for name in COMMANDS)


def test_without_the_extra(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    outcome = invoke(["completion", "bash"])

    assert (outcome.code, outcome.out) == (2, "")
    assert "pip install 'labeldp[completion]'" in outcome.error


def test_an_unknown_shell(invoke: Any) -> None:
    outcome = invoke(["completion", "bsh"])

    assert outcome.code == 2
    assert "unknown value 'bsh'; known: bash, zsh; did you mean bash?" in outcome.error
