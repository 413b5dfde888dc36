"""Command lines and files that the study refuses: each message is a snapshot, and nothing is written."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.snapshots import names

Flags = dict[str, Any]
NOWHERE = "/nowhere/at/all"
MECHANISMS: list[Flags] = [
    {"mechanism": each} for each in (
        "magic", "rr:bias=1", "bias_limited:", "bias_limited:bias", "bias_limited:bias=", "bias_limited:=1",
        "bias_limited:bias=0.1,bias=0.2", "bias_limited:bias=much", "bias_limited:magic=1", "bias_limited:gap=true",
        "gaussian", "gaussian:delta=0.1",
    )
]  # fmt: skip
STUDY: list[Flags] = [*MECHANISMS, {"loss": "cubic"}, {"prior": NOWHERE}, {"prior": "/"}, {"unknown": 1}]
TABLE: list[Flags] = [
    {"epsilon": "one"}, {"epsilon": [1, 0]}, {"epsilon": [1, 31]}, {"epsilon": [1, 2, 1]}, {"csv": f"{NOWHERE}.csv"},
    {"json": "/"}, {"processes": 0}, {"csv": "PRIOR"}, {"json": "PRIOR"}, {"delta": 1, "mechanism": "gaussian"},
    {"delta": 0.1, "mechanism": "rr"}, {"mechanism": ["rr", "unbiased", "rr"]},
]  # fmt: skip
UNIT_LOG = {"input": "LOG", "input_format": "parquet", "label": "y"}
GRID = {"label_min": 0, "label_max": 4, "label_step": 1}
OWN: dict[str, tuple[Flags, list[Flags]]] = {
    "solve": (
        {"prior": "PRIOR", "epsilon": 1, "output": "FOLDER/solved.json"},
        [
            *STUDY, {"prior": None}, {"epsilon": None}, {"output": None}, {"output": f"{NOWHERE}.json"},
            {"output": "LOG"}, *({"epsilon": each} for each in ("0", "-1", "nan", "inf", "30.1", "one")),
            {"prior": "NEGATIVE", "loss": "poisson"}, {"prior": "LARGE", "mechanism": "unbiased"},
            {"prior": "LARGE", "mechanism": "bias_limited"},
        ],
    ),
    "compare": ({"prior": "PRIOR", "processes": 1}, [*STUDY, *TABLE, {"prior": "NEGATIVE", "loss": "poisson"}]),
    "plan": (
        {"prior": "PRIOR", "processes": 1, "records": 1000, "draws": 3},
        [
            *STUDY, *TABLE, {"records": None}, {"records": 0}, {"records": 10**16}, {"records": "many"}, {"draws": 0},
            {"features": -1}, {"features": 999}, {"explained": 0.5}, {"features": 3, "explained": 1.5},
            {"features": 3, "explained": "nan"}, {"unit_column": "user"}, {"input": "LOG"}, {"runner": "FlinkRunner"},
        ],
    ),
    "plan --units": (
        {**UNIT_LOG, **GRID, "unit_column": "user", "epsilon": 2, "processes": 1},
        [
            *({name: None} for name in ("unit_column", "input", "label", "label_max")),
            {"label_step": "many"}, {"unit_column": "nobody"}, {"unit_column": "y"}, {"label": "labels"},
            {"where": "y=1"}, {"features": -1}, {"epsilon": [1, 31]}, {"prior": NOWHERE}, {"noise_key_file": NOWHERE},
            {"records": 100}, {"draws": 3}, {"mechanism": "unbiased"}, {"loss": "absolute"}, {"id_column": "user"},
            {"unknown": 1}, {"runner": "FlinkRunner"}, {"csv": "LOG"}, {"prior": "PRIOR", "label_max": 5},
            {"unit_column": "weight"}, {"label": "nothing"},
        ],
    ),
    "domain": (
        {**UNIT_LOG, "epsilon": 1, "domain_file": "FOLDER/domain.json", "id_column": "user"},
        [
            {"epsilon": 0}, {"epsilon": 30}, {"clamped": 1}, {"label": "z"}, {"id_column": "y"}, {"label_max": 3},
            {"input": "/nowhere/*.csv"}, {"domain_file": "LOG"},
        ],
    ),
    "evaluate": (
        {**UNIT_LOG, **GRID, "output": "FOLDER/evaluated"},
        [
            *({name: None} for name in ("input", "label", "output", "label_max")), *MECHANISMS,
            {"input": "/nowhere/*.csv"}, {"label_step": 3}, {"epsilon": [1, 0]}, {"epsilon": [1, 1]}, {"seeds": 0},
            {"prior_epsilon": 2, "epsilon": [1]}, {"mechanism": ["unbiased", "unbiased"]}, {"model": "oracle"},
            {"loss": "poisson", "label_min": -1}, {"feature": ["weight", "y"]}, {"recipient_feature": "y"},
            {"recipient_feature": "weight", "center_column": "weight"}, {"where": "y=1"}, {"rounding": "up"},
            {"center": "cubic"}, {"center": ["linear", "linear"]}, {"center_column": "y"}, {"center_column": "linear"},
            {"published": "/nowhere.csv"}, {"unknown": 1}, {"direct_running_mode": "multi_processing"},
            *({**dict.fromkeys(GRID), "label_values": "UNEVEN", **each} for each in (
                {"center": ["none", "linear"]}, {"center_column": "weight"})),
            *({name: "nothing_here"} for name in ("label", "feature", "recipient_feature", "center_column")),
            *({**dict.fromkeys(GRID), "label_classes": "1,2", **each} for each in (
                {"mechanism": "unbiased"}, {"loss": "absolute"}, {"center": "linear"}, {"center_column": "weight"},
                {"center": "cells", "mechanism": "rr"}, {"rounding": "nearest"}, {"label_classes": "1,1"},
                {"other_class": "3"})),
        ],
    ),
}  # fmt: skip
PRIORS = (
    "", "label,weight\n", "0,1\n1\n", "0,1\n1,2,3\n", "0,1,2\n1,2\n", "0;1\n1,2\n", "0,1\none,2\n", "0,1\n0,2\n",
    "0,-1\n1,2\n", "0,nan\n1,2\n", "0,0\n1,0\n", "0,1\nnan,2\n", "{", '{"labels": [0, 1]}',
    '{"labels": [0, 1], "weights": [1]}', '{"labels": ["a", "b"], "weights": [1, 2]}',
    '{"labels": [0, 1], "prior": {"weights": [0.25, 0.75], "epsilon": -1}}',
    '{"labels": [0, 1], "prior": {"weights": [0.25, 0.75], "epsilon": NaN}}',
    '{"labels": [0, 1], "prior": {"weights": [0.25, 0.75], "epsilon": "1"}}',
    '{"labels": [0, 1], "prior": {"weights": [0.25, 0.75]}}',
    '{"labels": [0, 1], "prior": {"weights": [0.25, 0.75], "epsilon": 1.0}}',
    '{"labels": [1, 0], "weights": [1, 2]}', b"\xff\xfe0,1\n",
)  # fmt: skip
PUBLISHED = (
    "a,b\n", "mechanism,epsilon,mean,std\nx,1,2\n", "mechanism,epsilon,mean,std\nx,1,2,0.1\ny,0,2,0.1\n",
    "mechanism,epsilon,mean,std\nx,1,inf,0.1\n", 'mechanism,epsilon,mean,std\nx,1,2,"0.1"5\n',
)  # fmt: skip


@pytest.fixture
def refusals(tmp_path: Path, key_file: Path, invoke: Any, tree: Any, snapshot: Any) -> Callable[..., None]:
    """Function (name of the snapshot, (title, command, flags) of each case), whose messages it compares."""
    users = pa.array([f"u{row // 3}" for row in range(60)])
    columns = {"user": users, "weight": [0.5] * 60, "nothing": pa.nulls(60, pa.float64()), "y": [1.0, 2.0] * 30}
    pq.write_table(pa.table(columns), tmp_path / "LOG")
    texts = {"PRIOR": "0,1\n1,2\n2,1\n", "NEGATIVE": "-1,1\n1,1\n", "UNEVEN": "0\n1\n4\n"}
    texts["LARGE"] = "".join(f"{label},1\n" for label in range(4097))
    for name, text in texts.items():
        (tmp_path / name).write_text(text)

    def line(command: str, flags: Flags) -> list[str]:
        argv = command.split()
        for name, value in flags.items():
            values = value if isinstance(value, list) else [value]
            given = [str(tmp_path / str(each).removeprefix("FOLDER/")) if str(each).startswith(tuple(places)) else each
                for each in values]  # fmt: skip
            argv += [] if value is None else [f"--{name}", *map(str, given)]
        return argv

    places = ("FOLDER", "LOG", "GIVEN", *texts)

    def check(name: str, cases: Iterable[tuple[str, str, Flags]]) -> None:
        lines = []
        for title, command, flags in cases:
            before = tree(tmp_path)
            outcome = invoke(line(command, flags))
            assert outcome.code in (1, 2), title
            assert outcome.out == "", title
            assert tree(tmp_path) == before, title
            lines.append(f"{title}\n  {outcome.code} {outcome.error}\n")
        snapshot(f"refusals/{name}", "".join(lines), (tmp_path, "FOLDER"))

    return check


@pytest.mark.parametrize("command", OWN)
def test_flags(command: str, refusals: Any, key_file: Path) -> None:
    flags, cases = OWN[command]
    key = {"noise_key_file": key_file} if command in ("domain", "plan --units") else {}
    shown = (
        " ".join(f"--{name} {'left out' if value is None else value}" for name, value in each.items()) for each in cases
    )
    refusals(command, ((title, command, flags | key | each) for title, each in zip(shown, cases, strict=True)))


@pytest.mark.parametrize(
    ("flag", "command", "texts"), [("prior", "solve", PRIORS), ("published", "evaluate", PUBLISHED)]
)
def test_files(flag: str, command: str, texts: Any, refusals: Any, tmp_path: Path) -> None:
    flags = OWN[command][0]

    def cases() -> Any:
        for text in texts:
            (tmp_path / "GIVEN").write_bytes(text if isinstance(text, bytes) else text.encode())
            yield json.dumps(text) if isinstance(text, str) else repr(text), command, flags | {flag: "GIVEN"}

    refusals(flag, cases())


def test_no_snapshot_is_left_over() -> None:
    assert names("refusals") == {"plan_units", "prior", "published", *OWN} - {"plan --units"}


def test_commands_on_a_prior_need_neither_beam_nor_tensorflow(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "prior").write_text("0,1\n1,2\n2,1\n")
    given = [f"--prior={tmp_path / 'prior'}", "--epsilon=1"]
    lines = [
        ["solve", *given, f"--output={tmp_path / 'solved.json'}"],
        ["plan", *given, "--records=100", "--draws=1", "--features=2"],
        ["compare", *given, "--mechanism=rr", "--processes=1"],
    ]
    script = (
        "import sys; from labeldp.pipelines.cli.commands import main\n"
        f"for line in {lines!r}: assert main(line) == 0\n"
        "print(sorted({'apache_beam', 'tensorflow', 'pyarrow', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, env=environment, capture_output=True, text=True)

    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stderr.splitlines() == ["labeldp: planned 1 of 1", "labeldp: solved 1 of 1"]
