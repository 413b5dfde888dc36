"""Progress on a terminal: share done and time left; nothing without one."""

import io
import logging
import sys
from typing import Any

import pytest
from labeldp.transforms import progress_log as bar
from labeldp.transforms.progress_log import Progress


class Terminal(io.StringIO):
    """Standard error of a person who watches, or of a file."""

    def __init__(self, watched: bool = True):
        super().__init__()
        self.isatty = lambda: watched


def watch(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Puts a terminal on standard error, on which progress is shown at once."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    for name in ("_SECONDS_BEFORE", "_SECONDS_BETWEEN", "_SECONDS_BETWEEN_LINES"):
        monkeypatch.setattr(bar, name, 0.0)
    return found


@pytest.mark.parametrize(
    ("steps", "total", "shown"),
    [
        ([("counted", 250)], 1000, ["counted 25%, 250 of 1,000 records, about"]),
        ([("counted", 250), ("counted", 750)], None, ["counted 250 records", "counted 1,000 records"]),
        # The first pass tells how many records the next ones have.
        ([("counted", 400), ("privatized", 100)], None, ["counted 400 records", "privatized 25%, 100 of 400 records"]),
        # A pass that does the same again.
        ([("summed", 400), ("summed", 100)], 400, ["summed 100%, 400 of 400", "summed 25%, 100 of 400 records"]),
    ],
)
def test_lines_without_tqdm(monkeypatch: pytest.MonkeyPatch, steps: Any, total: int | None, shown: list[str]) -> None:
    terminal = watch(monkeypatch)
    for module in ("tqdm", "tqdm.contrib.logging"):
        monkeypatch.setitem(sys.modules, module, None)
    with bar.progress_bar(lambda: total):
        for doing, records in steps:
            Progress(doing).add(records)
    lines = terminal.getvalue().splitlines()
    assert [line.startswith(f"labeldp: {text}") for line, text in zip(lines, shown, strict=True)] == [True] * len(shown)


def test_a_bar_with_tqdm_and_log_lines_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch(monkeypatch)
    logger, handler = logging.getLogger("labeldp"), logging.StreamHandler(terminal)
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    # It forgets, too, which levels were enabled before.
    logger.setLevel(logging.INFO)
    with bar.progress_bar():
        bar.advance("checked", 30, 120)
        logger.info("a line")
    text = terminal.getvalue()
    assert "labeldp: checked:  25%" in text
    assert "30/120" in text
    assert "\ra line\n" in text
    assert logger.handlers == [handler]


def test_nothing_without_a_terminal_or_in_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    for watched in (False, True):
        found = Terminal(watched)
        monkeypatch.setattr(sys, "stderr", found)
        with bar.progress_bar(lambda: 10):
            bar.advance("counted", 5)
        assert found.getvalue() == ""
    bar.advance("counted", 5)
