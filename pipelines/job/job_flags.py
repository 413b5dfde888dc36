"""Flags of `privatize`, `fit` and `apply`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ...mechanisms.core.label_rounding import ROUNDINGS
from ...mechanisms.core.losses import LOSSES
from ...mechanisms.registry import MECHANISMS
from ...transforms.io.input_format import FORMATS
from ...transforms.io.shard_writer import COMPRESSIONS
from ..cli.arguments import ArgumentParser, UsageError
from .runner_options import parse_known

OUTPUT_FORMATS = ("tfrecord", "parquet")


NEEDED = {
    "privatize": ("input", "input_format", "label", "epsilon", "output"),
    "fit": ("input", "input_format", "label", "epsilon", "mechanism_file"),
    "apply": ("input", "input_format", "label", "mechanism_file", "output"),
}
"""The flags that a command cannot do without. The label domain is needed as well, in one of its two forms."""


_FITTED = (
    "label_min", "label_max", "label_step", "label_values", "rounding", "epsilon", "prior_epsilon",
    "mechanism", "mechanism_parameters", "loss",
)  # fmt: skip


DEFAULTS = {"mechanism": "rr_on_bins", "loss": "squared"}
"""Not the parser's: `apply` tells whether they were given."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The project's own flags. Which of them a command needs is checked by `make_plan`.

    Not a PipelineOptions family: Beam keeps `--label` for Google Cloud resource labels (also `--labels`, which
    still reaches it), and refuses a second one.
    """
    add = parser.add_argument
    add("--input", metavar="GLOB", help="files of labelled records")
    add("--input_format", choices=FORMATS, help="how the files are laid out")
    add("--csv_types", metavar="NAME=TYPE,...", help="int64, float64 or string for CSV columns guessed wrongly")
    add("--where", metavar="NAME=VALUE", help="keep only records whose public feature NAME has this value")
    add("--output", metavar="DIR", help="the folder to release; it must not exist, or be empty")
    add("--output_format", choices=OUTPUT_FORMATS, default="tfrecord", help="default tfrecord")
    add("--num_shards", type=int, metavar="N", help="files to write; default as many as were read")
    add("--compression", choices=COMPRESSIONS, default="none", help="default none")
    add("--label", metavar="NAME", help="the private column")
    add("--label_min", metavar="A", help="least label of the public domain")
    add("--label_max", metavar="B", help="largest label of the public domain")
    add("--label_step", metavar="S", help="distance of the domain's labels")
    add("--label_values", metavar="FILE", help="the domain as one label a line, instead of min, max and step")
    add("--rounding", choices=ROUNDINGS,
        help="of labels off the domain's points; default randomized for unbiased mechanisms, else nearest")  # fmt: skip
    add("--epsilon", type=float, metavar="E", help="the whole privacy budget, prior and labels together")
    add("--delta", type=float, metavar="D", help="for (epsilon, delta)-DP, as gaussian needs; default none: pure DP")
    add("--prior_epsilon", type=float, metavar="E1", help="what the histogram may spend; default sqrt(k/n), <= E/2")
    add("--mechanism", metavar="NAME", help=f"{', '.join(MECHANISMS)}; default rr_on_bins")
    add("--mechanism_parameters", metavar="NAME=VALUE,...", help="the mechanism's own, as in bias=0.2")
    add("--loss", choices=list(LOSSES), help="what to minimise; default squared")
    add("--id_column", metavar="NAME", help="unique ids to name records by; default their file and row")
    add("--noise_key_file", metavar="FILE", help="32 secret bytes, mode 0600; default one made for the user")
    add("--mechanism_file", metavar="FILE", help="what fit writes and apply reads")
    add("--max_unusable_fraction", type=float, default=0.001, metavar="F",
        help="records without a usable label that are tolerated; default 0.001")  # fmt: skip
    add("--validate", action="store_true", help="also release TFDV statistics and a schema, in validation/")
    add("--schema", metavar="FILE", help="refuse features that are against this TFDV schema; implies --validate")
    add("--ledger", metavar="FILE", help="the record of what was spent; default labeldp_ledger.jsonl beside output")
    add("--epsilon_cap", type=float, metavar="E", help="refuse to release when the ledger would exceed this")
    add("--delta_cap", type=float, metavar="D", help="the same for delta; default 0 with --epsilon_cap, else none")


def parse(command: str, description: str, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The values of the project's flags, and the runner's flags. Exits with 2 for a flag that neither knows."""
    parser = ArgumentParser(f"labeldp {command}", description)
    parser.epilog = "Runner flags (--runner, --direct_num_workers, --flink_master, ...) pass through to Beam."
    add_flags(parser)
    return parse_known(parser, argv)


def check_required(command: str, args: argparse.Namespace) -> None:
    missing = [name for name in NEEDED[command] if getattr(args, name) is None]
    if missing:
        raise UsageError(f"--{missing[0]} is missing")
    if command == "privatize" and args.mechanism_file is not None:
        raise UsageError("--mechanism_file is for fit and apply: privatize writes mechanism.json to --output")
    if command == "fit" and args.output is not None:
        raise UsageError("--output is for privatize and apply: fit writes --mechanism_file")
    if command == "fit" and args.validate and args.schema is None:
        raise UsageError("--validate writes to --output, which fit has not: give --schema to check features first")
    given = [name for name in _FITTED if getattr(args, name) is not None] if command == "apply" else []
    if given:
        raise UsageError(f"--{given[0]} is settled by the mechanism file: leave it out")
