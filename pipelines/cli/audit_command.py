"""`labeldp audit`: checks a mechanism file or a release and prints a report."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from labeldp.audit.audit_release import NoRecords, audit_path, audit_report
from labeldp.audit.documents import printable
from labeldp.audit.signature_audit import NoPublicKey, Signer

from ...transforms.progress_log import advance, progress_bar

_SECONDS_BETWEEN_LINES = 10.0


def add_flags(parser: Any) -> None:
    """Adds the arguments of the command to a parser of argparse."""
    parser.description = (
        "Recompute epsilon, bias and fingerprint of a mechanism file from its integer weights. "
        "Of a release, check the manifest against it too, and the records with --data."
    )
    parser.epilog = (
        "Exit status: 0 every check holds, 1 a check fails, 2 bad usage, 3 bytes of shards were not "
        "compared, 74 the report cannot be written."
    )
    group = parser.add_argument_group("Input")
    group.add_argument(
        "path", metavar="FILE|FOLDER", help="a mechanism file, release.json or output folder; on s3:// or gs:// too"
    )
    group.add_argument(
        "--data",
        action="store_true",
        help="read the shards of a release too: every label must be an output of the mechanism, row counts those of "
        "the manifest, and the distribution of the labels that of the mechanism for the noised histogram; "
        "dead letters are counted",
    )
    group.add_argument(
        "--signer",
        metavar="PUB",
        help="check that a release is signed by this key, that no byte of it was changed and no file added: the PEM "
        "file of an Ed25519 public key, or its SHA-256 fingerprint",
    )


def run(args: argparse.Namespace) -> int:
    """Runs the command and prints the report; bad usage, such as a path that does not exist, is one line.

    Returns the exit code: 0 if every check holds, 1 if one does not, 2 for bad usage, 3 if bytes were not compared.
    """
    path = getattr(args, "copies", {}).get(args.path, args.path)  # the local copy of a release on an object store
    try:
        signer = None if args.signer is None else Signer.read(args.signer)
        files = getattr(args, "digests", {}).get(args.path)
        with progress_bar():
            audit = audit_path(path, args.data, signer, files, _progress(), partial(advance, "checked"))
    except FileNotFoundError:
        return _bad_usage(f"{args.path!a} does not exist: name a mechanism file, or a folder with mechanism.json in it")
    except NoRecords:
        flag = "--data" if args.data else "--signer"
        return _bad_usage(f"{flag} needs a release, but {args.path!a} is a mechanism file: name an output folder")
    except NoPublicKey as error:
        return _bad_usage(f"--signer {error}")
    print(audit_report(audit))
    return 1 if audit.problems else 3 if audit.not_compared else 0


def _progress() -> Callable[[str], None]:
    """Function that is called with each file that was read; it prints a line every ten seconds."""
    count, said = 0, time.monotonic()

    def read(name: str) -> None:
        nonlocal count, said
        count += 1
        if time.monotonic() - said > _SECONDS_BETWEEN_LINES:
            said = time.monotonic()
            print(f"labeldp: signature: read {count} files, the last one {printable(name)}", file=sys.stderr)

    return read


def _bad_usage(message: str) -> int:
    print(f"labeldp audit: error: {printable(message)} (see `labeldp audit --help`)", file=sys.stderr)
    return 2
