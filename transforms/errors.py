"""Exceptions that are safe to show: their messages contain no label and no text of a library exception."""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any


class InputError(Exception):
    """Invalid input. The message names the file, row, column or flag, says what to do, and contains no label."""


class StageError(Exception):
    """Failure of a stage for a reason other than its input. Names the stage, the error class, and the file and line."""


def redact_errors(stage: str) -> Callable[[Callable[..., Iterator[Any]]], Callable[..., Iterator[Any]]]:
    """Decorates a generator that handles raw labels, so that its exceptions carry no text of the original error.

    A library's exception may quote the value that it failed on, and exceptions end up in logs. InputError and
    StageError pass unchanged. Any other exception becomes a StageError that names the stage, the class of the error,
    and the line that raised it.

    Args:
      stage: Name of the stage, as in "counting labels".

    Returns:
      The decorator.

    Raises:
      StageError: From the decorated generator, in place of any error other than InputError and StageError.
    """

    def decorate(generator: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        @functools.wraps(generator)
        def wrapper(*args: Any, **kwargs: Any) -> Iterator[Any]:
            try:
                yield from generator(*args, **kwargs)
                return
            except (InputError, StageError):
                raise
            except Exception as error:
                what = describe(error)
            # Raised outside the except block: inside, the original exception would be attached as __context__.
            raise StageError(f"{stage} failed: {what}")

        return wrapper

    return decorate


def describe(error: BaseException) -> str:
    """Describes an error without its message.

    Args:
      error: The error.

    Returns:
      Its class, and the file and line that raised it if it has a traceback.
    """
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"
