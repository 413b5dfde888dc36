"""Dead letters: all in files of limited length, the same bytes for any bundles, no file without any."""

import json
import random
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from labeldp.transforms import DeadLetter
from labeldp.transforms.shards import dead_letter_writer
from labeldp.transforms.shards.dead_letter_writer import LetterFile, WriteDeadLetters, _Spread, _Write


def letters(rows: int, source: str = "/logs/a") -> list[DeadLetter]:
    return [DeadLetter(source, row, "privatize", "unusable label") for row in range(rows)]


def lines(folder: Path, name: str) -> list[tuple[str, int]]:
    found = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    assert all(set(each) == {"source", "row", "stage", "error"} for each in found)
    return [(each["source"], each["row"]) for each in found]


@pytest.fixture
def written(run: Any, tmp_path: Path) -> Any:
    """(dead letters) -> the LetterFiles, sorted by name."""

    def compute(found: list[DeadLetter]) -> list[LetterFile]:
        def build(pipeline: beam.Pipeline) -> dict[str, Any]:
            expected = pipeline | "Expected" >> beam.Create([len(found)])
            return {"files": pipeline | beam.Create(found) | WriteDeadLetters(str(tmp_path), expected)}

        return sorted(run(build)["files"])

    return compute


def test_one_file_in_the_order_of_source_and_row(written: Any, tmp_path: Path) -> None:
    found = [*letters(700), *letters(3, "/logs/b")]
    random.Random(1).shuffle(found)
    assert written(found) == [("dead_letters.jsonl", 703)]
    assert lines(tmp_path, "dead_letters.jsonl") == sorted((each.source, each.row) for each in found)


def test_no_file_without_dead_letters(written: Any, tmp_path: Path) -> None:
    assert written([]) == []
    assert list(tmp_path.iterdir()) == []


def test_several_files_if_there_are_many(written: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_writer, "_LETTERS", 1_000)
    found = letters(3_500)
    files = written(found)
    assert [name for name, _ in files] == [f"dead_letters-{number:05d}-of-00004.jsonl" for number in range(4)]
    # Blocks of 256 rows.
    assert all(abs(count - 875) <= 256 for _, count in files)
    rows = [lines(tmp_path, name) for name, _ in files]
    assert [len(each) for each in rows] == [count for _, count in files]
    assert all(each == sorted(each) for each in rows)
    assert sorted(line for each in rows for line in each) == [(each.source, each.row) for each in found]


@pytest.mark.parametrize("held", [1, 7, 1 << 20])
def test_bytes_do_not_depend_on_bundles(held: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_writer, "_LETTERS", 500)
    contents = []
    for seed in range(2):
        found, gathered = [*letters(900), *letters(300, "/logs/b")], {}
        generator = random.Random(seed)
        generator.shuffle(found)
        stage, folder = _Spread(), tmp_path / str(seed)
        folder.mkdir()
        # The first try holds all of a bundle, the second one passes them on earlier.
        monkeypatch.setattr(dead_letter_writer, "_HELD", held if seed else 1 << 20)
        while found:
            bundle, found = found[: (size := generator.randint(1, 600))], found[size:]
            stage.start_bundle()
            passed = [element for letter in bundle for element in stage.process(letter, 1_200)]
            for file, rows in [*passed, *(each.value for each in stage.finish_bundle())]:
                gathered.setdefault(file, []).append(rows)
        files = [file for element in gathered.items() for file in _Write(str(folder)).process(element, 1_200)]
        assert len(files) == 3
        contents.append({name: (folder / name).read_bytes() for name, _ in files})
    assert contents[0] == contents[1]
