"""Loops over the bytes of TFRecord files and tf.Examples, compiled from `wire.c`; `_wire.pyi` says what they do.

An installation without a C compiler lacks them: TFRecords are then refused, CSV and Parquet work.

A tf.Example in canonical form hides nothing from a reader:
- Example holds one `features` field and nothing else;
- each map entry holds its key, then its value, and nothing else; no key occurs twice; keys are UTF-8;
- a Feature holds one list or none; a list of numbers holds at most one field, which is packed or has one unpacked
  value; a list of texts holds a field for each text;
- tags and lengths are minimal and add up exactly.

In a canonical record the bytes of the value found are the only ones that any parser can take for the feature, and
parsers see every field. The only freedom left is that an integer among other features may be encoded in more bytes than
it needs. Every other record is reported as not canonical, whether a parser would accept it or not: it could hold a
second entry under the same key, a list that a later one overwrites, or an unknown field, with a label in it that nobody
sees.

Source: tensorflow/core/lib/io/record_writer.h, tensorflow/core/example/example.proto and feature.proto, and the
protocol buffer wire format; RFC 3720, appendix B.4, for the polynomial of checksums; Aumasson and Bernstein 2012,
SipHash, for the hash of names.
"""

from __future__ import annotations

import itertools
import zlib
from typing import NoReturn

import numpy as np

from ..errors import InputError

BYTES, FLOAT, INT64 = 0x0A, 0x12, 0x1A
"""Kinds of a Feature, by the tag of its list."""

FEATURES_TAG = 0x0A
"""Tag of the field of an Example that holds its map entries."""

HEADER_SIZE, FOOTER_SIZE = 12, 4
"""Bytes of a frame before and after its record."""

NOT_COMPILED = (
    "needs the compiled part of labeldp, which this installation lacks: install labeldp again where there is a C "
    "compiler with the headers of Python"
)
"""Predicate of the error about TFRecords in an installation without the compiled part."""


def hash_texts_without_compiler(content: bytes | memoryview, bounds: np.ndarray, hashes: np.ndarray) -> None:
    """Computes the hashes of `_wire.hash_texts`: features of CSV and Parquet files have them as well."""
    view, ends = memoryview(content), bounds.tolist()
    if (
        len(hashes) != max(len(ends) - 1, 0)
        or ends != sorted(ends)
        or (ends and not 0 <= ends[0] <= ends[-1] <= len(view))
    ):
        raise ValueError("the bounds of texts do not ascend within the content")
    hashes[:] = [zlib.crc32(view[start:end]) for start, end in itertools.pairwise(ends)]


def _refuse(*_: object) -> NoReturn:
    raise InputError(f"reading and writing TFRecords {NOT_COMPILED}, or use Parquet or CSV")


COMPILED = True
"""Whether the installation has the compiled part."""
try:
    from ._wire import crc32c as crc32c
    from ._wire import drop_entries as drop_entries
    from ._wire import follow_frames as follow_frames
    from ._wire import frame as frame
    from ._wire import hash_texts as hash_texts
    from ._wire import join_texts as join_texts
    from ._wire import read_varints as read_varints
    from ._wire import shift_checksums as shift_checksums
    from ._wire import skim_frames as skim_frames
    from ._wire import walk_examples as walk_examples
    from ._wire import write_footers as write_footers
except ImportError:
    COMPILED, hash_texts = False, hash_texts_without_compiler
    crc32c = drop_entries = follow_frames = frame = join_texts = read_varints = _refuse
    shift_checksums = skim_frames = walk_examples = write_footers = _refuse
