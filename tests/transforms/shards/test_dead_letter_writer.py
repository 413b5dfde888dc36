"""Dead letters: all in files of limited length, the same bytes for any bundles, no file without any."""

import json
import random
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from labeldp.transforms import DeadLetter, Limits
from labeldp.transforms.shards.dead_letter_writer import LetterFile, WriteDeadLetters


def letters(rows: int, source: str = "/logs/a") -> list[DeadLetter]:
    return [DeadLetter(source, row, "privatize", "unusable label") for row in range(rows)]


def lines(folder: Path, name: str) -> list[tuple[str, int]]:
    found = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    assert all(set(each) == {"source", "row", "stage", "error"} for each in found)
    return [(each["source"], each["row"]) for each in found]


@pytest.fixture
def written(run_bundles: Any, tmp_path: Path) -> Any:
    """(bundles of dead letters, folder=, limits=, seed=) -> the LetterFiles, sorted by name."""

    def compute(*bundles: list[DeadLetter], folder: Path = tmp_path, seed: int = 0, **limits: int) -> list[LetterFile]:
        def build(pipeline: beam.Pipeline, found: Any) -> dict[str, Any]:
            expected = pipeline | "Expected" >> beam.Create([sum(map(len, bundles))], reshuffle=False)
            return {"files": found | WriteDeadLetters(str(folder), expected, limits=Limits(**limits))}

        return sorted(run_bundles(build, list(bundles), seed)["files"])

    return compute


def test_one_file_in_the_order_of_source_and_row(written: Any, tmp_path: Path) -> None:
    found = [*letters(700), *letters(3, "/logs/b")]
    random.Random(1).shuffle(found)
    assert written(found) == [("dead_letters.jsonl", 703)]
    assert lines(tmp_path, "dead_letters.jsonl") == sorted((each.source, each.row) for each in found)


def test_no_file_without_dead_letters(written: Any, tmp_path: Path) -> None:
    assert written([]) == []
    assert list(tmp_path.iterdir()) == []


def test_several_files_if_there_are_many(written: Any, tmp_path: Path) -> None:
    found = letters(3_500)
    files = written(found, letters=1_000)
    assert [name for name, _ in files] == [f"dead_letters-{number:05d}-of-00004.jsonl" for number in range(4)]
    # Blocks of 256 rows.
    assert all(abs(count - 875) <= 256 for _, count in files)
    rows = [lines(tmp_path, name) for name, _ in files]
    assert [len(each) for each in rows] == [count for _, count in files]
    assert all(each == sorted(each) for each in rows)
    assert sorted(line for each in rows for line in each) == [(each.source, each.row) for each in found]


@pytest.mark.parametrize("held", [1, 7, 1 << 20])
def test_bytes_do_not_depend_on_bundles(written: Any, held: int, tmp_path: Path) -> None:
    contents = []
    for seed in range(2):
        found, bundles = [*letters(900), *letters(300, "/logs/b")], []
        generator = random.Random(seed)
        generator.shuffle(found)
        while found:
            size = generator.randint(1, 600)
            bundles.append(found[:size])
            found = found[size:]
        folder = tmp_path / str(seed)
        folder.mkdir()
        # The first try holds all of a bundle, the second one passes them on earlier.
        files = written(*bundles, folder=folder, seed=seed, letters=500, held_letters=held if seed else 1 << 20)
        assert len(files) == 3
        contents.append({name: (folder / name).read_bytes() for name, _ in files})
    assert contents[0] == contents[1]
