"""Commented job file that `labeldp init` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from ..errors import one_line

_WIDTH = 100
_TRUTH_VALUES = {"label_min": 0, "label_max": 1, "label_step": 1}

_TEMPLATE = """\
# A job of labeldp. Fill in the empty lines, then try it without reading a label or spending budget, and run it:
#
#   labeldp privatize --config {file} --dry_run
#   labeldp privatize --config {file}
#
# Every flag of `labeldp privatize --help` can be here, without its dashes; flags on the command line win. Paths are
# relative to the folder in which the command runs. Never write the secret key here, only the name of its file.

# ---- Input: a glob in quotes takes several files that have the same columns.
{input}

# ---- Label: the private column of numbers. The columns of the file:
{columns}
{label}

# ---- Label domain: a public grid of labels. Labels outside are clamped to it, others go to a grid point.
# Choose it from what is known in general: the limits of a form or a product, published figures, an earlier release.
# Never take it from this file: the smallest and the largest label of the data would be revealed.
#   whole numbers (visits, weeks):  label_step 1, label_max what few labels exceed
#   prices, durations:              label_max what few labels exceed; label_step for 50 to 500 labels
#   ratings, classes with a value:  the values themselves, in a file: label_values instead of the three lines below
# A long tail is better cut: noise grows with the range, and a step below the noise gains nothing.
{domain}

# ---- Budget: how much one released label may reveal. The odds between any two labels change by at most
# exp(epsilon): 1 is a common choice, 0.5 protects well, above 8 there is little protection.
epsilon:

# ---- Recipients: do those who train have features that this file lacks? Then keep the default. If they train on these
# columns alone, log_features gives better models up to epsilon 2, by labels that say nothing else. For single labels
# that are looked at, labels gives the least error of each.
# for: log_features

# ---- Output: the folder must be new or empty.
output: released
output_format: {output_format}
# num_shards: 4

# ---- Choices whose defaults are good; remove the # to change them.
# mechanism: unbiased          # instead of for
# center: none                 # no model of the features; the input is then read twice instead of four times
# id_column: NAME              # unique ids, if records can move to another file or row between runs
# where: NAME=VALUE            # only the records whose public feature has this value
# validate: true               # compare features and output with a schema; needs the extra validation
# noise_key_file: noise.key    # 32 secret bytes, mode 0600; default ~/.config/labeldp/noise.key
# ledger: ledger.jsonl         # record of the budget spent; default beside the output
# epsilon_cap: 4               # refuse a release that would raise the ledger's epsilon above this
# cap_window: 30d              # the cap is for any time of this length; default all time together
"""


def job_template(
    file: str, input: Mapping[str, Any], columns: Sequence[tuple[str, str]], label: str | None, boolean: bool = False
) -> str:
    """Text of a job file for an input. It holds no value of any record.

    `file` is the name of the job file, for its comments, and `input` the flags of the input, as the user gave them,
    with input and input_format. Columns are names and types; a type is empty where it is not known without reading
    values. Without a label, it is left open. A boolean label is true or false, which are 1 and 0; its domain is filled
    in then.
    """
    named = [f"{one_line(name)} ({kind})" if kind else one_line(name) for name, kind in columns]
    return _TEMPLATE.format(
        file=one_line(file),
        input=_lines(input),
        columns=_comment(named),
        domain="\n".join(f"{name}: {value}" if boolean else f"{name}:" for name, value in _TRUTH_VALUES.items()),
        label="label:" if label is None else _lines({"label": label}),
        output_format="tfrecord" if input["input_format"] == "tfrecord" else "parquet",
    )


def _lines(values: Mapping[str, Any]) -> str:
    """Lines of YAML, with values in quotes where they need them."""
    return yaml.safe_dump(dict(values), allow_unicode=True, sort_keys=False, width=1 << 20).rstrip("\n")


def _comment(names: Sequence[str]) -> str:
    """A comment of several lines; a name is never cut."""
    lines = ["#  "]
    for place, name in enumerate(names):
        text = f" {name}{',' if place + 1 < len(names) else ''}"
        if len(lines[-1]) > 3 and len(lines[-1]) + len(text) > _WIDTH:
            lines.append("#  ")
        lines[-1] += text
    return "\n".join(lines)
