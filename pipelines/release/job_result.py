"""Result of a finished job, as its pipeline writes it for the main program."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ...transforms.errors import InputError
from ...transforms.noise_binding import NoiseBinding


@dataclass(frozen=True)
class JobResult:
    """What a finished job says of itself, all of it safe to publish.

    binding: digest, domain, epsilons and counts. digest_applied: of the labels that were privatized, None for fit.
    shards: records per shard file name.
    """

    binding: NoiseBinding
    digest_applied: int | None
    shards: dict[str, int]

    def to_json(self) -> str:
        """As text."""
        return json.dumps(
            {
                "digest": f"{self.binding.digest:064x}",
                "column": self.binding.column,
                "domain": list(self.binding.domain),
                "epsilons": list(self.binding.epsilons),
                "records": self.binding.records,
                "unusable": self.binding.unusable,
                "rounding": self.binding.rounding,
                "digest_applied": None if self.digest_applied is None else f"{self.digest_applied:064x}",
                "shards": self.shards,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> JobResult:
        """The facts of `to_json`."""
        facts = json.loads(text)
        applied = facts["digest_applied"]
        binding = NoiseBinding(
            int(facts["digest"], 16),
            facts["column"],
            tuple(facts["domain"]),
            (facts["epsilons"][0], facts["epsilons"][1]),
            facts["records"],
            facts["unusable"],
            facts["rounding"],
        )
        return cls(binding, None if applied is None else int(applied, 16), facts["shards"])

    def check_same_input(self) -> None:
        """Raises InputError when the input changed between the two passes over it."""
        if self.digest_applied is not None and self.digest_applied != self.binding.digest:
            raise InputError(
                "the input changed while the job ran: nothing is released; run again when the files are complete"
            )
