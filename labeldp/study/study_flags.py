"""Flags of `solve`, `compare` and `plan`, which compute from a prior or from public ids, and of `evaluate`."""

from __future__ import annotations

from ..pipelines.flags.command_parser import Add, CommandParser
from ..pipelines.flags.job_flags import budget_record_flags, class_flags, input_flags, label_flags, runner_group
from ..pipelines.spec.fields import (
    CENTERS,
    DEFAULT_LOSS,
    LOSSES,
    MECHANISM_LIST,
    MECHANISMS,
    MODELS,
    MODELS_OF_LOG,
    NO_CENTER,
    MechanismNames,
)
from ..pipelines.spec.machine import available_cpus
from ..pipelines.spec.written_files import CSV_TABLE, FOLDER, NEW, TABLE

DEFAULT_EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
COMPARED_MECHANISMS = ("rr_on_bins", "bias_limited", "unbiased", "rr", "laplace", "staircase")
PRIOR_HELP = (
    "CSV of label,weight; JSON of labels and weights; a mechanism file; or a release folder; on s3:// or gs:// too"
)
SPEC_HELP = "NAME or NAME:PARAMETER=VALUE,... as in bias_limited:bias=0.2"
_ONLY_PRIOR = ("delta", "records", "explained", "draws", "mechanism", "loss")
_NOT_FOR_UNITS = ("id_column", "max_unusable_fraction", "rounding", "ledger", "epsilon_cap", "delta_cap")
_DELTA_HELP = "delta of (epsilon, delta)-DP, required by gaussian"
EVALUATED_MECHANISMS = (
    "rr_on_bins", "unbiased", "bias_limited", "debiased_rr", "rp_with_prior", "laplace", "staircase",
)  # fmt: skip
DEFAULT_MODELS = ("linear", "trees")
DEFAULT_SEEDS = 5
_NOT_FOR_EVALUATION = ("id_column", "max_unusable_fraction")


def solve_flags(parser: CommandParser) -> None:
    """Adds the flags of `solve`."""
    parser.description = (
        "Solve for a mechanism from a prior that is public or was released, and write its file. Reads no data. Prints "
        "one JSON line of facts."
    )
    parser.flag_group("Prior")("--prior", metavar="FILE", help=PRIOR_HELP, needed=True)
    add = parser.flag_group("Budget")
    add("--epsilon", type=float, metavar="E", help="epsilon of the labels", needed=True)
    add("--delta", type=float, metavar="D", help=_DELTA_HELP)
    add = parser.flag_group("Mechanism")
    add("--mechanism", choices=MechanismNames(MECHANISMS), default="rr_on_bins", metavar="NAME",
        help=f"{SPEC_HELP}; default rr_on_bins. For {MECHANISM_LIST}")  # fmt: skip
    add("--loss", choices=LOSSES, default=DEFAULT_LOSS, metavar="LOSS", help=_loss_help("loss to minimize"))
    add = parser.flag_group("Output")
    add("--output", metavar="FILE", writes=NEW, help="the mechanism file to write; must be new", needed=True)


def compare_flags(parser: CommandParser) -> None:
    """Adds the flags of `compare`."""
    parser.description = "Solve several mechanisms for one prior and compare their errors. Reads no data."
    _prior_flags(parser, "epsilons of the labels")
    add = parser.flag_group("Mechanism")
    add("--mechanism", nargs="+", metavar="NAME",
        help=f"{SPEC_HELP}; default {' '.join(COMPARED_MECHANISMS)}. For {MECHANISM_LIST}")  # fmt: skip
    _result_flags(parser, add)


def plan_flags(parser: CommandParser) -> None:
    """Adds the flags of `plan`."""
    parser.description = (
        "Plan a privacy budget from a prior and a number of records: how to split it between histogram and labels, and "
        "which mechanism to take. Reads no data. With --units: how many records of a user, or of another unit, to "
        "release, from the public ids of the input."
    )
    _prior_flags(parser, "whole privacy budgets, of histogram and labels together")
    add = parser.flag_group("Records and model")
    add("--records", type=int, metavar="N", help="number of records; default that of the release folder")
    add("--features", type=int, metavar="D", help="recommend a mechanism for a linear model of D features")
    add("--explained", type=float, metavar="R2", help="part of the labels' variance that they explain; default unknown")
    add("--draws", type=int, default=5, metavar="M", help="histograms to simulate for each split; default 5")
    add = parser.flag_group("Mechanism")
    add("--mechanism", default="rr_on_bins", metavar="NAME",
        help=f"{SPEC_HELP}; default rr_on_bins. For {MECHANISM_LIST}")  # fmt: skip
    _result_flags(parser, add)
    parser.flag_group("Privacy units", "Instead of a split: the number of records of a unit that are released.")(
        "--units", action="store_true",
        help="compare values of --max_records_per_unit for the input: the records that each keeps, the epsilon of each "
        "record, and the error of a model. Counts ids; of a label it reads only whether there is one. --prior is then "
        "optional, default a flat one over the label domain")  # fmt: skip
    parser.leave_out(_NOT_FOR_UNITS)
    parser.add_mode("units", [_unit_flags, input_flags, label_flags, runner_group], _ONLY_PRIOR, ["prior"])


def _unit_flags(parser: CommandParser) -> None:
    add = parser.flag_group("Privacy units")
    add("--unit_column", metavar="NAME", needed=True,
        help="public column of integers or text that names the unit of each record")  # fmt: skip
    budget_record_flags(add)


def _prior_flags(parser: CommandParser, epsilon_help: str) -> None:
    parser.flag_group("Prior")("--prior", metavar="FILE", help=PRIOR_HELP, needed=True)
    add = parser.flag_group("Budget")
    add("--epsilon", type=float, nargs="+", default=list(DEFAULT_EPSILONS), metavar="E",
        help=f"{epsilon_help}; default {' '.join(f'{e:g}' for e in DEFAULT_EPSILONS)}")  # fmt: skip
    add("--delta", type=float, metavar="D", help=_DELTA_HELP)


def _result_flags(parser: CommandParser, mechanism: Add) -> None:
    mechanism("--loss", choices=LOSSES, default=DEFAULT_LOSS, metavar="LOSS",
        help=_loss_help("loss to minimize and to state"))  # fmt: skip
    add = parser.flag_group("Output", "The table is printed.")
    add("--csv", metavar="FILE", writes=CSV_TABLE, help="write the table as CSV")
    add("--json", metavar="FILE", writes=TABLE, help="write the table as JSON")
    _processes_flag(add)


def _processes_flag(add: Add) -> None:
    add("--processes", type=int, default=available_cpus(), metavar="N",
        help="number of worker processes; default CPU count")  # fmt: skip


def _loss_help(purpose: str) -> str:
    return f"{purpose}: {', '.join(LOSSES)}; default {DEFAULT_LOSS}"


def evaluation_flags(parser: CommandParser) -> None:
    """Adds the flags of `evaluate`."""
    parser.description = (
        "Train models on privatized labels and score them on true test labels; models trained on true labels and the "
        "mean predictor are scored for comparison. For research, on data that you may look at: the scores are measured "
        "on true labels and are not private."
    )
    parser.leave_out(_NOT_FOR_EVALUATION)
    input_flags(parser)
    label_flags(parser)
    class_flags(parser)
    parser.domain_needed = True
    add = parser.flag_group("Models")
    add("--feature", nargs="+", metavar="NAME", help="columns to train on; default all except the label")
    add("--recipient_feature", nargs="+", metavar="NAME",
        help="those of them that recipients have and the log to release lacks: models are trained on them, centers are "
        "made without them; default none")  # fmt: skip
    add("--model", nargs="+", choices=MODELS, default=list(DEFAULT_MODELS), metavar="NAME",
        help=f"{', '.join(MODELS)}; default {' '.join(DEFAULT_MODELS)}")  # fmt: skip
    add("--seeds", type=int, default=DEFAULT_SEEDS, metavar="N",
        help=f"number of seeds, each of a split, its noise and its models; default {DEFAULT_SEEDS}")  # fmt: skip
    add = parser.flag_group("Budget")
    add("--epsilon", type=float, nargs="+", default=list(DEFAULT_EPSILONS), metavar="E",
        help=f"whole privacy budgets; default {' '.join(f'{e:g}' for e in DEFAULT_EPSILONS)}")  # fmt: skip
    add("--delta", type=float, metavar="D", help="delta of (epsilon, delta)-DP, required by gaussian")
    add("--prior_epsilon", type=float, metavar="E1", help="part of each epsilon for the label histogram")
    add = parser.flag_group("Mechanism")
    add("--mechanism", nargs="+", metavar="NAME",
        help=f"{SPEC_HELP}, or auto; default {' '.join(EVALUATED_MECHANISMS)}; of "
        f"classes rr rr_top_k. For {MECHANISM_LIST}")  # fmt: skip
    add("--loss", choices=LOSSES, metavar="LOSS",
        help=f"loss to minimize and to score with: {', '.join(LOSSES)}; default {DEFAULT_LOSS}; that of classes is the "
        "share of wrong ones")  # fmt: skip
    add("--center", nargs="+", choices=(*CENTERS, MODELS_OF_LOG), default=[NO_CENTER], metavar="CENTER",
        help="centers around which each mechanism privatizes labels: none, or linear, cells or marginals, which the "
        "release makes itself from noised sums over the features to train on, or log_features, that of --for "
        "log_features, with --mechanism auto; classes are drawn from that of cells; default none")  # fmt: skip
    add("--center_column", metavar="NAME",
        help="privatize labels around this column, too: a prediction of each label by a model that has not seen the "
        "labels; it is also a feature, unless --feature leaves it out")  # fmt: skip
    add = parser.flag_group("Output")
    add("--output", metavar="DIR", writes=FOLDER, help="output folder; must be new or empty", needed=True)
    add("--published", metavar="FILE", help="published results for comparison, a CSV of mechanism,epsilon,mean,std")
    add("--title", metavar="TEXT", help="title of the table and the pictures; default the input")
    _processes_flag(add)
