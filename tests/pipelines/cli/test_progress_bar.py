"""Progress: a bar on a terminal, plain lines otherwise, only on standard error."""

import io
import sys
from collections.abc import Iterator

import pytest
from labeldp.pipelines.errors import UsageError
from labeldp.pipelines.study import progress_bar as bars


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "_SECONDS_BETWEEN_LINES", 0.0)

    assert list(bars.progress(iter("abc"), 3, "solved")) == ["a", "b", "c"]

    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [f"labeldp: solved {done} of 3" for done in (1, 2, 3)]


def test_quick_work_says_that_it_is_done_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert sum(bars.progress(range(1000), 1000, "added")) == 499500

    assert capsys.readouterr().err.splitlines() == ["labeldp: added 1000 of 1000"]


def test_an_item_is_counted_when_it_was_handled(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in bars.progress([0], 1, "handled"):
        assert capsys.readouterr().err == ""
    assert "handled 1 of 1" in capsys.readouterr().err


def test_items_come_as_they_are_made() -> None:
    made: list[int] = []

    def make() -> Iterator[int]:
        for item in range(3):
            made.append(item)
            yield item

    assert next(bars.progress(make(), 3, "made")) == 0
    assert made == [0]


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)

    assert list(bars.progress(range(4), 4, "solved")) == [0, 1, 2, 3]

    assert capsys.readouterr().out == ""
    assert "labeldp: solved: 100%" in terminal.getvalue()
    assert "4/4" in terminal.getvalue()


def test_without_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)

    with pytest.raises(UsageError, match=r"extra evaluation: pip install 'labeldp\[evaluation\]'"):
        bars.progress([1], 1, "solved")
