"""Release of the label histogram under label DP, together with the keyed digest of the input."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from ..mechanisms.center.linear_center import LinearCenter
from ..mechanisms.core.budget import LEAST_RESIDUAL_SHARE, RESIDUAL_SHARE, remaining_epsilon, split_budget
from ..mechanisms.core.prior import Prior
from ..mechanisms.noise.noisy_histogram import estimated_prior, noisy_counts
from ..mechanisms.registry import prior_share
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
      prior: The noised label distribution; with a center, that of the residuals, over all of their grid.
      counts: The noised counts of the labels, or with a center, of the cells of residuals. The prior follows from them.
      linear: The linear center, which has spent its `design.epsilon`; None for any other center, or none.
    """

    prior: Prior = field(kw_only=True)
    counts: tuple[int, ...] = field(kw_only=True, default=())
    linear: LinearCenter | None = field(kw_only=True, default=None)


@dataclass
class NoisyPrior(beam.PTransform):
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
    """

    column: LabelColumn
    epsilon: float
    key: NoiseKeyFile
    prior_epsilon: float | None = None
    threshold: Threshold = field(default_factory=Threshold)
    mechanism: str = "rr_on_bins"
    linear: PCollection[LinearCenter] | None = None

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
                _AddNoise(self.column, self.epsilon, self.key, self.prior_epsilon, self.mechanism, self.threshold),
                None if self.linear is None else AsSingleton(self.linear),
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
        mechanism: str,
        threshold: Threshold,
    ):
        self._column = column
        self._epsilon = epsilon
        self._key = key
        self._prior_epsilon = prior_epsilon
        self._mechanism = mechanism
        self._threshold = threshold

    @redact_errors("noising the prior")
    def process(
        self, summary: LabelSummary, linear: LinearCenter | None, unique_ids: int = 0
    ) -> Iterator[PriorRelease]:
        self._threshold.check(summary.records, summary.unusable, self._column.name, summary.several)
        remaining = remaining_epsilon(self._epsilon, 0.0 if linear is None else linear.epsilon)
        secret = self._key.load()
        release = release_prior(summary, self._column, remaining, self._prior_epsilon, secret, self._mechanism)
        labels, records = f"{len(self._column.domain):,}", f"{summary.records:,}"
        LOGGER.info("released the prior of %s labels over %s records", labels, records)
        yield dataclasses.replace(release, linear=linear)


def release_prior(
    summary: LabelSummary,
    column: LabelColumn,
    epsilon: float,
    prior_epsilon: float | None,
    secret: bytes,
    mechanism: str,
) -> PriorRelease:
    """Releases the label distribution, or that of the residuals, under label DP.

    Args:
      summary: Raw summary of the whole input.
      column: The private column.
      epsilon: Total budget of prior and labels.
      prior_epsilon: Epsilon of the prior; None for the default of `NoisyPrior`.
      secret: Secret key, 32 bytes.
      mechanism: Name of the mechanism that will be solved for the prior; it decides the default of `prior_epsilon`.

    Returns:
      The prior and the binding of its noise.

    Raises:
      ValueError: If there are no records, or a budget is out of range.
      InputError: If no record has a center, though there is a center column.
    """
    shares = {"most": prior_share(mechanism)}
    if column.center is not None:
        shares = {"most": RESIDUAL_SHARE, "least": LEAST_RESIDUAL_SHARE}
    budget = split_budget(epsilon, column.cells, summary.records, prior_epsilon, **shares)
    binding = make_binding(summary, column, budget, secret)
    counts = noisy_counts(summary.counts, budget.prior, binding.noise_key(secret))
    if column.center is None:
        prior = estimated_prior(column.labels, counts, summary.records, budget.prior)
    else:
        prior = column.residuals.prior(counts, budget.prior)
    return PriorRelease(**vars(binding), prior=prior, counts=tuple(counts.tolist()))
