"""`labeldp solve`: a mechanism from a prior that is public, or was released before. No Beam, no data."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Sequence

from ..mechanisms.losses import LOSSES, loss_named
from ..mechanisms.prior import Prior, check_epsilon
from ..mechanisms.registry import MECHANISMS, mechanism_named
from .usage import BAD_USAGE, FAILURE, SUCCESS, ArgumentParser, UsageError, parse_parameters


def run(argv: Sequence[str] | None = None) -> int:
    """Solves and writes a mechanism file; prints one JSON line of facts. Returns the exit code."""
    parser = ArgumentParser("labeldp solve", "Solve for a mechanism from a public prior and write its file.")
    parser.add_argument("--prior", required=True, metavar="FILE", help="CSV of label,weight, or JSON")
    parser.add_argument("--epsilon", required=True, type=float, metavar="E", help="what the labels may spend")
    parser.add_argument("--delta", type=float, metavar="D", help="for (epsilon, delta)-DP, as gaussian needs")
    parser.add_argument("--mechanism", default="rr_on_bins", metavar="NAME", help=", ".join(MECHANISMS))
    parser.add_argument("--loss", default="squared", choices=list(LOSSES), help="what to minimise; default squared")
    parser.add_argument("--mechanism_parameters", metavar="NAME=VALUE,...", help="the mechanism's own, as in bias=0.2")
    parser.add_argument("--output", required=True, metavar="FILE", help="the mechanism file to write")
    args = parser.parse_args(argv)
    try:
        print(_solve(args))
    except UsageError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return BAD_USAGE
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return FAILURE
    return SUCCESS


def _solve(args: argparse.Namespace) -> str:
    prior_path, epsilon, name, loss, output = args.prior, args.epsilon, args.mechanism, args.loss, args.output
    try:
        mechanism = mechanism_named(name, loss=loss, **parse_parameters(args.mechanism_parameters, args.delta))
    except ValueError as error:
        raise UsageError(f"--mechanism: {error}") from None
    try:
        check_epsilon(epsilon)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    if not os.path.isdir(os.path.dirname(os.path.abspath(output))):
        raise UsageError(f"--output {output} lies in a folder that does not exist: make it first")
    try:
        with open(prior_path, encoding="utf-8") as file:
            prior = Prior.from_text(file.read())
    except OSError as error:
        raise UsageError(f"--prior {prior_path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"--prior {prior_path}: not UTF-8 text") from None
    except ValueError as error:
        raise ValueError(f"--prior {prior_path}: {error}") from None
    try:
        loss_named(loss).check(prior.labels)
    except ValueError as error:
        raise UsageError(f"--loss: {error}") from None
    started = time.perf_counter()
    try:
        randomizer = mechanism.solve(prior, epsilon)
    except ValueError as error:
        raise UsageError(str(error)) from None
    seconds = time.perf_counter() - started
    certificate = randomizer.certificate()
    expected = randomizer.expected_loss(prior, loss_named(loss))
    partial = f"{output}.partial"
    with open(partial, "w", encoding="utf-8") as file:
        file.write(randomizer.to_json(prior={"weights": prior.weights.tolist(), "epsilon": 0.0}) + "\n")
    os.replace(partial, output)
    return json.dumps(
        {
            "mechanism": name,
            "labels": len(randomizer.labels),
            "outputs": len(randomizer.outputs),
            "epsilon": certificate.epsilon,
            **({} if randomizer.pure else {"delta": certificate.delta}),
            # JSON has no infinity: a Poisson loss of outputs that are not positive.
            "loss": expected if math.isfinite(expected) else None,
            "max_bias": certificate.max_bias,
            **({} if randomizer.gap is None else {"gap": randomizer.gap}),
            "seconds": round(seconds, 6),
        }
    )
