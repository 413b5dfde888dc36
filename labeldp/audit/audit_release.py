"""Audit of a file or a folder: a mechanism file, or a release: manifest, mechanism and, on demand, records."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from .audit_mechanism import Audit, audit_document, audit_mechanism
from .class_center_document import CLASS_CENTER
from .document_members import check_form, written_problems
from .documents import RefusedDocument, load_document, printable
from .manifest_audit import (
    LABELS_FORMAT,
    budget_problems,
    center_epsilon,
    label_folders,
    statement_problems,
    unit_problems,
    warning_problems,
    whole_problems,
)
from .manifest_statements import removal_problems, removals_line, table_line, table_problems
from .release_files import check_plain, letter_name_problems, shard_problems
from .signature_audit import SIGNATURE_NAME, Digest, Signer, signature_report
from .weight_runs import rounded_up

RELEASE_FORMAT, CENTER_RELEASE_FORMAT = "labeldp-release-1", "labeldp-release-2"
CENTER_FORMAT = "labeldp-center-1"


class NoRecords(Exception):
    """Records or a signature are to be audited, but a mechanism file has none."""


def audit_path(
    path: str,
    data: bool = False,
    signer: Signer | None = None,
    files: Mapping[str, Digest] | None = None,
    read: Callable[[str], None] | None = None,
    counted: Callable[[int, int], object] = lambda records, total: None,
) -> Audit:
    """Audits a mechanism file, a release.json with the mechanism.json beside it, or a folder with both.

    With `data`, the shards of the release are read as well, if nothing else is wrong; this needs numpy and pyarrow.
    With a `signer`, the signature of the release is checked, and every file of it; `files` and `read` are those of
    `signature_report`, and `counted` is that of `audit_data`. Everything wrong with the files is in the `problems` of
    the audit. Raises FileNotFoundError if the path does not exist, and NoRecords if `data` is true, or there is a
    signer, and the file is a mechanism file.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(path)
    audit = _audit_path(path, data, signer is not None, counted)
    folder = _signed_folder(Path(path), signer is not None)
    try:
        if signer is not None:
            problems, line = signature_report(folder, signer, files, read)
            return dataclasses.replace(
                audit, problems=(*problems, *audit.problems), data_lines=(*audit.data_lines, line)
            )
        if audit.total_epsilon is not None and (folder / SIGNATURE_NAME).exists():
            unsigned = "signature    not checked: name its signer with --signer"
            return dataclasses.replace(audit, data_lines=(*audit.data_lines, unsigned))
    except OSError as error:
        problem = f"a file or folder of the release cannot be read: {error.strerror}"
        return dataclasses.replace(audit, problems=(problem, *audit.problems))
    return audit


def _signed_folder(path: Path, whole: bool) -> Path:
    """Folder of a release; if it is to be checked as a `whole`, also for the folder of one of several labels."""
    folder = path if path.is_dir() else path.parent
    if whole and folder.resolve().parent.name == "labels" and not (folder / "data").exists():
        return folder.resolve().parent.parent
    return folder


def _audit_path(path: str, data: bool, signed: bool, counted: Callable[[int, int], object]) -> Audit:
    """Audits what `audit_path` does, without the signature."""
    try:
        target = Path(path)
        if target.is_dir():
            return _audit_release(target, load_document(target / "release.json"), data, counted)
        document = load_document(target)
        if document.get("format") in (RELEASE_FORMAT, CENTER_RELEASE_FORMAT, LABELS_FORMAT):
            return _audit_release(target.parent, document, data, counted)
        if data or signed:
            raise NoRecords
        return audit_mechanism(document)
    except RefusedDocument as refused:
        return Audit((str(refused),))
    except MemoryError:
        return Audit(("not enough memory to audit this file",))
    except OSError as error:
        return Audit((f"a file or folder of the release cannot be read: {error.strerror}",))


def _audit_release(folder: Path, manifest: dict[str, Any], data: bool, counted: Callable[[int, int], object]) -> Audit:
    """Audits the mechanism.json of the folder, this manifest and, if wanted, the records; of several labels, each."""
    several = manifest.get("format") == LABELS_FORMAT
    check_plain(folder, manifest, ("data", "labels") if several else () if "data" in manifest else ("data",))
    if several:
        return _audit_labels(folder, manifest, data, counted)
    mechanism = load_document(folder / "mechanism.json")
    audit = audit_document(mechanism)
    expected = CENTER_RELEASE_FORMAT if audit.drawn_from_center else RELEASE_FORMAT
    if manifest.get("format") != expected:
        raise RefusedDocument(f"release.json is not a release manifest of this mechanism: its format is not {expected}")
    forms = ("center_mechanism", "center_release") if audit.drawn_from_center else ("mechanism", "release")
    check_form(manifest, forms[1], "release")
    shards = folder / manifest.get("data", "data")
    problems = audit.problems + tuple(_document_problems(folder, shards, manifest, mechanism, audit, data))
    lines: tuple[str, ...] = ()
    left = ""
    if data and problems:
        lines = ("data         not read, because other checks fail",)
    elif data:
        from .audit_data import audit_data

        problems, lines, left = audit_data(shards, manifest, mechanism, counted)
    problems = problems or (
        *written_problems(folder / "mechanism.json", mechanism, forms[0]),
        *written_problems(folder / "release.json", manifest, forms[1], 2),
    )
    return dataclasses.replace(
        audit,
        problems=problems,
        total_epsilon=float(manifest["epsilon"]),
        prior_epsilon=float(manifest.get("prior_epsilon", 0.0)),
        center_epsilon=float(center_epsilon(mechanism)),
        lines=(*audit.lines, *filter(None, () if problems else (table_line(manifest), removals_line(manifest)))),
        data_lines=lines,
        not_compared="" if problems else left,
    )


def _document_problems(
    folder: Path, shards: Path, manifest: dict[str, Any], mechanism: dict[str, Any], audit: Audit, data: bool
) -> Iterator[str]:
    """Compares a manifest with the mechanism file and with the files that it lists."""
    failed = bool(audit.problems)
    for problem in itertools.chain(
        budget_problems(manifest, mechanism, audit),
        statement_problems(manifest, mechanism, audit),
        unit_problems(manifest, mechanism, audit),
        table_problems(manifest),
        removal_problems(manifest),
        shard_problems(manifest, shards),
        _center_file_problems(folder / "center.json", mechanism),
        # With the records, the files of dead letters are read.
        () if data else letter_name_problems(shards.parent, manifest),
    ):
        failed = True
        yield problem
    if not failed:
        yield from warning_problems(manifest, mechanism)


def _audit_labels(folder: Path, manifest: dict[str, Any], data: bool, counted: Callable[[int, int], object]) -> Audit:
    """Audits the release of each label, and this manifest of all."""
    check_form(manifest, "labels_release", "release")
    folders = label_folders(folder, manifest)
    for path in folders.values():
        if not path.is_dir():
            raise RefusedDocument(f"labels/{printable(path.name)} is missing")
    parts = tuple((label, audit_path(str(path), data, counted=counted)) for label, path in folders.items())
    problems = tuple(f"label {printable(label)}: {problem}" for label, part in parts for problem in part.problems)
    problems = problems or (
        *whole_problems(manifest, folder, folders),
        *written_problems(folder / "release.json", manifest, "labels_release", 2),
    )
    left = "" if problems else next((part.not_compared for _, part in parts if part.not_compared), "")
    total = None if problems else float(manifest["epsilon"])
    return Audit(problems, total_epsilon=total, not_compared=left, parts=parts)


def _center_file_problems(path: Path, mechanism: dict[str, Any]) -> Iterator[str]:
    """Compares center.json with the linear center, or the center of classes, of the mechanism file."""
    center, expected = mechanism.get("center", {}), {"format": CENTER_FORMAT}
    if CLASS_CENTER in mechanism:
        kind, form, owner = "center of classes", "class_center_file", mechanism[CLASS_CENTER]
        expected |= {"column": owner["column"], "classes": mechanism["classes"], "center": owner["center"]}
    elif "linear" in center:
        kind, form = "linear center", "center_file"
        expected |= {key: center[key] for key in ("column", "domain", "linear")}
    else:
        if path.exists():
            yield "center.json is there, but mechanism.json has no linear center"
        return
    if not path.exists():
        yield f"center.json is missing: mechanism.json has a {kind}"
    elif load_document(path) != expected:
        yield f"center.json is not the {kind} of mechanism.json"
    else:
        yield from written_problems(path, expected, form)


def audit_report(audit: Audit) -> str:
    """Formats an audit as lines of plain ASCII, the last of them PASS, or FAIL or NOT COMPARED with the reasons."""
    lines = []
    for label, part in audit.parts:
        # Without the verdict of the part, which is one of those of the whole.
        lines += [f"label        '{printable(label)}'", *audit_report(part).splitlines()[:-1]]
    if audit.parts and audit.total_epsilon is not None:
        lines.append(f"together     total epsilon {audit.total_epsilon!r} for all {len(audit.parts)} labels")
    if audit.labels:
        bias = f"bias         at most {audit.max_bias!r} in absolute value, over all labels"
        lines += [*_randomizer_lines(audit), audit.classes_line or bias, f"fingerprint  {audit.fingerprint}"]
        lines += audit.lines
        lines += [] if audit.unit_column is None else [_unit_line(audit, audit.unit_column)]
    if audit.total_epsilon is not None and not audit.parts:
        units = "" if audit.unit_column is None else " for all labels of a unit"
        prior, center = (
            rounded_up(audit.records_per_unit * Fraction(epsilon or 0.0))
            for epsilon in (audit.prior_epsilon, audit.center_epsilon)
        )
        parts = [] if audit.drawn_from_center else [f"{prior!r} for the prior"]
        spent = " and ".join([*parts, *([f"{center!r} for the center"] if center else [])])
        lines.append(f"release      total epsilon {audit.total_epsilon!r}{units}, including {spent}")
    lines += filter(None, audit.data_lines)
    passed = f"NOT COMPARED: {audit.not_compared}" if audit.not_compared else "PASS"
    lines.append("FAIL: " + "; ".join(audit.problems) if audit.problems else passed)
    return "\n".join(lines)


def _randomizer_lines(audit: Audit) -> list[str]:
    """Lines of the report about the integer weights."""
    labels = "classes" if audit.classes_line else "labels"
    if audit.drawn_from_center:
        return [f"mechanism    none: {audit.labels} classes are drawn from a center; no label is read for a draw"]
    delta = f"at most {audit.delta!r}; certified {audit.certified_delta!r}, requested {audit.requested_delta!r}"
    ratio = "unbounded" if audit.ratio is None else f"{audit.ratio.numerator}/{audit.ratio.denominator}"
    return [
        f"mechanism    {audit.mechanism}: {audit.labels} {labels}, {audit.outputs} outputs, "
        f"probabilities in units of 2^-{audit.bits}",
        f"epsilon      at most {audit.epsilon!r}, recomputed from the weights; "
        f"certified {audit.certified_epsilon!r}, requested {audit.requested_epsilon!r}",
        *([f"delta        {delta}"] if audit.requested_delta > 0 else []),
        f"ratio        {ratio}, the largest ratio of two {labels}' probabilities of one output",
    ]


def _unit_line(audit: Audit, column: str) -> str:
    most = audit.records_per_unit
    if audit.drawn_from_center:
        return f"unit         column '{printable(column)}', at most {most} {'record' if most == 1 else 'records'} each"
    spent = rounded_up(most * Fraction(audit.certified_epsilon))
    delta = rounded_up(most * Fraction(audit.certified_delta))
    times = f"{spent!r}{f' and delta {delta!r}' if delta else ''}, {most} times that of one record, as above"
    return (
        f"unit         column '{printable(column)}', at most {most} {'record' if most == 1 else 'records'} each: for "
        f"all labels of a unit, the randomizer has epsilon {times}"
    )
