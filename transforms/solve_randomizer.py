"""Stage that solves for the optimal randomizer of a released prior."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

from ..mechanisms.registry import AUTO, mechanism_named
from ..mechanisms.release.conclude import EarlierMechanism, conclude
from ..mechanisms.release.drawing import Drawing
from ..mechanisms.release.prior_release import PriorRelease
from .errors import InputError
from .job_metrics import SOLVE_MILLISECONDS
from .progress_log import LOGGER
from .shown_transform import ShownTransform


@dataclass
class SolveRandomizer(ShownTransform):
    """Solves for the randomizer of each PriorRelease, at the epsilon that the prior left for the labels.

    With a center, the randomizer is for the residuals of a range, which is chosen for it; its labels are that range.

    Takes a PCollection of PriorRelease and returns a PCollection of `Drawing`, which has the `randomizer`. It sees
    released values only, so it spends no budget. The job fails with InputError if the mechanism has no randomizer for
    the prior.

    Attributes:
      mechanism: Name in `MECHANISMS`, or "auto" for the one with the least error of a model (`choose_mechanism`).
      parameters: Parameters of the mechanism, by name; "auto" has none.
      earlier: Mechanisms of earlier releases. The first that belongs to the PriorRelease is returned, so that a
        repeated release has the same bytes even where the solver would give another result.
    """

    mechanism: str = "rr_on_bins"
    parameters: dict[str, Any] = field(default_factory=dict)
    earlier: Sequence[EarlierMechanism] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown mechanism or parameter."""
        if self.mechanism != AUTO:
            mechanism_named(self.mechanism, **self.parameters)
        elif self.parameters:
            raise ValueError(f"mechanism auto has no parameter {next(iter(self.parameters))!r}: it finds them itself")

    def expand(self, releases: PCollection[PriorRelease]) -> PCollection[Drawing]:
        return (
            releases
            | "Solve"
            >> beam.ParDo(_Solve(self.mechanism, self.parameters, tuple(self.earlier))).with_output_types(Drawing)
            # A solver may be slow: with a checkpoint, it runs once for all consumers.
            | "Checkpoint" >> beam.Reshuffle()
        )


class _Solve(beam.DoFn):
    def __init__(self, mechanism: str, parameters: dict[str, Any], earlier: Sequence[EarlierMechanism]):
        self._mechanism = mechanism
        self._parameters = parameters
        self._earlier = earlier

    def process(self, release: PriorRelease) -> Iterator[Drawing]:
        # The lines are the same for an earlier mechanism: the log does not tell whether the input is unchanged.
        LOGGER.info("solving %s", self._mechanism)
        started = time.monotonic()
        try:
            drawing = conclude(release, self._mechanism, self._parameters, self._earlier)
        except ValueError as error:
            raise InputError(f"`mechanism` {self._mechanism}: {error}") from None
        # The number of outputs is not logged: it depends on the noised histogram, which is charged, and may be shown,
        # only once the job has succeeded.
        LOGGER.info("solved %s", self._mechanism)
        SOLVE_MILLISECONDS.update(round(1000 * (time.monotonic() - started)))
        yield drawing
