"""`--dry_run`: says what a job would do. Reads schemas and the ledger, no label, and writes and charges nothing."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...mechanisms.analysis.automatic import CANDIDATES, LABELS
from ...mechanisms.center.cell_center import CELL_SHARE, MOST_EPSILON
from ...mechanisms.center.linear_center import CENTER_SHARES
from ...mechanisms.center.marginal_center import marginal_share
from ...mechanisms.core.budget import BudgetSplit, split_budget
from ...mechanisms.core.losses import loss_named
from ...mechanisms.core.prior import Prior
from ...mechanisms.registry import AUTO, Mechanism, mechanism_named
from ...mechanisms.release.conclude import EarlierMechanism
from ...mechanisms.release.feature_sample import CenterFeatures
from ...mechanisms.release.prior_release import RefusedRelease, check_records, histogram_shares
from ...mechanisms.release.unit_bound import SINGLE
from ...transforms.batches import usable_labels
from ...transforms.errors import listed
from ...transforms.io.filesystems import is_remote
from ...transforms.missing_labels import missing_advice
from ...transforms.progress_log import LOGGER
from ...transforms.readers.file_reader import FileReader
from ...transforms.readers.orc_reader import orc_schema
from ...transforms.readers.parquet_reader import parquet_schema
from ..errors import UsageError, one_line
from ..ledger.ledger import Ledger
from ..publish.protocol import check_caps
from ..publish.release_steps import earlier_of_release
from ..spec.fields import LINEAR_CENTER, MODELS_OF_LOG
from ..spec.label import Label
from ..spec.release import Release
from .announcement import counted, describe_classes, describe_features, describe_missing, warn_of_identifiers

_EXAMPLE_RECORDS = (10_000, 1_000_000)
"""Numbers of records to show the split for, where the number is not known without reading records."""
_MOST_LABELS = 513
"""Labels up to which mechanisms are solved for a flat prior, all of most working grids: more take longer."""
_MOST_FOOTERS = 1000
"""Parquet files whose footers are read for their number of records."""
_MOST_BATCHES = 16
"""Batches in which missing labels, and the records of small inputs, are counted."""
_MOST_COLUMNS = 12
_FEATURES = "released as they are; one that follows from a label reveals it, and labeldp attack --features names it"


def print_dry_run(release: Release) -> None:
    """Prints what a job of `privatize` or `fit` would do.

    Raises FieldError if a cap of the ledger would be exceeded, UsageError if the records are known to be too few, and
    InputError if the ledger is corrupt or a footer cannot be read.
    """
    ledger = Ledger(release.ledger)
    check_caps(ledger, release.name, release.budget, release.caps, release.unit)
    records, first = known_records(release), _first_records(release)
    if records is None and first is not None and first.all and release.unit == SINGLE:
        records = first.records
    warn_of_identifiers(release)
    for label in release.labels:
        _warn_of_spaces(label)
    labels = [
        line
        for label, earlier in zip(release.labels, earlier_of_release(ledger, release), strict=True)
        for line in (
            ("label", _label(label)),
            ("center", _center(label)),
            *([("recipients", _recipients(label))] if label.features is not None else []),
            ("budget", _budget(label, records)),
            ("mechanism", _mechanism(label)),
            ("expected", _expected(label, earlier, records)),
        )
    ]
    print("dry run    of labels, only which ones are missing was read; nothing is written or charged")
    for title, text in [
        ("input", _input(release, records)),
        ("columns", _columns(release)),
        ("units", _units(release)),
        ("missing", _missing(release, first)),
        *labels,
        ("key", one_line(release.key.path) + _created(release.key.path)),
        *([] if release.sign is None else [("signed", f"by sha256:{release.sign.load().fingerprint}")]),
        ("charged", _charged(release, ledger)),
        ("output", _output(release)),
        *([] if release.command == "fit" else [("features", _FEATURES)]),
    ]:
        print(f"{title:<11}{text}")


def _created(key: str) -> str:
    return "" if is_remote(key) or os.path.lexists(key) else ", which the job creates"


def known_records(release: Release) -> int | None:
    """Number of records, if the footers of the files tell it."""
    paths = release.input.paths
    rows_of = {"parquet": parquet_schema, "orc": orc_schema}.get(release.input.format.name)
    if rows_of is None or release.input.where is not None or len(paths) > _MOST_FOOTERS:
        return None
    return sum(rows_of(path)[1] for path in paths)


def _input(release: Release, records: int | None) -> str:
    input = release.input
    # Without the sizes of the files, which depend on the labels.
    rows = "" if records is None else f", {records:,} record{'' if records == 1 else 's'}"
    where = "" if input.where is None else f", of which those with {input.where.column}={input.where.value}"
    files = counted(len(input.paths), f"{input.format.name} file")
    return one_line(f"{files}{rows}: {input.pattern}{where}")


def _columns(release: Release) -> str:
    roles = dict.fromkeys(release.private, "a label" if len(release.labels) > 1 else "the label")
    for label in release.labels:
        if label.column.id_column is not None:
            roles[label.column.id_column] = "the record's id"
        if label.column.center is not None and label.features is None:
            roles[label.column.center] = "the center"
    for name in release.unit.columns:
        roles.setdefault(name, "the record's unit")
    schema = release.schema
    others = [field for field in schema if field.name not in roles]
    shown = [field for field in schema if field.name in roles] + others[:_MOST_COLUMNS]
    texts = [f"{field.name} ({roles.get(field.name, _type(field.type))})" for field in shown]
    more = f" and {counted(len(others) - _MOST_COLUMNS, 'other')}" if len(others) > _MOST_COLUMNS else ""
    left = f"; left out: the pandas index {listed(release.input.left_out)}" if release.input.left_out else ""
    if release.output.left_out:
        left += f"; not released: {', '.join(release.output.left_out)}"
    return one_line(", ".join(texts) + more + left) if texts else "none: the files have no record"


def _type(kind: pa.DataType) -> str:
    """Name of a type; that of its values for the lists of tf.Examples."""
    if pa.types.is_large_list(kind):
        kind = kind.value_type
    return "text" if pa.types.is_large_binary(kind) or pa.types.is_string(kind) else str(kind)


def _label(label: Label) -> str:
    column = label.column
    rest = f"{describe_missing(column)}records are identified by {column.id_column or 'file and row'}"
    if column.classes is not None:
        return one_line(f"{column.name}: {len(column.classes)} classes, {describe_classes(column.classes)}; {rest}")
    ends = f"{column.domain[0]:g} to {column.domain[-1]:g}"
    steps = np.diff(column.labels)
    even = len(steps) > 0 and np.allclose(steps, steps[0], rtol=1e-9)
    spaced = f", {steps[0]:g} apart" if even else ", unevenly spaced" if len(steps) else ""
    of = "" if column.declared is None else f" chosen for the {column.declared.labels:,} declared ones"
    return one_line(
        f"{column.name}: {counted(len(column.domain), 'label')}{of}, {ends}{spaced}; rounding {column.rounding}; {rest}"
    )


def _warn_of_spaces(label: Label) -> None:
    """Warns of classes with spaces around them, by the list alone: no label is read."""
    classes = label.column.classes
    spaced = [value for value in classes.values if value != value.strip()] if classes is not None else []
    if spaced:
        LOGGER.warning(
            "warning: %s: %r of --label_classes has white space at its beginning or end%s: texts are compared exactly"
            "%s",
            one_line(label.name), spaced[0], f", and so have {len(spaced) - 1} more" if len(spaced) > 1 else "",
            "; classes with commas are given in a file, one per line" if any('"' in value for value in spaced) else "",
        )  # fmt: skip


def _units(release: Release) -> str:
    unit = release.unit
    if unit == SINGLE:
        return "none: epsilon is for the label of one record (--unit_column)"
    most = counted(unit.max_records, "record")
    return one_line(
        f"{unit.column}: at most {most} of each, the others are left out, and so are records without a unit"
    )


class _FirstRecords(NamedTuple):
    """Number of the first records, of those without a usable label, and whether there are no others."""

    records: int
    unusable: int
    all: bool


def _first_records(release: Release) -> _FirstRecords | None:
    """Counts the first records without a usable label; None where a missing label counts as one, and is private."""
    column, input = release.labels[0].column, release.input
    if column.missing_label is not None:
        return None
    reader = FileReader(input.format, column.private, input.where, column.name, other_labels=column.others)
    records, unusable = 0, 0
    for number, batch in enumerate(itertools.chain.from_iterable(map(reader.read, input.parts))):
        if records and number >= _MOST_BATCHES:
            return _FirstRecords(records, unusable, False)
        usable = usable_labels(batch, column)[1]
        records, unusable = records + len(usable), unusable + int(np.sum(~usable))
    return _FirstRecords(records, unusable, True)


def _missing(release: Release, first: _FirstRecords | None) -> str:
    column = release.labels[0].column
    if first is None:
        return describe_missing(column).removesuffix("; ")
    records, unusable, _ = first
    most, share = release.threshold.fraction, f"{100 * unusable / max(records, 1):.2g} %"
    refused = f": the job refuses more than --max_unusable_fraction {most:g}" if unusable > most * records else ""
    if refused and 2 * unusable > records:
        refused += f"; {missing_advice(column, '--missing_label {}')}fix them, or exclude them with --where"
    return f"{unusable:,} of the first {records:,} records ({share}) have no usable label{refused}"


def _center(label: Label) -> str:
    if label.features is not None:
        return one_line(describe_features(label))
    return "none" if label.column.center is None else one_line(f"column {label.column.center}")


def _recipients(label: Label) -> str:
    """The question that decides on the kind of center, with what this request answers."""
    assert label.features is not None
    question = "do those who train have features that this log lacks? "
    if not (label.features.cells or label.features.marginals):
        return f"{question}If so, labels keep most of epsilon for them. If not, consider --for {MODELS_OF_LOG}"
    other = "none" if label.column.classes is not None else LINEAR_CENTER
    return (
        f"{question}If so, use --center {other}: this release says what the features of the log say, and nothing else"
    )


def _split(label: Label, records: int) -> BudgetSplit:
    """The split of the job; with a linear center, that of a center that would take nothing."""
    column, budget = label.column, label.record_budget
    shares = histogram_shares(column, label.mechanism.name, budget.epsilon, None)
    return split_budget(budget.epsilon, column.cells, records, budget.prior_epsilon, **shares)


def _budget(label: Label, records: int | None) -> str:
    parts = []
    for number in _EXAMPLE_RECORDS if records is None else (max(records, 1),):
        split = _split(label, number)
        if records is not None:
            try:
                check_records(split, records, label.mechanism.name)
            except RefusedRelease as error:
                raise UsageError(str(error)) from None
        parts.append(f"{split.prior:.6g} for the histogram + {split.labels:.6g} for the labels of {number:,} records")
        if label.budget.prior_epsilon is not None:
            parts = [f"{split.prior:.6g} for the histogram + {split.labels:.6g} for the labels"]
    delta = f", delta {label.budget.delta:g}" if label.budget.delta else ""
    unit, budget = label.column.unit, label.record_budget
    if unit != SINGLE:
        delta += f" for all labels of a unit, {budget.epsilon:.6g} for each of at most {unit.max_records} records"
    first = ""
    if label.features is not None and label.column.classes is None:
        first = f"{_center_budget(label.features, budget.epsilon, records)}; without that part, "
    return f"epsilon {label.budget.epsilon:g}{delta}: {first}{'; '.join(parts)}"


def _center_budget(features: CenterFeatures, epsilon: float, records: int | None) -> str:
    """What a center of marginal sums takes, or a linear one, with or without cells; either, where a rule chooses."""
    texts, decided = [], ", which the features decide" if features.cells or not features.marginals else ""
    if features.marginals:
        numbers = _EXAMPLE_RECORDS if records is None else (max(records, 1),)
        texts.append(", ".join(f"{float(marginal_share(number, epsilon)) * epsilon:.4g}" for number in numbers))
    if decided:
        least, most = CENTER_SHARES[0], CENTER_SHARES[-1]
        if features.cells and epsilon <= MOST_EPSILON:
            most += (1 - most) * CELL_SHARE
        texts.append(f"{float(least) * epsilon:.4g} to {float(most) * epsilon:.4g}")
    return f"{' or '.join(texts)} for the center{decided}"


def _mechanism(label: Label) -> str:
    if label.column.classes is not None and label.features is not None:
        unless = "" if label.features.cells else ", unless the histogram says that randomized response teaches more"
        return f"none: classes are drawn from the probabilities of the center{unless}"
    if label.mechanism.name != AUTO:
        given = {name: value for name, value in label.mechanism.parameters.items() if name != "loss"}
        parameters = "".join(f", {name}={value}" for name, value in given.items())
        return f"{label.mechanism.name}, loss {label.mechanism.loss}{parameters}"
    names = list(CANDIDATES)
    return (
        f"auto: the noised histogram decides between {names[0]}, bias_limited and {LABELS}, by the error of a model "
        "that is trained on the labels"
    )


def _expected(label: Label, earlier_mechanisms: Sequence[EarlierMechanism], records: int | None) -> str:
    if label.column.classes is not None and label.features is not None:
        return "unknown: it depends on what the features say of the classes"
    loss = loss_named(label.mechanism.loss)
    if earlier_mechanisms:
        earlier = earlier_mechanisms[0].drawing
        value = earlier.randomizer.expected_loss(earlier.prior, loss)
        return f"{loss.name} loss {value:.6g}, as in the earlier release of this request, under its noised histogram"
    if label.column.center is not None:
        return "unknown: it depends on what the center says of the labels"
    labels = label.column.labels
    if len(labels) > _MOST_LABELS:
        return f"not computed here for more than {_MOST_LABELS} labels: see labeldp plan"
    prior = Prior(labels, np.ones(len(labels)))
    split = _split(label, max(records or _EXAMPLE_RECORDS[-1], 1))
    texts = []
    for title, mechanism in _candidates(label):
        try:
            value = mechanism.solve(prior, split.labels).expected_loss(prior, loss)
        except ValueError:
            continue
        texts.append(f"{value:.6g} of {title}")
    if not texts:
        return f"{loss.name} loss unknown: the mechanism does not support a flat histogram"
    return f"{loss.name} loss {', '.join(texts)}, if all labels were equally frequent"


def _candidates(label: Label) -> Iterator[tuple[str, Mechanism]]:
    """The mechanism with its name; the two extremes of auto."""
    if label.mechanism.name != AUTO:
        yield label.mechanism.name, mechanism_named(label.mechanism.name, **label.mechanism.parameters)
        return
    for name in (next(iter(CANDIDATES)), LABELS):
        yield name, CANDIDATES[name]


def _charged(release: Release, ledger: Ledger) -> str:
    budget, caps = release.budget, release.caps
    window = caps.window
    spent = float(ledger.spent(window=window).epsilon)
    again, what = "", f"epsilon {budget.epsilon:g}"
    if ledger.has_request(release.name):
        again = "; nothing, if the input has not changed since the release of this request"
    if release.command == "fit":
        centers = any(label.features is not None for label in release.labels)
        part = "the parts of histogram and center" if centers else "the part of the histogram"
        what = f"{part}, and by apply the rest of {what},"
    since = "so far" if window is None else f"of the last {window.text}"
    cap = "" if caps.epsilon is None else f", of {caps.epsilon:g} allowed"
    return one_line(f"{what} to {ledger.path}, which has {spent:.6g} {since}{cap}{again}")


def _output(release: Release) -> str:
    output = release.output
    if release.command == "fit":
        return one_line(f"mechanism file {output.target}")
    compression = "" if output.compression == "none" else f", {output.compression}"
    shards = counted(output.num_shards, f"{'shuffled ' if output.shuffle else ''}{output.format} shard")
    if output.partitions.columns:
        folders = counted(len(output.partitions.folders), "folder")
        shards += f" in each of {folders}, {'/'.join(f'{name}=...' for name in output.partitions.names)}"
    table = "" if output.table is None else f", added to {output.table.format}://{output.table.table}"
    return one_line(f"{output.target}: {shards}{compression}{table}")
