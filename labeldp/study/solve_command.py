"""`labeldp solve`: solves for a mechanism from a prior and writes its file."""

from __future__ import annotations

import argparse
import json
import math
import os
import time

from labeldp import UsageError, loss_named, mechanism_named

from ..mechanisms.registry import default_rounding
from ..pipelines.spec.machine import check_file
from ..pipelines.spec.mechanism_spec import mechanism_parameters
from ..pipelines.spec.written_files import NEW, write_file
from .study_commands import check_budget, load_prior


def run(args: argparse.Namespace) -> None:
    """Solves, writes the mechanism file and prints one JSON line of facts. Raises UsageError and InputError."""
    epsilon, loss, output = args.epsilon, args.loss, args.output
    name = args.mechanism.partition(":")[0]
    try:
        mechanism = mechanism_named(name, loss=loss, **mechanism_parameters(args.mechanism, args.delta))
    except ValueError as error:
        raise UsageError(f"--mechanism: {error}") from None
    check_budget(epsilon)
    check_file("--output", output)
    if os.path.lexists(output):
        raise UsageError(f"--output {output} exists: name another file, or delete it")
    source = load_prior(args)
    if source.residuals is not None:
        # Without its center, a mechanism for these residuals would be applied to labels.
        raise UsageError(
            f"--prior {args.prior}: its prior is that of residuals around a center, clipped to the range of its "
            "mechanism, not one of labels: name another file, or use labeldp fit for another mechanism"
        )
    prior = source.prior
    started = time.perf_counter()
    try:
        randomizer = mechanism.solve(prior, epsilon)
    except ValueError as error:
        raise UsageError(str(error)) from None
    seconds = time.perf_counter() - started
    certificate = randomizer.certificate()
    expected = randomizer.expected_loss(prior, loss_named(loss))
    # The epsilon of a released prior stays spent: releases with this mechanism are charged for it as well.
    release = {} if source.release is None else {"release": source.release, "label": source.label}
    counts = {} if source.noised is None else source.noised.to_document()
    missing = {} if source.missing_label is None else {"missing_label": source.missing_label}
    released = {"weights": prior.weights.tolist(), "epsilon": source.prior_epsilon, **release, **missing, **counts}
    write_file(output, randomizer.to_json(prior=released, rounding=default_rounding(name)) + "\n", NEW, "--output")
    facts = {
        "mechanism": name,
        "labels": len(randomizer.labels),
        "outputs": len(randomizer.outputs),
        "epsilon": certificate.epsilon,
        "prior_epsilon": source.prior_epsilon,
        **({} if randomizer.pure else {"delta": certificate.delta}),
        # JSON has no infinity, which is the Poisson loss of an output <= 0.
        "loss": expected if math.isfinite(expected) else None,
        "max_bias": certificate.max_bias,
        **({} if randomizer.gap is None else {"gap": randomizer.gap}),
        "seconds": round(seconds, 6),
    }
    print(json.dumps(facts))
