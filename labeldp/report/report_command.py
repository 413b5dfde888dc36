"""`labeldp report`: audits a release or a mechanism file, and explains it in one HTML page.

Or it states a release in a claim file, or compares it with one.
"""

from __future__ import annotations

import argparse
import os
import re

from labeldp import InputError, UsageError

from ..audit.audit_release import audit_path
from ..pipelines.errors import one_line
from ..pipelines.flags.arguments import local_copy
from ..pipelines.flags.release_flags import REPORT_NAME
from ..pipelines.publish.released import read_labels
from ..pipelines.spec.label_folders import SIGNATURE_NAME
from ..pipelines.spec.machine import check_extra, check_file
from ..pipelines.spec.written_files import NEW, write_file
from ..transforms.io.filesystems import is_remote
from ..transforms.progress_log import advance, progress_bar
from .report_input import read_report_input

_CLAIM_FLAGS = ("claim", "claim_facts", "claim_template", "check_claim")
_CLAIM_NAME = re.compile(r"[a-z0-9_]+\.yaml")


def run(args: argparse.Namespace) -> None:
    """Runs the command and prints the path of the page, or of the claim file.

    Raises UsageError for bad usage, and InputError if a file cannot be read or a claim does not state the release.
    """
    if any(getattr(args, name) is not None for name in _CLAIM_FLAGS):
        _claim(args)
        return
    check_extra("labeldp report", "evaluation", "jinja2")
    _check_inputs(args)
    _check_ledger(args.ledger)
    pages = {default_output(path): path for path in _of_labels(args.path)}
    if args.output is not None:
        pages = {args.output: args.path}
    for output in pages:
        _check_output(output)
    with progress_bar():
        for output, path in pages.items():
            _write_page(args, path, output)
            advance("wrote", 1, len(pages), "pages")
    for output in pages:
        print(f"report     {one_line(output)}")


def _claim(args: argparse.Namespace) -> None:
    """Writes a claim file or a template of facts, or checks a claim file."""
    from .claim_file import claim_document, claim_problem, claim_text, facts_template, read_claimed

    _check_claim_flags(args)
    _check_ledger(args.ledger)
    path = args.path
    claimed = read_claimed(local_copy(args, path), args.ledger, path)
    if args.claim_template is not None:
        _write("--claim_template", args.claim_template, facts_template(claimed))
        print(f"template   {one_line(args.claim_template)}: fill it in, for --claim_facts")
    elif args.claim is not None:
        _write("--claim", args.claim, claim_text(claim_document(claimed, args.claim_facts)))
        print(f"claim      {one_line(args.claim)}")
    else:
        problem = claim_problem(claimed, args.check_claim)
        if problem is not None:
            raise InputError(f"{args.check_claim} does not state {path}: {problem}")
        ledger = (
            "" if claimed.whole["runs"] else "; its statement on a ledger was not compared, because there is no ledger"
        )
        print(f"claim      {one_line(args.check_claim)} states this release{ledger}")


def _check_claim_flags(args: argparse.Namespace) -> None:
    for name in ("output", "party"):
        if getattr(args, name) is not None:
            raise UsageError(f"--{name} is for the page: make page and claim with two commands")
    given = [name for name in _CLAIM_FLAGS if getattr(args, name) is not None]
    if given == ["claim"]:
        raise UsageError("--claim needs --claim_facts, a file that --claim_template writes to be filled in")
    if given == ["claim_facts"]:
        raise UsageError("--claim_facts needs --claim, the file to write")
    if len(given) > 1 and given != ["claim", "claim_facts"]:
        raise UsageError(f"{' and '.join(f'--{name}' for name in given)}: give one of them")
    if args.claim is not None and not _CLAIM_NAME.fullmatch(os.path.basename(args.claim)):
        raise UsageError(
            f"--claim {args.claim}: the registry takes names of lower-case letters, digits and _ that end in .yaml"
        )
    for name in ("claim", "claim_template"):
        if getattr(args, name) is not None:
            _check_output(getattr(args, name), f"--{name}")
    _check_inputs(args)


def default_output(path: str) -> str:
    """Path of the page if `--output` is not given: in an output folder, or beside a file."""
    return os.path.join(path if os.path.isdir(path) else os.path.dirname(path), REPORT_NAME)


def _of_labels(path: str) -> list[str]:
    """Folders of the labels of a release of several labels, whose audit passes; for any other, the path itself."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    if not os.path.isdir(os.path.join(folder, "labels")):
        return [path]
    audit = audit_path(path)
    if not audit.parts:
        return [path]
    if audit.problems:
        raise InputError(f"{path} fails the audit; no report is written: {'; '.join(audit.problems)}")
    return [*read_labels(path)[1].values()]


def _check_inputs(args: argparse.Namespace) -> None:
    page = all(getattr(args, name) is None for name in _CLAIM_FLAGS)
    in_release = page and args.output is None
    if in_release and is_remote(args.path):
        raise UsageError("--output is missing: name a local file for the page")
    if in_release and _is_signed(args.path):
        raise UsageError(
            f"--output is missing: {args.path} is signed, and its signature would not hold with a page in it"
        )
    if not os.path.exists(local_copy(args, args.path)):
        raise UsageError(f"{args.path} does not exist: name an output folder or a mechanism file")


def _is_signed(path: str) -> bool:
    """Tells whether a file of a release, or its folder or that of a label, is in a signed release."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    return any(os.path.exists(os.path.join(folder, above, SIGNATURE_NAME)) for above in ("", "../.."))


def _check_ledger(ledger: str | None) -> None:
    if ledger is not None and not is_remote(ledger) and not os.path.isfile(ledger):
        raise UsageError(f"--ledger {ledger} is not a file: name the ledger that was charged")


def _check_output(output: str, flag: str = "--output") -> None:
    if not output.strip():
        raise UsageError(f"{flag} is empty: name a file")
    check_file(flag, output)
    if _is_signed(output):
        raise UsageError(f"{flag} {output} lies in a signed release, whose signature would not hold: name another file")
    if os.path.lexists(output):
        # After a failed run, an older page or claim must not be taken for that of this release.
        raise UsageError(f"{flag} {output} exists: name another file, or delete it")


def _write_page(args: argparse.Namespace, path: str, output: str) -> None:
    # It needs jinja2, which an extra installs.
    from .report_page import report_page

    subject = read_report_input(local_copy(args, path), args.ledger, path)
    _write("--output", output, report_page(subject, args.party))


def _write(flag: str, output: str, text: str) -> None:
    try:
        # JSON can hold surrogates, which UTF-8 cannot.
        write_file(output, text.encode(errors="backslashreplace"), NEW, flag)
    except OSError as error:
        raise InputError(f"{flag} {output} cannot be written: {error.strerror}") from None
