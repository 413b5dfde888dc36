"""Limits of a release: caps on the ledger's sums, and the tolerated fraction of records without a usable label.

Functions take the fields of a request and raise FieldError if one of them is out of range. Loads no Beam.
"""

from __future__ import annotations

import math

from ..errors import FieldError, field_errors
from ..ledger.spent_budget import Caps, Window
from .fields import Fields


def read_caps(fields: Fields) -> Caps:
    """Reads the caps on what the ledger adds up to; a window needs one."""
    epsilon, delta = fields.epsilon_cap, fields.delta_cap
    if epsilon is not None and not 0 < epsilon < math.inf:
        raise FieldError("{epsilon_cap} must be above 0 and finite, not {value:g}", value=epsilon)
    if delta is not None and not 0 <= delta < 1:
        raise FieldError("{delta_cap} must be at least 0 and below 1, not {value:g}", value=delta)
    window = None
    if fields.cap_window is not None:
        if epsilon is None and delta is None:
            raise FieldError("{cap_window} is the time in which a cap holds: give {epsilon_cap} or {delta_cap}")
        with field_errors("{cap_window} {problem}"):
            window = Window.parse(fields.cap_window)
    # A user who caps epsilon alone expects pure DP.
    return Caps(epsilon, 0.0 if delta is None and epsilon is not None else delta, window)


def read_unusable_fraction(fields: Fields) -> float:
    """Reads the tolerated fraction of records without a usable label, from 0 to 1."""
    fraction = fields.max_unusable_fraction
    if not 0 <= fraction <= 1:
        raise FieldError("{max_unusable_fraction} must be between 0 and 1, not {value:g}", value=fraction)
    return fraction
