"""Release of the label histogram under label DP, together with the keyed digest of the input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from ..mechanisms.center.linear_center import LinearCenter
from ..mechanisms.core.budget import split_budget
from ..mechanisms.release.label_column import LabelColumn
from ..mechanisms.release.label_records import LabelSummary
from ..mechanisms.release.prior_release import PriorRelease, RefusedRelease, release_prior
from .batches import LabelledBatch
from .errors import InputError, redact_errors
from .job_metrics import PASSES
from .label_summary import SummarizeLabels
from .noise_binding import ID_GROUPS, Threshold, after_unique_ids, check_summary
from .noise_key_file import NoiseKeyFile
from .progress_log import LOGGER
from .shown_transform import ShownTransform


@dataclass
class NoisyPrior(ShownTransform):
    """Releases the label distribution under label DP: counts labels, adds noise and estimates the distribution.

    With a center column, it releases the distribution of the residuals, labels minus centers, in cells.

    Takes a PCollection of LabelledBatch (the label and id columns suffice) and returns exactly one PriorRelease. The
    release is a deterministic function of the input and the secret key, so retries and re-runs reproduce it. The job
    fails with InputError for empty input, too many unusable labels, or two records with the same id.

    Source: Ghazi et al. 2022, Algorithm 3, and Theorem 7 for the default of prior_epsilon.

    Attributes:
      column: The private column.
      epsilon: Total budget of prior and labels, and of the linear center if there is one.
      key: Reference to the secret key.
      prior_epsilon: Epsilon of the prior; by default sqrt(k / n) for k labels (with a center, k cells) and n records,
        at most the mechanism's share of epsilon (with a center, from epsilon / 32 to epsilon / 8).
      threshold: Limit on the records without a usable label.
      mechanism: Name of the mechanism that will be solved for the prior; it decides the default of prior_epsilon.
      linear: Exactly one LinearCenter, which has made the center column; None if there is none.
      id_groups: Number of groups of ids, as of `CountUniqueIds`.
    """

    column: LabelColumn
    epsilon: float
    key: NoiseKeyFile
    prior_epsilon: float | None = None
    threshold: Threshold = field(default_factory=Threshold)
    mechanism: str = "rr_on_bins"
    linear: PCollection[LinearCenter] | None = None
    id_groups: int = ID_GROUPS

    def __post_init__(self) -> None:
        """Raises ValueError for an invalid budget."""
        split_budget(self.epsilon, 1, 1, self.prior_epsilon)

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[PriorRelease]:
        summary = batches | "SummarizeLabels" >> SummarizeLabels(self.column, self.key)
        return (
            summary
            | "AddNoise"
            >> beam.ParDo(
                _AddNoise(self.column, self.epsilon, self.key, self.prior_epsilon, self.mechanism, self.threshold),
                None if self.linear is None else AsSingleton(self.linear),
                *after_unique_ids(batches, self.column, self.id_groups),
            ).with_output_types(PriorRelease)
            | "Checkpoint" >> beam.Reshuffle()
        )


@dataclass(eq=False)
class _AddNoise(beam.DoFn):
    _column: LabelColumn
    _epsilon: float
    _key: NoiseKeyFile
    _prior_epsilon: float | None
    _mechanism: str
    _threshold: Threshold

    @redact_errors("noising the prior")
    def process(
        self, summary: LabelSummary, linear: LinearCenter | None, unique_ids: int = 0
    ) -> Iterator[PriorRelease]:
        check_summary(summary, self._column, self._threshold)
        asked = self._epsilon, self._prior_epsilon, self._key.load(), self._mechanism
        try:
            release = release_prior(summary, self._column, *asked, linear)
        except RefusedRelease as error:
            raise InputError(str(error)) from None
        labels, records = f"{len(self._column.domain):,}", f"{summary.records:,}"
        PASSES.inc()
        LOGGER.info("released the prior of %s labels over %s records", labels, records)
        yield release
