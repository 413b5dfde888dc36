"""Errors that are safe to show: they never carry a label, or anything that a library said about one."""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any


class InputError(Exception):
    """The input is at fault. The message names the file, row, column or flag, says what to do, and holds no label."""


class StageError(Exception):
    """A stage failed for a reason that is not the input's. Carries the stage, the error's class and its place."""


def redact_errors(stage: str) -> Callable[[Callable[..., Iterator[Any]]], Callable[..., Iterator[Any]]]:
    """Decorates a generator that handles raw labels: what it raises leaves without the original text.

    A library's exception may quote the value that it choked on, and exceptions end up in logs. InputError passes;
    anything else becomes a StageError that names the stage, the error's class and the line that raised it.
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
            # Raised here, not above: there the original exception would travel along as its context.
            raise StageError(f"{stage} failed: {what}")

        return wrapper

    return decorate


def describe(error: BaseException) -> str:
    """The class of an error and the file and line that raised it, without its message."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"
