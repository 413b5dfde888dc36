"""Names and messages as one line of text: a line break in a file name could forge a line of the output."""

from __future__ import annotations


def one_line(text: str) -> str:
    """Escapes characters that are not printable, such as line breaks and marks that reverse the direction of text."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


class UsageError(Exception):
    """An error of the command line. The message names the flag and says what to do."""


BAD_USAGE = 2
