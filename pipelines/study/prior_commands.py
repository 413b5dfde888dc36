"""What commands that study a prior share: their flags, the order of their checks, the files that they write.

They need neither Beam nor data: what they say is computed from a prior that is public, or was released before.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

from ...mechanisms.core.budget import check_epsilon
from ...mechanisms.core.losses import LOSSES, loss_named
from ..cli.arguments import ArgumentParser, UsageError
from ..cli.exit_codes import run_command
from ..cli.local_files import check_file, write_file
from ..cli.optional_extras import check_extra
from ..cli.process_pool import processors
from .figures import check_picture
from .mechanism_spec import MechanismSpec, parse_mechanism_spec
from .prior_file import HELP, PriorFile, read_prior
from .tables import Row, csv_text, json_text

DEFAULT_EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)


def add_flags(parser: argparse.ArgumentParser, epsilon: str) -> None:
    """--prior, --epsilon, --delta, --loss, --csv, --json, --picture, --processes. epsilon: what that one means."""
    add = parser.add_argument
    add("--prior", required=True, metavar="FILE", help=HELP)
    add("--epsilon", type=float, nargs="+", default=list(DEFAULT_EPSILONS), metavar="E",
        help=f"{epsilon}; default {' '.join(f'{e:g}' for e in DEFAULT_EPSILONS)}")  # fmt: skip
    add("--delta", type=float, metavar="D", help="for (epsilon, delta)-DP, as gaussian needs")
    add("--loss", default="squared", choices=list(LOSSES), help="what to minimise and draw; default squared")
    add("--csv", metavar="FILE", help="the table as CSV")
    add("--json", metavar="FILE", help="the table as JSON")
    add("--picture", metavar="FILE", help="expected loss against epsilon: .png, .svg or .pdf")
    add("--processes", type=int, default=processors(), metavar="N", help="to solve in; default one per processor")


def run(parser: ArgumentParser, argv: Sequence[str] | None, work: Callable[[argparse.Namespace], None]) -> int:
    """Parses and checks the flags, and does the work. Returns the exit code."""
    args = parser.parse_args(argv)

    def checked() -> None:
        _check(args)
        work(args)

    return run_command(parser.prog, checked)


def _check(args: argparse.Namespace) -> None:
    check_extra("showing progress", "evaluation", "tqdm")
    for epsilon in args.epsilon:
        try:
            check_epsilon(epsilon)
        except ValueError as error:
            raise UsageError(f"--{error}") from None
    check_once("--epsilon", args.epsilon)
    if args.processes < 1:
        raise UsageError(f"--processes must be at least 1, not {args.processes}")
    for flag in ("csv", "json", "picture"):
        path = getattr(args, flag)
        if path is not None:
            check_file(f"--{flag}", path)
            if os.path.exists(path) and os.path.samefile(path, args.prior):
                raise UsageError(f"--{flag} {path} is the file of --prior: name another")
    if args.picture is not None:
        check_picture("--picture", args.picture)


def check_once(flag: str, values: Sequence[Any]) -> None:
    """Raises UsageError, naming the flag, when a value occurs twice."""
    twice = [value for place, value in enumerate(values) if value in values[:place]]
    if twice:
        raise UsageError(f"{flag} names {twice[0]} twice: name each once")


def mechanisms(texts: Sequence[str], args: argparse.Namespace) -> list[MechanismSpec]:
    """The mechanisms that were named, with the loss and the delta of the flags. Raises UsageError."""
    check_once("--mechanism", texts)
    found = [parse_mechanism_spec(text, args.loss, args.delta) for text in texts]
    if args.delta is not None and not any(each.takes_delta for each in found):
        raise UsageError("--delta is for mechanisms that are not pure, as gaussian, and --mechanism names none")
    return found


def prior_of(args: argparse.Namespace) -> PriorFile:
    """What `--prior` names. Raises UsageError when it is unreadable or lacks the loss, ValueError for no prior."""
    source = read_prior(args.prior)
    try:
        loss_named(args.loss).check(source.prior.labels)
    except ValueError as error:
        raise UsageError(f"--loss: {error}") from None
    return source


def describe(args: argparse.Namespace, source: PriorFile) -> str:
    """Which prior it was, in a line."""
    how = f"noised with epsilon {source.spent:.6g}" if source.spent else "taken as public"
    return f"{args.prior}: {len(source.prior.labels)} labels, {how}"


def write_files(
    args: argparse.Namespace, source: PriorFile, rows: Sequence[Row], draw: Callable[[str], bytes], **facts: Any
) -> None:
    """The files that were asked for. draw: the picture for a path. facts: what the JSON says besides the rows."""
    if args.csv:
        write_file(args.csv, csv_text(rows))
    if args.json:
        about = {"prior": args.prior, "prior_epsilon": source.spent, "loss": args.loss}
        write_file(args.json, json_text(rows, **about, **facts))
    if args.picture:
        write_file(args.picture, draw(args.picture))
