"""Binding of all noise of a release to its input and to its request; for streaming (unbounded) input, to a name.

The secret key has 32 bytes, and so have the noise keys that are derived from it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from ..core.budget import BudgetSplit
from ..core.label_grid import NEAREST
from ..noise.input_digest import input_digest
from ..noise.keyed_words import derive_noise_key, keyed_hash
from .label_column import HasMeaning, LabelColumn
from .label_records import PassSums
from .unit_bound import SINGLE, PrivacyUnit

_OF_COLUMN = ("rounding", "center", "unit", "meaning")
"""Attributes of a label column that a binding has under the same names."""


@dataclass(frozen=True)
class NoiseBinding(HasMeaning):
    """Everything except the secret key that the noise of one release is bound to. Safe to show.

    The record counts are informative; they do not enter the noise key.

    Attributes:
      digest: Keyed digest of the input for this request, in [0, 2^256).
      column: Name of the label column.
      domain: The k labels of the public domain, ascending.
      budget: Epsilon of the prior and of the randomizer.
      records: Number of records with a usable label.
      unusable: Number of records without one.
      rounding: Rounding of labels to the domain, "nearest" or "randomized".
      center: Name of the center column; None for labels without a center.
      missing_centers: Number of records with a usable label, but with a missing or infinite center.
      unit: Privacy unit. The budget is that of one record.
      meaning: Relation of values to the labels of the domain. Its declared grid does not enter the noise key.
    """

    digest: int
    column: str
    domain: tuple[float, ...]
    budget: BudgetSplit
    records: int
    unusable: int
    rounding: str = NEAREST
    center: str | None = None
    missing_centers: int = 0
    unit: PrivacyUnit = SINGLE

    @property
    def around_center(self) -> bool:
        """True for labels around a center; classes have one that they may be drawn from."""
        return self.center is not None and self.classes is None

    def noise_key(self, secret: bytes) -> bytes:
        """Derives the noise key of this release.

        Args:
          secret: Secret key, 32 bytes.

        Returns:
          32 bytes.
        """
        return derive_noise_key(secret, self.digest, self._bound_column.request, self.budget)

    @property
    def release_name(self) -> str:
        """Name of the release of a prior with this noise, by everything that it is bound to but the secret key.

        It has 32 hexadecimal digits; the same input under the same key gives the same name.
        """
        spent = [self.budget.prior, self.budget.labels]
        noise: list[object] = [f"{self.digest:064x}", self.column, list(self.domain), spent, self.rounding]
        noise += [] if self.center is None else [self.center]
        noise += [{"unit": self.unit.request}] if self.unit.request else []
        noise += [] if self.classes is None else [{"classes": self.classes.request}]
        return hashlib.blake2b(json.dumps(noise).encode(), digest_size=16, person=b"labeldp ledger").hexdigest()

    @property
    def _bound_column(self) -> LabelColumn:
        """The private column, without what noise is not bound to."""
        return LabelColumn(self.column, self.domain, **{name: getattr(self, name) for name in _OF_COLUMN})


def make_binding(sums: PassSums, column: LabelColumn, budget: BudgetSplit, secret: bytes) -> NoiseBinding:
    """Binds the noise of a release to the raw sums of a pass over its whole input.

    The result is the part of them that is safe to show: digest and record counts.
    """
    return NoiseBinding(
        digest=input_digest(secret, sums.digest, column.request, budget),
        column=column.name,
        domain=column.domain,
        budget=budget,
        records=sums.records,
        unusable=sums.unusable,
        missing_centers=sums.missing_centers,
        **{name: getattr(column, name) for name in _OF_COLUMN},
    )


@dataclass(frozen=True)
class StreamBinding:
    """Binding of the noise of an unbounded input: everything but the secret key. Safe to show.

    An unbounded input never has a final digest, so each random word is bound to its record alone: to the record's id
    and its label. A record that is delivered twice, or recomputed for a retry, gets the same output, so its noise
    cannot be averaged away. A record whose label changed gets independent noise: each of the two outputs satisfies
    epsilon-label DP on its own, but an observer who sees two different outputs for one id learns that its label
    changed. One id must therefore stand for one event with one label. A corrected event needs a new id, and costs its
    epsilon again. With a center column, words are bound to the record's center as well: one id must stand for one label
    and one center.

    Attributes:
      release: Name of the stream, chosen by the user. The same records under another name get independent noise and
        are charged again.
    """

    release: str

    def noise_key(self, secret: bytes, column: LabelColumn) -> bytes:
        """Derives the noise key of this stream.

        Args:
          secret: Secret key, 32 bytes.
          column: The private column.

        Returns:
          32 bytes.
        """
        request = column.request
        bound_to: list[Any] = [self.release, *request.needed.values()]
        for name, value in request.given.items():
            bound_to.append([name, *(value if isinstance(value, list) else [value])])
        return keyed_hash(secret, b"labeldp endless", json.dumps(bound_to).encode())
