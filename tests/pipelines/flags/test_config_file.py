"""`--config`: flags in a YAML file. They are those of the command line, and errors name the line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from labeldp.pipelines.cli.commands import parse

COMPLETE = """\
input: log-*.csv
input_format: csv
label: y
label_min: 0
label_max: 52
label_step: 0.10
epsilon: 1
output: released
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Function (text) -> the path of a config file with it."""

    def written(text: str) -> Path:
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return path

    return written


@pytest.fixture
def refused(invoke: Any, write: Any) -> Callable[..., str]:
    """Function (text, command) -> the error of that command with a config file of the text."""

    def error(text: str, command: str = "privatize") -> str:
        outcome = invoke([command, f"--config={write(text)}"])
        assert (outcome.code, outcome.out) == (2, ""), outcome
        return outcome.error

    return error


def parsed(command: str, *argv: Any) -> dict[str, Any]:
    args, others = parse([command, *map(str, argv)])
    assert others == []
    return {name: value for name, value in vars(args).items() if name not in ("config", "config_lines")}


def test_it_is_the_same_as_flags(write: Any) -> None:
    flags = [f"--{line.replace(': ', '=')}" for line in COMPLETE.splitlines()]
    found = parsed("privatize", "--config", write(COMPLETE))

    assert found == parsed("privatize", *flags)
    # As it is written: 0.10 is no float that could be 0.1000000000000000055.
    assert found["label_step"] == "0.10"


def test_every_flag_can_be_in_it(write: Any) -> None:
    """A value of each flag's type, for every command that has --config."""
    from labeldp.pipelines.cli.commands import COMMANDS, command_parser

    with_config = [name for name in COMMANDS if "config" in command_parser(name).flags()]
    assert set(with_config) >= {"privatize", "fit", "apply", "evaluate", "solve", "compare", "plan"}
    for command in with_config:
        parser = command_parser(command)
        # Flags of a mode exclude some others, so a command with a mode has two sets of flags.
        left_out = [mode.without for mode in parser.modes]
        left_out.append([name for mode in parser.modes for name in (mode.switch, *mode.flags)])
        for excluded in left_out:
            lines, flags = [], []
            for name, action in parser.flags().items():
                if name in ("help", "config", *excluded):
                    continue
                value = str(next(iter(action.choices))) if action.choices else "3" if action.type else "a=b"
                text = "true" if action.nargs == 0 else f"[{value}]" if action.nargs == "+" else value
                lines.append(f"{name}: {text}\n")
                flags += [f"--{name}"] if action.nargs == 0 else [f"--{name}", value]
            assert parsed(command, "--config", write("".join(lines))) == parsed(command, *flags), command


def test_flags_win(write: Any) -> None:
    found = parsed("privatize", "--epsilon=2", "--config", write(COMPLETE), "--label", "z")

    assert (found["epsilon"], found["label"], found["output"]) == (2.0, "z", "released")
    lists = parsed("compare", "--config", write("prior: p\nepsilon: [1, 2]\n"), "--epsilon", "4")
    assert (lists["epsilon"], lists["prior"]) == ([4.0], "p")


@pytest.mark.parametrize("name", ["validate", "dry_run"])
def test_switches_are_turned_off(write: Any, name: str) -> None:
    on, off = write(f"{COMPLETE}{name}: true\n"), f"--no_{name}"
    assert parsed("privatize", "--config", on)[name] is True
    assert parsed("privatize", "--config", on, off)[name] is False
    assert parsed("privatize", off, "--config", on)[name] is False
    assert parsed("privatize", "--config", on, off, f"--{name}")[name] is True
    assert parsed("privatize", "--config", write(f"{COMPLETE}{name}: false\n"), f"--{name}")[name] is True


def test_a_job_runs_whose_file_says_dry_run(job: Any, write: Any, invoke: Any, outputs: Path) -> None:
    config = f"--config={write('dry_run: true')}"
    assert "nothing is written or charged" in invoke([*job(), config]).ok().out
    assert not list(outputs.iterdir())
    invoke([*job(), config, "--no_dry_run"]).ok()
    assert (outputs / "released" / "release.json").is_file()


def test_validation_is_off_on_or_with_a_schema(write: Any, refused: Any) -> None:
    for text, flags, value in (
        ("validate: s.pbtxt", [], "s.pbtxt"), ("validate: s.pbtxt", ["--no_validate"], False),
        ("validate: s.pbtxt", ["--validate"], True), ("validate: false", ["--validate=t.pbtxt"], "t.pbtxt"),
        ("validate: true", [], True), ("", ["--validate", "t.pbtxt"], "t.pbtxt"),
    ):  # fmt: skip
        assert parsed("privatize", f"--config={write(COMPLETE + text)}", *flags)["validate"] == value
    assert "line 9: validate must be text, not a list" in refused(f"{COMPLETE}validate: [a]\n")


def test_errors_of_values_name_the_line_that_counts(job: Any, write: Any, invoke: Any) -> None:
    flags = [flag for flag in job() if not flag.startswith("--epsilon")]
    config = write("# a comment\nepsilon: 31\n")
    for more, named in ([], f"epsilon ({config}, line 2)"), (["--epsilon=32"], "--epsilon"):
        error = invoke([*flags, f"--config={config}", *more]).error
        assert error.startswith(f"labeldp privatize: error: {named} must be between 1e-09 and 30, not 3")
    config = write("cap_window: 30d")
    error = invoke([*job(), f"--config={config}"]).error
    assert f"error: cap_window ({config}, line 1) is the time in which a cap holds: give --epsilon_cap or" in error


def test_values_as_people_write_them(write: Any) -> None:
    text = (
        COMPLETE + "for: models\ncenter_features: [f, g]\nmax_unusable_fraction: 1e-5\nvalidate: false\nid_column: no\n"
    )
    found = parsed("privatize", "--config", write(text))

    assert found["for_"] == "models"
    assert found["center_features"] == "f,g"
    # YAML itself reads 1e-5 as text, and no as false.
    assert found["max_unusable_fraction"] == 1e-5
    assert found["validate"] is False
    assert found["id_column"] == "no"
    assert (
        parsed("solve", "--config", write("prior: p\nepsilon: 1\noutput: o\nmechanism: bias_limited:bias=0.2"))[
            "mechanism"
        ]
        == "bias_limited:bias=0.2"
    )


def test_flags_of_the_runner(write: Any) -> None:
    text = COMPLETE + "direct_num_workers: 2\nexperiments: [a, b]\nstreaming: true\n"
    assert parse(["privatize", f"--config={write(text)}"])[1] == [
        "--direct_num_workers=2", "--experiments=a", "--experiments=b", "--streaming",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("lable: y", "line 9: unknown flag lable; did you mean label?"),
        ("no_validate: true", "line 9: unknown flag no_validate; did you mean validate?"),
        ("runer: x", "line 9: unknown flag runer"),
        ("label: z", "line 9: label is there twice"),
        ("prior_epsilon: much", "line 9: prior_epsilon must be a number, not text: 'much'"),
        ("prior_epsilon: [1]", "line 9: prior_epsilon must be a number, not a list"),
        ("num_shards: 1.5", "line 9: num_shards must be a whole number, not a number: '1.5'"),
        ("num_shards: {a: 1}", "line 9: num_shards must be a whole number, not a mapping"),
        ("dry_run: 1", "line 9: dry_run must be true or false, not a whole number"),
        ("validate: !!bool 1", "line 9: validate must be true or false"),
        ("mechanism: unbaised", "not 'unbaised'; did you mean unbiased?"),
        ("id_column: [a]", "line 9: id_column must be text, not a list"),
        ("center_features: [a, [b]]", "line 9: center_features must have simple values, not a list"),
        ("center_features: ['a,b']", "has a comma"),
        ("mechanism_file: m.json", "line 9: --mechanism_file is for fit and apply"),
        ("config: other.yaml", "line 9: a config file cannot name another"),
        ("help: true", "line 9: unknown flag help"),
        ("noise_key: hunter2", "line 9: noise_key: the secret key must not be in this file: name its file"),
        ("[a]: b", "line 9: the name of a flag must be text"),
        ("where: a: b", "line 9: not valid YAML"),
        ("where: [", "not valid YAML"),
        ("--- b", "not valid YAML"),
        ("where: *x", "not valid YAML"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(refused: Any, line: str, said: str) -> None:
    error = refused(COMPLETE + line + "\n")

    assert "job.yaml" in error
    assert said in error
    assert "hunter2" not in error


@pytest.mark.parametrize("text", ["- a\n- b\n", "just text\n", "\x00", "\xff" * 9, "[" * 100_000, "a: b\n" * 300_000])
def test_files_that_hold_no_flags(refused: Any, text: str) -> None:
    assert "job.yaml" in refused(text)


def test_nothing_is_constructed(refused: Any, tmp_path: Path) -> None:
    """A tag of YAML could run code in loaders that are not safe."""
    mark = tmp_path / "mark"
    error = refused(COMPLETE + f"where: !!python/object/apply:os.mkdir ['{mark}']\n")

    assert "where must be text" in error
    assert not mark.exists()


def test_what_is_left_to_fill_in(refused: Any) -> None:
    text = COMPLETE.replace("label_max: 52", "label_max:").replace("epsilon: 1", "epsilon:")

    assert "job.yaml: fill in label_max (line 5), epsilon (line 7) (see" in refused(text)
    without = text.replace("input: log-*.csv", "")
    assert "fill in label_max (line 5), epsilon (line 7); --input is missing, too" in refused(without)


def test_an_empty_value_is_no_value(write: Any) -> None:
    found = parsed("privatize", "--config", write(COMPLETE + "where:\nid_column: ~\n"))
    assert (found["where"], found["id_column"]) == (None, None)
    # What the file leaves open, the command line can give.
    assert parsed("privatize", "--config", write(COMPLETE.replace("y\n", "\n", 1)), "--label=y")["label"] == "y"


def test_an_empty_file_is_no_flags(refused: Any) -> None:
    assert "--input, --label, --epsilon and --output are missing" in refused("# nothing\n")


def test_a_file_that_is_missing(invoke: Any) -> None:
    outcome = invoke(["privatize", "--config", "/nowhere/job.yaml"])

    assert outcome.code == 2
    assert "--config /nowhere/job.yaml cannot be read: No such file or directory" in outcome.error


def test_a_release_from_a_file_is_that_of_the_flags(
    job: Any, invoke: Any, write: Any, outputs: Path, tree: Any
) -> None:
    argv = job(mechanism="rr", num_shards=2, verbose=False)
    invoke(argv).ok()
    by_flags = tree(outputs / "released")
    lines = [f"{flag.removeprefix('--').replace('=', ': ', 1)}\n" for flag in argv[1:] if "--output=" not in flag]
    invoke(["privatize", "--config", str(write("".join(lines))), f"--output={outputs / 'again'}"]).ok()

    shards = [name for name in by_flags if name.startswith("data")]
    assert len(shards) == 2
    again = tree(outputs / "again")
    assert {name: again[name] for name in shards} == {name: by_flags[name] for name in shards}


def test_two_dashes_are_no_value_of_a_flag(invoke: Any) -> None:
    """Of --config=-- argparse makes an empty list."""
    for flag in ("config", "label"):
        outcome = invoke(["privatize", f"--{flag}=--"])
        assert outcome.code == 2
        assert f"--{flag} takes a value, not --" in outcome.error
