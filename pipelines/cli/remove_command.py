"""`labeldp remove`: makes a new release without some records, and says what stays known of these."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

from labeldp.audit.audit_data import sampled_records
from labeldp.audit.audit_mechanism import Audit
from labeldp.audit.signature_audit import NoPublicKey, Signer
from labeldp.audit.weight_runs import rounded_up

from ...transforms.errors import InputError, StageError, describe_failure
from ...transforms.io.filesystems import FileSystems, exists, is_remote
from ...transforms.progress_log import LOGGER
from ...transforms.shards.reduced_shards import select_records
from ...transforms.stores.object_store import is_store
from ..errors import UsageError, one_line
from ..flags.arguments import log_to_stderr
from ..publish.named_records import NamedRecords
from ..publish.removal import EarlierRelease, check_removal, find_records, publish_removal, read_before
from ..publish.signals import signals_as_interrupts
from ..spec.label_folders import CENTER_NAME, MANIFEST_NAME, SIGNATURE_NAME, VALIDATION_NAME
from ..spec.store_access import check_store, open_stores
from ..spec.target_checks import check_target, path_of, resolve_signing_key
from .existing_release import audited_release, signer_of
from .exit_codes import run_command

_NAMING = ("ids", "units", "rows")


def run(args: argparse.Namespace, store_flags: Sequence[str]) -> int:
    """Runs `labeldp remove`; returns the exit code."""
    log_to_stderr()

    def work() -> None:
        date, field = _removed_on(args.removed_on), _naming(args)
        open_stores(vars(args), store_flags)
        _check_folders(args)
        folder, output = path_of("folder", args.folder).rstrip("/"), path_of("output", args.output).rstrip("/")
        signed = exists(FileSystems.join(folder, SIGNATURE_NAME))
        key_file = resolve_signing_key(args.sign, output)
        key = None if key_file is None else key_file.load()
        if signed and key is None:
            LOGGER.warning("%s is signed; without --sign KEY the new release is not", one_line(folder))
        # With a signer the signature is audited too: nothing is signed anew that was changed since.
        try:
            signer = signer_of(key if signed else None) if args.signer is None else Signer.read(args.signer)
        except NoPublicKey as error:
            raise UsageError(f"--signer {error}") from None
        with signals_as_interrupts(), audited_release(args.folder, signer) as (local, audit):
            if audit.problems:
                raise InputError(f"{args.folder} fails its audit, so nothing is removed: {'; '.join(audit.problems)}")
            before = read_before(folder, local, not args.without_validation)
            found = find_records(before, field, getattr(args, field))
            check_removal(before, found, date, args.missing_ok, f"--{field} {getattr(args, field)}")
            samples = list(_sample_lines(before, found))
            publish_removal(before, found, date, output, key)
        _announce(before, found, audit, output, date, samples)

    # The text of an unforeseen exception could quote a record; its class and line cannot.
    return run_command("labeldp remove", work, (InputError, StageError), "nothing is published", describe_failure)


def _removed_on(text: str | None) -> str:
    """Date of the removal, YYYY-MM-DD."""
    now = datetime.datetime.now(datetime.timezone.utc)
    if text is None:
        return now.date().isoformat()
    try:
        date = datetime.datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        raise UsageError(f"--removed_on {text} is no date: write YYYY-MM-DD") from None
    # Where the day begins first.
    if date > (now + datetime.timedelta(hours=14)).date():
        raise UsageError(f"--removed_on {text} lies in the future: name the date of the removal")
    return date.isoformat()


def _naming(args: argparse.Namespace) -> str:
    """The one flag that names records."""
    given = [name for name in _NAMING if getattr(args, name) is not None]
    if len(given) != 1:
        said = "none of" if not given else "more than one of"
        raise UsageError(f"{said} --ids, --units and --rows is given: name the records with one of them")
    return given[0]


def _check_folders(args: argparse.Namespace) -> None:
    if is_remote(args.folder) and not is_store(args.folder):
        raise UsageError(f"{args.folder}: name a local folder, s3:// or gs://")
    if is_store(args.folder):
        check_store("RELEASE", args.folder, listing=True)
    if not exists(FileSystems.join(args.folder, MANIFEST_NAME)):
        raise UsageError(
            f"{args.folder} is no release: it has no {MANIFEST_NAME}, which is written last. Name an output folder; "
            "`labeldp finish` completes a run that was not published"
        )
    check_target("output", args.output)
    paths = [path_of("output", path) for path in (args.folder, args.output)]
    # Without links; a URL stays as it is.
    folder, output = (f"{path if is_remote(path) else os.path.realpath(path)}".rstrip("/") for path in paths)
    if f"{output}/".startswith(f"{folder}/"):
        raise UsageError(f"--output {args.output} lies inside the release that is read: name another folder")


def _sample_lines(before: EarlierRelease, found: NamedRecords) -> Iterator[str]:
    """Says of each label whether records of the public sample of its center are among those that are removed."""
    if not any(name.endswith(CENTER_NAME) for name in before.others):
        return
    with tempfile.TemporaryDirectory(prefix="labeldp-") as removed:
        for name, rows in found.rows.items():
            target = Path(removed, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            select_records(FileSystems.join(before.data, name), str(target), rows)
        for label, released in before.labels.items():
            mechanism = json.loads(released.mechanism.to_text())
            match = sampled_records({**released.document}, mechanism, Path(removed), found.rows)
            if match is not None:
                path = f"{label}/{CENTER_NAME}" if label else CENTER_NAME
                yield (
                    f"sample     {one_line(path)} keeps the coded features of {match.size} sampled records, "
                    f"{match.matches} of which have the codes of removed records"
                    f"{f' and {match.uncertain} more may' if match.uncertain else ''}; only a new release has another"
                )


def _announce(
    before: EarlierRelease, found: NamedRecords, audit: Audit, output: str, date: str, samples: Sequence[str]
) -> None:
    shards, remaining = len(before.shards), sum(before.shards.values()) - found.records
    print(f"removed    {found.records} records in {len(found.rows)} of {shards} shards, on {date}; {remaining} remain")
    if found.missing:
        LOGGER.warning("%d of %d names are of no record of this release", len(found.missing), found.names)
    print(f"release    {one_line(output)}: all other records, {len(before.others)} further files byte for byte")
    of = f" of {one_line(before.first.label)}" if len(before.labels) > 1 else ""
    print(f"ledger     nothing is charged; it names the release by the input digest{of} "
          f"{before.first.document['input_digest'][:16]}...")  # fmt: skip
    validated = any(name.startswith(f"{VALIDATION_NAME}/") for name in before.others)
    for label, part in audit.parts or (("", audit),):
        print(f"known      {_known(part, validated)}{f', for {one_line(label)}' if label else ''}")
    for line in samples:
        print(line)
    if validated:
        print(
            f"statistics {VALIDATION_NAME}/ still counts features and released labels of the removed records, exactly: "
            "--without_validation leaves it out"
        )
    print(f"copies     {one_line(before.folder)} and its copies still have the records, with labels at epsilon "
          f"{audit.total_epsilon!r}")  # fmt: skip


def _known(audit: Audit, validated: bool) -> str:
    """Epsilon of what the new release says of a removed label; `validated` tells that it has statistics of labels."""
    of = f"of the label of {'a removed record' if audit.unit_column is None else 'the removed records of a unit'}"
    if validated:
        # Statistics of all labels less those of the others are statistics of the removed labels, as released.
        return (
            f"{of}, the new release says at most epsilon {audit.total_epsilon!r}, as before: center and histogram "
            f"still count it, and so does {VALIDATION_NAME}/, as it was released"
        )
    parts = {"center": audit.center_epsilon, "histogram": audit.prior_epsilon or 0.0}
    spent = {name: audit.records_per_unit * Fraction(epsilon) for name, epsilon in parts.items() if epsilon}
    if not spent:
        return f"nothing {of}: neither center nor histogram was made from it"
    sums = " + ".join(f"{float(epsilon):g} for the {name}" for name, epsilon in spent.items())
    total = rounded_up(sum(spent.values(), Fraction(0)))
    return f"{of}, the new release says at most epsilon {total!r}: {sums}, which still count it"
