"""Flags of `evaluate`: those of the job that describe input and labels, and those of the grid."""

from __future__ import annotations

from .choices import DEFAULT_LOSS, LOSSES, MECHANISM_LIST, MODELS, NO_CENTER
from .command_parser import CommandParser
from .job_flags import input_flags, label_flags, runner_group
from .study_flags import DEFAULT_EPSILONS, SPEC_HELP

EVALUATED_MECHANISMS = (
    "rr_on_bins", "unbiased", "bias_limited", "debiased_rr", "rp_with_prior", "laplace", "staircase",
)  # fmt: skip
DEFAULT_MODELS = ("linear", "trees")
DEFAULT_SEEDS = 5
_NOT_TAKEN = ("id_column", "max_unusable_fraction")


def evaluation_flags(parser: CommandParser) -> None:
    """Adds the flags of `evaluate`."""
    parser.description = (
        "Train models on privatized labels and score them on true test labels; models trained on true labels and the "
        "mean predictor are scored for comparison. For research, on data that you may look at: the scores are measured "
        "on true labels and are not private."
    )
    parser.leave_out(_NOT_TAKEN)
    input_flags(parser)
    label_flags(parser)
    parser.domain_needed = True
    add = parser.flag_group("Models")
    add("--feature", nargs="+", metavar="NAME", help="columns to train on; default all except the label")
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
    add("--mechanism", nargs="+", default=list(EVALUATED_MECHANISMS), metavar="NAME",
        help=f"{SPEC_HELP}, or auto; default {' '.join(EVALUATED_MECHANISMS)}. For {MECHANISM_LIST}")  # fmt: skip
    add("--loss", choices=LOSSES, default=DEFAULT_LOSS, metavar="LOSS",
        help=f"loss to minimize and to score with: {', '.join(LOSSES)}; default {DEFAULT_LOSS}")  # fmt: skip
    add("--center", nargs="+", choices=(NO_CENTER, "linear"), default=[NO_CENTER], metavar="CENTER",
        help="centers around which each mechanism privatizes labels: none, or linear, which the release makes itself "
        "from noised sums over the features to train on; default none")  # fmt: skip
    add("--center_column", metavar="NAME",
        help="privatize labels around this column, too: a prediction of each label by a model that has not seen the "
        "labels; it is also a feature, unless --feature leaves it out")  # fmt: skip
    add = parser.flag_group("Output")
    add("--output", metavar="DIR", help="output folder; cached cells found there are reused", needed=True)
    add("--published", metavar="FILE", help="published results for comparison, a CSV of mechanism,epsilon,mean,std")
    add("--title", metavar="TEXT", help="title of the table and the pictures; default the input")
    runner_group(parser)
