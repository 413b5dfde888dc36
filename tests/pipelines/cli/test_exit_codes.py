"""`run_command` turns every end of a command into an exit code and at most one line on standard error."""

import os
import signal
from collections.abc import Callable

import pytest
from labeldp.pipelines.cli.exit_codes import FAILURE, SUCCESS, run_command
from labeldp.pipelines.errors import UsageError
from labeldp.pipelines.flags.arguments import ArgumentParser
from labeldp.pipelines.publish import signals


def raising(error: BaseException) -> Callable[[], None]:
    """A command that fails."""

    def work() -> None:
        raise error

    return work


def test_success_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("labeldp fit", lambda: None) == SUCCESS == 0
    assert run_command("labeldp fit", lambda: 3) == 3
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UsageError("--epsilon is missing"), 2, "error: --epsilon is missing"),
        (ValueError("no such loss"), 1, "error: no such loss"),
        (ValueError("check `label_min` of `a b`"), 1, "error: check --label_min of `a b`"),
        (OSError("the disk is full"), 1, "error: the disk is full"),
        (MemoryError("a worker process was killed"), 1, "error: a worker process was killed"),
        (KeyboardInterrupt(), 1, "interrupted; nothing is written"),
    ],
)
def test_errors_are_one_line(error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("labeldp solve", raising(error)) == code
    assert capsys.readouterr() == ("", f"labeldp solve: {line}\n")


def test_an_interrupt_says_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("labeldp evaluate", raising(KeyboardInterrupt()), interrupted="3 cells are kept") == FAILURE == 1
    assert capsys.readouterr().err == "labeldp evaluate: interrupted; 3 cells are kept\n"


def test_an_unforeseen_error_is_redacted(capsys: pytest.CaptureFixture[str]) -> None:
    """Its text could quote a label. Only the error classes that the caller names are shown with their text."""
    for error in (ZeroDivisionError("label 271.8281"), ValueError("label 271.8281")):
        code = run_command("labeldp fit", raising(error), (LookupError,), redact=lambda error: type(error).__name__)
        assert code == FAILURE
        assert capsys.readouterr() == ("", f"labeldp fit: error: the job failed: {type(error).__name__}\n")


def test_an_unforeseen_error_without_a_redaction_is_raised(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError, match="a bug"):
        run_command("labeldp solve", raising(ZeroDivisionError("a bug")))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("error", [RuntimeError("wrapped by a runner"), KeyboardInterrupt()])
def test_after_a_signal_the_process_ends_at_once(
    error: BaseException, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of a runner may still be running, and the error may be the interrupt as wrapped by the runner."""
    ended: list[int] = []
    monkeypatch.setattr(signals, "_RECEIVED", [signal.SIGTERM])
    monkeypatch.setattr(os, "_exit", ended.append)
    run_command("labeldp fit", raising(error), redact=lambda error: pytest.fail("it is an interrupt"))
    assert ended == [FAILURE]
    assert capsys.readouterr().err == "labeldp fit: interrupted; nothing is written\n"


def test_what_a_message_quotes_does_not_break_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Names of files and columns may hold line breaks, terminal commands and bytes that are not UTF-8."""
    assert run_command("labeldp fit", raising(ValueError("column 'a\nlabeldp: PASS\x1b[2J\udcff'"))) == FAILURE
    assert capsys.readouterr().err == "labeldp fit: error: column 'a\\nlabeldp: PASS\\x1b[2J\\udcff'\n"
    parser = ArgumentParser("labeldp fit", "")
    with pytest.raises(SystemExit):
        parser.parse_args(["a\nb"])
    assert capsys.readouterr().err == ("labeldp fit: error: unrecognized arguments: a\\nb (see `labeldp fit --help`)\n")
