"""Requests over a folder of small logs, keys and other files, for `make_release` in this process."""

import builtins
import importlib
import io
import os
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from labeldp.pipelines.errors import UsageError, as_flag, named, one_line
from labeldp.pipelines.spec.fields import Fields
from labeldp.pipelines.spec.make_release import make_release

from tests.commands import write_key
from tests.written_logs import write_log

ROWS = 300
COMMON = {"input": "log.csv", "input_format": "csv", "label": "y", "noise_key_file": "noise.key"}
NUMBERS = {"label_min": 0, "label_max": 4, "label_step": 1, "epsilon": 1}
BASES = {
    "privatize": {**COMMON, **NUMBERS, "output": "out"},
    "fit": {**COMMON, **NUMBERS, "mechanism_file": "new.json"},
    "apply": {**COMMON, "mechanism_file": "m.json", "output": "out"},
}
TEXTS = {
    "empty.txt": "", "descending.txt": "1\n3\n2\n", "twice.txt": "1\n1\n", "nan.txt": "1\nnan\n",
    "word.txt": "1\ntwo\n", "many.txt": "\n".join(str(label**2) for label in range(5000)), "latin.txt": "low\n\xff\n",
    "bad.pbtxt": "nonsense {{", "list.json": "[]", "object.json": "{}", "text.json": "not json",
    "format.json": '{"format": "labeldp-mechanism-1"}', "semicolons.csv": "f;y\n1;2\n3;4\n",
    "twin.csv": "f,y,Y\n1,2,2\n3,4,4\n", "alone.csv": "y\n1\n2\n", "released.csv": "x,y,y_center\n1,2,3\n2,3,4\n",
    "full/kept": "", "mixed/k=1/a.csv": "f,y\n1,2\n", "mixed/other/a.csv": "f,y\n1,2\n",
    "latin/caf\udce9.csv": "f,y\n1,2\n",
}  # fmt: skip
INNER: list[tuple[str, object, pa.DataType | None]] = [
    ("struct", {"a": {" Y": 1}}, None), ("structs", [{"y": 1}], None), ("two", [{"y": 1}] * 2, pa.list_(
        pa.struct([("y", pa.int64())]), 2)), ("map", [("a", 1), ("Y", 2)], pa.map_(pa.string(), pa.int64())),
    ("maps", {"a": [("k", {"y": 1})]}, pa.struct([("a", pa.map_(pa.string(), pa.struct([("y", pa.int64())])))])),
]  # fmt: skip
"""Values, and types, of a column with something of the label's name within it."""
KEYS = {"noise.key": (32, 0o600), "short.key": (31, 0o600), "open.key": (32, 0o640)}
"""Bytes and mode of each key file."""


def log_table() -> pa.Table:
    rows = range(ROWS)
    return pa.table({
        "id": rows, "x": [row % 7 / 2 for row in rows], "word": [f"w{row % 3}" for row in rows],
        "day": [date(2024, 1, 1) + timedelta(row % 30) for row in rows], "user": [row // 3 for row in rows],
        "y": [row % 5 for row in rows], "z": [row % 3 for row in rows],
        "grade": [("low", "high")[row % 2] for row in rows], "bought": [row % 2 == 0 for row in rows],
    })  # fmt: skip


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `TEXTS` and `KEYS`, of one log in every format, also below month=M, and with a nested column."""
    root, table = tmp_path_factory.mktemp("requests"), log_table()
    for name in ("log.csv", "log.parquet", "month=1/log.csv", "month=2/log.csv"):
        write_log(root / name, table)
    write_log(root / "log.tfrecord", table.drop(["day"]))
    write_log(root / "nested.parquet", table.append_column("struct", pa.array([{"a": 1}] * ROWS)))
    for name, values, kind in INNER:
        write_log(root / f"{name}.parquet", table.append_column("event", pa.array([values] * ROWS, kind)))
    for name, text in TEXTS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "latin-1")
    for name, (size, mode) in KEYS.items():
        write_key(root / name, b"k" * size).chmod(mode)
    (root / "empty").mkdir()
    (root / "link").symlink_to(root / "empty")
    return root


@pytest.fixture
def release_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Function (command="privatize", field=value, ...) -> the release of a request in the folder."""
    monkeypatch.chdir(folder)
    return lambda command="privatize", **fields: make_release(command, Fields.of({**BASES[command], **fields}))


LOOKS: dict[Any, tuple[str, ...]] = {
    builtins: ("open",), io: ("open",), pa: ("OSFile",),
    os: ("open", "stat", "lstat", "access", "listdir", "scandir", "readlink"),
}  # fmt: skip
"""Functions by which files are looked at."""


@pytest.fixture(scope="session")
def looking_once() -> Callable[[Callable[[], Any]], Any]:
    """Function (make) -> what `make` returns; each look at a file fails once `look_at` has returned."""
    module: Any = importlib.import_module("labeldp.pipelines.spec.make_release")

    def refuse(*arguments: Any, **_: Any) -> None:
        raise AssertionError(f"a check looked at {arguments}")

    def run(make: Callable[[], Any]) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            look_at = module.look_at

            def looked(*arguments: Any) -> Any:
                facts = look_at(*arguments)
                for owner, names in LOOKS.items():
                    for name in names:
                        patch.setattr(owner, name, refuse)
                return facts

            patch.setattr(module, "look_at", looked)
            return make()

    return run


@pytest.fixture
def refusal(folder: Path, release_of: Any) -> Callable[..., str]:
    """Function as `release_of` -> the error of a request that is refused, without the folder. Nothing is written."""

    def refused(command: str = "privatize", **fields: Any) -> str:
        before = sorted(folder.rglob("*"))
        with pytest.raises(UsageError) as caught:
            release_of(command, **fields)
        assert sorted(folder.rglob("*")) == before
        text = named(str(caught.value), as_flag).replace(f"{folder}/", "")
        assert text == one_line(text)
        assert "hunter2" not in text
        return text

    return refused
