"""Signed releases in the guide for auditors: labeldp takes the keys of its commands, and its program finds changes."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.commands import write_key

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "auditors.md").read_text()
KEYS = re.search(r"^```sh\n(openssl genpkey.*?)^```$", GUIDE, re.M | re.S)
PROGRAM = re.search(r"^```python\n(.*?)^```$", GUIDE, re.M | re.S)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a signed release, and the keys of the guide."""
    from labeldp.pipelines.cli.commands import main

    assert KEYS is not None
    monkeypatch.chdir(tmp_path)
    done = subprocess.run(["sh", "-ec", KEYS[1]], check=True, capture_output=True, text=True)
    (tmp_path / "fingerprint").write_text(done.stdout.split()[0])
    write_key(tmp_path / "noise.key", bytes(range(32)))
    (tmp_path / "log.csv").write_text("f,y\n" + "".join(f"{i},{i % 5}\n" for i in range(500)))
    flags = "--input=log.csv --input_format=csv --label=y --label_min=0 --label_max=4 --label_step=1 --epsilon=1"
    more = "--for=labels --noise_key_file=noise.key --output=released --sign=sign.pem"
    assert main(["privatize", *flags.split(), *more.split()]) == 0
    return tmp_path


def test_the_commands_and_the_program(folder: Path, capsys: pytest.CaptureFixture[str], loggers_restored: Any) -> None:
    from labeldp.pipelines.cli.commands import main

    assert PROGRAM is not None
    fingerprint = (folder / "fingerprint").read_text()
    for signer in ("sign.pub", fingerprint, f"sha256:{fingerprint}"):
        assert main(["audit", "released", f"--signer={signer}"]) == 0
    line = capsys.readouterr().out.splitlines()[-2]
    shown = next(line for line in GUIDE.splitlines() if line.startswith("signature    by"))
    assert re.sub(r"[0-9a-f]{64}|[\d,]+ ", "", line) == re.sub(r"[0-9a-f]{64}|[\d,]+ ", "", shown)
    exec(PROGRAM[1], {})
    shard = next((folder / "released" / "data").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    with pytest.raises(AssertionError):
        exec(PROGRAM[1], {})
