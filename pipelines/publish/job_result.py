"""Result of a finished job, which its pipeline writes for the main program."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass, field

from ...mechanisms.core.budget import BudgetSplit
from ...mechanisms.core.label_classes import LabelClasses
from ...mechanisms.core.label_grid import DeclaredGrid
from ...mechanisms.release.bound_noise import NoiseBinding
from ...mechanisms.release.label_column import LabelMeaning
from ...mechanisms.release.unit_bound import SINGLE, UnitBound, UnitCounts
from ...transforms.errors import OTHER_MECHANISM, InputError


class NeverReleased(InputError):
    """The job of a run has ended, or failed, so that nothing of it can ever be released."""


@dataclass(frozen=True)
class JobResult:
    """Result of a job; all of it is safe to publish.

    Attributes:
      binding: Digest, domain, budget and counts of the first pass over the input.
      digest_applied: Digest of the labels that the second pass privatized; None for `fit`, which reads once.
      shards: Number of records by shard name, its path in the folder of all shards.
      mechanisms_applied: Fingerprints of the randomizers that drew the labels in the shards, in hexadecimal digits.
      units: Counts of units and of the records that were left out; None without units.
      dead_letters: Number of records without a usable label by name of the file that lists them.
    """

    binding: NoiseBinding
    digest_applied: int | None
    shards: dict[str, int]
    mechanisms_applied: frozenset[str | None] = frozenset()
    units: UnitCounts | None = None
    dead_letters: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> str:
        """Writes the result as one line of JSON."""
        unit, counts, meaning = self.binding.unit, self.units, self.binding.meaning
        return json.dumps(
            {
                "digest": f"{self.binding.digest:064x}",
                "column": self.binding.column,
                "domain": list(self.binding.domain),
                "epsilons": [self.binding.budget.prior, self.binding.budget.labels],
                "records": self.binding.records,
                "unusable": self.binding.unusable,
                "rounding": self.binding.rounding,
                "center": self.binding.center,
                "missing_centers": self.binding.missing_centers,
                "unit": unit.request,
                "declared": None if meaning.declared is None else astuple(meaning.declared),
                "classes": None if meaning.classes is None else astuple(meaning.classes),
                "missing": meaning.missing,
                "reading": meaning.reading,
                "units": None if counts is None else [counts.units, counts.left_out, counts.without_unit],
                "digest_applied": None if self.digest_applied is None else f"{self.digest_applied:064x}",
                "shards": self.shards,
                "mechanisms_applied": list(self.mechanisms_applied),
                "dead_letters": self.dead_letters,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> JobResult:
        """Reads a result that `to_json` wrote."""
        result = json.loads(text)
        applied = result["digest_applied"]
        meaning = LabelMeaning(
            None if result["classes"] is None else LabelClasses(tuple(result["classes"][0]), result["classes"][1]),
            None if result["declared"] is None else DeclaredGrid(*result["declared"]),
            result["missing"],
            tuple((name, value) for name, value in result["reading"]),
        )
        binding = NoiseBinding(
            int(result["digest"], 16),
            result["column"],
            tuple(result["domain"]),
            BudgetSplit(*result["epsilons"]),
            result["records"],
            result["unusable"],
            result["rounding"],
            result["center"],
            result["missing_centers"],
            SINGLE if result["unit"] is None else UnitBound(*result["unit"]),
            meaning=meaning,
        )
        counts = None if result["units"] is None else UnitCounts(*result["units"])
        mechanisms = frozenset(result["mechanisms_applied"])
        return cls(
            binding,
            None if applied is None else int(applied, 16),
            result["shards"],
            mechanisms,
            counts,
            result["dead_letters"],
        )

    def check_same_input(self) -> None:
        """Checks that both passes saw the same input. Raises InputError if it changed between them."""
        if self.digest_applied is not None and self.digest_applied != self.binding.digest:
            raise NeverReleased(
                "the input changed while the job ran; nothing is released. Run again when the files are complete"
            )

    def check_same_mechanism(self, fingerprint: str) -> None:
        """Checks that all labels in the shards were drawn by the mechanism that is to be published.

        The fingerprint is that of the published mechanism, in hexadecimal digits. Raises InputError if a label was
        drawn by another one.
        """
        # A job without shards, fit, has drawn no label. Any other job has at least one record.
        if self.digest_applied is not None and self.mechanisms_applied != {fingerprint}:
            raise NeverReleased(OTHER_MECHANISM)
