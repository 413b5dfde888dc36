"""The command `labeldp`: help, subcommands, and the use of standard output and standard error."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import labeldp
import pytest
from labeldp.pipelines.cli import commands as cli


def test_the_console_script_is_this_command() -> None:
    (script,) = (point for point in entry_points(group="console_scripts") if point.name == "labeldp")
    assert script.load() is cli.main


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command(invoke: Any, flag: str) -> None:
    outcome = invoke([flag]).ok()

    assert outcome.err == ""
    lines = [line.split() for line in outcome.out.splitlines()]
    for name in cli.COMMANDS:
        assert [words[0] for words in lines if words].count(name) == 1, name
    assert set(cli.COMMANDS) >= {"privatize", "fit", "apply", "solve", "audit", "demo"}


def test_the_version(invoke: Any, spawn: Any) -> None:
    for run in (invoke, spawn):
        outcome = run(["--version"]).ok()
        assert (outcome.out, outcome.err) == (f"labeldp {labeldp.__version__}\n", "")


def test_no_command_is_bad_usage(invoke: Any) -> None:
    outcome = invoke([])

    assert outcome.code == 2
    assert outcome.out == ""
    assert "usage: labeldp" in outcome.err


@pytest.mark.parametrize("name", ["privatise", "--epsilon", "", "cli", "os"])
def test_an_unknown_command(invoke: Any, name: str) -> None:
    outcome = invoke([name, "--help"])

    assert outcome.code == 2
    assert outcome.out == ""
    assert repr(name) in outcome.error
    assert "privatize, fit, apply" in outcome.error


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        (
            "privatize",
            [
                "input", "input_format", "output", "label", "label_min", "label_max", "label_step", "label_values",
                "epsilon", "prior_epsilon", "mechanism", "loss", "id_column", "noise_key_file", "num_shards",
                "output_format", "compression",
            ],
        ),
        ("fit", ["input", "mechanism_file"]),
        ("apply", ["input", "mechanism_file", "output"]),
        ("solve", ["prior", "epsilon", "mechanism", "output"]),
        ("compare", ["prior", "epsilon", "mechanism", "delta", "loss", "csv", "json", "picture", "processes"]),
        ("plan", ["prior", "records", "features", "explained", "epsilon", "mechanism", "draws", "picture"]),
        ("audit", []),
        ("demo", ["output", "clicks", "seed"]),
    ],
)  # fmt: skip
def test_every_command_explains_its_flags(invoke: Any, name: str, flags: list[str]) -> None:
    outcome = invoke([name, "--help"]).ok()

    assert outcome.err == ""
    assert f"usage: labeldp {name}" in outcome.out
    for flag in flags:
        assert f"--{flag} " in outcome.out
    assert not [line for line in outcome.out.splitlines() if "  None" in line]


def test_every_command_has_help(invoke: Any) -> None:
    for name in cli.COMMANDS:
        assert invoke([name, "--help"]).code == 0, name


def test_results_on_stdout_progress_on_stderr(job: Any, invoke: Any, outputs: Path) -> None:
    outcome = invoke(job(num_shards=2)).ok()

    assert outcome.errors == []
    assert "released the prior of 5 labels over 1,000 records" in outcome.err
    lines = outcome.out.splitlines()
    assert len(lines) < 12
    assert [line.split()[0] for line in lines] == [
        "released", "records", "budget", "mechanism", "certified", "expected", "debias", "verdict",
    ]  # fmt: skip
    assert lines[0].split()[1] == str(outputs / "released")
    assert "1,000 in 2 shards" in lines[1]


def test_help_loads_neither_beam_nor_tensorflow(environment: dict[str, str]) -> None:
    script = (
        "import sys; from labeldp.pipelines.cli.commands import main; code = main(['--help']); "
        "print(*sorted({'apache_beam', 'tensorflow', 'numpy', 'pyarrow'} & set(sys.modules)), 'code', code)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, env=environment, capture_output=True, text=True)

    assert done.stdout.splitlines()[-1] == "code 0"
    assert done.stderr == ""


def test_the_exit_code_reaches_the_shell(environment: dict[str, str]) -> None:
    for argv, code in ((["--help"], 0), (["audit", __file__], 1), (["unknown"], 2), (["audit"], 2)):
        command = [sys.executable, "-m", "labeldp", *argv]
        assert subprocess.run(command, check=False, env=environment, capture_output=True).returncode == code
