"""The command `labeldp`: help, subcommands, and the use of standard output and standard error."""

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import labeldp
import pytest
from labeldp.pipelines.cli import commands as cli

from tests.snapshots import names


def test_the_console_script_is_this_command() -> None:
    (script,) = (point for point in entry_points(group="console_scripts") if point.name == "labeldp")
    assert script.load() is cli.main


def test_the_version(invoke: Any, spawn: Any) -> None:
    for run in (invoke, spawn):
        outcome = run(["--version"]).ok()
        assert (outcome.out, outcome.err) == (f"labeldp {labeldp.__version__}\n", "")


def test_no_command_is_bad_usage(invoke: Any) -> None:
    outcome = invoke([])

    assert outcome.code == 2
    assert outcome.out == ""
    assert "usage: labeldp" in outcome.err


@pytest.mark.parametrize("name", ["privatise", "", "cli", "os"])
def test_an_unknown_command(invoke: Any, name: str) -> None:
    outcome = invoke([name, "--help"])

    assert outcome.code == 2
    assert outcome.out == ""
    assert repr(name) in outcome.error
    assert "privatize, fit, apply" in outcome.error
    assert ("did you mean privatize?" in outcome.error) == (name == "privatise")


def test_a_flag_before_the_command(invoke: Any) -> None:
    outcome = invoke(["--epsilon", "1", "privatize"])

    assert (outcome.code, outcome.out) == (2, "")
    assert "--epsilon" in outcome.error
    assert "after the command" in outcome.error


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["privatize", "--lable=y"], "unknown flag --lable; did you mean --label?"),
        (
            ["privatize", "--direct_num_worker=1"],
            "unknown flag --direct_num_worker; did you mean --direct_num_workers?",
        ),
        (["privatize", "--mechanism=unbaised"], "--mechanism: unknown value 'unbaised'"),
        (["privatize", "--mechanism=unbaised"], "did you mean unbiased?"),
        (["privatize", "--input_format=parket"], "did you mean parquet?"),
        (["solve", "--mechanisms=rr"], "unknown flag --mechanisms; did you mean --mechanism?"),
        (["audit", "--dada", "x"], "unknown flag --dada; did you mean --data?"),
        (["privatize", "--epsilon=much"], "--epsilon: takes a number, not 'much'"),
        (["privatize", "--num_shards=1.5"], "--num_shards: takes a whole number, not '1.5'"),
        (["privatize", "--mechanism_file=m.json"], "--mechanism_file is for fit and apply"),
        (["fit", "--output=released"], "--output is for privatize and apply; fit writes --mechanism_file"),
        (["apply", "--epsilon", "1"], "--epsilon is set by the mechanism file; leave it out"),
        (["privatize", "only", "--lable=y"], "unknown flag --lable; did you mean --label?"),
        (["fit", "only", "--output", "o"], "--output is for privatize and apply; fit writes --mechanism_file"),
        (["fit"], "--input, --label, --epsilon and --mechanism_file are missing"),
        (["demo"], "--output is missing: new folder for the log and the release"),
    ],
)
def test_what_is_misspelled_or_missing_is_said(invoke: Any, argv: list[str], said: str) -> None:
    """Flags that the parser knows to be wrong are reported before those that are missing."""
    needed = {"privatize": ["--input=i", "--input_format=csv", "--label=y", "--epsilon=1", "--output=o"],
              "fit": ["--input=i", "--input_format=csv", "--label=y", "--epsilon=1", "--mechanism_file=m"],
              "apply": ["--input=i", "--input_format=csv", "--label=y", "--output=o", "--mechanism_file=m"],
              "solve": ["--prior=p", "--epsilon=1", "--output=o"]}  # fmt: skip
    domain = ["--label_min=0", "--label_max=1", "--label_step=1"] if argv[0] in ("privatize", "fit") else []
    outcome = invoke([argv[0], *(needed.get(argv[0], []) + domain if len(argv) > 1 and "only" not in argv else []),
        *[argument for argument in argv[1:] if argument != "only"]])  # fmt: skip

    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.error


@pytest.mark.parametrize("name", ["", *cli.COMMANDS])
def test_help(invoke: Any, name: str, monkeypatch: pytest.MonkeyPatch, snapshot: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    outcome = invoke([name, "--help"] if name else ["--help"]).ok()

    assert outcome.err == ""
    assert not [line for line in outcome.out.splitlines() if "  None" in line or len(line) > 80]
    if name:
        parser, usage = cli.command_parser(name), outcome.out.partition("\n\n")[0]
        assert outcome.out.count("(required)") == len(parser.needed)
        assert [flag for flag in parser.needed if flag != parser.first and f"--{flag} " not in usage] == []
        assert invoke([name, "-h"]).out == outcome.out
        assert [flag for flag in parser.flags() if not re.search(rf"--{flag}\b", outcome.out)] == []
    else:
        lines = [line.split() for line in outcome.out.splitlines()]
        assert [words[0] for words in lines if words and words[0] in cli.COMMANDS] == list(cli.COMMANDS)
    snapshot(f"help/{name or 'labeldp'}", outcome.out)


def test_no_snapshot_is_left_over() -> None:
    assert names("help") == {"labeldp", *cli.COMMANDS}


def test_commands_offer_their_own_flags_only() -> None:
    flags = {name: set(cli.command_parser(name).flags()) for name in ("privatize", "fit", "apply")}

    assert not flags["fit"] & {"output", "num_shards", "compression"}
    assert not flags["apply"] & {"label_min", "epsilon", "mechanism", "for", "center", "loss", "rounding"}
    assert flags["privatize"] >= flags["fit"] - {"mechanism_file"}
    assert "mechanism_file" not in flags["privatize"]


def test_help_of_every_command_loads_the_standard_library_only(environment: dict[str, str]) -> None:
    script = (
        "import sys; from labeldp.pipelines.cli.commands import COMMANDS, main\n"
        "for name in COMMANDS: assert main([name, '--help']) == 0\n"
        "packages = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(*sorted(name for name in packages if not name.startswith('_')))"
    )
    plain = [sys.executable, "-c", "import sys; print(*{name.partition('.')[0] for name in sys.modules})"]
    before = subprocess.run(plain, check=True, env=environment, capture_output=True, text=True).stdout.split()
    done = subprocess.run([sys.executable, "-c", script], check=True, env=environment, capture_output=True, text=True)

    assert set(done.stdout.splitlines()[-1].split()) - set(before) == {"labeldp"}


def test_results_on_stdout_progress_on_stderr(job: Any, invoke: Any, outputs: Path) -> None:
    outcome = invoke(job(num_shards=2, verbose=False)).ok()

    assert outcome.errors == []
    assert "finished the pass of the histogram" in outcome.err
    lines = outcome.out.splitlines()
    assert [line[:10].strip() for line in lines] == ["Released", "", "Privacy", "", "Use", "", "Next", ""]
    assert lines[0][10:] == "1,000 records with new labels in y, in 2 shards"
    assert lines[1].strip() == str(outputs / "released")
    more = invoke(job(num_shards=2, output=outputs / "again")).ok().out.splitlines()
    assert more[0] == lines[0]
    assert [line.split()[0] for line in more[len(lines) + 1 :]] == [
        "label", "budget", "mechanism", "certified", "expected", "debias",
    ]  # fmt: skip


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


# Readers that end before the command does.


def piped(command: str, environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a shell command; `labeldp` stands for the program, whose exit code is in the file code."""
    script = f'labeldp() {{ {sys.executable} -m labeldp "$@"; echo $? > code; }}\n{command}'
    return subprocess.run(
        ["bash", "-c", script], check=False, env=environment, cwd=folder, capture_output=True, text=True, timeout=120
    )


@pytest.fixture
def released(job: Any, invoke: Any, outputs: Path) -> Path:
    """Folder of a release."""
    invoke(job(output=outputs / "released")).ok()
    return outputs / "released"


def test_a_reader_that_ends_early_is_no_failure(
    released: Path, environment: dict[str, str], tmp_path: Path, job: Any, outputs: Path
) -> None:
    again = " ".join(f"'{argument}'" for argument in job(output=outputs / "again"))
    for command in (
        f"labeldp audit --data {released} | true",
        f"labeldp {again} | head -1",
        "labeldp privatize --help | head -1",
        "labeldp --help | true",
        "labeldp completion bash | head -1",
        f"labeldp ledger {outputs / 'labeldp_ledger.jsonl'} 2>&1 | true",
    ):
        done = piped(command, environment, tmp_path)
        assert done.stderr == "" or again in command, command
        assert "error" not in done.stderr
        assert "Traceback" not in done.stderr
        assert (tmp_path / "code").read_text() == "0\n", command
    assert (outputs / "again" / "release.json").exists()


def test_a_check_that_fails_fails_without_a_reader(released: Path, environment: dict[str, str], tmp_path: Path) -> None:
    manifest = released / "release.json"
    manifest.write_text(manifest.read_text().replace('"records": ', '"records": 1'))
    done = piped(f"labeldp audit {released} | true; labeldp audit {released} >&-", environment, tmp_path)
    assert done.stderr == ""
    assert (tmp_path / "code").read_text() == "1\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_results_that_cannot_be_written_are_an_error_of_its_own(
    released: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    for command in (f"labeldp audit {released} > /dev/full", "labeldp --help > /dev/full"):
        done = piped(command, environment, tmp_path)
        assert (tmp_path / "code").read_text() == "74\n"
        assert done.stderr.startswith("labeldp")
        assert done.stderr.count("\n") == 1
        assert "standard output cannot be written (No space left on device)" in done.stderr
    # Nobody can be told of an error on standard error.
    assert piped("labeldp privatize --epsilon=1 2> /dev/full", environment, tmp_path).stderr == ""
    assert (tmp_path / "code").read_text() == "2\n"
