"""Errors of what a user asks for, which each face says in its own words, and texts as one line.

A message names fields of a request (`spec.fields`) in braces: "{label_values} replaces {label_min}". The command line
says --label_values, or a line of the file of `--config`, and Python says label_values. Errors of stages reach a face as
text alone, from workers: they have names of fields between backquotes, which the command replaces (`named`).
"""

from __future__ import annotations

import contextlib
import re
import string
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

BAD_USAGE = 2
_SIMILARITY = 0.6
_FIELD = re.compile("`([a-z_]+)`")

Naming = Callable[[str], str]
"""How a face names a field: from label_step to --label_step, for example."""


def as_flag(field: str) -> str:
    """Names a field on the command line."""
    return f"--{field}"


def as_parameter(field: str) -> str:
    """Names a field in Python, where `for` is a keyword."""
    return "for_" if field == "for" else field


def named(text: str, naming: Naming) -> str:
    """The text of a stage's error with the names that a face has for fields between backquotes."""
    return _FIELD.sub(lambda field: naming(field[1]), text)


N = TypeVar("N", bound="FieldNames")


class _Filled(string.Formatter):
    """Fills a message: values that are given, and names of fields for all others."""

    def __init__(self, naming: Naming):
        self._naming = naming

    def get_value(self, key: Any, args: Any, kwargs: Any) -> Any:
        return kwargs[key] if key in kwargs else self._naming(key)


class FieldNames(Exception):
    """Part of an error whose message names fields in braces; other values are filled in as given."""

    def __init__(self, message: str, **values: Any):
        """Makes the error; as text, it names fields as flags."""
        self.message, self.values = message, values
        super().__init__(self.text(as_flag))

    def text(self, naming: Naming) -> str:
        """The message with the names that a face has for the fields."""
        return _Filled(naming).vformat(self.message, (), self.values)

    def extended(self: N, more: str, **values: Any) -> N:
        """The same error with more text at its end."""
        return type(self)(self.message + more, **self.values, **values)


class UsageError(Exception):
    """An error of what the user asks for. The message says what to do."""


class FieldError(FieldNames, UsageError):
    """A field of a request is wrong, or contradicts another."""

    @classmethod
    def of(cls, error: Exception) -> FieldError:
        """Makes the error from one whose message begins with the name of the field."""
        field, _, problem = str(error).partition(" ")
        return cls(f"{{{field}}} {{problem}}", problem=problem)

    @classmethod
    def at(cls, field: str, problem: object) -> FieldError:
        """Makes the error from the text of another one, after the name of the field and a colon."""
        return cls(f"{{{field}}}: {{problem}}", problem=problem)


@contextlib.contextmanager
def field_errors(message: str = "", kind: type[Exception] = ValueError, **values: Any) -> Iterator[None]:
    """Makes FieldErrors of the errors of a block; `{problem}` in the message is the text of the other error.

    Without a message, the text must begin with the name of the field.
    """
    try:
        yield
    except kind as error:
        raise (FieldError(message, problem=error, **values) if message else FieldError.of(error)) from None


T = TypeVar("T")


@dataclass(frozen=True)
class Fact(Generic[T]):
    """Result of a look at a file or a store: a value, or the error that the look ended with.

    A request is looked at once and checked later: the error is raised by the check that needs the value, if any does.
    """

    _value: T | None = field(default=None, repr=False)
    _error: Exception | None = None

    @classmethod
    def of(cls, look: Callable[[], T]) -> Fact[T]:
        """Looks once."""
        try:
            return cls(look())
        except Exception as error:
            return cls(None, error)

    def get(self) -> T:
        """The value. Raises the error of a look that failed."""
        if self._error is not None:
            raise self._error
        return cast("T", self._value)


def did_you_mean(name: str, known: Iterable[str], before: str = "") -> str:
    """Text to append to an error message: "; did you mean X?", or nothing if no known name is similar.

    `before` precedes the suggested name, such as two dashes.
    """
    # Loaded for errors alone: help must appear at once.
    import difflib

    by_folded = {text.casefold(): text for text in known}
    close = difflib.get_close_matches(name.casefold(), by_folded, 1, _SIMILARITY)
    return f"; did you mean {before}{by_folded[close[0]]}?" if close else ""


def one_line(text: str) -> str:
    """Escapes characters that are not printable, such as line breaks and marks that reverse the direction of text."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
