"""The page on private features: its commands run as printed, and the releases are what it says."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

GUIDE = (Path(__file__).parents[2] / "docs/guides/private_features.md").read_text()
COMMANDS = [text.replace("\\\n", "").split()[1:] for text in re.findall(r"^```sh\n(.*?)^```$", GUIDE, re.M | re.S)]


def test_the_commands_release_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_labeldp: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    random = np.random.default_rng(1)
    income = np.clip(np.rint(random.gamma(4, 15, 4000)), 0, 200)
    minutes = np.clip(np.rint(income / 10 + random.normal(5, 3, 4000)), 0, 40)
    users = [f"user {number}" for number in random.integers(0, 2500, 4000)]
    pq.write_table(
        pa.table({"user": users, "hour": np.arange(4000) % 24, "income": income, "minutes": minutes}), "clicks.parquet"
    )
    released = {"released": ["hour", "minutes", "minutes_center"],
                "shuffled": ["hour", "income", "minutes", "minutes_center"],
                "both": ["hour", "income", "minutes", "minutes_center", "income_center"]}  # fmt: skip
    for command in COMMANDS:
        assert run_labeldp(command) == 0
        assert run_labeldp(["audit", command[-1], "--data"]) == 0
        folder = tmp_path / command[-1]
        assert pq.read_schema(next((folder / "data").iterdir())).names == released.pop(command[-1])
        manifest = json.loads((folder / "release.json").read_text())
        assert "user" in manifest["left_out"]
        assert not [path for path in folder.rglob("*.*") if b"user 1" in path.read_bytes()]
        parts = [json.loads(path.read_text()) for path in folder.glob("labels/*/release.json")]
        assert not parts or sum(part["epsilon"] for part in parts) == pytest.approx(manifest["epsilon"])
        assert not any("minutes" in json.dumps(part.get("center", {}).get("linear")) for part in parts)
    assert not released
