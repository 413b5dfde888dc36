"""Summary of a release on standard output."""

from __future__ import annotations

import numpy as np

from ...mechanisms.core.losses import loss_named
from ...mechanisms.core.randomizer import Randomizer
from ..release.job_result import JobResult
from ..release.mechanism_file import MechanismFile
from .job_request import ValidationRequest

_OUTPUTS_SHOWN = 6


def announce(
    target: str, result: JobResult, mechanism: MechanismFile, loss_name: str, validation: ValidationRequest | None
) -> None:
    """Prints what was released, in at most seven lines.

    Args:
      target: Output folder or mechanism file.
      result: Result of the job.
      mechanism: The released mechanism.
      loss_name: Name of the loss whose expectation is shown.
      validation: Validation that was requested; None for none.
    """
    binding, randomizer = result.binding, mechanism.randomizer
    budget, certificate, loss = binding.budget, randomizer.certificate(), loss_named(loss_name)
    shards = f" in {counted(len(result.shards), 'shard')}" if result.shards else ""
    delta = "" if randomizer.pure else f" with delta {certificate.delta!r}"
    under = "the noised histogram" if mechanism.prior_epsilon else "the public prior"
    print(f"released   {target}")
    print(f"records    {binding.records:,}{shards}; {binding.unusable:,} without a usable label left out")
    print(f"budget     epsilon {budget.prior:.6g} for the histogram + {budget.labels:.6g} for the labels")
    print(f"mechanism  {randomizer.mechanism}: {counted(len(randomizer.labels), 'label')} to {_outputs(randomizer)}")
    print(f"certified  epsilon {certificate.epsilon!r}{delta} for the labels, largest bias {certificate.max_bias:.6g}")
    print(f"expected   {loss.name} loss {randomizer.expected_loss(mechanism.prior, loss):.6g}, under {under}")
    if validation is not None:
        print(f"validated  against {'an inferred' if validation.schema is None else 'the given'} schema: no anomalies")


def counted(number: int, noun: str) -> str:
    """Formats a count with its noun, such as "1 shard" or "2 shards".

    Args:
      number: The count.
      noun: The noun in the singular; its plural ends in s.

    Returns:
      The text.
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _outputs(randomizer: Randomizer) -> str:
    """Lists the likeliest output of each label if there are few outputs; otherwise only counts the outputs."""
    count = counted(len(randomizer.outputs), "output")
    if len(randomizer.outputs) > _OUTPUTS_SHOWN:
        return count
    likeliest = randomizer.weights.argmax(axis=1)
    groups = []
    for output in np.unique(likeliest):
        labels = randomizer.labels[likeliest == output]
        groups.append(f"{labels[0]:g}..{labels[-1]:g} -> {randomizer.outputs[output]:.4g}")
    return f"{count}: {', '.join(groups)}"
