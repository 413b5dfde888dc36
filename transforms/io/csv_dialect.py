"""Dialect of CSV files: the character between fields, the encoding of the text, marks of numbers, and a header."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

CANDIDATES = (",", ";", "\t", "|")
"""Delimiters that a header line is tried with, to name the one that is missing."""
DECIMALS = (".", ",")
"""Decimal marks."""
THOUSANDS = (".", ",", "'", "\u2019", " ", "\u00a0", "\u202f", "_")
"""Marks of thousands: the apostrophe and the space in all forms that spreadsheets write."""

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
      decimal: Decimal mark of numbers, a point or a comma.
      thousands: Mark between groups of three digits; empty for none.
      columns: Names of the columns, for files without a header line; none for files with one.
      newlines: Whether quoted fields may have line breaks.
    """

    delimiter: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    thousands: str = ""
    columns: tuple[str, ...] = ()
    newlines: bool = False

    def __post_init__(self) -> None:
        """Checks the options, and puts them in one form.

        Raises ValueError if a delimiter or mark cannot be one, the encoding is unknown, or the columns need other
        names.
        """
        if self.delimiter == "\\t":
            object.__setattr__(self, "delimiter", "\t")
        mark = self.delimiter
        if len(mark) != 1 or not (mark == "\t" or " " <= mark <= "~") or mark.isalnum() or mark in "\"'.+-_\\":
            raise ValueError(
                "csv_dialect delimiter must be one character such as ; or | or \\t, neither a letter, a digit nor a "
                f"part of numbers or quotes, not {mark!r}"
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
                f"csv_dialect encoding must be a text encoding, such as latin-1, cp1252 or utf-16, not "
                f"{self.encoding!r}"
            )
        object.__setattr__(self, "encoding", name)
        if self.decimal not in DECIMALS:
            raise ValueError(f"csv_dialect decimal must be one of {' '.join(DECIMALS)}, not {self.decimal!r}")
        if self.thousands == self.decimal or self.thousands not in ("", *THOUSANDS):
            raise ValueError(
                "csv_dialect thousands must be a point, a comma, an apostrophe, a space or _, and another than the "
                f"decimal mark, not {self.thousands!r}"
            )
        object.__setattr__(self, "columns", tuple(self.columns))
        broken = {"\r", "\n", "\0"} & {*"".join(self.columns)}
        if broken or not all(self.columns) or len(self.columns) > len({*self.columns}):
            raise ValueError(
                "csv_dialect columns must be names of columns, each of one line and another than the others"
            )

    @property
    def marked(self) -> bool:
        """True if numbers are written with other marks than a decimal point."""
        return self.decimal != "." or bool(self.thousands)

    @property
    def header(self) -> bytes:
        """The header line that the files lack, in UTF-8; empty for files with one."""
        if not self.columns:
            return b""
        line = io.StringIO()
        csv.writer(line, delimiter=self.delimiter, lineterminator="\n").writerow(self.columns)
        return line.getvalue().encode()

    @property
    def mark(self) -> bytes:
        """The delimiter as a byte."""
        return self.delimiter.encode()

    def utf8(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Encodes consecutive parts of a file as UTF-8.

        Bytes that cannot be decoded become bytes that are not valid there.
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
"""Fields between commas, in UTF-8, below a header line."""
