"""Stage that solves for the optimal randomizer of a released prior."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection

from ..mechanisms.core.prior import Prior
from ..mechanisms.core.randomizer import Randomizer
from ..mechanisms.registry import Mechanism, mechanism_named
from .errors import InputError
from .noisy_prior import PriorRelease
from .progress_log import LOGGER


@dataclass
class SolveRandomizer(beam.PTransform):
    """Solves for the randomizer of each PriorRelease, at the epsilon that the prior left for the labels.

    Takes a PCollection of PriorRelease and returns a PCollection of Randomizer. It sees released values only, so it
    spends no budget. The job fails with InputError if the mechanism has no randomizer for the prior.

    Attributes:
      mechanism: Name in `MECHANISMS`.
      parameters: Parameters of the mechanism, by name.
    """

    mechanism: str = "rr_on_bins"
    parameters: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown mechanism or parameter."""
        super().__init__()
        mechanism_named(self.mechanism, **self.parameters)

    def expand(self, releases: PCollection[PriorRelease]) -> PCollection[Randomizer]:
        return (
            releases
            | "Solve" >> beam.ParDo(_Solve(self.mechanism, self.parameters)).with_output_types(Randomizer)
            # A solver may be slow: with a checkpoint, it runs once for all consumers.
            | "Checkpoint" >> beam.Reshuffle()
        )


class _Solve(beam.DoFn):
    def __init__(self, mechanism: str, parameters: dict[str, Any]):
        self._mechanism = mechanism
        self._parameters = parameters

    def process(self, release: PriorRelease) -> Iterator[Randomizer]:
        mechanism = mechanism_named(self._mechanism, **self._parameters)
        LOGGER.info("solving %s", self._mechanism)
        try:
            randomizer = mechanism.solve(release.prior, release.budget.labels)
        except ValueError:
            raise InputError(f"--mechanism {self._mechanism}: {_public_reason(mechanism, release)}") from None
        # The number of outputs is not logged: it depends on the noised histogram, which is charged, and may be shown,
        # only once the job has succeeded.
        LOGGER.info("solved %s", self._mechanism)
        yield randomizer


def _public_reason(mechanism: Mechanism, release: PriorRelease) -> str:
    """Reason why there is no randomizer: the solver's message for a uniform prior, which is public.

    Its message for the noised histogram is not shown: a job that fails is not charged for the histogram.
    """
    flat = Prior(np.array(release.domain), np.ones(len(release.domain)))
    try:
        mechanism.solve(flat, release.budget.labels)
    except ValueError as error:
        return str(error)
    return (
        "there is no randomizer for the noised histogram of these labels, though there is one for a flat prior: "
        "choose another epsilon, mechanism or label step"
    )
