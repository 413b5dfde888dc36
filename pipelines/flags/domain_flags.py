"""Flags of `domain`."""

from __future__ import annotations

from .command_parser import CommandParser
from .job_flags import budget_record_flags, input_flags, runner_group, unit_flags


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
    add("--domain_file", metavar="FILE", needed=True, help="new JSON file for the released counts and the proposal")
    runner_group(parser)
