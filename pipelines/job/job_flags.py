"""Flags of `privatize`, `fit` and `apply`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ...mechanisms.core.label_rounding import ROUNDINGS
from ...mechanisms.core.losses import LOSSES
from ...mechanisms.registry import MECHANISMS
from ...transforms.io.input_format import CSV_TYPES, FORMATS
from ...transforms.io.shard_writer import COMPRESSIONS
from ..cli.arguments import ArgumentParser, UsageError
from ..runner.runner_options import parse_known
from .input_flags import METADATA, PARTITIONS

CENTERS = ("linear", "none")
PURPOSES = ("models", "labels")
OUTPUT_FORMATS = ("tfrecord", "parquet")
NEEDED = {
    "privatize": ("input", "input_format", "label", "epsilon", "output"),
    "fit": ("input", "input_format", "label", "epsilon", "mechanism_file"),
    "apply": ("input", "input_format", "label", "mechanism_file", "output"),
}
"""Required flags by command. `privatize` and `fit` need the label domain as well, in one of its two forms."""
DEFAULTS = {"loss": "squared"}
"""Defaults that the parser does not set, because `apply` must know whether the flags were given."""

_SET_BY_MECHANISM_FILE = (
    "label_min", "label_max", "label_step", "label_values", "rounding", "epsilon", "prior_epsilon",
    "mechanism", "purpose", "mechanism_parameters", "loss", "center_column", "center", "center_features",
    "center_categories", "center_places",
)  # fmt: skip


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the project's own flags. `check_required` checks which of them a command needs.

    They are not a PipelineOptions subclass: Beam uses `--label` for Google Cloud resource labels and refuses a second
    flag of that name. Beam's flag is still reached by its other name, `--labels`.

    Args:
      parser: The parser to add to.
    """
    add = parser.add_argument
    add("--input", metavar="GLOB", help="input files, with a label in each record; quote the glob")
    add("--input_format", choices=FORMATS, help="input file format")
    add("--csv_types", metavar="NAME=TYPE,...", help=f"column types, where CSV inference fails: {', '.join(CSV_TYPES)}")
    add("--csv_delimiter", metavar="CHARACTER", default=",",
        help="character between the fields of CSV, such as ';' or '\\t'; default ','")  # fmt: skip
    add("--csv_encoding", metavar="NAME", default="utf-8",
        help="encoding of CSV, such as latin-1, cp1252 or utf-16; default utf-8")  # fmt: skip
    add("--partitions", choices=PARTITIONS, default=PARTITIONS[0],
        help="folders named KEY=VALUE in the paths of input files: hive makes columns of them, none ignores them; "
        "default hive")  # fmt: skip
    add("--metadata", choices=METADATA, default=METADATA[0],
        help="schema metadata of Parquet input, in Parquet output: keep releases all that does not name the label; "
        "default keep")  # fmt: skip
    add("--where", metavar="NAME=VALUE", help="keep only records whose public feature NAME has this value")
    add("--output", metavar="DIR", help="output folder; must be new or empty")
    add("--output_format", choices=OUTPUT_FORMATS,
        help="format of the shards; default: that of the input, parquet for csv")  # fmt: skip
    add("--num_shards", type=int, metavar="N", help="number of shards; default: number of input files")
    add("--compression", choices=COMPRESSIONS, default="none", help="compression of the shards; default none")
    add("--label", metavar="NAME", help="label column, which is private")
    add("--label_min", metavar="A", help="smallest label of the public label grid")
    add("--label_max", metavar="B", help="largest label of the public label grid")
    add("--label_step", metavar="S", help="spacing of the label grid")
    add("--label_values", metavar="FILE", help="public label domain, one label per line, instead of a grid")
    add("--rounding", choices=ROUNDINGS,
        help="rounding between grid points; default: randomized for unbiased mechanisms, else nearest")  # fmt: skip
    add("--center_column", metavar="NAME",
        help="public column with a prediction of the label, from a model that has not seen these labels; noise is then "
        "added to the difference only; needs an even label domain. With --center, name of the new column; "
        "default LABEL_center")  # fmt: skip
    add("--center", choices=CENTERS,
        help="linear: predict labels from the features first, by a linear model with a part of --epsilon; predictions "
        "are released as a column; default: linear for --mechanism auto over an even label domain")  # fmt: skip
    add("--center_features", metavar="NAME,...", help="features of --center; default: all numbers and texts")
    add("--center_categories", metavar="NAME,...", help="features of --center that are categories, besides texts")
    add("--center_places", type=int, metavar="N",
        help="largest number of places of a category; more values than that are hashed; default 64")  # fmt: skip
    add("--epsilon", type=float, metavar="E", help="privacy budget of the release: label histogram and labels together")
    add("--delta", type=float, metavar="D", help="delta of (epsilon, delta)-DP, as gaussian needs; default: pure DP")
    add("--prior_epsilon", type=float, metavar="E1",
        help="part of --epsilon for the label histogram; default: sqrt(labels/records), at most a half, for "
        "mechanisms without bias a 128th, for those without a prior a 256th; "
        "with a center sqrt(cells/records), a 32nd to an eighth")  # fmt: skip
    add("--mechanism", metavar="NAME",
        help=f"mechanism: {', '.join(MECHANISMS)}; or auto, the one with the least error of a model that is trained on "
        "the labels; default auto")  # fmt: skip
    add("--for", dest="purpose", choices=PURPOSES,
        help="what labels serve for, instead of --mechanism: models, which is auto, or labels, the least error of each "
        "label, which is rr_on_bins without a center; default models")  # fmt: skip
    add("--mechanism_parameters", metavar="NAME=VALUE,...", help="parameters of the mechanism, for example bias=0.2")
    add("--loss", choices=list(LOSSES), help=f"loss to minimize; default {DEFAULTS['loss']}")
    add("--id_column", metavar="NAME", help="column of unique record ids; default: identified by file and row")
    add(
        "--noise_key_file",
        metavar="FILE",
        help="file with the 32-byte secret key, mode 0600; default: ~/.config/labeldp/noise.key",
    )
    add("--mechanism_file", metavar="FILE", help="mechanism file: written by fit, read by apply")
    add("--max_unusable_fraction", type=float, default=0.001, metavar="F",
        help="tolerated fraction of records without a usable label; default 0.001")  # fmt: skip
    add("--validate", action="store_true", help="validate, and release TFDV statistics and a schema in validation/")
    add("--schema", metavar="FILE", help="TFDV schema that the features must match; implies --validate")
    add("--ledger", metavar="FILE|URL",
        help="record of the budget spent: a file, or a team's database, sqlite:///FILE or "
        "postgresql://USER@HOST/DATABASE; default labeldp_ledger.jsonl beside the output")  # fmt: skip
    add("--epsilon_cap", type=float, metavar="E", help="refuse a release that would raise the ledger's epsilon above E")
    add("--delta_cap", type=float, metavar="D", help="the same for delta; default 0 with --epsilon_cap, else no cap")


def parse(command: str, description: str, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parses the flags of a command. Exits with code 2 at a flag that neither labeldp nor Beam knows.

    Args:
      command: privatize, fit or apply.
      description: Description for `--help`.
      argv: Arguments after the command's name.

    Returns:
      The values of the project's flags, and the runner's flags as they are.
    """
    parser = ArgumentParser(f"labeldp {command}", description)
    parser.epilog = "Runner flags (--runner, --direct_num_workers, --flink_master, ...) are passed to Beam."
    add_flags(parser)
    return parse_known(parser, argv)


def check_required(command: str, args: argparse.Namespace) -> None:
    """Checks that a command has the flags that it requires, and none that it does not take.

    Args:
      command: privatize, fit or apply.
      args: Parsed flags.

    Raises:
      UsageError: If a flag is missing or does not belong to the command.
    """
    if args.center == "none" and args.center_column is not None:
        raise UsageError("--center none has no --center_column: leave one of them out")
    if args.center == "none":
        given = [name for name in ("features", "categories", "places") if getattr(args, f"center_{name}") is not None]
        if given and command != "apply":
            raise UsageError(f"--center none has no --center_{given[0]}")
    if args.purpose is not None and args.mechanism is not None:
        raise UsageError("--for chooses the mechanism: give --for or --mechanism")
    missing = [name for name in NEEDED[command] if getattr(args, name) is None]
    if missing:
        raise UsageError(f"--{missing[0]} is missing")
    if command == "privatize" and args.mechanism_file is not None:
        raise UsageError("--mechanism_file is for fit and apply; privatize writes mechanism.json to --output")
    if command == "fit" and args.output is not None:
        raise UsageError("--output is for privatize and apply; fit writes --mechanism_file")
    if command == "fit" and args.validate and args.schema is None:
        raise UsageError("--validate requires --output, which fit does not take; use --schema to check the features")
    given = [name for name in _SET_BY_MECHANISM_FILE if getattr(args, name) is not None] if command == "apply" else []
    if given:
        name = "for" if given[0] == "purpose" else given[0]
        raise UsageError(f"--{name} is set by the mechanism file; leave it out")
