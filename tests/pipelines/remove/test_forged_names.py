"""Names in a release that lead elsewhere, and links in the place of its files: every command that reads one refuses."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from labeldp.training import Release


def linked(name: str) -> Callable[[Path, Path], None]:
    """A forgery that moves a file or folder of the release elsewhere and leaves a link."""

    def forge(release: Path, elsewhere: Path) -> None:
        target = elsewhere / name.replace("/", "-")
        shutil.move(release / name, target)
        (release / name).symlink_to(target)

    return forge


def letters(name: str) -> Callable[[Path, Path], None]:
    """A forgery whose manifest lists another file of dead letters, which is there."""

    def forge(release: Path, elsewhere: Path) -> None:
        manifest = json.loads((release / "release.json").read_text())
        manifest["dead_letters"] = {name.format(elsewhere=elsewhere): sum(manifest["dead_letters"].values())}
        (release / "release.json").write_text(json.dumps(manifest))

    return forge


def of_key(name: str) -> Callable[[Path, Path], None]:
    """A forgery with a link to the key in the place of a file."""

    def forge(release: Path, elsewhere: Path) -> None:
        (release / name).parent.mkdir(exist_ok=True)
        (release / name).unlink(missing_ok=True)
        (release / name).symlink_to(elsewhere / "noise.key")

    return forge


FORGERIES = {
    "a name above": letters("../elsewhere/bashrc"),
    "an absolute name": letters("{elsewhere}/bashrc"),
    "another file of the release": letters("data/part-00000-of-00001.parquet"),
    "a link to the key": of_key("dead_letters.jsonl"),
    "a link in validation": of_key("validation/schema.pbtxt"),
    "a linked shard": linked("data/part-00000-of-00001.parquet"),
    "linked shards": linked("data"),
    "a center that is a link": of_key("center.json"),
    "a linked label": linked("labels/y"),
    **{f"linked {name}": linked(f"{name}.json") for name in ("release", "mechanism")},
}


@pytest.fixture
def commands(base: Any, tmp_path: Path) -> dict[str, list[str]]:
    """Commands that read a release."""
    truth = [f"--truth={base('named by rows').flags['input']}", "--input_format=parquet"]
    release, output = str(tmp_path / "forged"), f"--output={tmp_path / 'out' / 'new'}"
    (tmp_path / "rows.txt").write_text("part-00000-of-00001.parquet,1\n")
    (tmp_path / "facts.yaml").write_text("")
    claim = [f"--claim={tmp_path / 'out' / 'claim.yaml'}", f"--claim_facts={tmp_path / 'facts.yaml'}"]
    return {
        "audit": ["audit", release],
        "audit --data": ["audit", release, "--data"],
        "remove": ["remove", release, f"--rows={tmp_path / 'rows.txt'}", output],
        "report": ["report", release, output],
        "claim": ["report", release, *claim],
        "attack": ["attack", release, *truth],
    }


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forgeries(
    forgery: str, release: Any, commands: dict[str, list[str]], invoke: Any, tmp_path: Path, tree: Any, key_file: Path
) -> None:
    kind = "several labels" if forgery == "a linked label" else "named by rows"
    forged, elsewhere = shutil.copytree(release(kind), tmp_path / "forged"), tmp_path / "elsewhere"
    for folder in (elsewhere, tmp_path / "out"):
        folder.mkdir()
    shutil.copy(key_file, elsewhere / "noise.key")
    (elsewhere / "bashrc").write_text("a text\n")
    if forgery == "a name above":
        assert invoke(commands["audit --data"]).code == 0
    FORGERIES[forgery](forged, elsewhere)
    before = tree(elsewhere)
    for name, arguments in commands.items():
        outcome = invoke(arguments)
        assert outcome.code in (1, 2), (name, outcome)
        assert (
            "is not a regular file" in outcome.out + outcome.err
            or "is not a file of the release" in outcome.out + outcome.err
            or "is a link" in outcome.out + outcome.err
            or "release.dead_letters does not name the files" in outcome.out + outcome.err
            or "release.dead_letters is not of type object" in outcome.out + outcome.err
        ), (name, outcome)
        assert not list((tmp_path / "out").iterdir()), name
        assert tree(elsewhere) == before, name
    if forgery in ("linked release", "linked mechanism"):
        with pytest.raises(Exception, match="is a link, or no regular file"):
            Release.open(forged)
