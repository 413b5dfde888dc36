"""Release of the label histogram under label DP, together with the keyed digest of the input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import apache_beam as beam
from apache_beam.pvalue import PCollection

from ..mechanisms.core.budget import split_budget
from ..mechanisms.core.prior import Prior
from ..mechanisms.noise.noisy_histogram import noisy_prior
from .batches import LabelledBatch
from .errors import redact_errors
from .label_column import LabelColumn
from .label_summary import LabelSummary, SummarizeLabels
from .noise_binding import NoiseBinding, Threshold, after_unique_ids, make_binding
from .noise_key_file import NoiseKeyFile
from .progress_log import LOGGER


@dataclass(frozen=True, eq=False)
class PriorRelease(NoiseBinding):
    """Released prior with the binding of its noise. The prior has spent `budget.prior`; `budget.labels` remains.

    Attributes:
      prior: The noised label distribution.
    """

    prior: Prior = field(kw_only=True)


@dataclass
class NoisyPrior(beam.PTransform):
    """Releases the label distribution under label DP: counts labels, adds noise, clips at zero and normalizes.

    Takes a PCollection of LabelledBatch (the label and id columns suffice) and returns exactly one PriorRelease. The
    release is a deterministic function of the input and the secret key, so retries and re-runs reproduce it. The job
    fails with InputError for empty input, too many unusable labels, or two records with the same id.

    Source: Ghazi et al. 2022, Algorithm 3, and Theorem 7 for the default of prior_epsilon.

    Attributes:
      column: The private column.
      epsilon: Total budget of prior and labels.
      key: Reference to the secret key.
      prior_epsilon: Epsilon of the prior; by default sqrt(k / n) for k labels and n records, at most epsilon / 2.
      threshold: Limit on the records without a usable label.
    """

    column: LabelColumn
    epsilon: float
    key: NoiseKeyFile
    prior_epsilon: float | None = None
    threshold: Threshold = field(default_factory=Threshold)

    def __post_init__(self) -> None:
        """Raises ValueError for an invalid budget."""
        super().__init__()
        split_budget(self.epsilon, 1, 1, self.prior_epsilon)

    def expand(self, batches: PCollection[LabelledBatch]) -> PCollection[PriorRelease]:
        summary = batches | "SummarizeLabels" >> SummarizeLabels(self.column, self.key)
        return (
            summary
            | "AddNoise"
            >> beam.ParDo(
                _AddNoise(self.column, self.epsilon, self.key, self.prior_epsilon, self.threshold),
                *after_unique_ids(batches, self.column),
            ).with_output_types(PriorRelease)
            | "Checkpoint" >> beam.Reshuffle()
        )


class _AddNoise(beam.DoFn):
    def __init__(
        self,
        column: LabelColumn,
        epsilon: float,
        key: NoiseKeyFile,
        prior_epsilon: float | None,
        threshold: Threshold,
    ):
        self._column = column
        self._epsilon = epsilon
        self._key = key
        self._prior_epsilon = prior_epsilon
        self._threshold = threshold

    @redact_errors("noising the prior")
    def process(self, summary: LabelSummary, unique_ids: int = 0) -> Iterator[PriorRelease]:
        self._threshold.check(summary.records, summary.unusable, self._column.name)
        domain = self._column.domain
        budget = split_budget(self._epsilon, len(domain), summary.records, self._prior_epsilon)
        secret = self._key.load()
        binding = make_binding(summary, self._column, budget, secret)
        prior = noisy_prior(self._column.labels, summary.counts, budget.prior, binding.noise_key(secret))
        LOGGER.info("released the prior of %s labels over %s records", f"{len(domain):,}", f"{summary.records:,}")
        yield PriorRelease(**vars(binding), prior=prior)
