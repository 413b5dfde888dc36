"""Flags of the commands about releases, of `init`, `demo` and `completion`; those of `audit` are with the auditor."""

from __future__ import annotations

from ..spec.fields import INPUT_FORMATS
from ..spec.written_files import FOLDER, NEW, RESULT, TABLE
from .command_parser import Add, CommandParser, field_flags

REPORT_NAME = "report.html"
SHELLS = ("bash", "zsh")


def dialect_flags(add: Add) -> None:
    """Adds the flags of the CSV dialect to the group of the input."""
    field_flags(add, "csv_dialect", nargs="+", action="extend")


def init_flags(parser: CommandParser) -> None:
    """Adds the flags of `init`."""
    parser.description = (
        "Write a commented job file for an input file, to be completed and passed to privatize or fit with --config. "
        "Only the format and the names of the columns are looked at: the label, its domain and the budget are for you "
        "to fill in."
    )
    parser.epilog = "Example:\n  labeldp init log.csv && labeldp privatize --config job.yaml"
    add = parser.flag_group("Input")
    add("file", metavar="FILE", help="an input file, or a quoted glob of files with the same columns")
    add("--input_format", choices=INPUT_FORMATS, metavar="FORMAT",
        help=f"format of the file: {', '.join(INPUT_FORMATS)}; default: that of its name")  # fmt: skip
    dialect_flags(add)
    add("--label", metavar="NAME", help="label column; default: left to be filled in")
    add = parser.flag_group("Output")
    add("--output", metavar="FILE", default="job.yaml", writes=NEW, help="file to write; must be new; default job.yaml")


def report_flags(parser: CommandParser) -> None:
    """Adds the flags of `report`."""
    parser.description = (
        "Audit a release or a mechanism file and explain it in one HTML page. Or state a release in a claim file, or "
        "check one."
    )
    add = parser.flag_group("Input")
    add("path", metavar="FOLDER|FILE", help="an output folder or a mechanism file; on s3:// or gs:// too")
    add("--ledger", metavar="FILE|URL",
        help="ledger that was charged, a file or a database; default the file beside the folder")  # fmt: skip
    add = parser.flag_group("Output")
    add("--output", metavar="FILE", writes=NEW,
        help=f"HTML file to write; default {REPORT_NAME} beside the manifest")  # fmt: skip
    add("--party", metavar="NAME", help="who releases the labels, for the head of the page")
    add = parser.flag_group(
        "Claim file", "In place of the page: the release in the form of the OpenDP registry of deployments."
    )
    add(
        "--claim",
        metavar="FILE",
        writes=NEW,
        help="write the claim file; the name has lower-case letters, digits, _ and .yaml",
    )
    add("--claim_facts", metavar="FILE", help="YAML file with what the release does not know; needed by --claim")
    add("--claim_template", metavar="FILE", writes=NEW, help="write a file for --claim_facts, to complete")
    add("--check_claim", metavar="FILE", help="compare a claim file with the release")


def finish_flags(parser: CommandParser) -> None:
    """Adds the flags of `finish`."""
    parser.description = (
        "Publish the release of a job whose command has ended: one that was submitted with --no_wait_until_finish, or "
        "whose command was killed. Waits for the results of the job, checks them, charges the ledger and publishes the "
        "output. May be repeated, and run on another machine that sees the same paths."
    )
    parser.epilog = "Example:\n  labeldp finish gs://BUCKET/released --timeout 7200"
    add = parser.flag_group("Run")
    add("folder", metavar="FOLDER", help="output folder of the run, mechanism file of fit, or the hidden staging "
        "folder beside it")  # fmt: skip
    add("--timeout", type=float, metavar="SECONDS",
        help="stop waiting for the results after this time, 0 to look once; default: no limit")  # fmt: skip
    add("--noise_key_file", metavar="FILE",
        help="file of the secret key of the run, which the results are checked with; default: the one that the run "
        "named")  # fmt: skip
    field_flags(add, "noise_key_mode", help="who may read --noise_key_file: owner, or group; default owner")
    add = parser.flag_group("Output")
    add("--sign", metavar="KEY",
        help="sign the release with this Ed25519 private key, as --sign of privatize does; no file of the run names "
        "the key, so give it again")  # fmt: skip
    add(
        "--result_json",
        metavar="FILE",
        writes=RESULT,
        help="write paths, epsilons, warnings and verdict of the release",
    )


def remove_flags(parser: CommandParser) -> None:
    """Adds the flags of `remove`."""
    parser.description = (
        "Make a new release without some records; the bytes of all others stay as they are. Charges nothing. The "
        "release that is read stays, until you delete it."
    )
    parser.epilog = (
        "Example:\n  labeldp remove released --ids ids.txt --output released2\n\n"
        "Exit status: 0 the new release is there, 1 it is not, 2 bad usage."
    )
    add = parser.flag_group("Release")
    add("folder", metavar="RELEASE", help="output folder of the release; on s3:// or gs:// too")
    add = parser.flag_group("Records", "Exactly one of --ids, --units and --rows.")
    add(
        "--ids", metavar="FILE", help="ids of the records to remove, one on each line; needs a release with --id_column"
    )
    add("--units", metavar="FILE",
        help="privacy units whose records are all removed, one on each line; needs a release with "
        "--unit_column")  # fmt: skip
    add("--rows", metavar="FILE",
        help="lines SHARD,ROW, such as part-00000-of-00004.parquet,17, with rows from 0 on")  # fmt: skip
    add("--missing_ok", action="store_true", help="pass over lines that name no record of the release")
    add = parser.flag_group("Output")
    add("--output", metavar="DIR", writes=FOLDER, help="new folder for the release without the records", needed=True)
    add("--removed_on", metavar="YYYY-MM-DD",
        help="date of the removal, which the manifest states; default today, in UTC")  # fmt: skip
    add("--sign", metavar="KEY", help="sign the new release with this Ed25519 private key, as --sign of privatize does")
    add("--signer", metavar="PUB",
        help="check first that RELEASE is signed by this key, and unchanged; default, if it is signed, the key of "
        "--sign")  # fmt: skip
    add("--without_validation", action="store_true",
        help="leave out validation/, whose statistics still count the removed records")  # fmt: skip


def ledger_flags(parser: CommandParser) -> None:
    """Adds the flags of `ledger`."""
    parser.description = (
        "List the runs of a ledger, add up what their distinct releases cost together, and say what remains below a "
        "cap. Reads the ledger alone."
    )
    parser.epilog = "Example:\n  labeldp ledger labeldp_ledger.jsonl --epsilon_cap 31 --cap_window 30d"
    add = parser.flag_group("Ledger")
    add("place", metavar="FILE|URL",
        help="the ledger: a file, sqlite:///FILE, postgresql://USER@HOST/DATABASE, s3:// or gs://")  # fmt: skip
    add = parser.flag_group("Sums")
    add("--unit_column", metavar="NAME",
        help="column of the privacy units to add up for, such as user; default: for single records")  # fmt: skip
    add("--cap_window", metavar="TIME",
        help="add up the runs of the last 12h, 30d, 4w or another time; default all")  # fmt: skip
    add("--epsilon_cap", type=float, metavar="E", help="cap on epsilon, to say what remains below it")
    add("--delta", type=float, metavar="D",
        help="compose the releases at this delta as well, by their privacy loss distributions; needs the extra "
        "ledger")  # fmt: skip
    add = parser.flag_group("Output", "The table is printed.")
    add("--json", metavar="FILE", writes=TABLE, help="write table and sums as JSON")


def demo_flags(parser: CommandParser) -> None:
    """Adds the flags of `demo`."""
    parser.description = "Generate a log of ad clicks and privatize its conversion values."
    add = parser.flag_group("Input")
    add("--clicks", type=int, default=1_000_000, metavar="N", help="number of clicks; default 1000000")
    add("--seed", type=int, default=1, metavar="S", help="seed of the generated log; default 1")
    add = parser.flag_group("Budget")
    add("--epsilon", type=float, default=1.0, metavar="E", help="privacy budget; default 1")
    add = parser.flag_group("Output")
    add("--output", metavar="DIR", writes=FOLDER, help="new folder for the log and the release", needed=True)


def completion_flags(parser: CommandParser) -> None:
    """Adds the flags of `completion`."""
    parser.description = "Print a script with which a shell completes commands, flags, their values and files."
    parser.epilog = """Install it:
  labeldp completion bash > ~/.labeldp.bash      # and source it in ~/.bashrc
  labeldp completion zsh > ~/.zfunc/_labeldp     # a folder in fpath"""
    add = parser.flag_group("Shell")
    add("shell", choices=SHELLS, metavar="SHELL", help=" or ".join(SHELLS))
