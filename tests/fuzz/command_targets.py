"""Target of the command line: every command, with flags from its real parser and values of all kinds."""

import argparse
import contextlib
import functools
import json
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

from commands_in_process import CANARY, checked
from file_targets import empty_folder, without_job
from harness import Case, Target
from hypothesis import strategies as st
from labeldp.pipelines.cli.commands import COMMANDS, command_parser
from mutations import NUMBERS, TEXTS
from seeds import key_file, log, mechanisms, release, workspace


@functools.cache
def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command.

    Returns:
      Parser by command.
    """
    return {name: command_parser(name) for name in COMMANDS}


def _good_values() -> dict[str, list[str]]:
    """Values that a flag can have, by its name; paths are relative to the folder of the input."""
    small = {"input": [str(log()), "missing.csv", "*.csv"], "input_format": ["csv"], "label": ["y", "f", "g", "z"]}
    domain = {
        "label_min": ["0", "-1"],
        "label_max": ["4", "10"],
        "label_step": ["1", "0.5", "1/3"],
        "label_values": ["labels.txt"],
    }
    paths = {
        "noise_key_file": [str(key_file()), "short.key", "."],
        "mechanism_file": [str(release() / "mechanism.json"), "new.json", str(log())],
        "prior": [str(release()), str(release() / "mechanism.json"), str(log()), "labels.txt", "."],
        "path": [str(release()), str(release() / "release.json"), str(log()), "."],
        "output": ["out", "a/b/out", "labels.txt", ".", "out*"],
        "ledger": ["ledger.jsonl", str(log()), ".", "out/ledger"],
        "folder": [str(release()), "missing", "."],
        "place": [str(release().parent / "labeldp_ledger.jsonl"), str(log()), ".", "missing"],
        "file": [str(log()), "labels.txt", "missing.csv"],
        "validate": ["schema.pbtxt", "missing"],
        "csv": ["table.csv", "no/where.csv", "."],
        "json": ["table.json"],
        "published": ["labels.txt"],
    }
    small |= {
        "mechanism": [
            "rr",
            "laplace",
            "rr:x=1",
            "gaussian",
            "rr,rr",
            "bias_limited:bias=0.2",
            "laplace:step=1",
            "rr:x",
        ],
    }
    small |= {
        "loss": ["squared", "poisson"],
        "cap_window": ["30d", "12h", "30"],
        "shell": ["bash", "zsh"],
        "csv_types": ["f=int64", "g=string", "f"],
        "where": ["f=1", "y=1", "g=t", "z=1"],
    }
    small |= {
        "records": ["100"],
        "draws": ["1"],
        "features": ["3"],
        "processes": ["1"],
        "num_shards": ["1", "3"],
        "clicks": ["5"],
        "timeout": ["0"],
    }
    return {**small, **domain, **paths, "epsilon": ["1", "0.5"], "delta": ["1e-5"], "direct_num_workers": ["1"]}


_RUNNER = (
    "--runner=DirectRunner", "--runner=Nobody", "--direct_num_workers=1", "--direct_running_mode=multi_processing",
    "--experiments=enable_data_sampling", "--streaming", "--job_name=a b", "--runner", "--temp_location=t",
    "--no_such_flag=1", "--labels=a=b", "--direct_num_workers=many",
)  # fmt: skip

# No argument of a process has a NUL, and surrogates in one stand for bytes that are not UTF-8.
_TEXTS = tuple(text for text in TEXTS if "\0" not in text and text != "\ud800")
# Messages quote what the user typed, so that the label of the input files is no value of a flag.
_ANY = (
    st.sampled_from([number for number in NUMBERS if number != CANARY])
    | st.sampled_from(_TEXTS)
    | st.sampled_from(["-", "--", "unknown://x/y", "/dev/null", "a=b"])
)
_FEW = {"processes", "draws", "clicks", "timeout", "direct_num_workers"}
"""Flags of which a large value would only be slow."""


@st.composite
def _command_lines(draw: st.DrawFn) -> Case:
    command = draw(st.sampled_from(list(COMMANDS)))
    good, argv = _good_values(), [command]
    for action in draw(st.permutations(parsers()[command]._actions)):
        name = action.dest
        likely = name in _NEEDED.get(command, ()) or not action.option_strings
        if draw(st.integers(0, 11)) > (10 if likely else 1) or (name == "help" and draw(st.integers(0, 9))):
            continue
        values = st.sampled_from(good.get(name, ["1"]))
        if name not in _FEW and draw(st.integers(0, 5)) == 0:
            values = _ANY
        value = draw(values)
        flag = draw(st.sampled_from(action.option_strings)) if action.option_strings else None
        if flag is None:
            argv.append(value)
            continue
        if draw(st.integers(0, 29)) == 0:  # an abbreviation, or another name
            flag = flag[: draw(st.integers(1, len(flag) - 1))] + draw(st.sampled_from(["", "", "x", "\n"]))
        if action.nargs == 0:
            argv.append(flag)
        elif action.nargs in ("+", "*"):
            argv += [flag, *draw(st.lists(st.just(value) | values, min_size=0, max_size=2))]
        else:
            argv += draw(st.sampled_from([[f"{flag}={value}"], [f"{flag}={value}"], [flag, value], [flag]]))
    if draw(st.integers(0, 4)) == 0:
        argv.insert(draw(st.integers(0, len(argv))), draw(st.sampled_from(_RUNNER) | _ANY))
    return {"argv": json.dumps(argv).encode()}


_FIT = ("input", "input_format", "label", "epsilon", "label_min", "label_max", "label_step", "noise_key_file")
_NEEDED = {
    "privatize": (*_FIT, "output"),
    "fit": (*_FIT, "mechanism_file"),
    "apply": ("input", "input_format", "label", "mechanism_file", "output", "noise_key_file"),
    "solve": ("prior", "epsilon", "output"),
    "compare": ("prior", "mechanism", "processes", "epsilon"),
    "plan": ("prior", "records", "processes", "draws", "epsilon"),
    "evaluate": ("input", "input_format", "label", "output", "label_min", "label_max", "label_step", "epsilon"),
    "demo": ("output", "clicks"),
}  # fmt: skip


@contextlib.contextmanager
def _without_work() -> Iterator[None]:
    """Ends the commands that would run a pipeline where they would start it."""
    from labeldp.pipelines.cli import demo_command
    from labeldp.study import evaluate_command
    from labeldp.transforms import InputError

    def stop(*_: Any) -> None:
        raise InputError("stopped before the job")

    with (
        without_job([]),
        mock.patch.object(evaluate_command, "run", stop),
        mock.patch.object(demo_command, "released_by", return_value=(0, [])),
        # There is no release to train on.
        mock.patch.object(demo_command, "_trained", return_value=[]),
    ):
        yield


def _check_command_line(case: Case) -> bool:
    folder = empty_folder() / "a" / "b"
    folder.mkdir(parents=True)
    (folder / "labels.txt").write_text("0\n1\n2.5\n")
    (folder / "short.key").write_bytes(b"short")
    (folder / "schema.pbtxt").write_text("")
    here = os.getcwd()
    os.chdir(folder)
    try:
        with _without_work():
            outcome = checked(json.loads(case["argv"]), workspace())
    finally:
        os.chdir(here)
    return outcome.code == 0 or "stopped before the job" in outcome.err


def command_targets() -> list[Target]:
    """Targets of this module.

    Returns:
      The targets.
    """
    parsers()
    mechanisms()
    return [Target("command_line", _command_lines(), _check_command_line, 90, memory=2 << 30)]
