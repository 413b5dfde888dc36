"""Audit of the released records: every label is an output, row counts hold, the distribution is that of the channel.

Classes stand in one type and spelling. With a center column, every label minus the center of its own record is an
output. With a linear center, every record's center is the one that the center predicts from the record's features, and
cells have as many records as it says. With units, none has more records than the bound.

Reads TFRecords with code of its own and Parquet with pyarrow. The true labels are not needed. Not loaded by an audit
without `--data`, which uses the standard library only, and numpy for the cells of a center.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .center_predictions import CenterPredictions
from .class_center_audit import CLASS_CENTER
from .class_labels import ClassLabels
from .class_predictions import ClassPredictions
from .documents import RefusedDocument, printable, read_center, residual_cells
from .drawn_outputs import DrawnOutputs
from .output_distribution import FALSE_ALARM, check_distribution
from .output_statement import read_output
from .parquet_bytes import ParquetBytes
from .release_files import folder_values, letter_problems
from .removal_statement import removed_records
from .shard_columns import Column, ShardReader
from .tfrecord_examples import check_gzip
from .weight_runs import dense_weights

_WRONG_SETS_SHOWN = 3
_NUMBER = re.compile(
    r"[ \t\n\f\r]*([+-])?(?=[0-9]|\.[0-9])([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,3}))?[ \t\n\f\r]*", re.ASCII
)
# Outputs this close, as a share of the largest label, may be one in float32.
_FLOAT32_ROUNDING = 2.0**-22


class DataAudit(NamedTuple):
    """Result of an audit of the records: failed checks, one line each, without any label; and lines of the report."""

    problems: tuple[str, ...]
    lines: tuple[str, ...]


def audit_data(data: Path, release: dict[str, Any], mechanism: dict[str, Any]) -> DataAudit:
    """Reads all shards of a release in a folder and checks their labels.

    The manifest and the mechanism file passed their audits.
    """
    shards = release["shards"]
    column: str | None = None
    drawn = len(mechanism["classes"]["values"]) if CLASS_CENTER in mechanism else 0
    places = range(drawn) if drawn else mechanism["outputs"]
    outputs: _Outputs | _CenteredOutputs = _Outputs(np.array(places, np.float64))
    if "center" in mechanism:
        center = read_center(mechanism)
        column = center["center.column"]
        outputs = _CenteredOutputs(np.array(mechanism["outputs"], np.float64), center["center.domain"])
    bounded = "unit" in mechanism
    units = UnitRecords(mechanism["unit"]["max_records"]) if bounded else None
    unit = mechanism["unit"]["column"] if bounded else None
    classes = ClassLabels(mechanism["classes"]["values"]) if "classes" in mechanism else None
    if drawn:
        column = mechanism[CLASS_CENTER]["column"]
    reader = ShardReader(release["label"], column, unit=unit, classes=classes, drawn=drawn)
    predictions = _predictions(mechanism, not next(iter(shards)).endswith(".parquet"))
    if predictions is not None:
        reader = dataclasses.replace(reader, numbers=predictions.numbers, categories=predictions.categories)
    parts = None if isinstance(predictions, ClassPredictions) else DrawnOutputs(mechanism, outputs.groups())
    problems: list[str] = []
    for name, records in shards.items():
        try:
            problems += _shard_problems(outputs, predictions, units, parts, reader, data, name, records)
        except RefusedDocument as refused:
            problems.append(f"data/{printable(name)} {refused}")
    if units is not None:
        problems += units.problems()
    if classes is not None:
        problems += classes.problems()
    problems += letter_problems(data.parent, release)
    reason = "" if drawn else _unknown_prior(release, mechanism)
    if isinstance(predictions, CenterPredictions) and predictions.cells is not None and not reason:
        # Records without a usable label may be in the sample of features, but are in no shard.
        problems += predictions.cells.problems(release["records_without_label"], removed_records(release))
    own = isinstance(predictions, ClassPredictions) and predictions.made_from_these(release)
    if isinstance(predictions, ClassPredictions) and not problems:
        problems += predictions.drawn.problems(own)
    if problems:
        return DataAudit(tuple(problems), ())
    lines = [
        f"data         {release['records'] - removed_records(release)} records in {len(shards)} shards: every label"
        f"{'' if classes is None else ', a class in one type and spelling,'}"
        f"{'' if column is None or drawn else ', minus the center of its record,'} is an output of the mechanism, "
        "row counts are those of the manifest"
    ]
    if isinstance(predictions, ClassPredictions):
        lines += _drawn_lines(predictions, own)
    elif predictions is not None:
        lines.append(_centers_line(predictions))
    if units is not None:
        lines.append(units.line())
    if "dead_letters" in release:
        letters = release["dead_letters"]
        files = "1 file" if len(letters) == 1 else f"{len(letters)} files"
        lines.append(f"dead letters {sum(letters.values())} in {files}, as in the manifest: places, and no labels")
    if not drawn:
        problem, line = ("", f"distribution not checked: {reason}") if reason else ("", "")
        if not reason:
            problem, line = _distribution(outputs, release, mechanism)
        problems += [problem] if problem else [] if parts is None else parts.problems()
        lines += [*([] if parts is None else parts.lines()), *([line] if line else [])]
    written = _Written(release)
    problems += [] if problems else written.problems(data, shards)
    return DataAudit(tuple(problems), () if problems else (*lines[:1], *written.lines(), *lines[1:]))


class _Written:
    """The files of shards: they are what the writer makes of the records, and what the manifest states of it."""

    def __init__(self, release: dict[str, Any]):
        self._release = release
        self._parquet: ParquetBytes | None = None

    def problems(self, data: Path, shards: Iterable[str]) -> Iterator[str]:
        try:
            output = read_output(self._release)
        except RefusedDocument as refused:
            yield str(refused)
            return
        if output.format == "parquet":
            self._parquet = ParquetBytes(output)
        for name in shards:
            path = f"data/{printable(name)}"
            try:
                if self._parquet is not None:
                    yield from (f"{path} {problem}" for problem in self._parquet.problems(data / name))
                elif output.compression == "gzip":
                    check_gzip(data / name)
            except RefusedDocument as refused:
                yield f"{path} {refused}"

    def lines(self) -> Iterator[str]:
        """Lines of the report on what was shown of the bytes, and what was not."""
        if self._parquet is None:
            return
        others = sorted(self._parquet.others)
        if not others:
            yield "files        every byte of the Parquet shards is the one that pyarrow writes for their records"
            return
        yield (
            "files        Parquet shards have nothing but the pages of their columns, in row groups as stated; bytes "
            f"within pages were not compared: for this, audit with pyarrow {', '.join(others)}"
        )


class _Outputs:
    """The outputs of the mechanism, and how many records have each. Labels are compared bit by bit."""

    def __init__(self, values: np.ndarray):
        """values: shape (m,), float64, ascending."""
        self._counts = np.zeros(len(values), np.int64)
        self._rounded = False
        # By label type: the distinct outputs, and for each output the first one that is equal to it in that type.
        self._known: dict[Any, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        for kind in (np.float32, np.float64):
            with np.errstate(over="ignore"):  # as the writer casts
                distinct, first, place = np.unique(values.astype(kind), return_index=True, return_inverse=True)
            self._known[np.dtype(kind)] = distinct, first, first[place]

    def add(self, labels: np.ndarray, centers: np.ndarray) -> np.ndarray:
        """Counts labels, shape (n,), float32 or float64; returns the output of each, shape (n,), -1 for none."""
        distinct, first, _ = self._known[labels.dtype]
        place = np.minimum(np.searchsorted(distinct, labels), len(distinct) - 1)
        unsigned = f"u{labels.dtype.itemsize}"
        wrong = distinct[place].view(unsigned) != np.ascontiguousarray(labels).view(unsigned)
        self._counts += np.bincount(first[place[~wrong]], minlength=len(self._counts))
        self._rounded |= labels.dtype == np.float32
        return np.where(wrong, -1, first[place])

    def groups(self) -> np.ndarray:
        """For each output, the number of its group of outputs that records may not distinguish, ascending from 0."""
        first = self._known[np.dtype(np.float32)][2]
        return np.cumsum(first == np.arange(len(first))) - 1

    def merged(self, channel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Counts and channel, shape (k, m), with outputs that are equal in the records as one."""
        first = self._known[np.dtype(np.float32 if self._rounded else np.float64)][2]
        kept, place = np.unique(first, return_inverse=True)
        counts, merged = np.zeros(len(kept), np.int64), np.zeros((len(channel), len(kept)))
        np.add.at(counts, place, self._counts)
        np.add.at(merged.T, place, channel.T)
        return counts, merged


class _CenteredOutputs:
    """The outputs of a mechanism of residuals, and how many records have each, as label minus center."""

    def __init__(self, values: np.ndarray, domain: list[float]):
        """values: shape (m,), float64, ascending. domain: the k public labels, ascending."""
        self._values = values
        self._domain = np.array(domain)
        self._middles = np.array([_least_float((Fraction(a) + Fraction(b)) / 2) for a, b in pairwise(domain)])
        self._counts = np.zeros(len(values), np.int64)

    def add(self, labels: np.ndarray, centers: np.ndarray) -> np.ndarray:
        """Counts labels, shape (n,), around centers, shape (n,), float64; returns the output of each, -1 for none."""
        with np.errstate(over="ignore"):
            rounded = centers.astype(np.float32).astype(np.float64)
        places = np.searchsorted(self._middles, np.nan_to_num(rounded), side="right")
        bases = self._domain[np.where(np.isfinite(rounded), places, (len(self._domain) - 1) // 2)]
        values = self._values
        place = np.searchsorted(values, labels.astype(np.float64) - bases)
        found, unsigned = np.full(len(labels), -1), f"u{labels.dtype.itemsize}"
        for shift in (-2, -1, 0, 1):  # the difference is rounded, and two outputs may be equal up to rounding
            output = np.clip(place + shift, 0, len(values) - 1)
            with np.errstate(over="ignore"):
                expected = (bases + values[output]).astype(labels.dtype)
            hit = (found < 0) & (expected.view(unsigned) == np.ascontiguousarray(labels).view(unsigned))
            self._counts += np.bincount(output[hit], minlength=len(self._counts))
            found[hit] = output[hit]
        return found

    def groups(self) -> np.ndarray:
        """As `_Outputs.groups`."""
        largest = np.abs(self._domain).max() + np.abs(self._values).max()
        return np.cumsum(np.append(False, np.diff(self._values) > largest * _FLOAT32_ROUNDING))

    def merged(self, channel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Counts and channel, shape (k, m), with outputs that records may not distinguish as one."""
        place = self.groups()
        counts, merged = np.zeros(place[-1] + 1, np.int64), np.zeros((len(channel), place[-1] + 1))
        np.add.at(counts, place, self._counts)
        np.add.at(merged.T, place, channel.T)
        return counts, merged


def _least_float(bound: Fraction) -> float:
    """The least float that is not below the bound."""
    found = float(bound)
    return found if Fraction(found) >= bound else float(np.nextafter(found, np.inf))


def _predictions(mechanism: dict[str, Any], float32: bool) -> CenterPredictions | ClassPredictions | None:
    """Predictions of a center that was made of features; `float32` says whether records are TFRecords."""
    if CLASS_CENTER in mechanism:
        return ClassPredictions(mechanism, float32)
    return CenterPredictions(mechanism, float32) if "linear" in mechanism.get("center", {}) else None


def _drawn_lines(predictions: ClassPredictions, own: bool) -> Iterator[str]:
    line = "centers      all probabilities are those that the published center predicts from the record's own features"
    if predictions.rounded:
        line += f"; for {predictions.rounded} records, from features before they were rounded to float32"
    yield line
    if own:
        yield "             the center was made from as many records, with the same cells and sums of features"
    else:
        yield "             the center was made from other records: cells have other numbers of them, or other features"
    yield from predictions.drawn.lines(own)


def _centers_line(predictions: CenterPredictions) -> str:
    line = "centers      every center is the one that the published map predicts from the record's own features"
    if predictions.rounded:
        line += f"; for {predictions.rounded} records, from features before they were rounded to float32"
    return line


def _shard_problems(
    outputs: _Outputs | _CenteredOutputs,
    predictions: CenterPredictions | ClassPredictions | None,
    units: UnitRecords | None,
    parts: DrawnOutputs | None,
    reader: ShardReader,
    data: Path,
    name: str,
    records: int,
) -> Iterator[str]:
    path = f"data/{printable(name)}"
    found, wrong, first, strange, first_strange = 0, 0, -1, 0, -1
    scans = [parts, predictions.drawn if isinstance(predictions, ClassPredictions) else None]
    for scan in scans:
        if scan is not None:
            scan.parts.next_shard()
    for labels, centers, features, units_found in reader.read(data / name, folder_values(name)):
        if units is not None and units_found is not None:
            units.add(units_found)
        drawn = outputs.add(labels, centers)
        misses = drawn < 0
        if parts is not None:
            parts.add(drawn, features)
        if first < 0 and misses.any():
            first = found + int(misses.argmax())
        if predictions is not None:
            if isinstance(predictions, ClassPredictions):
                others = predictions.wrong(features, centers, labels)
            else:
                others = predictions.wrong(features, centers)
            if first_strange < 0 and others.any():
                first_strange = found + int(others.argmax())
            strange += int(others.sum())
        found, wrong = found + len(labels), wrong + int(misses.sum())
    if wrong:
        around = "" if reader.center is None or reader.drawn else " around the record's center"
        what = "no output of the mechanism" if reader.classes is None else "no class that the mechanism releases"
        yield f"{path} has {wrong} labels that are {what}{around}, first in record {first}"
    if strange:
        what = "probabilities that the center" if reader.drawn else "centers that the linear center"
        yield (
            f"{path} has {strange} {what} does not predict from the record's features, first in record {first_strange}"
        )
    if found != records:
        yield f"{path} holds {found} records, but release.shards says {records}"


def _unknown_prior(release: dict[str, Any], mechanism: dict[str, Any]) -> str:
    """The reason why the prior says nothing about these records; empty if it is the noised histogram of their labels.

    The name of a prior's release is a hash of the input's digest and of the noise's parameters, all of them public.
    """
    noised = mechanism["prior"]
    if not noised["epsilon"]:
        return "the prior is public, it was not counted from these records"
    bound = [
        release["input_digest"], release["label"],
        mechanism["center"]["domain"] if "center" in mechanism else mechanism["labels"],
        [release["prior_epsilon"], release["randomizer_epsilon"]], release["rounding"],
        *([mechanism["center"]["column"]] if "center" in mechanism else []),
    ]  # fmt: skip
    if "unit" in mechanism:
        bound.append({"unit": [mechanism["unit"]["column"], mechanism["unit"]["max_records"]]})
    if "classes" in mechanism:
        bound.append({"classes": [mechanism["classes"]["values"], mechanism["classes"]["other"]]})
    name = hashlib.blake2b(json.dumps(bound).encode(), digest_size=16, person=b"labeldp ledger").hexdigest()
    if noised["release"] != name:
        return "the prior was counted from other records, or with other parameters, than release.json states"
    return ""


def _distribution(
    outputs: _Outputs | _CenteredOutputs, release: dict[str, Any], mechanism: dict[str, Any]
) -> tuple[str, str]:
    """Either the problem or a line of the report; the other is empty."""
    weights = dense_weights(mechanism["columns"], len(mechanism["labels"]), mechanism["bits"])
    counts, channel = outputs.merged(np.array(weights).T)
    scale = float(2 / Fraction(release["prior_epsilon"]))
    widths = None
    if "center" in mechanism:
        channel, weights_of_cells, widths = _residual_histogram(channel, mechanism)
    else:
        weights_of_cells = _as_weights(mechanism["prior"]["counts"])
    removed = removed_records(release)
    result = check_distribution(counts, channel, weights_of_cells, scale, FALSE_ALARM / 2, widths, removed)
    if not result.sets:
        return "", "distribution not checked: the noise of the histogram is larger than its counts"
    alarm = f"a correct release fails this with a probability of at most {FALSE_ALARM:g}"
    if result.wrong:
        shown = ", ".join(f"{first} to {stop - 1}" for first, stop in result.wrong[:_WRONG_SETS_SHOWN])
        more = ", ..." if len(result.wrong) > _WRONG_SETS_SHOWN else ""
        return (
            "the labels were not drawn from the channel for the noised histogram: "
            f"{len(result.wrong)} of {result.sets} sets of outputs deviate, outputs number {shown}{more}; {alarm}"
        ), ""
    return "", (
        f"distribution {result.sets} sets of outputs agree with the channel and the noised histogram, whose noise "
        f"allows deviations of {100 * result.widest:.2g} % of the records; {alarm}"
        f"{f', if the {removed} removed records were chosen without regard to their released labels' * bool(removed)}"
    )


def _residual_histogram(channel: np.ndarray, mechanism: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Channel of all residuals, which are clipped to the labels; the noised histogram as weights; its cells' widths."""
    center, labels = read_center(mechanism), np.array(mechanism["labels"])
    widths = np.array(residual_cells(len(center["center.domain"])))
    above = np.array(center["center.domain"]) - center["center.domain"][0]
    residuals = np.concatenate([-above[:0:-1], above])
    rows = np.clip(np.arange(len(residuals)) - np.searchsorted(residuals, labels[0]), 0, len(labels) - 1)
    return channel[rows], _as_weights(center["center.counts"]), widths


def _as_weights(noised: list[int]) -> np.ndarray:
    """Noised counts, clipped at 0 and normalized: the weights whose errors `output_distribution` bounds."""
    counts = np.maximum(np.array(noised, np.float64), 0.0)
    counts = counts if counts.any() else np.ones(len(counts))
    return counts / counts.sum()


def _plain(unit: str) -> str:
    """One text of all spellings of a number, so that `5` and `5.0` are one unit; another text as it is."""
    found = _NUMBER.fullmatch(unit)
    if found is None:
        return unit
    sign, whole, fraction, exponent = (part or "" for part in found.groups())
    number = Fraction(int(whole + fraction), 10 ** len(fraction)) * Fraction(10) ** int(exponent or 0)
    return str(-number if sign == "-" else number)


class UnitRecords:
    """Records of each unit, over all shards. Units are compared by hashes of 64 bits."""

    def __init__(self, most: int):
        """Starts without records; `most` is the largest number of records of a unit that the release states."""
        self._most = most
        self._units: list[np.ndarray] = []
        self._without = 0

    def add(self, units: Column) -> None:
        """Adds the units of a batch of records; a code below 0 is that of a record without one."""
        texts = [_plain(str(value)).encode(errors="surrogateescape") for value in units.values]
        hashes = [hashlib.blake2b(text, digest_size=8) for text in texts]
        known = np.frombuffer(b"".join(each.digest() for each in hashes), np.uint64)
        self._units.append(known[units.codes[units.codes >= 0]])
        self._without += int((units.codes < 0).sum())

    def problems(self) -> Iterator[str]:
        """Compares the numbers of records with the bound: one line for each failed check. No unit is named."""
        _, records = self._counts()
        over = int((records > self._most).sum())
        if over:
            yield f"{over} units have more than {self._most} records, the unit.max_records of mechanism.json"
        if self._without:
            yield f"{self._without} records have no unit, so nothing bounds how many belong to one"

    def line(self) -> str:
        """Line of the report that describes what was found."""
        units, records = self._counts()
        most = f"at most {max(records, default=0)} records each, {self._most} are allowed"
        return f"units        {len(units)} units with {most}"

    def _counts(self) -> tuple[np.ndarray, np.ndarray]:
        return np.unique(np.concatenate([np.zeros(0, np.uint64), *self._units]), return_counts=True)
