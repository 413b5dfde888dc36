"""Whole releases under attack: `LabelPrivatizer` on synthetic records, of each kind of label, center and unit.

Records are made from a seed, and a few of them have features far from all others, so that their rows have the largest
norm. Every release has a test key and a ledger of its own, in a temporary folder. What is compared and attacked is what
leaves a release: its mechanism file, its center, its charges, verdict and warnings, and its labels.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from labeldp.mechanisms.analysis.verdict import verdict
from labeldp.pipelines.api import LabelPrivatizer, ReleaseWarning
from labeldp.pipelines.api.feature_frames import read_frame
from labeldp.pipelines.errors import as_parameter
from labeldp.pipelines.publish.manifest import released_facts
from labeldp.pipelines.spec.measured_labels import measured
from labeldp.transforms.center.feature_columns import feature_columns

# Records with features far from all others, and how far, in standard deviations.
_OUTLIERS, _FAR = 16, 9.0
_CLASSES = ("none", "cold", "flu")
# Function that draws noise, and its caller where there are several, by the part of the release.
_PARTS = {
    ("noised_sums", ""): "center sums",
    ("noisy_counts", "noised_cells"): "cell histogram",
    ("noised_cell_sums", ""): "cell sums",
    ("noisy_counts", ""): "histogram",
    ("noised_class_sums", ""): "class sums",
    ("noised_class_counts", ""): "class cells",
}
# A file system in memory, where there is one: a ledger is synced to its disk at every release.
_MEMORY = "/dev/shm"
LABELS = "labels"
"""Part of a release in which labels are drawn one by one."""


def ledger_folder() -> tempfile.TemporaryDirectory[str]:
    """Makes a temporary folder for the ledgers of releases."""
    return tempfile.TemporaryDirectory(prefix="labeldp-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)


def part_of(place: tuple[str, str]) -> str:
    """Part of a release that noise belongs to; the name of the function that drew it, if it belongs to none."""
    return _PARTS.get(place) or _PARTS.get((place[0], "")) or f"noise of {place[0]}"


@dataclass(frozen=True)
class Column:
    """A label column of a release: parameters of its LabelPrivatizer, and its labels, places from 0 to `most`."""

    name: str
    most: int
    parameters: dict[str, Any] = field(default_factory=dict)
    classes: tuple[str, ...] = ()

    def values(self, labels: np.ndarray) -> Any:
        """Labels as they are given to the release."""
        return [self.classes[int(label)] for label in labels] if self.classes else labels

    def privatizer(self, key: bytes, ledger: str) -> LabelPrivatizer:
        """Makes the privatizer of a release."""
        domain: dict[str, Any] = {"label_classes": self.classes}
        if not self.classes:
            domain = {"label_min": 0, "label_max": self.most, "label_step": 1}
        bound = {"label": self.name, "source": "attack", "noise_key": key, "ledger": ledger}
        return LabelPrivatizer(epsilon=1).set_params(**domain | bound | self.parameters)


@dataclass(frozen=True, eq=False)
class Records:
    """Synthetic records: labels of each column, shape (n,), features by name, and units, or None."""

    labels: tuple[np.ndarray, ...]
    features: dict[str, np.ndarray]
    units: np.ndarray | None = None

    def changed(self, rows: np.ndarray, values: tuple[Any, ...]) -> Records:
        """Records with other labels in some rows: for each column a value, or one for each row."""
        labels = tuple(column.copy() for column in self.labels)
        for column, value in zip(labels, values, strict=True):
            column[rows] = value
        return replace(self, labels=labels)


@dataclass(frozen=True)
class Case:
    """A kind of release.

    Attributes:
      name: Its name in findings.
      columns: Label columns, each with a part of the budget.
      records: Number of records.
      has_features: True if features are given, for a center.
      most_of_unit: Largest number of records of a unit; 0 for single records.
    """

    name: str
    columns: tuple[Column, ...]
    records: int
    has_features: bool = True
    most_of_unit: int = 0

    def make(self, rng: np.random.Generator) -> Records:
        """Makes records whose labels follow from their features, with noise. The first have features far from all."""
        features = {"a": rng.normal(size=self.records), "b": rng.uniform(-1, 1, self.records)}
        # Of one half of them, what the features say of the label cancels out.
        features["a"][:_OUTLIERS], features["b"][:_OUTLIERS] = _FAR, _FAR
        features["b"][: _OUTLIERS // 2] = -_FAR
        signal = features["a"] + features["b"] + rng.normal(0, 0.5, self.records)
        labels = []
        for column in self.columns:
            places = np.clip((signal / 4 + 0.5) * column.most, 0, column.most)
            # Some labels are between two of the domain.
            labels.append(
                np.rint(places) if column.classes else np.where(rng.random(self.records) < 0.5, places, np.rint(places))
            )
        # Units of twice as many records as are released of them.
        units = np.arange(self.records) // (2 * self.most_of_unit) if self.most_of_unit else None
        return Records(tuple(labels), features if self.has_features else {}, units)

    def pairs(self, base: Records, rng: np.random.Generator) -> tuple[Records, Iterator[Records]]:
        """Makes a data set and its neighbors, without end: corner cases first, then random ones.

        Neighbors differ in the labels of one record, or in those of all records of one unit.
        """
        corners = [self.rows_of(base, number) for number in (0, _OUTLIERS - 1, self.records // 2)]
        low, high = tuple(0 for _ in self.columns), tuple(column.most for column in self.columns)
        for rows in corners:
            base = base.changed(rows, low)

        def other(column: Column, labels: np.ndarray, rows: np.ndarray) -> np.ndarray:
            return (np.rint(labels[rows]) + rng.integers(1, column.most + 1, len(rows))) % (column.most + 1)

        def neighbors() -> Iterator[Records]:
            for rows in corners:
                yield base.changed(rows, high)
            while True:
                rows = self.rows_of(base, int(rng.integers(self.records)))
                # Every label changes: if only those of records beyond the bound of a unit did, the noise would stay.
                changed = zip(self.columns, base.labels, strict=True)
                yield base.changed(rows, tuple(other(column, labels, rows) for column, labels in changed))

        return base, neighbors()

    def rows_of(self, base: Records, row: int) -> np.ndarray:
        """The row of a record, or all rows of its unit, shape (r,)."""
        return np.array([row]) if base.units is None else np.flatnonzero(base.units == base.units[row])

    def release(self, records: Records, key: bytes, folder: str) -> WholeRelease:
        """Makes a release; `folder` gets its ledger, which is removed again."""
        ledger, drawn, made = os.path.join(folder, "ledger.jsonl"), [], []
        given: dict[str, Any] = {"features": records.features} if records.features else {}
        unit: dict[str, Any] = {}
        if records.units is not None:
            unit = {"unit_column": "unit", "max_records_per_unit": self.most_of_unit}
            given["units"] = records.units
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ReleaseWarning)
                for column, labels in zip(self.columns, records.labels, strict=True):
                    privatizer = column.privatizer(key, ledger).set_params(**unit)
                    drawn.append(privatizer.fit_transform(column.values(labels), **given))
                    made.append(privatizer)
            with open(ledger, encoding="utf-8") as file:
                charged = [json.loads(line) for line in file]
        finally:
            if os.path.exists(ledger):
                os.remove(ledger)
        return WholeRelease(
            self, made, [_places(column, each) for column, each in zip(self.columns, drawn, strict=True)], charged,
            records.features,
        )  # fmt: skip


def _places(column: Column, labels: Any) -> np.ndarray:
    """Released labels as numbers, shape (n,), float64; NaN for those that are not released."""
    if not column.classes:
        return np.asarray(labels, np.float64)
    return np.array([column.classes.index(label) if label in column.classes else np.nan for label in labels])


@dataclass(frozen=True, eq=False)
class WholeRelease:
    """Everything that has left a release.

    Attributes:
      case: Its kind.
      privatizers: Privatizer of each label column, with all released facts.
      labels: Released labels of each column, shape (n,), float64; NaN for those that are not released.
      charged: Entries of the ledger.
      features: Columns of features by name; empty without.
    """

    case: Case
    privatizers: list[LabelPrivatizer]
    labels: list[np.ndarray]
    charged: list[dict[str, Any]]
    features: dict[str, Any]

    @property
    def claim(self) -> Fraction:
        """Epsilon that the ledger was charged, of a record or of a unit."""
        return sum((Fraction(each["epsilon"]) for entry in self.charged for each in entry["charges"]), Fraction(0))

    def parts(self, number: int) -> dict[str, Fraction]:
        """Epsilon that the mechanism file of a column states for each part, of a record or of a unit."""
        mechanism, most = self.privatizers[number].mechanism_, max(self.case.most_of_unit, 1)
        stated = {part.name: Fraction(part.epsilon) * most for part in mechanism.drawing.parts}
        return stated | ({} if not mechanism.drawing.solved else {LABELS: Fraction(mechanism.labels_certified[0])})

    def facts(self) -> dict[str, Any]:
        """Everything that is released but labels and names under which the ledger has it, which are keyed hashes."""
        found: dict[str, Any] = {
            "charges": [
                [entry["request"], entry["records"], [(each["what"], each["epsilon"]) for each in entry["charges"]]]
                for entry in self.charged
            ]
        }
        for privatizer, labels in zip(self.privatizers, self.labels, strict=True):
            document, name = json.loads(privatizer.mechanism_.to_text()), privatizer.label
            document.get("prior", {}).pop("release", None)
            center = privatizer.center_
            found |= {
                f"mechanism of {name}": document,
                f"center of {name}": None if center is None else center.tobytes(),
                # It is measured on what is released, so it may differ where a label was drawn anew.
                f"verdict of {name} follows from what is released": self._verdict(privatizer, labels),
                f"warnings of {name}": [warning.text for warning in privatizer.warnings_],
                f"records of {name}": np.isnan(labels).tolist(),
            }
        return found

    def _verdict(self, privatizer: LabelPrivatizer, labels: np.ndarray) -> bool:
        """Tells whether the verdict is the one that released columns and facts give."""
        kept, mechanism, center = ~np.isnan(labels), privatizer.mechanism_, privatizer.center_
        frame = read_frame(self.features).keep(kept) if self.features else None
        columns = {} if frame is None else feature_columns(frame, frame.names)
        centers = None if center is None or not mechanism.drawing.solved else center[kept]
        facts = released_facts(mechanism, int(kept.sum()))
        return privatizer.verdict_ == verdict(facts, measured(mechanism, labels[kept], centers, columns), as_parameter)


def _number(name: str = "weeks", most: int = 10, **parameters: Any) -> Column:
    return Column(name, most, parameters)


def _class(name: str = "illness", **parameters: Any) -> Column:
    return Column(name, len(_CLASSES) - 1, parameters, _CLASSES)


CASES = (
    Case("labels", (_number(mechanism="unbiased"),), 400, has_features=False),
    Case("single labels", (_number(for_="labels"),), 400, has_features=False),
    Case("linear center", (_number(center="linear"),), 1000),
    Case("cells", (_number(center="cells"),), 2200),
    Case("classes", (_class(center="none"),), 400, has_features=False),
    Case("center of classes", (_class(center="cells", epsilon=2),), 700),
    Case("units", (_number(center="linear", epsilon=3),), 1200, most_of_unit=3),
    Case("units of classes", (_class(center="cells", epsilon=2),), 2400, most_of_unit=2),
    # Here the released histogram decides against a center of classes.
    Case("two columns", (_number(epsilon=0.5, center="linear"), _class(epsilon=1.5)), 1500),
)
"""Kinds of releases that are attacked."""
