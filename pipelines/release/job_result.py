"""Result of a finished job, which its pipeline writes for the main program."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ...mechanisms.core.budget import BudgetSplit
from ...transforms.errors import InputError
from ...transforms.noise_binding import NoiseBinding


@dataclass(frozen=True)
class JobResult:
    """Result of a job; all of it is safe to publish.

    Attributes:
      binding: Digest, domain, budget and counts of the first pass over the input.
      digest_applied: Digest of the labels that the second pass privatized; None for `fit`, which reads once.
      shards: Number of records by shard file name.
    """

    binding: NoiseBinding
    digest_applied: int | None
    shards: dict[str, int]

    def to_json(self) -> str:
        """Writes the result as JSON.

        Returns:
          One line of text.
        """
        return json.dumps(
            {
                "digest": f"{self.binding.digest:064x}",
                "column": self.binding.column,
                "domain": list(self.binding.domain),
                "epsilons": [self.binding.budget.prior, self.binding.budget.labels],
                "records": self.binding.records,
                "unusable": self.binding.unusable,
                "rounding": self.binding.rounding,
                "digest_applied": None if self.digest_applied is None else f"{self.digest_applied:064x}",
                "shards": self.shards,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> JobResult:
        """Reads a result that `to_json` wrote.

        Args:
          text: The JSON text.

        Returns:
          The result.
        """
        result = json.loads(text)
        applied = result["digest_applied"]
        binding = NoiseBinding(
            int(result["digest"], 16),
            result["column"],
            tuple(result["domain"]),
            BudgetSplit(*result["epsilons"]),
            result["records"],
            result["unusable"],
            result["rounding"],
        )
        return cls(binding, None if applied is None else int(applied, 16), result["shards"])

    def check_same_input(self) -> None:
        """Checks that both passes saw the same input.

        Raises:
          InputError: If the input changed between the passes.
        """
        if self.digest_applied is not None and self.digest_applied != self.binding.digest:
            raise InputError(
                "the input changed while the job ran; nothing is released. Run again when the files are complete"
            )
