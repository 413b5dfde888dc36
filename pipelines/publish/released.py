"""A release that was made, as report, training, attacks and claims see it: one label with its documents and records.

Nothing else tells them where a release has its files, or how these are read. Documents are untrusted until their form
has been checked, which is not an audit.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...mechanisms.analysis.channel import Channel
from ...mechanisms.analysis.explained import Measured
from ...mechanisms.analysis.findings import Verdict
from ...mechanisms.analysis.release_warnings import measured_warnings, release_warnings, shown_warnings
from ...mechanisms.analysis.utility import ReleasedFacts
from ...mechanisms.analysis.verdict import Debiasing, debiasing, verdict
from ...mechanisms.core.label_classes import LabelClasses
from ...mechanisms.core.losses import LOSSES
from ...mechanisms.release.label_column import LabelColumn, LabelMeaning
from ...mechanisms.release.unit_bound import SINGLE
from ...transforms.errors import InputError
from ..ledger.ledger import Ledger, default_ledger_path
from ..spec.label_folders import (
    ANOMALIES_NAME,
    BY_PLACE,
    DATA_NAME,
    DATA_OF_LABEL,
    FEATURE_STATISTICS_NAME,
    MANIFEST_NAME,
    OUTPUT_STATISTICS_NAME,
    several_labels,
)
from ..spec.measured_labels import channel_of
from ..spec.mechanism_file import MECHANISM_NAME, MechanismFile, center_release_name, read_mechanism_file
from ..spec.release_files import released_file
from .manifest import Manifest, adjacency, losses_of, manifest_facts, parse_manifest, read_document

if TYPE_CHECKING:
    from ...transforms.batches import LabelledBatch

# Relative; sums may differ in their last digits between versions of numpy.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class ReleasedUnit:
    """Privacy unit of a release, or of a mechanism file.

    Attributes:
      column: Public column that names the unit of each record.
      max_records: Largest number M of records of a unit that are released.
      units: Number of units; like the following, 0 where no labels were released.
      left_out: Records beyond the bounds of their units.
      without_unit: Records without a unit.
    """

    column: str
    max_records: int
    units: int = 0
    left_out: int = 0
    without_unit: int = 0

    @property
    def beyond(self) -> int:
        """Number of records that are left out because of units."""
        return self.left_out + self.without_unit


@dataclass(frozen=True, eq=False)
class Released:
    """One label of a release, or a mechanism file alone.

    Attributes:
      name: Name in messages, such as the URL that it is a copy of.
      mechanism: Contents of its mechanism file.
      document: Its release.json; empty for a mechanism file alone.
      path: Folder of the release, or path of the mechanism file; None in memory.
    """

    name: str
    mechanism: MechanismFile
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)
    path: str | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], name: str | None = None) -> Released:
        """Reads a release of one label, or the folder of one of several labels, or a mechanism file.

        `path` is a folder, the release.json in it, or the mechanism file; `name` is by default the path. Shards are not
        read. Raises InputError if a file is missing, damaged, or of a release of several labels.
        """
        path = os.fspath(path)
        name = name or path
        if os.path.isfile(path) and os.path.basename(path) != MANIFEST_NAME:
            return cls(name, read_mechanism_file(path), path=path)
        folder = os.path.dirname(path) if os.path.isfile(path) else path
        document, labels = read_labels(folder)
        if "labels" in document:
            raise InputError(several_labels(name, [*labels]))
        mechanism = read_mechanism_file(released_file(folder, MECHANISM_NAME))
        return cls(name, mechanism, document, folder)

    @cached_property
    def manifest(self) -> Manifest | None:
        """Facts of its manifest; None where no labels were released."""
        return parse_manifest(self.document) if self.document else None

    @property
    def stated(self) -> Manifest:
        """Facts of its manifest. Raises InputError for a mechanism file alone."""
        if self.manifest is None:
            raise InputError(f"{self.name} is a mechanism file, which releases no labels: name an output folder")
        return self.manifest

    @property
    def title(self) -> str:
        """Name of its folder or file; in memory, its own."""
        return self.name if self.path is None else os.path.basename(os.path.abspath(self.path))

    @property
    def label(self) -> str:
        """Name of the label; "label" where no file names it."""
        return self.mechanism.label or "label" if self.manifest is None else self.manifest.label

    @property
    def classes(self) -> LabelClasses | None:
        """Classes of the label; None for numbers."""
        return self.mechanism.classes

    @cached_property
    def column(self) -> LabelColumn:
        """The label with its public domain and, for numbers, its center."""
        if self.classes is not None:
            return LabelColumn(self.label, self.classes.domain, meaning=LabelMeaning(self.classes))
        drawing = self.mechanism.drawing
        return LabelColumn(self.label, self.mechanism.domain, center=drawing.column if drawing.whole else None)

    @cached_property
    def unit(self) -> ReleasedUnit | None:
        """Privacy unit; None for single records."""
        unit, stated = self.mechanism.unit, self.document.get("unit", {})
        if unit == SINGLE:
            return None
        counts = [stated.get(name, 0) for name in ("units", "records_left_out", "records_without_unit")]
        return ReleasedUnit(str(unit.column), unit.max_records, *counts)

    @property
    def unit_column(self) -> str | None:
        """Column that names the unit of each record; None for single records."""
        return None if self.unit is None else self.unit.column

    def of_unit(self, epsilon: float) -> float:
        """Epsilon of all records of a unit, by that of one; without units the same."""
        return self.mechanism.unit.spent(epsilon)

    @property
    def record_epsilon(self) -> float:
        """Certified epsilon of all that was released of this label of one record: center, histogram and label."""
        return self.document.get("unit", {}).get("record_epsilon", self.stated.certified_epsilon)

    @property
    def id_column(self) -> str | None:
        """Column by which it names records; None if it names them by file and row."""
        return None if self.stated.identity == BY_PLACE else self.stated.identity

    @property
    def probabilities(self) -> str | None:
        """Column of the probabilities that classes were drawn from; None for labels that a randomizer draws."""
        return self.document.get("class_center", {}).get("column")

    @property
    def made(self) -> str | None:
        """Column of a center that was made of labels; None without one, and for one that was public before."""
        center = self.document.get("center", {})
        return center["column"] if "linear" in center else self.probabilities

    # What follows from its facts

    @cached_property
    def facts(self) -> ReleasedFacts:
        """Released and public facts, of which warnings and verdict are made."""
        return manifest_facts(self.mechanism, self.manifest)

    def verdict(self, measured: Measured | None = None) -> Verdict:
        """Says what the labels serve for; `measured` is what a ridge explains of them."""
        return verdict(self.facts, measured)

    def warnings(self, measured: Measured | None = None, shown: bool = False) -> list[Any]:
        """Warnings on the release; with `shown`, those that stand beside a verdict alone."""
        return [*(shown_warnings if shown else release_warnings)(self.facts), *measured_warnings(measured)]

    @property
    def debiasing(self) -> Debiasing:
        """Line that debiases the labels, or the reason why there is none."""
        return debiasing(self.facts)

    @cached_property
    def losses(self) -> dict[str, float]:
        """Expected losses under the prior, by name; empty for classes that a center draws."""
        solved, prior = self.mechanism.drawing.solved, self.mechanism.prior
        stated = {} if solved is None else losses_of(self.mechanism)
        return {name: self.mechanism.randomizer.expected_loss(prior, loss) for name, loss in stated.items()}

    @cached_property
    def channel(self) -> tuple[Channel, tuple[float, float] | None]:
        """Channel from true to released labels, and the line that debiases numbers, as of `channel_of`."""
        return channel_of(self.mechanism.drawing)

    @property
    def charged_as(self) -> str | None:
        """Name by which ledgers have the histogram of a mechanism file, or a center of classes; None for labels."""
        if self.mechanism.drawing.solved is None:
            return center_release_name(self.mechanism)
        return None if self.manifest else self.mechanism.drawing.prior_release

    def contradictions(self) -> list[str]:
        """Compares the manifest with values recomputed from the mechanism file, beyond the checks of the audit.

        A line for each contradiction.
        """
        stated, mechanism, problems = self.stated, self.mechanism, []
        drawing, solved = mechanism.drawing, mechanism.drawing.solved
        listed = mechanism.classes
        compared: dict[str, tuple[object, object]] = {
            "mechanism": (stated.mechanism, None if solved is None else solved.mechanism),
            "mechanism_fingerprint": (stated.mechanism_fingerprint, drawing.fingerprint if solved else None),
            "adjacency": (stated.adjacency, adjacency(mechanism.unit != SINGLE, stated.missing is not None)),
            "delta": (stated.delta, mechanism.labels_budget[1]),
            "label domain": (stated.domain, (mechanism.domain[0], mechanism.domain[-1], len(mechanism.domain))),
            "classes": (
                self.document.get("classes"), listed and {"values": [*listed.values], "other": listed.other}
            ),
            "center column": (stated.center, drawing.column if solved else None),
        }  # fmt: skip
        if mechanism.counted_labels:
            compared["missing_label"] = stated.missing, mechanism.missing_label
        problems += [f"{MANIFEST_NAME} states another {name}" for name, (one, two) in compared.items() if one != two]
        bias = 0.0 if listed is not None else mechanism.randomizer.certificate().max_bias
        if not math.isclose(stated.max_bias, bias, rel_tol=_TOLERANCE):
            problems.append(f"{MANIFEST_NAME} states another max_bias")
        for name in self.losses if listed is not None else LOSSES:
            loss = stated.expected_loss.get(name)
            if loss is not None and not _close(loss, self.losses.get(name, math.inf)):
                problems.append(f"{MANIFEST_NAME} states another expected {name} loss")
        # Records were counted before any was removed.
        before = replace(stated, records=stated.records + stated.removed)
        names = tuple(warning.name for warning in release_warnings(manifest_facts(mechanism, before)))
        if stated.warnings != names:
            problems.append(f"{MANIFEST_NAME} states other warnings")
        if sum(stated.shards.values()) != stated.records:
            problems.append(f"the shards in {MANIFEST_NAME} do not add up to its records")
        return problems

    # What lies beside its documents

    @property
    def above(self) -> str | None:
        """Folder of the release that it is one of several labels of; None for a release of one label."""
        if self.path is None or self.document.get("data") != DATA_OF_LABEL:
            return None
        # Resolved: the folder above that of a label is not always above its relative path, or a link to it.
        return os.path.dirname(os.path.dirname(os.path.realpath(self.path)))

    @cached_property
    def together(self) -> tuple[Released, ...]:
        """All labels that were released together. Raises InputError if one cannot be read."""
        if self.above is None:
            return (self,)
        _, labels = read_labels(self.above)
        return tuple(
            self if label == self.label else Released.open(folder, f"{self.name}, label {label!r}")
            for label, folder in labels.items()
        )

    @property
    def data(self) -> str:
        """Folder of the shards."""
        return os.path.realpath(os.path.join(str(self.path), self.document.get("data", DATA_NAME)))

    def runs(self, ledger: str | None = None) -> list[dict[str, Any]]:
        """Runs of the ledger that was charged, in order: of a path or URL, by default the file beside the release."""
        return Ledger(ledger or default_ledger_path(self.above or os.path.abspath(str(self.path)))).runs()

    def measured(self) -> Measured | None:
        """Measures what features explain of the label; None if shards cannot be read, as of a copied document."""
        # They load Beam.
        from ...transforms.io.filesystems import FileSystems, is_remote
        from .measured_release import measured_shards

        base = self.name if is_remote(self.name) else str(self.path)
        try:
            others = {name for released in self.together for name in released._no_features()}
            data = FileSystems.join(base, self.document.get("data", DATA_NAME))
            return measured_shards(data, self.stated.shards, {self.label: self.mechanism}, others)[self.label]
        except (InputError, LookupError, TypeError, ValueError):
            return None

    def _no_features(self) -> list[str]:
        """Label, id, unit and center."""
        center = self.document.get("center", {}).get("column", self.probabilities)
        names = self.label, self.stated.identity, center, self.unit_column
        return [name for name in names if name is not None]

    def batches(self) -> Iterator[LabelledBatch]:
        """Reads the records, in the order of the shards. Raises InputError if there is none, or a shard is damaged."""
        from ...transforms.io.input_format import Format, file_parts
        from ...transforms.readers.file_reader import FileReader
        from ..spec.machine import check_tfrecord

        paths = [os.path.join(self.data, name) for name, records in self.stated.shards.items() if records]
        if not paths:
            raise InputError(f"{self.name} holds no record")
        kind = "parquet" if paths[0].endswith(".parquet") else "tfrecord"
        if kind == "tfrecord":
            check_tfrecord("a release of TFRecords", "release Parquet files")
        form = Format(kind, root=self.data, classes={} if self.classes is None else {self.label: self.classes})
        reader = FileReader(form)
        for part in file_parts(paths, form):
            yield from reader.read(part)

    def labels_in(self, batch: LabelledBatch) -> np.ndarray:
        """Labels of records, shape (n,), float64, NaN where unusable; of classes their places."""
        from ...transforms.batches import label_values

        return label_values(batch, self.label, self.classes)

    def centers_in(self, batch: LabelledBatch) -> np.ndarray:
        """Centers of records, shape (n,), float64; or the probabilities of K classes, shape (n, K)."""
        from ...transforms.arrow_values import is_list
        from ...transforms.batches import center_values

        if self.probabilities is None:
            return center_values(batch, str(self.column.center))
        column, size = batch.column(self.probabilities), len(self.classes or ())
        if column is None or not is_list(column.type) or len(column.flatten()) != size * len(column):
            raise InputError(
                f"{batch.source}: {self.probabilities!r} does not hold {size} probabilities of each record"
            )
        return column.flatten().to_numpy(zero_copy_only=False).astype(np.float64).reshape(-1, size)


def _close(stated: float, computed: float) -> bool:
    return math.isclose(stated, computed, rel_tol=_TOLERANCE, abs_tol=1e-300)


def read_labels(path: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Reads release.json of a release of any number of labels: the document, and the folder of each label by name.

    `path` is the folder or the file. Raises InputError if it cannot be read.
    """
    folder = os.path.dirname(path) if os.path.isfile(path) else path
    document = read_document(released_file(folder, MANIFEST_NAME))
    if "labels" not in document:
        return document, {document["label"]: folder}
    return document, {label["label"]: os.path.join(folder, *label["folder"].split("/")) for label in document["labels"]}


def validation_statistics(folder: str) -> tuple[Any, Any]:
    """Statistics in the folder of a validation: those of the features before a release, and of its records.

    Raises InputError if a file is missing, corrupt, or reports anomalies.
    """
    from ...transforms.io.filesystems import read_text
    from ...transforms.validation.tensorflow_libraries import describe_anomalies, parse_statistics

    path = os.path.join(folder, ANOMALIES_NAME)
    try:
        anomalies = describe_anomalies(read_text(path))
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    if anomalies:
        raise InputError(f"{folder} has anomalies: {'; '.join(anomalies[:3])}")
    datasets = []
    for name in (FEATURE_STATISTICS_NAME, OUTPUT_STATISTICS_NAME):
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as file:
                (dataset,) = parse_statistics(file.read()).datasets
        except OSError:
            raise InputError(f"{path} cannot be read: check the path") from None
        except ValueError:
            raise InputError(f"{path} does not hold the statistics of one dataset") from None
        datasets.append(dataset)
    return datasets[0], datasets[1]
