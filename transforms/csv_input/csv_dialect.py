"""Dialect of CSV files: the character between fields, and the encoding of the text."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass

CANDIDATES = (",", ";", "\t", "|")
"""Delimiters that a header line is tried with, to name the one that is missing."""

_INVALID = "labeldp.invalid"
# Of codecs that Python calls text encodings, those that no file is written in.
_UNUSUAL = {"idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined", "utf-7"}


def _surrogate(error: UnicodeError) -> tuple[str, int]:
    """Replaces bytes that cannot be decoded by a surrogate, which is not valid in UTF-8 either."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udcff", error.end


codecs.register_error(_INVALID, _surrogate)


@dataclass(frozen=True)
class Dialect:
    """Dialect of CSV files.

    Attributes:
      delimiter: Character between fields: ASCII, neither letter nor digit; backslash and t stand for a tab.
      encoding: A text encoding of Python, such as utf-8, latin-1, cp1252 or utf-16.
    """

    delimiter: str = ","
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        """Checks the options, and puts them in one form.

        Raises:
          ValueError: If the delimiter cannot be one, or the encoding is unknown.
        """
        if self.delimiter == "\\t":
            object.__setattr__(self, "delimiter", "\t")
        mark = self.delimiter
        if len(mark) != 1 or not (mark == "\t" or " " <= mark <= "~") or mark.isalnum() or mark in "\"'.+-_\\":
            raise ValueError(
                f"csv_delimiter must be one character such as ; or | or \\t, neither a letter, a digit nor a part of "
                f"numbers or quotes, not {mark!r}"
            )
        name = ""
        try:
            name = codecs.lookup(self.encoding).name
            # Raises for codecs of bytes, such as hex.
            usable = "a,b\n".encode(name).decode(name) == "a,b\n" and name.replace("_", "-") not in _UNUSUAL
        except (LookupError, UnicodeError, ValueError):
            usable = False
        if not usable:
            raise ValueError(
                f"csv_encoding must be a text encoding, such as latin-1, cp1252 or utf-16, not {self.encoding!r}"
            )
        object.__setattr__(self, "encoding", name)

    @property
    def mark(self) -> bytes:
        """The delimiter as a byte."""
        return self.delimiter.encode()

    def utf8(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Encodes text as UTF-8.

        Args:
          chunks: Parts of a file, in order.

        Yields:
          The same text as UTF-8. Bytes that cannot be decoded become bytes that are not valid there.
        """
        if self.encoding == "utf-8":
            yield from chunks
            return
        decoder = codecs.getincrementaldecoder(self.encoding)(_INVALID)
        for chunk in chunks:
            if text := decoder.decode(chunk):
                yield text.encode(errors="surrogatepass")
        if text := decoder.decode(b"", final=True):
            yield text.encode(errors="surrogatepass")


COMMA = Dialect()
"""Fields between commas, in UTF-8."""
