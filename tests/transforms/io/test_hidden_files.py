"""Files whose names start with . or _ are skipped where a pattern does not name them, as Spark skips them."""

from pathlib import Path

import pytest
from labeldp.transforms import InputError
from labeldp.transforms.io.filesystems import match

FILES = [
    "day/part-0", "day/part_1", "day/_SUCCESS", "day/.part-0.crc", "day/_metadata",
    "day/_temporary/part-2", "day/.hidden/part-3", "day/k=1/part-4", "day/_k=1/part-5", "day/_k=1/_part-6",
    "_staging/part-7", ".cache/_part-8",
]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("day/*", ["day/part-0", "day/part_1"]),
        ("day/**", ["day/_k=1/part-5", "day/k=1/part-4", "day/part-0", "day/part_1"]),
        ("*/part*", ["day/part-0", "day/part_1"]),
        ("day/*=1/*", ["day/_k=1/part-5", "day/k=1/part-4"]),
        # Named by the pattern.
        ("day/_SUCCESS", ["day/_SUCCESS"]),
        ("day/_*", ["day/_SUCCESS", "day/_metadata"]),
        ("day/.*", ["day/.part-0.crc"]),
        ("day/_temporary/*", ["day/_temporary/part-2"]),
        ("_staging/*", ["_staging/part-7"]),
        (".cache/_part-8", [".cache/_part-8"]),
        (".cache/_*", [".cache/_part-8"]),
        ("_*/*", ["_staging/part-7"]),
    ],
)
def test_which_files_match(root: Path, pattern: str, found: list[str]) -> None:
    assert [str(Path(path).relative_to(root)) for path in match(f"{root}/{pattern}")] == found


def test_a_folder_of_hidden_files_alone(root: Path) -> None:
    with pytest.raises(InputError, match=r"\.cache/\* matches only hidden files"):
        match(f"{root}/.cache/*")


def test_a_folder_above_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "_a" / ".b[1]" / "c"
    folder.mkdir(parents=True)
    (folder.parent / "part-0").touch()
    (folder / "part-0").touch()
    assert len(match(f"{tmp_path}/_a/*/c/../part-0".replace("/*/c/..", "/.b?1?"))) == 1
