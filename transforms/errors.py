"""Exceptions that are safe to show: their messages contain no label and no text of a library exception."""

from __future__ import annotations

import contextlib
import errno
import functools
import inspect
import os
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

OTHER_MECHANISM = (
    "labels were drawn by another mechanism than the one of this release: workers of different kinds solved for "
    "different ones, so nothing may be released. Run labeldp fit, then labeldp apply: the mechanism is then solved once"
)
"""Error of a release whose labels do not all come from one mechanism, the published one."""

CHANGED_INPUT = "the input changed while the job ran, so nothing may be released: run again when the files are complete"
"""Error of a job that reads its input several times, and found it to differ."""

_MOST_LISTED = 20


class InputError(Exception):
    """Invalid input. The message names the file, row, column or flag, says what to do, and contains no label."""


class StageError(Exception):
    """Failure of a stage for a reason other than its input. Names the stage, the error class, and the file and line."""


class StoreError(OSError):
    """Failure of an object store, as text of a fixed list: it holds no label, no credentials and no text of the store.

    `reason` tells what is wrong, for example "access denied".
    """

    def __init__(self, reason: str):
        """Makes an error."""
        super().__init__(reason)
        self.reason = reason


class StoreNotFound(StoreError):
    """There is no such object."""


class StoreConflict(StoreError):
    """An object is not of the version that a conditional write replaces."""


def redact_errors(stage: str) -> Callable[[Callable[..., Iterator[Any]]], Callable[..., Any]]:
    """Decorates a generator that handles raw labels, so that its exceptions carry no text of the original error.

    `stage` is its name, as in "counting labels".

    A library's exception may quote the value that it failed on, and exceptions end up in logs. InputError and
    StageError pass unchanged. Any other exception becomes a StageError that names the stage, the line that raised it
    and the class of the error or, for an error of the operating system, the system's own text for it.
    """

    # Not Iterator: in Beam's class, finish_bundle returns None.
    def decorate(generator: Callable[..., Iterator[Any]]) -> Callable[..., Any]:
        @functools.wraps(generator)
        def wrapper(*args: object, **kwargs: object) -> Iterator[object]:
            try:
                yield from generator(*args, **kwargs)
                return
            except (InputError, StageError):
                raise
            except Exception as error:
                what = describe(error)
            # Raised outside the except block: inside, the original exception would be attached as __context__.
            raise StageError(f"{stage} failed: {what}")

        # Beam's type checks bind arguments to the names of parameters, and do not look at what is wrapped.
        vars(wrapper)["__signature__"] = inspect.signature(generator)
        return wrapper

    return decorate


def describe(error: BaseException) -> str:
    """Describes an error without its message.

    Returns the system's text for an error of the operating system, and where memory ended; else the error's class. With
    the file and line that raised it, if it has a traceback.
    """
    frames = traceback.extract_tb(error.__traceback__)
    place = f"at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    # Arrow's error is a MemoryError as well.
    text = os.strerror(errno.ENOMEM) if isinstance(error, MemoryError) else system_text(error)
    if text is not None:
        return f"{text} ({place})" if place else text
    return f"{type(error).__name__} {place}".rstrip()


def describe_failure(error: BaseException) -> str:
    """Describes an unforeseen error of a job without its message, which could quote a label.

    The text is that of a StageError, which holds no label; for other errors, the class, file and line.
    """
    text = f"StageError: {error}" if isinstance(error, StageError) else str(error)
    found = re.search(r"\bStageError: ([^\n]*)", text)
    return re.sub(r" \[while running .*", "", found[1]) if found else describe(error)


def system_text(error: BaseException) -> str | None:
    """Finds the operating system's text for an error, such as "No space left on device".

    Errors that Beam's filesystems have wrapped are found. None if the error has no known number of the operating
    system. For an object store, its reason.

    The text is looked up by the error number and is one of a fixed list, so it holds no label. The message and the file
    name of the exception are not used: they are free text.
    """
    if isinstance(error, StoreError):
        return error.reason
    if not isinstance(error, OSError):
        return None
    if error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    details = getattr(error, "exception_details", None)
    wrapped = [*error.args, *(details.values() if isinstance(details, dict) else ())]
    return next(filter(None, (system_text(inner) for inner in wrapped if isinstance(inner, OSError))), None)


@contextlib.contextmanager
def named_file(stage: str, path: str) -> Iterator[None]:
    """Adds the name of a file or folder to errors of the operating system, in a block that handles it.

    `stage` is a participle, as in "writing"; the name must be public. Raises StageError in place of an error of the
    operating system; other errors pass unchanged.
    """
    try:
        yield
    except OSError as error:
        text = system_text(error)
        if text is None:
            raise
        raise StageError(f"{stage} {path} failed: {text}") from None


def unreadable(path: str, error: BaseException, otherwise: str) -> InputError:
    """Error for an input file that cannot be read, to be raised by the caller.

    `otherwise` is the text for an error that is not one of the operating system.
    """
    text = system_text(error)
    return InputError(f"{path}: cannot be read: {text}" if text else f"{path}: {otherwise}")


def listed(names: Sequence[str]) -> str:
    """First 20 column names, separated by commas, for an error message."""
    return ", ".join(names[:_MOST_LISTED]) + (", ..." if len(names) > _MOST_LISTED else "")
