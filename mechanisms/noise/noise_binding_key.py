"""Derivation of the key of all noise of one release, bound to the data and to the request."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from .keyed_words import keyed_hash


def derive_noise_key(
    secret: bytes, digest: int, column: str, labels: np.ndarray, epsilons: Sequence[float], rounding: str
) -> bytes:
    """The key of all noise of one release, bound to the data and to what is asked of it.

    secret: 32 bytes. digest: the `input_digest`. column: the label column's name, so that two columns
    of the same values get independent noise. labels: (k,) the declared label domain. epsilons: what the prior and
    the randomizer may spend. rounding: how labels were brought to the domain.
    Returns 32 bytes: the same for the same input and request, independent for any other.
    """
    bound_to = {
        "digest": f"{digest:064x}",
        "column": column,
        "labels": [float(label).hex() for label in labels],
        "epsilons": [float(epsilon).hex() for epsilon in epsilons],
        "rounding": rounding,
    }
    return keyed_hash(secret, b"labeldp noise", json.dumps(bound_to, sort_keys=True).encode())
