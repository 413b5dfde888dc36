"""Flags of `attack` and of its two modes, which the labels party runs."""

from __future__ import annotations

from ..pipelines.flags.command_parser import CommandParser
from ..pipelines.flags.job_flags import class_flags, input_flags, label_flags

DEFAULT_RECORDS = 200_000
_NOT_TAKEN = ("rounding", "max_unusable_fraction")
# Flags of the input files and of the label that describe --truth as well.
_OF_TRUTH = (
    "input_format", "csv_types", "csv_dialect", "partitions", "missing_columns", "where", "id_column",
    "label", "most_records",
)  # fmt: skip


def attack_flags(parser: CommandParser) -> None:
    """Adds the flags of `attack`, with its modes."""
    parser.description = (
        "Guess true labels from features, with a release and without. For the labels party alone: results are computed "
        "from true labels without noise, are not for release, and say so. They are printed; nothing is written or "
        "charged."
    )
    parser.epilog = (
        "Exit status: 0 no attack succeeds, 1 one does or a file cannot be used, 2 bad usage, 3 it warns or did not "
        "examine all."
    )
    add = parser.flag_group("Target")
    add("path", metavar="FOLDER", nargs="?", help="an output folder, with --truth; on s3:// or gs:// too")
    add("--truth", metavar="GLOB|TABLE",
        help="the files that were released, with their true labels: how much better are labels guessed from features "
        "and release than from features alone?")  # fmt: skip
    add("--features", action="store_true",
        help="before a release: how well do the features of --input predict the label, all together and each "
        "alone?")  # fmt: skip
    add = parser.flag_group("Attacks")
    add("--within", type=float, metavar="T",
        help="a guess within T of the label is correct; default 1/20 of the label range")  # fmt: skip
    add("--seed", type=int, default=0, metavar="N", help="seed of folds and samples; default 0")
    parser.leave_out(_NOT_TAKEN)
    parser.add_mode("features", [_feature_flags, input_flags, label_flags, class_flags], (), ())
    parser.leave_out(())
    parser.add_mode("truth", [_truth_flags], (), (), _OF_TRUTH)


def _feature_flags(parser: CommandParser) -> None:
    add = parser.flag_group("Attacks")
    add("--exclude", metavar="NAME,...",
        help="columns that will not be released, such as further labels; default: all columns but the label are "
        "features")  # fmt: skip
    add("--most_records", type=int, default=DEFAULT_RECORDS, metavar="N",
        help=f"sample a larger input, or release, to about N records; default {DEFAULT_RECORDS}")  # fmt: skip


def _truth_flags(parser: CommandParser) -> None:
    add = parser.flag_group("Attacks")
    add("--max_advantage", type=float, metavar="A",
        help="fail if the advantage of an adversary, or for a group of --group_column, is above A")  # fmt: skip
    add("--group_column", metavar="NAME", help="show the advantage for each value of this public column, too")
    add("--show_rows", type=int, metavar="N",
        help="name the N records with the largest gain by their row numbers in the release")  # fmt: skip
