"""Statements of a claim file that follow from a release alone, field by field of the registry of deployments.

Texts are markdown, as the registry shows them. Names that a user or a file chose are code spans, so that none of them
is read as markup.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..audit.audit_mechanism import Audit
from ..mechanisms.analysis.verdict import debiasing, release_warnings, verdict
from ..mechanisms.core.budget import round_up
from ..mechanisms.core.integer_weights import BITS
from ..pipelines.cli.text_format import upper_bound
from ..pipelines.errors import one_line
from ..pipelines.publish.manifest import Manifest, losses_of, manifest_facts
from ..pipelines.spec.mechanism_file import MechanismFile
from .release_summary import UnitSummary

SOURCE = "https://github.com/labeldp/labeldp"
_MOST_CLASSES = 20
_MOST_FEATURES = 60
_MOST_NAME = 200
# Above, the factor e^epsilon says no more than that there is no bound.
_MOST_ODDS = 30


@dataclass(frozen=True)
class ClaimedLabel:
    """One label of a release that passed the audit: manifest, mechanism, audit and unit."""

    manifest: Manifest
    mechanism: MechanismFile
    audit: Audit
    unit: UnitSummary | None


@dataclass(frozen=True)
class ClaimedRelease:
    """Release that a claim is about; it passed the audit.

    Attributes:
      labels: Each of its labels.
      epsilon: Budget of all labels of a record, or of a unit.
      certified_epsilon: What the mechanisms certify of it.
      delta: Delta of the budget; 0 for pure DP.
      certified_delta: Certified delta.
      adjacency: Definition of neighboring datasets, as in the manifest.
    """

    labels: Sequence[ClaimedLabel]
    epsilon: float
    certified_epsilon: float
    delta: float
    certified_delta: float
    adjacency: str

    @property
    def first(self) -> ClaimedLabel:
        """The first label, for what all labels have in common."""
        return self.labels[0]

    @property
    def unit(self) -> UnitSummary | None:
        """Privacy unit; None for single records."""
        return self.first.unit

    @property
    def per(self) -> str:
        """Whom epsilon is for."""
        return "one record" if self.unit is None else f"one value of {code(self.unit.column)}"

    @property
    def needed_facts(self) -> list[str]:
        """Facts that the deployer has to state, because the release takes something from elsewhere."""
        needed = []
        files = [label.mechanism for label in self.labels]
        if any(file.center is not None and file.center.linear is None for file in files):
            needed.append("center_origin")
        if any(not file.parts for file in files):
            needed.append("prior_origin")
        return needed


def code(name: str) -> str:
    """Code span of markdown with a name that anybody may have chosen."""
    text = one_line(name)
    text = text if len(text) <= _MOST_NAME else text[: _MOST_NAME - 3] + "..."
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text[:1] in ("`", " ", "") or text[-1:] in ("`", " ") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def statements(release: ClaimedRelease) -> dict[str, Any]:
    """States a release: value by field of the registry, as group.field below `deployment`.

    A list of points may be continued by the deployer; any other value is the whole field.
    """
    return {
        "basic.data_product_type": "Dataset",
        "dp_variant.variant_name": "Approximate DP" if release.delta else "Pure DP",
        "dp_variant.data_domain": _listed(_domain(release)),
        "dp_variant.unprotected_quantities": _listed(_unprotected(release)),
        "privacy_loss.privacy_unit": _unit(release),
        "privacy_loss.privacy_unit_details": _listed(_unit_details(release)),
        "privacy_loss.number_of_privacy_units": _units(release),
        "privacy_loss.privacy_parameters": {
            "epsilon": release.epsilon,
            **({"delta": release.delta} if release.delta else {}),
        },
        "privacy_loss.privacy_parameters_details": _listed(_parameters(release)),
        "deployment_model.model_name": "Central",
        "deployment_model.model_name_details": (
            "The party that has the labels randomizes them with labeldp, and hands on the dataset with randomized ones."
        ),
        "deployment_model.trust_assumptions": _listed(_TRUST),
        "deployment_model.access_type": "Non-interactive",
        "deployment_model.access_type_details": (
            "Recipients work with the released records. Nobody queries the true labels."
        ),
        "implementation.preprocessing_and_hyperparameter_tuning": _listed(_preprocessing(release)),
        "implementation.mechanisms": _listed(_mechanisms(release)),
        "implementation.composition": _listed(_composition(release)),
        "implementation.post_processing": _listed(_post_processing(release)),
        "implementation.utility": _listed(_utility(release)),
        "implementation.additional_information": _listed(_audited(release)),
    }


_TRUST = (
    "Trusted with the true labels: the party that runs the job, its workers, and the storage between its stages. "
    "Whoever has the secret key of the noise and the release can remove the noise.",
    "Not trusted: everybody who sees the release, its ledger, logs and errors. They may know all features and all "
    "labels but those of one privacy unit, and have any computing power, except that they cannot tell keyed BLAKE2b "
    "and AES-256 from random.",
)


def _listed(points: Sequence[str] | Iterator[str]) -> str:
    return "\n".join(f"- {point}" for point in points)


def _columns(release: ClaimedRelease) -> str:
    return ", ".join(code(label.manifest.label) for label in release.labels)


def _domain(release: ClaimedRelease) -> Iterator[str]:
    missing = _missing(release)
    fixed = "Features, and which records have a label, are fixed" if missing is None else "Features are fixed"
    yield f"Datasets of records with features and a label. {fixed}."
    if missing is not None:
        yield f"A missing label counts as {missing}."
    for label in release.labels:
        name, classes = code(label.manifest.label), label.mechanism.classes
        if classes is None:
            low, high, count = label.manifest.domain
            yield f"Label {name}: numbers from {low!r} to {high!r}, {count:,} values. Others are clamped to this range."
        else:
            listed = ", ".join(map(code, classes.values[:_MOST_CLASSES]))
            more = f" and {len(classes) - _MOST_CLASSES:,} more" if len(classes) > _MOST_CLASSES else ""
            other = code(classes.values[classes.other])
            yield f"Label {name}: {len(classes):,} classes, {listed}{more}. Any other value counts as {other}."
    yield "The domain of the labels is public."


def _missing(release: ClaimedRelease) -> str | None:
    """Public label that a missing one counts as; None if records without a label were left out."""
    missing = release.first.manifest.missing
    return missing if missing is None else code(missing if isinstance(missing, str) else f"{missing:g}")


def _counted(release: ClaimedRelease) -> int:
    """Number of records that were released, removed ones included."""
    return release.first.manifest.records + release.first.manifest.removed


def _unprotected(release: ClaimedRelease) -> Iterator[str]:
    manifest, unit = release.first.manifest, release.unit
    count = "" if manifest.features is None else f", {manifest.features:,} columns"
    yield (
        f"The features of every record{count}: they are released as they are. Label differential privacy does not "
        "protect them, and a feature that follows from the label reveals it."
    )
    records = f"The number of records, {_counted(release):,}, and which records they are (by {code(manifest.identity)})"
    if _missing(release) is None:
        without = f"{manifest.records_without_label:,} were left out for that"
        yield f"{records}. Which records have no usable label: {without}."
    else:
        yield f"{records}. Which of them had a label is protected as the label is."
    if manifest.where is not None:
        yield f"The filter on features that selected the records, {code(manifest.where)}."
    if unit is not None:
        yield f"Which records belong to one value of {code(unit.column)}, and how many."
    for label in release.labels:
        center = label.mechanism.center
        if center is not None and center.linear is None:
            yield f"The column {code(center.column)}, around which {code(label.manifest.label)} is randomized."
        if not label.mechanism.parts:
            yield f"The distribution of {code(label.manifest.label)} for which the mechanism was solved: it is public."
    yield "Whether the labels changed between two releases that are made alike under one secret key."


def _unit(release: ClaimedRelease) -> str:
    several = len(release.labels) > 1
    if release.unit is None:
        return f"{'Labels' if several else 'Label'} of one record"
    return f"All labels of one value of {code(release.unit.column)}"


def _units(release: ClaimedRelease) -> int:
    return _counted(release) if release.unit is None else release.unit.units


def _unit_details(release: ClaimedRelease) -> Iterator[str]:
    yield f"{release.adjacency[:1].upper()}{release.adjacency[1:]}."
    yield f"Labels: {_columns(release)}."
    unit = release.unit
    if unit is not None:
        yield (
            f"At most {unit.max_records:,} records of one value of {code(unit.column)} are released with a label of "
            f"their own, chosen without regard to labels; {unit.left_out:,} further records and {unit.without_unit:,} "
            f"records without a value are left out."
        )
    yield "Presence of a record is not protected: the labels of a unit are replaced, its records are not removed."


def _parameters(release: ClaimedRelease) -> Iterator[str]:
    certified = f"epsilon {release.certified_epsilon!r}"
    if release.delta:
        certified += f" and delta {release.certified_delta!r}"
    yield f"The parameters are upper bounds for {release.per}, for everything in this release together."
    yield f"Certified from the integers of the mechanisms, in exact arithmetic: {certified}."
    if release.unit is not None:
        total = round_up(sum((_of_record(label) for label in release.labels), Fraction(0)))
        yield f"For a single record, whose unit has other records that are known: epsilon {total!r}."
    if release.epsilon <= _MOST_ODDS:
        rare = ", except with a probability of the order of delta" if release.delta else ""
        odds = upper_bound(math.exp(release.epsilon))
        yield f"They change the odds of an observer between two possible labels by a factor of at most {odds}{rare}."


def _of_record(label: ClaimedLabel) -> Fraction:
    """Epsilon of one record: of its center, histogram and randomized label."""
    file = label.mechanism
    return Fraction(file.center_epsilon) + Fraction(file.prior_epsilon) + Fraction(label.audit.certified_epsilon)


def _preprocessing(release: ClaimedRelease) -> Iterator[str]:
    for label in release.labels:
        file, name = label.mechanism, code(label.manifest.label)
        if file.classes is not None:
            yield f"Values of {name} that are no class were counted as one of the classes, without any count of them."
        else:
            nearest = "to the nearest" if file.rounding == "nearest" else "at random to one"
            yield f"Labels {name} outside of the domain were clamped to it, without any count of them."
            yield f"Values of {name} between two labels of the domain were rounded {nearest} of them."
        if file.made_center is not None:
            columns = file.made_center.map.columns
            shown = ", ".join(map(code, columns[:_MOST_FEATURES])) or "none"
            more = f" and {len(columns) - _MOST_FEATURES:,} more" if len(columns) > _MOST_FEATURES else ""
            yield f"The model around which {name} is randomized was designed from features alone: {shown}{more}."
        if file.solved is not None and file.solved.choice is not None:
            yield f"The mechanism of {name} was chosen by its errors under the noised histogram: post-processing."
        if file.declared is not None:
            yield f"The mechanism of {name} uses a coarser grid than the {file.declared.labels:,} labels declared."


def _mechanisms(release: ClaimedRelease) -> Iterator[str]:
    for label in release.labels:
        yield from _mechanism(label)
    versions = release.first.manifest.versions
    named = ", ".join(f"{code(name)} {code(version)}" for name, version in versions.items())
    yield f"Library: {named}; source {SOURCE}."
    yield (
        "Floating point: no noise is drawn from a distribution in floats. Noise of counts and sums is drawn exactly in "
        f"integers, and a label by one random word of 64 bits from integer weights in units of 2^-{BITS}."
    )
    yield (
        "Randomness: keyed BLAKE2b and AES-256 under a secret key of 32 bytes, bound to the labels and the request. A "
        "repeated run gives the same bytes, and after any change of the labels all noise is fresh."
    )
    yield "Timing: no analyst sends queries. The duration of the job is not hidden from those who see it run."


def _mechanism(label: ClaimedLabel) -> Iterator[str]:
    file, name = label.mechanism, code(label.manifest.label)
    each = " for each record" if label.unit is not None else ""
    yield from (f"{name}: {part.noise} on {part.what} (epsilon {part.epsilon!r}{each})." for part in file.parts)
    if file.draws_classes:
        yield f"{name}: classes are drawn from the model that follows; no label is looked at again."
        return
    randomizer = file.randomizer
    delta = f" and delta {label.audit.certified_delta!r}" if label.audit.certified_delta else ""
    yield (
        f"{name}: each {'residual' if file.center is not None else 'label'} is replaced with a draw from the mechanism "
        f"`{randomizer.mechanism}`, {len(randomizer.labels):,} inputs to {len(randomizer.outputs):,} outputs "
        f"(certified epsilon {label.audit.certified_epsilon!r}{delta}{each})."
    )


def _composition(release: ClaimedRelease) -> Iterator[str]:
    for label in release.labels:
        file, name, most = label.mechanism, code(label.manifest.label), 1
        parts = (file.center_epsilon, file.prior_epsilon, label.audit.certified_epsilon)
        shown = " + ".join(repr(part) for part in parts if part)
        if label.unit is not None:
            most = label.unit.max_records
        if file.unit_epsilon is not None:
            before = round_up(most * (Fraction(file.center_epsilon) + Fraction(file.prior_epsilon)))
            yield (
                f"{name}: the labels of a unit, at most {most:,}, are composed by the privacy loss distribution of the "
                f"randomizer, to epsilon {file.unit_epsilon!r} with delta {label.manifest.certified_delta!r}; "
                f"{before!r} for center and histogram is added."
            )
        else:
            times = f", times the {most:,} records of a unit" if most > 1 else ""
            total = label.manifest.certified_epsilon
            yield f"{name}: basic composition of {shown}{times}, at most {total!r}. The sum is exact, and rounded up."
    if len(release.labels) > 1:
        yield "The epsilons and deltas of the labels of a record add up, to those of the release."


def _post_processing(release: ClaimedRelease) -> Iterator[str]:
    removed = release.first.manifest.removed
    if removed:
        yield f"{removed:,} records were removed from the release since. Noised statistics still count them."
    for label in release.labels:
        file, name = label.mechanism, code(label.manifest.label)
        if file.made_center is not None:
            yield f"{name}: coefficients of the center follow from its noised numbers; its trees do, if it has cells."
        if file.draws_classes:
            yield f"{name}: its probabilities in {code(str(file.center_column))}, and draws."
        if file.center is not None:
            yield (
                f"{name}: the center {code(file.center.column)} is added to the randomized residual, whose range "
                "follows from the noised histogram."
            )
        elif file.prior_epsilon:
            yield f"{name}: the mechanism is solved for the noised histogram."
    yield "Expected errors, verdict and warnings are computed from the noised histogram."


def _utility(release: ClaimedRelease) -> Iterator[str]:
    for label in release.labels:
        facts, name = manifest_facts(label.mechanism, label.manifest), code(label.manifest.label)
        yield f"{name}: {verdict(facts).text}."
        stated = label.manifest.expected_loss
        # Other names in a manifest are those of anybody, and no contradiction of it would be found.
        losses = ", ".join(
            f"{loss} {stated[loss]!r}" for loss in losses_of(label.mechanism) if stated.get(loss) is not None
        )
        if losses:
            yield f"{name}: expected loss of one released label, under the released prior: {losses}."
        yield f"{name}: to debias: {debiasing(facts).line}."
        yield from (f"{name}: warning: {warning.text}." for warning in release_warnings(facts))


def _audited(release: ClaimedRelease) -> Iterator[str]:
    yield (
        "`labeldp audit` passes on the documents of the release: it recomputes certificates, budgets and fingerprints "
        "with code that the solvers do not share, and replays with the program's own code what follows from the noised "
        "numbers of centers. `labeldp audit RELEASE --data` checks the records as well."
    )
    for label in release.labels:
        yield (
            f"{code(label.manifest.label)}: fingerprint of the mechanism {code(label.mechanism.drawn_by)}, keyed "
            f"digest of the input {code(label.manifest.input_digest)}."
        )
