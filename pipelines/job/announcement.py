"""What a finished job prints on standard output."""

from __future__ import annotations

import numpy as np

from ...mechanisms.core.losses import LOSSES
from ...mechanisms.core.randomizer import Randomizer
from ..release.job_result import JobResult
from ..release.mechanism_file import MechanismFile
from .job_request import Plan

_OUTPUTS_SHOWN = 6


def announce(plan: Plan, facts: JobResult, mechanism: MechanismFile) -> None:
    """Says on standard output what was released, in a few lines."""
    binding, randomizer = facts.binding, mechanism.randomizer
    certificate = randomizer.certificate()
    loss = LOSSES[plan.loss]
    shards = f" in {len(facts.shards)} shards" if facts.shards else ""
    print(f"released   {plan.output or plan.mechanism_file}")
    print(f"records    {binding.records:,}{shards}; {binding.unusable:,} without a usable label left out")
    print(f"budget     epsilon {binding.epsilons[0]:.6g} for the histogram + {binding.epsilons[1]:.6g} for the labels")
    print(f"mechanism  {randomizer.mechanism}: {len(randomizer.labels)} labels to {_outputs(randomizer)}")
    delta = "" if randomizer.pure else f" with delta {certificate.delta!r}"
    print(f"certified  epsilon {certificate.epsilon!r}{delta} for the labels, largest bias {certificate.max_bias:.6g}")
    under = "the noised histogram" if mechanism.prior_epsilon else "the public prior"
    print(f"expected   {loss.name} loss {randomizer.expected_loss(mechanism.prior, loss):.6g}, under {under}")
    if plan.validate:
        print(f"validated  against {'an inferred' if plan.schema is None else 'the given'} schema: no anomalies")


def _outputs(randomizer: Randomizer) -> str:
    """Which labels mostly become which output, or, for many outputs, how many there are."""
    if len(randomizer.outputs) > _OUTPUTS_SHOWN:
        return f"{len(randomizer.outputs)} outputs"
    likeliest = randomizer.weights.argmax(axis=1)
    groups = []
    for output in np.unique(likeliest):
        labels = randomizer.labels[likeliest == output]
        groups.append(f"{labels[0]:g}..{labels[-1]:g} -> {randomizer.outputs[output]:.4g}")
    return f"{len(randomizer.outputs)} outputs: {', '.join(groups)}"
