"""Audit of the released records: every label is an output, row counts hold, the distribution is that of the channel.

Classes stand in one type and spelling. With a center column, every label minus the center of its own record is an
output. With a linear center, every record's center is the one that the center predicts from the record's features, and
cells have as many records as it says. With units, none has more records than the bound.

Reads TFRecords with code of its own and Parquet with pyarrow. The true labels are not needed. Not loaded by an audit
without `--data`, which uses the standard library only, and numpy for the cells of a center.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .cell_predictions import SampledRecords
from .center_predictions import CenterPredictions
from .class_center_document import CLASS_CENTER
from .class_columns import ClassLabels
from .class_predictions import ClassPredictions
from .documents import RefusedDocument, printable, public_domain, read_center, residual_cells
from .drawn_outputs import CenteredOutputs, DrawnOutputs, Outputs
from .manifest_statements import read_output, removed_records
from .output_distribution import FALSE_ALARM, check_distribution
from .parquet_bytes import ParquetBytes
from .release_files import folder_values, letter_problems
from .shard_columns import Column, ShardReader
from .tfrecord_examples import check_gzip
from .weight_runs import dense_weights

_WRONG_SETS_SHOWN = 3
_NUMBER = re.compile(
    r"[ \t\n\f\r]*([+-])?(?=[0-9]|\.[0-9])([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,3}))?[ \t\n\f\r]*", re.ASCII
)


def audit_data(
    data: Path,
    release: dict[str, Any],
    mechanism: dict[str, Any],
    counted: Callable[[int, int], object] = lambda records, total: None,
) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Reads all shards of a release in a folder, and gives lines of problems, without any label, or of the report.

    The last text is the reason why bytes were not compared; empty if all were.

    `counted` is called with the number of records of each batch that was read, and of all. The manifest and the
    mechanism file passed their audits. Each step takes what the one before has passed.
    """
    records, files = _Records(data, release, mechanism, counted), _Files(data, release)
    for step in (records.problems, records.draw_problems, files.problems):
        problems = tuple(step())
        if problems:
            return problems, (), ""
    return (), (records.line(), *files.lines(), *records.further_lines()), files.not_compared()


def sampled_records(
    release: dict[str, Any], mechanism: dict[str, Any], data: Path, names: Iterable[str]
) -> SampledRecords | None:
    """The sample of a release, of which the records of some shards were taken; None if its center has none.

    The shards lie in the folder `data` and may have fewer records than in the release, whose manifest and mechanism
    file passed their audits. A record that is removed from a release may be one of the sample, and its codes stay
    there.
    """
    predictions = _predictions(mechanism, names)
    if predictions is None:
        return None
    reader = _reader(release, mechanism, predictions)
    for name in names:
        for batch in reader.read(data / name, folder_values(name)):
            predictions.wrong(batch.features, batch.centers, batch.labels)
    return None if predictions.cells is None else predictions.cells.sample


def _predictions(mechanism: dict[str, Any], names: Iterable[str]) -> CenterPredictions | ClassPredictions | None:
    """Predictions of a center that was made of features, for shards of these names."""
    float32 = not all(name.endswith(".parquet") for name in names)
    if CLASS_CENTER in mechanism:
        return ClassPredictions(mechanism, float32)
    return CenterPredictions(mechanism, float32) if "linear" in mechanism.get("center", {}) else None


def _reader(
    release: dict[str, Any], mechanism: dict[str, Any], predictions: CenterPredictions | ClassPredictions | None
) -> ShardReader:
    """Reader of labels, units and centers, and of the features that they are predicted from."""
    drawn, center = CLASS_CENTER in mechanism, mechanism.get(CLASS_CENTER, mechanism.get("center", {}))
    unit, left_out = mechanism.get("unit", {}).get("column"), tuple(release.get("left_out", ()))
    return ShardReader(
        release["label"],
        center.get("column"),
        () if predictions is None else predictions.numbers,
        () if predictions is None else predictions.categories,
        None if unit in left_out else unit,
        ClassLabels(mechanism["classes"]["values"]) if "classes" in mechanism else None,
        len(mechanism["classes"]["values"]) if drawn else 0,
        left_out,
    )


class _Misses:
    """Records of a shard that fail a check: how many, and the first."""

    def __init__(self) -> None:
        self.count, self.first = 0, -1

    def add(self, wrong: np.ndarray, start: int) -> None:
        """Adds records from a place in the shard on."""
        if self.first < 0 and wrong.any():
            self.first = start + int(wrong.argmax())
        self.count += int(wrong.sum())


class _Records:
    """Checks of the records of a release. Those of draws are of classes by a center, or of outputs by a mechanism."""

    def __init__(
        self,
        data: Path,
        release: dict[str, Any],
        mechanism: dict[str, Any],
        counted: Callable[[int, int], object],
    ):
        self._data, self._release, self._mechanism, self._counted = data, release, mechanism, counted
        self._predictions = _predictions(mechanism, release["shards"])
        self._reader = _reader(release, mechanism, self._predictions)
        self._classes = self._reader.classes
        self._units = None if self._reader.unit is None else UnitRecords(mechanism["unit"]["max_records"])
        values = np.array(range(self._reader.drawn) if self._reader.drawn else mechanism["outputs"], np.float64)
        centered = "center" in mechanism
        self._outputs = CenteredOutputs(values, read_center(mechanism).domain) if centered else Outputs(values)
        self._draws = self._predictions.drawn if isinstance(self._predictions, ClassPredictions) else None
        self._parts = None if self._draws else DrawnOutputs(mechanism, self._outputs.groups())

    def problems(self) -> Iterator[str]:
        """Reads all shards, and compares the records with the manifest, their classes, units and cells."""
        for name, records in self._release["shards"].items():
            try:
                yield from self._shard_problems(f"data/{printable(name)}", name, records)
            except RefusedDocument as refused:
                yield f"data/{printable(name)} {refused}"
        if self._units is not None:
            yield from self._units.problems()
        if self._classes is not None:
            yield from self._classes.problems()
        yield from letter_problems(self._data.parent, self._release)
        cells = self._predictions.cells if isinstance(self._predictions, CenterPredictions) else None
        if cells is not None and not self._unknown_prior:
            # Records without a usable label may be in the sample of features, but are in no shard.
            yield from cells.problems(self._release["records_without_label"], removed_records(self._release))
        marginals = self._predictions.marginals if isinstance(self._predictions, CenterPredictions) else None
        if marginals is not None and not self._unknown_prior:
            yield from marginals.problems(removed_records(self._release))

    def _shard_problems(self, path: str, name: str, expected: int) -> Iterator[str]:
        records, labels, centers = 0, _Misses(), _Misses()
        for scan in filter(None, (self._parts, self._draws)):
            scan.parts.next_shard()
        for batch in self._reader.read(self._data / name, folder_values(name)):
            if self._units is not None and batch.units is not None:
                self._units.add(batch.units)
            outputs = self._outputs.add(batch.labels, batch.centers)
            labels.add(outputs < 0, records)
            if self._parts is not None:
                self._parts.add(outputs, batch.features)
            if self._predictions is not None:
                centers.add(self._predictions.wrong(batch.features, batch.centers, batch.labels), records)
            records += len(batch.labels)
            self._counted(len(batch.labels), self._release["records"])
        drawn = self._reader.drawn
        if labels.count:
            around = "" if self._reader.center is None or drawn else " around the record's center"
            what = "no output of the mechanism" if self._classes is None else "no class that the mechanism releases"
            yield f"{path} has {labels.count} labels that are {what}{around}, first in record {labels.first}"
        if centers.count:
            what = "probabilities that the center" if drawn else "centers that the linear center"
            yield (
                f"{path} has {centers.count} {what} does not predict from the record's features, first in record "
                f"{centers.first}"
            )
        if records != expected:
            yield f"{path} holds {records} records, but release.shards says {expected}"

    def draw_problems(self) -> Iterator[str]:
        """Compares draws with what they are drawn from."""
        if self._draws is not None:
            yield from self._draws.problems(self._made_from_these)
            return
        problem, _ = self._distribution
        if problem:
            yield problem
        elif self._parts is not None:
            yield from self._parts.problems()

    @cached_property
    def _made_from_these(self) -> bool:
        return isinstance(self._predictions, ClassPredictions) and self._predictions.made_from_these(self._release)

    @cached_property
    def _unknown_prior(self) -> str:
        return "" if self._draws else _unknown_prior(self._release, self._mechanism)

    @cached_property
    def _distribution(self) -> tuple[str, str]:
        """Either the problem or a line of the report; the other is empty."""
        if self._unknown_prior:
            return "", f"distribution not checked: {self._unknown_prior}"
        return _distribution(self._outputs, self._release, self._mechanism)

    def line(self) -> str:
        """Line of the report on all records."""
        drawn, shards = self._reader.drawn, len(self._release["shards"])
        return (
            f"data         {self._release['records'] - removed_records(self._release)} records in {shards} "
            f"shard{'' if shards == 1 else 's'}: every label"
            f"{'' if self._classes is None else ', a class in one type and spelling,'}"
            f"{'' if self._reader.center is None or drawn else ', minus the center of its record,'} is an output of "
            "the mechanism, row counts are those of the manifest"
        )

    def further_lines(self) -> Iterator[str]:
        """Lines of the report on what else was shown, and what was not."""
        if self._predictions is not None:
            every = "every center is the one that the published map predicts from the record's own features"
            if self._draws:
                every = "all probabilities are those that the published center predicts from the record's own features"
            count = self._predictions.rounded
            rounded = f"; for {count} records, from features before they were rounded to float32" if count else ""
            yield f"centers      {every}{rounded}"
        if self._draws is not None:
            yield "             the center was made from " + (
                "as many records, with the same cells and sums of features"
                if self._made_from_these
                else "other records: cells have other numbers of them, or other features"
            )
            yield from self._draws.lines(self._made_from_these)
        if self._units is not None:
            yield self._units.line()
        elif "unit" in self._mechanism:
            yield (
                f"units        not counted: {printable(self._mechanism['unit']['column'])} is left out of the release, "
                "so the bound on the records of a unit rests on the job"
            )
        if self._reader.absent:
            yield f"left out     {', '.join(map(printable, self._reader.absent))}: in no record"
        if "dead_letters" in self._release:
            letters = self._release["dead_letters"]
            files = "1 file" if len(letters) == 1 else f"{len(letters)} files"
            yield f"dead letters {sum(letters.values())} in {files}, as in the manifest: places, and no labels"
        if self._parts is not None:
            yield from (*self._parts.lines(), self._distribution[1])


class _Files:
    """The files of shards: they are what the writer makes of the records, and what the manifest states of it."""

    def __init__(self, data: Path, release: dict[str, Any]):
        self._data, self._release = data, release
        self._parquet: ParquetBytes | None = None

    def problems(self) -> Iterator[str]:
        """Compares every byte of the files that is not one of a record's values."""
        try:
            output = read_output(self._release)
        except RefusedDocument as refused:
            yield str(refused)
            return
        if output.format == "parquet":
            self._parquet = ParquetBytes(output)
        for name in self._release["shards"]:
            path = f"data/{printable(name)}"
            try:
                if self._parquet is not None:
                    yield from (f"{path} {problem}" for problem in self._parquet.problems(self._data / name))
                elif output.compression == "gzip":
                    check_gzip(self._data / name)
            except RefusedDocument as refused:
                yield f"{path} {refused}"

    def not_compared(self) -> str:
        """The reason why bytes were not compared: anyone can write the version of a pyarrow into a file."""
        others = () if self._parquet is None else sorted(self._parquet.others)
        return f"bytes within pages of Parquet shards: audit with pyarrow {', '.join(others)}" if others else ""

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


def _unknown_prior(release: dict[str, Any], mechanism: dict[str, Any]) -> str:
    """The reason why the prior says nothing about these records; empty if it is the noised histogram of their labels.

    The name of a prior's release is a hash of the input's digest and of the noise's parameters, all of them public.
    """
    noised = mechanism["prior"]
    if not noised["epsilon"]:
        return "the prior is public, it was not counted from these records"
    bound = [
        release["input_digest"], release["label"],
        public_domain(mechanism, mechanism["labels"]),
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


def _distribution(outputs: Outputs, release: dict[str, Any], mechanism: dict[str, Any]) -> tuple[str, str]:
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
    widths = np.array(residual_cells(len(center.domain)))
    above = np.array(center.domain) - center.domain[0]
    residuals = np.concatenate([-above[:0:-1], above])
    rows = np.clip(np.arange(len(residuals)) - np.searchsorted(residuals, labels[0]), 0, len(labels) - 1)
    return channel[rows], _as_weights(center.counts), widths


def _as_weights(noised: list[int]) -> np.ndarray:
    """Noised counts, clipped at 0 and normalized: the weights whose errors `output_distribution` bounds."""
    counts = np.maximum(np.array(noised, np.float64), 0.0)
    counts = counts if counts.any() else np.ones(len(counts))
    return counts / counts.sum()


def _plain(unit: str) -> str:
    """One text of all spellings of a number, so that `5` and `5.0` are one unit; another text as it is."""
    match = _NUMBER.fullmatch(unit)
    if match is None:
        return unit
    sign, whole, fraction, exponent = (part or "" for part in match.groups())
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
        known = np.frombuffer(b"".join(digest.digest() for digest in hashes), np.uint64)
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
        """Line of the report on the units."""
        units, records = self._counts()
        most = f"at most {max(records, default=0)} records each, {self._most} are allowed"
        return f"units        {len(units)} units with {most}"

    def _counts(self) -> tuple[np.ndarray, np.ndarray]:
        return np.unique(np.concatenate([np.zeros(0, np.uint64), *self._units]), return_counts=True)
