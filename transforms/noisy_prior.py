"""From raw labels to what may be released of them: the noised histogram and the keyed digest of the input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import apache_beam as beam
from apache_beam.pvalue import PCollection

from ..mechanisms.core.budget import check_epsilon, split_budget
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
    """The released prior and all that it is bound to. epsilons: (e1, e2), e1 spent on it, e2 left for the labels."""

    prior: Prior = field(kw_only=True)


@dataclass
class NoisyPrior(beam.PTransform):
    """The label distribution, released under label DP: counted, noised, clipped, normalised.

    Takes a PCollection of LabelledBatch (the label and id columns are enough); gives exactly one PriorRelease. The
    same input under the same key gives the same release, however often it is computed.

    column: the private column. epsilon: the whole budget. key: the secret. prior_epsilon: e1, by default
    sqrt(k / n) and at most epsilon / 2. threshold: how many records may lack a label.
    The job fails with InputError for empty input, too many unusable labels, or two records with one id.
    """

    column: LabelColumn
    epsilon: float
    key: NoiseKeyFile
    prior_epsilon: float | None = None
    threshold: Threshold = field(default_factory=Threshold)

    def __post_init__(self) -> None:
        """Raises ValueError for a bad budget."""
        super().__init__()
        check_epsilon(self.epsilon)
        if self.prior_epsilon is not None:
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
            | "Keep" >> beam.Reshuffle()
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
        epsilons = split_budget(self._epsilon, len(domain), summary.records, self._prior_epsilon)
        secret = self._key.load()
        binding = make_binding(summary, self._column, epsilons, secret)
        prior = noisy_prior(self._column.labels, summary.counts, epsilons[0], binding.noise_key(secret))
        LOGGER.info("released the prior of %s labels over %s records", f"{len(domain):,}", f"{summary.records:,}")
        yield PriorRelease(**vars(binding), prior=prior)
