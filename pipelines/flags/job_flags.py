"""Flags of `privatize`, `fit`, `apply` and `domain`, in groups.

A new flag is one line in its group, and a field of `spec.fields.Fields`.
"""

from __future__ import annotations

from ..spec.fields import (
    AUTO,
    CENTERS,
    COMPRESSIONS,
    CSV_TYPES,
    DEFAULT_LOSS,
    INPUT_FORMATS,
    KEY_MODES,
    LOSSES,
    MECHANISM_LIST,
    MECHANISMS,
    MISSING_COLUMNS,
    OUTPUT_FORMATS,
    PARTITIONS,
    PURPOSES,
    ROUNDINGS,
    STORE_FLAGS,
)
from ..spec.written_files import FOLDER, LEDGER, NEW, RESULT
from .command_parser import Add, CommandParser, Switch
from .release_flags import dialect_flags

_SET_BY_MECHANISM_FILE = (
    "label_min", "label_max", "label_step", "label_values", "label_classes", "other_class", "rounding", "epsilon",
    "prior_epsilon",
    "mechanism", "for", "mechanism_parameters", "loss", "center_column", "center", "center_features",
)  # fmt: skip
IF_EXISTS = ("fail", "verify")
_NO_SHARDS = "is for privatize and apply; fit writes no shards"
_NOT_TAKEN = {
    "privatize": {
        "mechanism_file": "--mechanism_file is for fit and apply; privatize writes mechanism.json to --output"
    },
    "fit": {
        "output": "--output is for privatize and apply; fit writes --mechanism_file",
        "num_shards": f"--num_shards {_NO_SHARDS}",
        "compression": f"--compression {_NO_SHARDS}",
        "partition_output": f"--partition_output {_NO_SHARDS}",
        "output_table": f"--output_table {_NO_SHARDS}",
        "sign": "--sign is for privatize and apply, which release records; fit writes one mechanism file",
        "validate": "--validate requires --output, which fit does not take; use --schema to check the features",
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
_FITTED = """  labeldp {} --input 'log-*.csv' --input_format csv --label weeks \\
      --label_min 0 --label_max 52 --label_step 1 --epsilon 1 \\
      {}"""
_EXAMPLES = {
    "privatize": _FITTED.format("privatize", "--output released"),
    "fit": _FITTED.format("fit", "--mechanism_file m.json"),
    "apply": """  labeldp apply --input 'log-*.csv' --input_format csv --label weeks \\
      --mechanism_file m.json --output released""",
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
    _missing_flags(parser)
    if command != "apply":
        parser.domain_needed = True
    _budget_flags(parser, command)
    unit_flags(parser)
    _mechanism_flags(parser)
    _center_flags(parser)
    _output_flags(parser, command)
    runner_group(parser)
    add = parser.flag_group("Other")
    add("--if_exists", choices=IF_EXISTS, default=IF_EXISTS[0], metavar="HOW",
        help="what to do if the output is a release: fail; or verify that it is the one of this request, by ledger and "
        "audit, and succeed without a charge, as retries of a scheduler need; default fail")  # fmt: skip
    add("--wait_until_finish", action=Switch,
        help="wait for the job and publish its release, the default; or submit it, for labeldp finish")  # fmt: skip
    add(
        "--result_json",
        metavar="FILE",
        writes=RESULT,
        help="write paths, epsilons, warnings and verdict of a run that succeeds",
    )
    add("--dry_run", action=Switch, help="say what the job would do, and what it would charge; reads no label")


def input_flags(parser: CommandParser) -> None:
    """Adds the flags that describe the input files and their records."""
    add = parser.flag_group("Input")
    add("--input", metavar="GLOB|TABLE", needed=True,
        help="input files; quote a glob, as in 'log-*.csv'. Or a snapshot of a table, by default "
        "the current one: iceberg://CATALOG/NAMESPACE.TABLE[@SNAPSHOT_ID] or delta://PATH[@VERSION]")  # fmt: skip
    add("--input_format", choices=INPUT_FORMATS, metavar="FORMAT", needed=True,
        help=f"format of the input files: {', '.join(INPUT_FORMATS)}")  # fmt: skip
    add("--csv_types", metavar="NAME=TYPE,...", help=f"column types, where CSV inference fails: {', '.join(CSV_TYPES)}")
    dialect_flags(add)
    add("--partitions", choices=PARTITIONS, default=PARTITIONS[0], metavar="HOW",
        help="folders named KEY=VALUE in the paths of input files: hive makes columns of them, none ignores them; "
        "default hive")  # fmt: skip
    add("--missing_columns", choices=MISSING_COLUMNS, default=MISSING_COLUMNS[0], metavar="HOW",
        help="columns that only some of the Parquet files have: error, or null, which is their value in the others; "
        "default error. Tables say it themselves")  # fmt: skip
    add("--where", metavar="NAME=VALUE", help="keep only records whose public feature NAME has this value")
    add("--id_column", metavar="NAME", help="column of unique record ids; default: identified by file and row")
    add("--max_unusable_fraction", type=float, default=0.001, metavar="F",
        help="tolerated fraction of records without a usable label; default 0.001")  # fmt: skip


def label_flags(parser: CommandParser) -> None:
    """Adds the flags of the label column and its public domain."""
    fitted = "label_min" in parser.hints
    add = parser.flag_group(
        "Labels",
        None
        if fitted
        else "The label domain is public: declare it from what is known in general, never from the data, with "
        "--label_min, --label_max and --label_step, or with --label_values. Labels outside are clamped to it.",
    )
    add("--label", metavar="NAME", needed=True, help="label column, which is private")
    add("--label_min", metavar="A", help="smallest label of the label grid")
    add("--label_max", metavar="B", help="largest label of the label grid")
    add("--label_step", metavar="S", help="spacing of the label grid")
    add("--label_values", metavar="FILE", help="label domain, one label per line, instead of a grid")
    add("--rounding", choices=ROUNDINGS, metavar="HOW",
        help="rounding of labels between grid points: nearest, or randomized, which is unbiased; default: randomized "
        "for unbiased mechanisms, else nearest")  # fmt: skip


def class_flags(parser: CommandParser) -> None:
    """Adds the flags of labels that are classes."""
    fitted = "label_classes" in parser.hints
    about = "Text, integers or booleans in place of numbers. The list is public: declare it, too, never from the data."
    add = parser.flag_group("Classes", None if fitted else about)
    add("--label_classes", metavar="A,B,...|FILE",
        help="classes of the label, with commas, or a file of one per line; with several labels "
        "LABEL=A,B,...;LABEL=FILE")  # fmt: skip
    add(
        "--other_class", metavar="CLASS", help="class as which values count that are not listed; default: the first one"
    )


def _missing_flags(parser: CommandParser) -> None:
    """Adds the flag of labels that are missing."""
    add = parser.flag_group("Missing labels")
    add("--missing_label", metavar="VALUE",
        help="label or class that a missing one counts as, such as 0 for what has not come yet; whether a record has a "
        "label is then as private as its label. Default: records without a label are left out")  # fmt: skip


def _budget_flags(parser: CommandParser, command: str) -> None:
    add = parser.flag_group("Budget")
    add("--epsilon", type=float, metavar="E", needed=True,
        help="privacy budget of the release, label histogram and labels together; smaller is more private")  # fmt: skip
    add("--delta", type=float, metavar="D",
        help="largest delta to accept of the mechanism file; default 0, pure DP"
        if command == "apply" else "delta of (epsilon, delta)-DP, as gaussian needs; default: pure DP")  # fmt: skip
    add("--prior_epsilon", type=float, metavar="E1",
        help="part of --epsilon for the label histogram; default: sqrt(labels/records), at most a half, for "
        "mechanisms without bias a 128th, for those without a prior a 256th; "
        "with a center sqrt(cells/records), a 32nd to an eighth")  # fmt: skip
    budget_record_flags(add)


def unit_flags(parser: CommandParser) -> None:
    """Adds the flags of the privacy unit."""
    add = parser.flag_group(
        "Privacy unit",
        "Without a unit, epsilon holds for the label of each record, and the labels of one person add up. With one, it "
        "holds for all labels of a unit.",
    )
    add("--unit_column", metavar="NAME", help="public column of integers or text that names the unit of each record, "
        "such as a user; records without a unit are left out")  # fmt: skip
    add("--max_records_per_unit", type=int, metavar="M",
        help="largest number of records of a unit that are released, chosen by a keyed hash of their identities; each "
        "label gets an M-th of epsilon. labeldp plan --units compares values of M")  # fmt: skip


def budget_record_flags(add: Add) -> None:
    """Adds the flags of ledger, caps and noise key to the group of the budget."""
    add("--ledger", metavar="FILE|URL", writes=LEDGER,
        help="record of the budget spent: a file, or a team's database, sqlite:///FILE or "
        "postgresql://USER@HOST/DATABASE; default labeldp_ledger.jsonl beside the output")  # fmt: skip
    add("--epsilon_cap", type=float, metavar="E", help="refuse a release that would raise the ledger's epsilon above E")
    add("--delta_cap", type=float, metavar="D", help="the same for delta; default 0 with --epsilon_cap, else no cap")
    add("--cap_window", metavar="TIME",
        help="let the caps hold for what is released within any time of this length, such as 12h, 30d or 4w; default: "
        "all time together")  # fmt: skip
    add("--noise_key_file", metavar="FILE",
        help="file with the 32-byte secret key, mode 0600; default: ~/.config/labeldp/noise.key, created if it does "
        "not exist")  # fmt: skip
    key_mode_flag(add)


def key_mode_flag(add: Add) -> None:
    """Adds the flag of the permissions of the noise key file."""
    add("--noise_key_mode", choices=KEY_MODES, metavar="WHO",
        help="who may read --noise_key_file: owner; or group, a group of this process as well, mode 0440, as mounted "
        "secrets of Kubernetes have it; default owner")  # fmt: skip


def _mechanism_flags(parser: CommandParser) -> None:
    if "mechanism" in parser.hints:
        add = parser.flag_group("Mechanism")
        add("--mechanism_file", metavar="FILE", needed=True, help="mechanism file of fit or solve")
    else:
        add = parser.flag_group("Mechanism", "The default is right for labels that models are trained on.")
    add("--for", dest="purpose", choices=PURPOSES, metavar="PURPOSE",
        help="what the labels serve for, instead of --mechanism: models, which is auto; log_features, models of those "
        "who train on the features of this log alone: up to epsilon 2 labels are then drawn around a model that takes "
        "most of epsilon; or labels, the least error of each label, which is rr_on_bins without a center; of classes, "
        "models is rr and labels rr_top_k; default models")  # fmt: skip
    add("--mechanism", choices=(AUTO, *MECHANISMS), metavar="NAME",
        help="auto, the mechanism with the least error of a model that is trained on the labels; or a name. For "
        f"{MECHANISM_LIST}; default auto")  # fmt: skip
    add("--mechanism_parameters", metavar="NAME=VALUE,...", help="parameters of the mechanism, for example bias=0.2")
    add("--loss", choices=LOSSES, metavar="LOSS",
        help=f"loss to minimize: {', '.join(LOSSES)}; default {DEFAULT_LOSS}")  # fmt: skip


def _center_flags(parser: CommandParser) -> None:
    fitted = "center" in parser.hints
    about = None if fitted else "Only the difference between a label and a prediction of it is randomized."
    add = parser.flag_group("Center", about)
    add("--center", choices=CENTERS, metavar="CENTER",
        help="linear: predict labels from the features first, by a linear model with a part of --epsilon; cells: and "
        "where it pays, by trees over cells of the features with more of it; predictions are released as a column; "
        "none: no center; default: linear for --mechanism auto over an even label domain, with --for log_features "
        "cells")  # fmt: skip
    add("--center_column", metavar="NAME",
        help="public column with a prediction of the label, from a model that has not seen these labels; needs an even "
        "label domain. With --center cells or linear, name of the new column; default LABEL_center")  # fmt: skip
    add("--center_features", metavar="NAME,...",
        help="features of --center: numbers, and texts as categories; default: all of them")  # fmt: skip


def _output_flags(parser: CommandParser, command: str) -> None:
    add = parser.flag_group("Output")
    add("--output", metavar="DIR", needed=True, writes=FOLDER, help="output folder; must be new or empty")
    add("--output_table", metavar="TABLE",
        help="add the shards to a table, in one commit after the charge: iceberg://CATALOG/NAMESPACE.TABLE, or "
        "delta://PATH, which gets copies")  # fmt: skip
    if command == "fit":
        add(
            "--mechanism_file", metavar="FILE", needed=True, writes=NEW, help="the mechanism file to write; must be new"
        )
    elif command == "privatize":
        parser.set_defaults(mechanism_file=None)
    shards = "shards that apply will write, which --schema is checked for" if command == "fit" else "shards"
    add("--output_format", choices=OUTPUT_FORMATS, metavar="FORMAT",
        help=f"format of the {shards}: {', '.join(OUTPUT_FORMATS)}; default: that of the input, or parquet "
        "for csv")  # fmt: skip
    add("--num_shards", type=int, metavar="N",
        help="number of shards; default: number of input files. With --partition_output, of each folder; default: the "
        "largest number of input files of a folder")  # fmt: skip
    add("--partition_output", metavar="NAME,...",
        help="write shards to folders NAME=VALUE, by columns that come from the names of the input's folders; the "
        "columns are left out of the shards")  # fmt: skip
    add("--compression", choices=COMPRESSIONS, default="none", metavar="HOW",
        help=f"compression of the shards: {', '.join(COMPRESSIONS)}; default none")  # fmt: skip
    add("--validate", action=Switch, help="validate, and release TFDV statistics and a schema in validation/")
    add(
        "--schema",
        metavar="FILE",
        help="TFDV schema that the features must match" + ("" if command == "fit" else "; implies --validate"),
    )
    add("--sign", metavar="KEY",
        help="sign the hashes of all files of the release with this Ed25519 private key: a PEM file (PKCS8, not "
        "encrypted) with the mode of --noise_key_file")  # fmt: skip


def runner_group(parser: CommandParser) -> None:
    """Adds the text on the runner's flags."""
    parser.flag_group(
        "Runner",
        "The job runs in this process, unless --runner names another runner of Apache Beam, such as FlinkRunner or "
        "DataflowRunner. Its flags (--direct_num_workers, --flink_master, --temp_location, ...) are passed to it. "
        "Paths may be s3:// and gs:// URLs; the environment (AWS_*, GOOGLE_APPLICATION_CREDENTIALS) or Beam's flags "
        f"say how: {STORE_FLAGS}.",
    )


def domain_flags(parser: CommandParser) -> None:
    """Adds the flags of `domain`."""
    parser.description = (
        "Propose a label domain: release a histogram of the labels over fixed cells, ten to a decade, with noise, and "
        "say which range of it holds them. Use it where the range is not known in general. Costs epsilon."
    )
    parser.epilog = """Example:
  labeldp domain --input 'log-*.csv' --input_format csv --label price \\
      --epsilon 0.1 --domain_file domain.json"""
    input_flags(parser)
    add = parser.flag_group("Labels")
    add("--label", metavar="NAME", needed=True, help="label column, which is private")
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
