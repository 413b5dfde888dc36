"""Flags of `privatize`, `fit`, `apply` and `domain`, in groups.

A new flag is a field that `spec.fields.Fields` declares, and its name in a group here.
"""

from __future__ import annotations

from ..spec.fields import OUTPUT_FORMATS
from ..spec.written_files import NEW, RESULT
from .command_parser import Add, CommandParser, Switch, field_flags
from .release_flags import dialect_flags

_SET_BY_MECHANISM_FILE = (
    "label_min", "label_max", "label_step", "label_values", "label_classes", "other_class", "rounding", "epsilon",
    "prior_epsilon",
    "mechanism", "for", "loss", "center_column", "center", "center_features",
)  # fmt: skip
IF_EXISTS = ("fail", "verify")
_NO_SHARDS = "is for privatize and apply; fit writes no shards"
_FORMAT_OF_APPLY = (
    f"format of the shards that apply will write, which --validate is for: {', '.join(OUTPUT_FORMATS)}; default: "
    "that of the input, or parquet for csv"
)
_NOT_TAKEN = {
    "privatize": {
        "mechanism_file": "--mechanism_file is for fit and apply; privatize writes mechanism.json to --output"
    },
    "fit": {
        "output": "--output is for privatize and apply; fit writes --mechanism_file",
        "num_shards": f"--num_shards {_NO_SHARDS}",
        "compression": f"--compression {_NO_SHARDS}",
        "shuffle": f"--shuffle {_NO_SHARDS}",
        "partition_output": f"--partition_output {_NO_SHARDS}",
        "output_table": f"--output_table {_NO_SHARDS}",
        "sign": "--sign is for privatize and apply, which release records; fit writes one mechanism file",
    },
    "apply": {
        **{name: f"--{name} is set by the mechanism file; leave it out" for name in _SET_BY_MECHANISM_FILE},
        "dry_run": "--dry_run is for privatize and fit; what apply charges is in its mechanism file",
    },
}
_DESCRIPTIONS = {
    "privatize": "Replace each label by a draw from an optimal label-DP randomizer, and release the records with their "
    "features as they were. The epsilon that is spent is certified, and charged to a ledger. The job does what fit and "
    "apply do, in one run.",
    "fit": "Release the label histogram of a dataset and the mechanism that is solved for it, in one file that apply "
    "reads. Writes no records.",
    "apply": "Release a dataset with labels that are randomized by a mechanism file of fit or solve. The file sets "
    "label domain, budget and mechanism.",
}
_ABOUT_MECHANISM = (
    "--for, --mechanism and --center decide one thing, what the labels serve for. models, the default, randomizes "
    "what a linear model of the features misses: for recipients who may have more features. log_features is for those "
    "who train on the columns of this log alone: a better model takes most of epsilon. labels takes the least error "
    "of each label. --mechanism and --center choose the randomizer and the model themselves."
)
_FITTED = "  labeldp {} 'log-*.csv' --label weeks --label_max 52 --epsilon 1 \\\n      {}"
_EXAMPLES = {
    "privatize": _FITTED.format("privatize", "--output released"),
    "fit": _FITTED.format("fit", "--mechanism_file m.json"),
    "apply": "  labeldp apply 'log-*.csv' --label weeks --mechanism_file m.json \\\n      --output released",
}


def privatize_flags(parser: CommandParser) -> None:
    """Adds the flags of `privatize`."""
    add_flags(parser, "privatize")


def fit_flags(parser: CommandParser) -> None:
    """Adds the flags of `fit`."""
    add_flags(parser, "fit")


def apply_flags(parser: CommandParser) -> None:
    """Adds the flags of `apply`."""
    add_flags(parser, "apply")


def add_flags(parser: CommandParser, command: str) -> None:
    """Adds the project's own flags that `privatize`, `fit` or `apply` takes; the others get their defaults.

    They are not a PipelineOptions subclass: Beam uses `--label` for Google Cloud resource labels and refuses a second
    flag of that name. Beam's flag is still reached by its other name, `--labels`.
    """
    parser.description = _DESCRIPTIONS[command]
    parser.epilog = f"Example:\n{_EXAMPLES[command]}"
    parser.leave_out(_NOT_TAKEN[command])
    input_flags(parser)
    label_flags(parser)
    class_flags(parser)
    field_flags(parser.flag_group("Missing labels"), "missing_label")
    if command != "apply":
        parser.domain_needed = True
    _budget_flags(parser, command)
    unit_flags(parser)
    _mechanism_flags(parser)
    _output_flags(parser, command)
    runner_group(parser)
    add = parser.flag_group("Other")
    add("--if_exists", choices=IF_EXISTS, default=IF_EXISTS[0], metavar="HOW",
        help="fail; or verify that a release there is this one; default fail")  # fmt: skip
    add("--wait_until_finish", action=Switch,
        help="wait for the job, the default; or only submit it")  # fmt: skip
    add(
        "--result_json",
        metavar="FILE",
        writes=RESULT,
        help="write epsilons, warnings and verdict as JSON",
    )
    add("--verbose", action="store_true", help="print all facts of the release")
    field_flags(add, "dry_run")


def input_flags(parser: CommandParser) -> None:
    """Adds the flags that describe the input files and their records."""
    add = parser.flag_group("Input")
    field_flags(add, "input", needed=True)
    parser.first = "input"
    field_flags(add, "input_format", "csv_types")
    dialect_flags(add)
    field_flags(add, "partitions", "missing_columns", "where", "id_column", "max_unusable_fraction")


def label_flags(parser: CommandParser) -> None:
    """Adds the flags of the label column and its public domain."""
    fitted = "label_min" in parser.hints
    add = parser.flag_group(
        "Labels",
        None
        if fitted
        else "The label domain is public: declare it from what is known in general, never from the data, with "
        "--label_max or --label_values. Labels outside are clamped to it.",
    )
    field_flags(add, "label", needed=True)
    field_flags(add, "label_min", "label_max", "label_step", "label_values", "rounding")


def class_flags(parser: CommandParser) -> None:
    """Adds the flags of labels that are classes."""
    fitted = "label_classes" in parser.hints
    about = "Text, integers or booleans in place of numbers. The list is public: declare it, too, never from the data."
    add = parser.flag_group("Classes", None if fitted else about)
    field_flags(add, "label_classes", "other_class")


def _budget_flags(parser: CommandParser, command: str) -> None:
    add = parser.flag_group("Budget")
    field_flags(add, "epsilon", needed=True)
    fitted = {"help": "largest delta to accept of the mechanism file; default 0, pure DP"}
    field_flags(add, "delta", **fitted if command == "apply" else {})
    field_flags(add, "prior_epsilon")
    budget_record_flags(add)


def unit_flags(parser: CommandParser) -> None:
    """Adds the flags of the privacy unit."""
    add = parser.flag_group(
        "Privacy unit",
        "Without a unit, epsilon holds for the label of each record, and the labels of one person add up. With one, it "
        "holds for all labels of a unit.",
    )
    field_flags(add, "unit_column", "max_records_per_unit")


def budget_record_flags(add: Add) -> None:
    """Adds the flags of ledger, caps and noise key to the group of the budget."""
    field_flags(add, "ledger", "epsilon_cap", "delta_cap", "cap_window", "noise_key_file", "noise_key_mode")


def _mechanism_flags(parser: CommandParser) -> None:
    fitted = "mechanism" in parser.hints
    add = parser.flag_group("Mechanism", None if fitted else _ABOUT_MECHANISM)
    if fitted:
        field_flags(add, "mechanism_file", needed=True)
    field_flags(add, "for_", "mechanism", "center", "loss", "center_column", "center_features")


def _output_flags(parser: CommandParser, command: str) -> None:
    add = parser.flag_group("Output")
    field_flags(add, "output", needed=True)
    field_flags(add, "output_table")
    if command == "fit":
        field_flags(add, "mechanism_file", needed=True, writes=NEW, help="the mechanism file to write; must be new")
    elif command == "privatize":
        parser.set_defaults(mechanism_file=None)
    if command == "fit":
        field_flags(add, "output_format", help=_FORMAT_OF_APPLY)
        # Nothing is written that statistics could be of.
        field_flags(add, "validate", action="store", nargs=None, help="TFDV schema that the features must match")
    else:
        field_flags(
            add, "output_format", "num_shards", "shuffle", "partition_output", "compression", "validate", "sign"
        )
    field_flags(add, "leave_out")


def runner_group(parser: CommandParser) -> None:
    """Adds the text on the runner's flags."""
    parser.flag_group(
        "Runner",
        "The job runs in this process, unless --runner names another runner of Apache Beam, such as FlinkRunner, whose "
        "flags are passed to it. Paths may be s3:// and gs:// URLs; the environment or Beam's flags, "
        "such as --s3_endpoint_url, say how.",
    )


def domain_flags(parser: CommandParser) -> None:
    """Adds the flags of `domain`."""
    parser.description = (
        "Propose a label domain: release a histogram of the labels over fixed cells, ten to a decade, with noise, and "
        "say which range of it holds them. Use it where the range is not known in general. Costs epsilon."
    )
    parser.epilog = """Example:
  labeldp domain 'log-*.csv' --label price --epsilon 0.1 \\
      --domain_file domain.json"""
    input_flags(parser)
    add = parser.flag_group("Labels")
    field_flags(add, "label", needed=True)
    add("--clamped", type=float, default=0.01, metavar="F",
        help="share of the labels that may lie outside the domain; default 0.01")  # fmt: skip
    add = parser.flag_group("Budget")
    add("--epsilon", type=float, metavar="E", needed=True, help="privacy budget of the histogram, such as 0.1")
    budget_record_flags(add)
    unit_flags(parser)
    add = parser.flag_group("Output")
    add(
        "--domain_file",
        metavar="FILE",
        needed=True,
        writes=NEW,
        help="new JSON file for the released counts and the proposal",
    )
    runner_group(parser)
