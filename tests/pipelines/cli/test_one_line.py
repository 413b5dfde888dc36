"""Names and messages in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from labeldp.pipelines.errors import one_line
from labeldp.pipelines.flags.arguments import ArgumentParser


@given(st.text())
def test_any_text_becomes_one_printable_line(text: str) -> None:
    shown = one_line(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    assert (shown == text) == text.isprintable()


def test_what_is_escaped() -> None:
    assert one_line("Käse/日本.csv") == "Käse/日本.csv"
    assert one_line("a\nPASS\u2028\u202e\x1b[2K") == "a\\nPASS\\u2028\\u202e\\x1b[2K"
    assert one_line("\udcff") == "\\udcff"


def test_errors_of_flags_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ArgumentParser("labeldp fit", "").parse_args(["--x\nPASS"])
    assert capsys.readouterr().err.splitlines() == [
        "labeldp fit: error: unrecognized arguments: --x\\nPASS (see `labeldp fit --help`)"
    ]
