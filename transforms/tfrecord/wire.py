"""The loops over bytes that `wire_reference` describes, compiled from `wire.c` where the installation could build them.

The two give the same results. Without a C compiler at installation, TFRecords are read by the functions in Python; the
job then warns once.
"""

from __future__ import annotations

import functools
import logging

from . import wire_reference
from .wire_reference import BYTES as BYTES
from .wire_reference import FEATURES_TAG as FEATURES_TAG
from .wire_reference import FLOAT as FLOAT
from .wire_reference import FOOTER_SIZE as FOOTER_SIZE
from .wire_reference import HEADER_SIZE as HEADER_SIZE
from .wire_reference import INT64 as INT64

try:
    from . import _wire as _functions  # pyrefly: ignore[missing-module-attribute]
except ImportError:
    _functions = wire_reference

COMPILED: bool = _functions is not wire_reference
"""Whether the functions are compiled."""

crc32c = _functions.crc32c
drop_entries = _functions.drop_entries
follow_frames = _functions.follow_frames
frame = _functions.frame
hash_texts = _functions.hash_texts
join_texts = _functions.join_texts
read_varints = _functions.read_varints
skim_frames = _functions.skim_frames
shift_checksums = _functions.shift_checksums
write_footers = _functions.write_footers
walk_examples = _functions.walk_examples


@functools.cache
def warn_if_slow() -> None:
    """Logs, once in a process, that the functions are not compiled, if so."""
    if not COMPILED:
        logging.getLogger(__name__).warning(
            "labeldp was installed without its compiled part, so TFRecords are read a hundred times as slowly: install "
            "it again where there is a C compiler, or build a wheel there"
        )
