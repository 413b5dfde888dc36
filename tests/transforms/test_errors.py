"""Errors of a `redact_errors` stage name the place of the failure and contain no text of a library exception."""

import io
import logging
import os
import pickle
import traceback

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.io.filesystem import BeamIOError
from labeldp.transforms import InputError, StageError
from labeldp.transforms.errors import describe, named_file, redact_errors, system_text, unreadable

SECRET = "secret 123.4"


def everything_shown(error: BaseException) -> str:
    """The error as shown by tracebacks and logs."""
    stream = io.StringIO()
    logger = logging.Logger("shown")
    logger.addHandler(logging.StreamHandler(stream))
    try:
        raise error
    except type(error):
        logger.exception("failed: %r", error)
        return traceback.format_exc() + stream.getvalue() + str(error) + repr(error) + repr(error.args)


class Quoting(KeyError):
    """An error whose text quotes its value, in addition to its arguments."""

    def __str__(self) -> str:
        return f"no key {self.args[0]}"


def raise_plain():
    raise ValueError(SECRET)


def raise_subclass():
    raise Quoting(SECRET)


def raise_chained():
    try:
        raise KeyError(SECRET)
    except KeyError as error:
        raise RuntimeError(f"while at {SECRET}") from error


def raise_in_handler():
    try:
        raise KeyError(SECRET)
    except KeyError:
        raise OSError(5, SECRET, SECRET) from None


def raise_with_note():
    error = ValueError("x")
    error.__notes__ = [SECRET]  # type: ignore[attr-defined]
    raise error


FAILURES = {
    raise_plain: "ValueError",
    raise_subclass: "Quoting",
    raise_chained: "RuntimeError",
    raise_in_handler: f"{os.strerror(5)} (at",
    raise_with_note: "ValueError",
}


@pytest.mark.parametrize("fail", FAILURES, ids=lambda fail: fail.__name__)
def test_the_original_text_does_not_leave(fail):
    @redact_errors("counting labels")
    def process():
        yield 1
        fail()

    with pytest.raises(StageError) as caught:
        list(process())
    text = everything_shown(caught.value)
    assert "secret" not in text
    assert "123.4" not in text
    # The operating system's text says what happened; a class would add nothing.
    place = "test_errors.py:" if fail is raise_in_handler else "at test_errors.py:"
    assert str(caught.value).startswith(f"counting labels failed: {FAILURES[fail]} {place}")


def test_the_place_is_the_line_that_raised():
    @redact_errors("reading")
    def process():
        raise_plain()
        yield

    with pytest.raises(StageError) as caught:
        list(process())
    line = raise_plain.__code__.co_firstlineno + 1
    assert str(caught.value) == f"reading failed: ValueError at test_errors.py:{line}"


@pytest.mark.parametrize("error", [InputError("row 3 has no id"), StageError("writing failed: OSError")], ids=str)
def test_safe_errors_pass_as_they_are(error):
    @redact_errors("counting labels")
    def process():
        yield 1
        raise error

    found = process()
    assert next(found) == 1
    with pytest.raises(type(error)) as caught:
        next(found)
    assert caught.value is error


def test_a_redacted_generator_is_lazy_and_passes_what_came_before_the_failure():
    steps = []

    @redact_errors("reading")
    def process(first, *, second):
        for step in (first, second):
            steps.append(step)
            yield step
        raise ValueError(SECRET)

    found = process(1, second=2)
    assert steps == []
    assert next(found) == 1
    assert steps == [1]
    assert next(found) == 2
    with pytest.raises(StageError):
        next(found)
    with pytest.raises(StopIteration):
        next(found)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_interrupts_are_no_failures(interrupt):
    @redact_errors("reading")
    def process():
        raise interrupt
        yield

    with pytest.raises(interrupt):
        list(process())


def test_safe_errors_travel_between_processes():
    for error in (InputError("row 3"), StageError("writing failed")):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == str(error)


class _Failing(beam.DoFn):
    @redact_errors("privatizing labels")
    def process(self, element):
        yield element
        raise ValueError(f"cannot handle {element}")


def test_through_beam_neither_the_error_nor_any_log_has_the_text(failure, caplog, capfd, tmp_path):
    caplog.set_level(logging.DEBUG)
    source = tmp_path / "values"
    source.write_text("48613.71529\n")

    def build(pipeline):
        values = pipeline | beam.io.ReadFromText(str(source)) | beam.ParDo(_Failing())
        return {"out": values}

    text = failure(build)
    assert "privatizing labels failed: ValueError at test_errors.py:" in text
    assert "StageError" in text
    captured = capfd.readouterr()
    for shown in (text, caplog.text, captured.out, captured.err):
        assert "48613" not in shown


# Errors of the operating system.


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, SECRET, SECRET),
        OSError(OSError(28, SECRET)),
        BeamIOError(SECRET, {("a", "b"): OSError(OSError(28, SECRET))}),
    ],
    ids=["itself", "wrapped by a filesystem", "wrapped by a file operation"],
)
def test_an_error_of_the_operating_system_shows_the_text_of_its_number(error):
    assert system_text(error) == os.strerror(28) == "No space left on device"
    with pytest.raises(StageError) as caught, named_file("writing", "/out/part"):
        raise error
    assert str(caught.value) == "writing /out/part failed: No space left on device"
    assert "secret" not in everything_shown(caught.value)
    assert str(unreadable("/in", error, "corrupt")) == "/in: cannot be read: No space left on device"


@pytest.mark.parametrize("kind", [MemoryError, pa.ArrowMemoryError])
def test_the_end_of_memory_is_said_in_words(kind):
    assert describe(kind(SECRET)) == "Cannot allocate memory"


@pytest.mark.parametrize(
    "error",
    [OSError(SECRET), OSError(123456, SECRET), ValueError(28, SECRET), BeamIOError(SECRET, {"a": ValueError(28)})],
)
def test_other_errors_show_no_text(error):
    assert system_text(error) is None
    assert describe(error) == type(error).__name__
    with pytest.raises(type(error)) as caught, named_file("writing", "/out/part"):
        raise error
    assert caught.value is error
    assert str(unreadable("/in", error, "corrupt")) == "/in: corrupt"
