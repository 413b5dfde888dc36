"""Small files are written atomically: complete or not at all."""

from pathlib import Path

import pytest
from labeldp.pipelines.errors import UsageError
from labeldp.pipelines.spec.machine import check_file
from labeldp.pipelines.spec.written_files import write_file


@pytest.mark.parametrize("content", ["\u00e9\n", b"\xff\x00"])
def test_what_is_written_replaces_what_was_there(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "file"
    for _ in range(2):
        check_file("--csv", str(path))
        write_file(str(path), content)
        assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_file(str(tmp_path / "folder"), "text")
    with pytest.raises(UnicodeEncodeError):
        write_file(str(tmp_path / "file"), "\ud800")
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize(("path", "said"), [("missing/file", "does not exist"), ("", "is a folder")])
def test_where_no_file_can_be(tmp_path: Path, path: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"--csv .*{said}"):
        check_file("--csv", str(tmp_path / path))
