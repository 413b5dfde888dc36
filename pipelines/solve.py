"""`labeldp solve`: a mechanism from a prior that is public, or was released before. No Beam, no data."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence

from ..mechanisms.losses import LOSSES, loss_named
from ..mechanisms.prior import Prior
from ..mechanisms.registry import MECHANISMS, mechanism_named
from .usage import BAD_USAGE, FAILURE, SUCCESS, ArgumentParser, UsageError


def run(argv: Sequence[str] | None = None) -> int:
    """Solves and writes a mechanism file; prints one JSON line of facts. Returns the exit code."""
    parser = ArgumentParser("labeldp solve", "Solve for a mechanism from a public prior and write its file.")
    parser.add_argument("--prior", required=True, metavar="FILE", help="CSV of label,weight, or JSON")
    parser.add_argument("--epsilon", required=True, type=float, metavar="E", help="what the labels may spend")
    parser.add_argument("--mechanism", default="rr_on_bins", metavar="NAME", help=", ".join(MECHANISMS))
    parser.add_argument("--loss", default="squared", choices=list(LOSSES), help="what to minimise; default squared")
    parser.add_argument("--output", required=True, metavar="FILE", help="the mechanism file to write")
    args = parser.parse_args(argv)
    try:
        print(_solve(args.prior, args.epsilon, args.mechanism, args.loss, args.output))
    except UsageError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return BAD_USAGE
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return FAILURE
    return SUCCESS


def _solve(prior_path: str, epsilon: float, name: str, loss: str, output: str) -> str:
    try:
        mechanism = mechanism_named(name, loss=loss)
    except ValueError as error:
        raise UsageError(f"--mechanism: {error}") from None
    try:
        with open(prior_path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise UsageError(f"--prior {prior_path} cannot be read: {error.strerror}") from None
    try:
        prior = Prior.from_text(text)
    except ValueError as error:
        raise ValueError(f"--prior {prior_path}: {error}") from None
    started = time.perf_counter()
    try:
        randomizer = mechanism.solve(prior, epsilon)
    except ValueError as error:
        raise UsageError(str(error)) from None
    seconds = time.perf_counter() - started
    certificate = randomizer.certificate()
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
            "loss": randomizer.expected_loss(prior, loss_named(loss)),
            "max_bias": certificate.max_bias,
            "seconds": round(seconds, 6),
        }
    )
