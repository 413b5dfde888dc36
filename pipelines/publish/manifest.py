"""Manifest of a release, release.json: its creation, of one label or of several, its reading and checks, and its facts.

Manifests are untrusted until their shape has been checked. Warnings and verdicts are computed from the released and
public facts of a release.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from ...mechanisms.analysis.explained import NoisedHistogram
from ...mechanisms.analysis.utility import ClassCounts, ReleasedFacts
from ...mechanisms.core.budget import round_up
from ...mechanisms.core.document_form import check_form
from ...mechanisms.core.losses import LOSSES, ZERO_ONE, Loss
from ...mechanisms.noise.noisy_histogram import HISTOGRAM_SENSITIVITY
from ...mechanisms.release.unit_bound import SINGLE
from ...transforms.errors import InputError
from ...transforms.io.filesystems import FileSystems, open_input, read_text
from ...transforms.tfrecord.framing import read_records
from ..spec.mechanism_file import MechanismFile
from .job_result import JobResult
from .locked_versions import bill_statement

FORMAT, CENTER_FORMAT = "labeldp-release-1", "labeldp-release-2"
"""Formats of manifests: of labels that a randomizer draws, and of classes that are drawn from a center."""
ADJACENCY = (
    "label differential privacy: two inputs are adjacent when they differ in the label of one record; "
    "features, the number of records and which records have a label are public"
)
UNIT_ADJACENCY = (
    "label differential privacy for units: two inputs are adjacent when they differ in the labels of the records of "
    "one unit, which are those with one value of the unit column; features, units, the number of records and which "
    "records have a label are public"
)
MISSING_ADJACENCY = (
    "label differential privacy: two inputs are adjacent when they differ in the label of one record, or in whether it "
    "has one; features and the number of records are public"
)
MISSING_UNIT_ADJACENCY = (
    "label differential privacy for units: two inputs are adjacent when they differ in the labels of the records of "
    "one unit, which are those with one value of the unit column, or in which of them have one; features, units and "
    "the number of records are public"
)

LABELS_FORMAT = "labeldp-labels-1"
_FORMS = {FORMAT: "release", CENTER_FORMAT: "center_release", LABELS_FORMAT: "labels_release"}
REMOVALS = "removals"
_OF_LABEL = ("epsilon", "certified_epsilon", "delta", "certified_delta", "mechanism", "mechanism_fingerprint")
LABELS_ADJACENCY = (
    "label differential privacy: two inputs are adjacent when they differ in the labels of one record, in any of the "
    "label columns; features, the number of records and which records have all labels are public"
)
LABELS_UNIT_ADJACENCY = (
    "label differential privacy for units: two inputs are adjacent when they differ in the labels of the records of "
    "one unit, in any of the label columns; the records of a unit are those with one value of the unit column; "
    "features, units, the number of records and which records have all labels are public"
)

# Records of a TFRecord file in which features are looked for.
_RECORDS_READ = 256


def make_manifest(
    result: JobResult, mechanism: MechanismFile, epsilon: float, details: Mapping[str, Any]
) -> dict[str, Any]:
    """Makes the document that release.json holds.

    `epsilon` is the budget of histogram and labels together. `details` are further keys: label, identity, where, loss,
    features and warnings, table for the input from one, output for shards, and those that a command adds.
    """
    binding, drawing, unit = result.binding, mechanism.drawing, result.binding.unit
    certified = Fraction(mechanism.center_epsilon) + Fraction(mechanism.prior_epsilon) + Fraction(drawing.certified[0])
    parts, randomized, rounding, losses = _of_randomizer(mechanism) if drawing.solved else ({}, {}, {}, {})
    return {
        "format": FORMAT if drawing.solved else CENTER_FORMAT,
        "adjacency": adjacency(unit != SINGLE, binding.missing_label is not None),
        "epsilon": epsilon,
        **_unit(result, certified),
        **({"center_epsilon": mechanism.center_epsilon} if mechanism.center_epsilon else {}),
        **parts,
        "certified_epsilon": mechanism.total_epsilon(mechanism.labels_certified[0]),
        "delta": mechanism.labels_budget[1],
        "certified_delta": mechanism.labels_certified[1],
        **randomized,
        "domain": {"min": binding.domain[0], "max": binding.domain[-1], "labels": len(binding.domain)},
        **({} if binding.classes is None else {"classes": asdict(binding.classes)}),
        **({} if binding.declared is None else {"declared_grid": asdict(binding.declared)}),
        **rounding,
        **_missing(result),
        **drawing.summary(binding.missing_centers),
        "records": binding.records,
        "records_without_label": binding.unusable,
        "input_digest": f"{binding.digest:064x}",
        **losses,
        **details,
        "shards": result.shards,
        **({"dead_letters": result.dead_letters} if result.dead_letters else {}),
        "versions": {**versions(), "sbom": bill_statement()},
    }


def _of_randomizer(mechanism: MechanismFile) -> tuple[dict[str, Any], ...]:
    """Members on a randomizer: epsilons, mechanism, rounding, and losses under the prior."""
    randomizer, prior = mechanism.randomizer, mechanism.prior
    expected = {name: randomizer.expected_loss(prior, loss) for name, loss in losses_of(mechanism).items()}
    losses = {"expected_loss": {name: value if np.isfinite(value) else None for name, value in expected.items()}}
    # Places of classes have no distances.
    return (
        {"prior_epsilon": mechanism.prior_epsilon, "randomizer_epsilon": randomizer.epsilon},
        {
            "mechanism": randomizer.mechanism,
            "parameters": randomizer.parameters,
            "mechanism_fingerprint": mechanism.drawing.fingerprint,
        },
        {"rounding": mechanism.drawing.rounding},
        losses if mechanism.classes else {**losses, "max_bias": randomizer.certificate().max_bias},
    )


def losses_of(mechanism: MechanismFile) -> dict[str, Loss]:
    """Losses that a mechanism file with a randomizer is stated with: those of its labels, or that of its classes."""
    if mechanism.classes is not None:
        return {ZERO_ONE.name: ZERO_ONE}
    negative = mechanism.randomizer.labels[0] < 0
    return {name: loss for name, loss in LOSSES.items() if not (loss.nonnegative and negative)}


def adjacency(units: bool, missing: bool) -> str:
    """Definition of neighboring inputs of one label; `missing` tells that missing labels count as one."""
    if missing:
        return MISSING_UNIT_ADJACENCY if units else MISSING_ADJACENCY
    return UNIT_ADJACENCY if units else ADJACENCY


def _missing(result: JobResult) -> dict[str, Any]:
    """The member `missing_label`: the number or class that missing labels counted as, where they did."""
    missing = result.binding.missing_label
    return {} if missing is None else {"missing_label": missing}


def _unit(result: JobResult, certified: Fraction) -> dict[str, Any]:
    """The member `unit`, for a release with privacy units. All epsilons in parts are those of one record."""
    unit, counts = result.binding.unit, result.units
    if counts is None:
        return {}
    return {
        "unit": {
            "column": unit.column,
            "max_records": unit.max_records,
            "over_limit": "drop",
            "units": counts.units,
            "records_left_out": counts.left_out,
            "records_without_unit": counts.without_unit,
            "record_epsilon": round_up(certified),
        }
    }


def versions() -> dict[str, str]:
    """Versions that a release is made with, by package name, and that of Python."""
    try:
        own = version("labeldp")
    except PackageNotFoundError:
        own = "unknown"
    return {
        "labeldp": own,
        "python": platform.python_version(),
        "apache-beam": version("apache-beam"),
        "numpy": np.__version__,
        "pyarrow": str(pa.__version__),
    }


@dataclass(frozen=True)
class Manifest:
    """A manifest that was read back and checked.

    Attributes:
      label: Name of the label column.
      where: Filter on the records, NAME=VALUE, or NAME=... where its column is left out; None for all records.
      identity: Id column, or "file and row".
      adjacency: Definition of neighboring datasets.
      mechanism: Mechanism name; None for classes that are drawn from a center, which have no prior, either.
      records: Number of released records that were not removed since.
      records_without_label: Number of records left out because their label is unusable.
      epsilon: Budget of histogram and labels together.
      prior_epsilon: Share of the label histogram.
      randomizer_epsilon: Share of the labels.
      certified_epsilon: Shares of center and histogram and certified epsilon of the randomizer together.
      delta: Delta of the budget; 0 for pure DP.
      certified_delta: Certified delta of the randomizer.
      max_bias: Largest bias of the randomizer over the labels; 0 for classes, which have none.
      domain: Smallest label, largest label and number of labels.
      expected_loss: Expected loss under the released prior, by loss name; None if it is not finite.
      mechanism_fingerprint: Fingerprint of the randomizer, in hexadecimal digits; None without one.
      input_digest: Keyed digest of the input, in hexadecimal digits.
      shards: Number of records by shard file name.
      versions: Version by package name; of `sbom`, the statement of `locked_versions`.
      center: Name of the center column; None for labels without a center.
      missing_centers: Number of records whose center is missing.
      center_epsilon: Share of the linear center; 0 without one.
      warnings: Names of the warnings, of `release_warnings`.
      loss: Name of the loss that was asked for; None for classes, which have none.
      features: Number of feature columns: neither label, nor id, nor center; None if unknown.
      removed: Number of records that were removed since; histogram, center and warnings are about these, too.
      missing: Number or class that missing labels counted as; None where such records were left out.
      left_out: Columns of the input that are in no file of the release.
    """

    label: str
    where: str | None
    identity: str
    adjacency: str
    mechanism: str | None
    records: int
    records_without_label: int
    epsilon: float
    prior_epsilon: float
    randomizer_epsilon: float
    certified_epsilon: float
    delta: float
    certified_delta: float
    max_bias: float
    domain: tuple[float, float, int]
    expected_loss: Mapping[str, float | None]
    mechanism_fingerprint: str | None
    input_digest: str
    shards: Mapping[str, int]
    versions: Mapping[str, str]
    warnings: tuple[str, ...]
    center: str | None = None
    missing_centers: int = 0
    center_epsilon: float = 0.0
    loss: str | None = None
    features: int | None = None
    removed: int = 0
    missing: float | str | None = None
    left_out: tuple[str, ...] = ()


_AS_STATED = (
    "label", "where", "identity", "adjacency", "records_without_label", "epsilon", "certified_epsilon", "delta",
    "certified_delta", "input_digest", "shards", "versions", "loss", "features",
)  # fmt: skip


def read_document(path: str) -> dict[str, Any]:
    """Reads and checks a release.json on any filesystem, of one label or of several.

    Raises InputError, which names the file and the key, if the file is not a manifest.
    """
    try:
        document = json.loads(read_text(path))
        stated = document.get("format") if isinstance(document, dict) else None
        form = _FORMS.get(stated, "release") if isinstance(stated, str) else "release"
        check_form(document, form, "release")
        if stated != LABELS_FORMAT:
            parse_manifest(document)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a release manifest: {error}") from None
    return document


def parse_manifest(document: Mapping[str, Any]) -> Manifest:
    """Takes the facts of a manifest that has the form of one.

    Raises ValueError if as many records were removed as released, or there is no bias of numbers.
    """
    removed = sum(removal["records"] for removal in document.get(REMOVALS, ()))
    if removed and removed >= document["records"]:
        raise ValueError(f"{REMOVALS} are not fewer records than records")
    if "max_bias" not in document and "classes" not in document:
        raise ValueError("max_bias is missing")
    domain, center = document["domain"], document.get("center")
    return Manifest(
        **{key: document[key] for key in _AS_STATED},
        mechanism=document.get("mechanism"),
        records=document["records"] - removed,
        prior_epsilon=document.get("prior_epsilon", 0.0),
        randomizer_epsilon=document.get("randomizer_epsilon", 0.0),
        max_bias=document.get("max_bias", 0.0),
        domain=(domain["min"], domain["max"], domain["labels"]),
        expected_loss=document.get("expected_loss", {}),
        mechanism_fingerprint=document.get("mechanism_fingerprint"),
        warnings=tuple(document["warnings"]),
        center=None if center is None else center["column"],
        missing_centers=0 if center is None else center["missing"],
        center_epsilon=document.get("center_epsilon", 0.0),
        removed=removed,
        missing=document.get("missing_label"),
        left_out=tuple(document.get("left_out", ())),
    )


def output_statement(data: str, shards: Mapping[str, int]) -> dict[str, Any]:
    """The member `output`: how the shards in a folder are written, for the audit to compare.

    All shards of Parquet have the same columns. `shards` has the number of records by name. Raises InputError if a
    shard cannot be read.
    """
    # They load Beam, which labels in memory do without.
    from ...transforms.io.limits import LIMITS
    from ...transforms.shards.reduced_shards import shard_form

    name = next((name for name, records in shards.items() if records), next(iter(shards)))
    form = shard_form(FileSystems.join(data, name))
    stated: dict[str, Any] = {"format": form.format, "compression": form.compression}
    if form.schema is not None:
        columns = [
            {"name": field.name, "type": f"{field.type}{'' if field.nullable else ' not null'}"}
            for field in form.schema
        ]
        stated |= {"row_group": LIMITS.group_rows, "columns": columns}
    return stated


def labels_manifest(documents: Sequence[dict[str, Any]], folders: Sequence[str], epsilon: float) -> dict[str, Any]:
    """Document that release.json of a release of several labels holds.

    `documents` are the manifests of the labels, of `make_manifest`, and `folders` their places below the release.
    `epsilon` is the budget of all labels of a record, or of a unit, together.
    """
    first = documents[0]
    unit = first.get("unit")
    certified, delta, certified_delta = (
        round_up(sum((Fraction(document[key]) for document in documents), Fraction(0)))
        for key in ("certified_epsilon", "delta", "certified_delta")
    )
    shared = (
        "identity",
        "table",
        "where",
        "left_out",
        "records",
        "records_without_label",
        "output",
        "shards",
        "versions",
    )
    return {
        "format": LABELS_FORMAT,
        "adjacency": LABELS_ADJACENCY if unit is None else LABELS_UNIT_ADJACENCY,
        "epsilon": epsilon,
        "certified_epsilon": certified,
        "delta": delta,
        "certified_delta": certified_delta,
        "labels": [
            {"label": document["label"], "folder": folder}
            | {key: document[key] for key in _OF_LABEL if key in document}
            for document, folder in zip(documents, folders, strict=True)
        ],
        **({} if unit is None else {"unit": {key: unit[key] for key in ("column", "max_records", "over_limit")}}),
        **{key: first[key] for key in shared if key in first},
    }


def released_facts(
    mechanism: MechanismFile,
    records: int | None = None,
    features: int | None = None,
    loss: str | None = None,
    missing_centers: int | None = None,
) -> ReleasedFacts:
    """Collects the facts of a mechanism file and of the release made with it.

    Without labels released yet, `records` is None; other arguments are None where they are unknown. `features` is a
    number of columns, `loss` the name of the one that was asked for, and `missing_centers` a number of records.
    """
    drawing, classes = mechanism.drawing, mechanism.classes
    return ReleasedFacts(
        drawing.solved,
        mechanism.prior,
        mechanism.prior_epsilon,
        records,
        features,
        loss,
        drawing.facts(missing_centers),
        mechanism.unit.max_records,
        classes,
        None if drawing.solved else drawing.budget.total,
        _class_counts(drawing.histogram) if classes else None,
    )


def judged_facts(facts: ReleasedFacts, command: str) -> ReleasedFacts:
    """Facts for the verdict: `fit` counts records, but releases no label of them."""
    return replace(facts, records=None) if command == "fit" else facts


def _class_counts(histogram: NoisedHistogram | None) -> ClassCounts | None:
    """Noised counts of the classes: those of the center, or of the histogram."""
    if histogram is None:
        return None
    # The variance of discrete Laplace noise is at most that of continuous noise, twice the square of its scale.
    return ClassCounts(tuple(histogram.counts.tolist()), math.sqrt(2) * HISTOGRAM_SENSITIVITY / histogram.epsilon)


def manifest_facts(mechanism: MechanismFile, manifest: Manifest | None) -> ReleasedFacts:
    """Collects the facts that the files of a release state; a mechanism file alone has no manifest beside it."""
    if manifest is None:
        return released_facts(mechanism)
    return released_facts(mechanism, manifest.records, manifest.features, manifest.loss, manifest.missing_centers)


def feature_columns(
    data: str, shards: Mapping[str, int], others: Collection[str], folders: Collection[str] = ()
) -> int | None:
    """Counts the columns of a Parquet shard, or features in the first records of a TFRecord shard, and its folders.

    `data` is the folder of the shards, and `shards` has the number of records by name. `others` are columns that are no
    features: label, id and center. `folders` are columns in the names of the shards' folders. None if no shard has
    records. Raises InputError if the shard cannot be read.
    """
    name = next((name for name, records in shards.items() if records), None)
    if name is None:
        return None
    path = FileSystems.join(data, name)
    with open_input(path) as file:
        if name.endswith(".parquet"):
            found = set(pyarrow.parquet.read_schema(file).names)
        else:
            # Imported late: loads protobuf.
            from ...transforms.tfrecord.example_decoder import ExampleDecoder

            frames = next(read_records(file, path, _RECORDS_READ, None))
            found = ExampleDecoder(path).names(frames.records())
    return len((found | set(folders)) - set(others))
