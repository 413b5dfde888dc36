"""The singleton stage that turns a released prior into the best randomizer."""

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
    """Takes a PCollection of PriorRelease; gives the randomizer for each, at the epsilon that the prior left.

    Pure: it sees released facts only. mechanism: a name of `MECHANISMS`. parameters: the mechanism's own.
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
            # A solver may be slow: whoever uses the randomizer, it is solved once.
            | "Keep" >> beam.Reshuffle()
        )


class _Solve(beam.DoFn):
    def __init__(self, mechanism: str, parameters: dict[str, Any]):
        self._mechanism = mechanism
        self._parameters = parameters

    def process(self, release: PriorRelease) -> Iterator[Randomizer]:
        mechanism = mechanism_named(self._mechanism, **self._parameters)
        LOGGER.info("solving %s", self._mechanism)
        try:
            randomizer = mechanism.solve(release.prior, release.epsilons[1])
        except ValueError:
            raise InputError(f"--mechanism {self._mechanism}: {_refusal(mechanism, release)}") from None
        # Not how many outputs: the noised histogram is charged for when the job has succeeded, and shown then.
        LOGGER.info("solved %s", self._mechanism)
        yield randomizer


def _refusal(mechanism: Mechanism, release: PriorRelease) -> str:
    """Why there is no randomizer: what the solver says of a flat prior, which is public. What it says of the noised
    histogram, which nobody is charged for when the job fails, stays unsaid."""
    flat = Prior(np.array(release.domain), np.ones(len(release.domain)))
    try:
        mechanism.solve(flat, release.epsilons[1])
    except ValueError as error:
        return str(error)
    return (
        "there is no randomizer for the noised histogram of these labels, though there is one for a flat prior: "
        "choose another epsilon, mechanism or label step"
    )
