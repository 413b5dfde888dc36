"""Summary of a release on standard output, and warnings about it on standard error."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from ...mechanisms.analysis.automatic import CANDIDATES, LABELS
from ...mechanisms.analysis.release_warnings import measured_warnings, shown_warnings
from ...mechanisms.analysis.utility import ReleasedFacts
from ...mechanisms.analysis.verdict import debiasing, verdict
from ...mechanisms.center.marginal_center import LEAST_SIGNAL
from ...mechanisms.core.label_classes import LabelClasses
from ...mechanisms.core.losses import loss_named
from ...mechanisms.core.randomizer import Randomizer
from ...mechanisms.release.bound_noise import NoiseBinding
from ...mechanisms.release.label_column import LabelColumn
from ...mechanisms.release.unit_bound import SINGLE
from ...transforms.io.input_format import ENOUGH_FILES, splits
from ...transforms.progress_log import LOGGER
from ..errors import one_line
from ..job.input_reads import reads_parts
from ..publish.job_result import JobResult
from ..publish.manifest import judged_facts
from ..publish.release_blocks import Blocks, privacy_lines, use_lines
from ..publish.release_steps import ReleasedLabel
from ..publish.request import Request
from ..spec.label import Label
from ..spec.mechanism_file import MechanismFile
from ..spec.release import Release
from ..spec.signing_key import SigningKey

LARGE_FILE = 1 << 20
"""Records of a large file, on average."""
_OUTPUTS_SHOWN = 6
_COLUMNS_SHOWN = 12


def announce_features(label: Label) -> None:
    """Logs which columns the center predicts from, and which it cannot use."""
    if label.features is not None:
        LOGGER.info("center of %s: %s", one_line(label.name), one_line(describe_features(label)))


def describe_features(label: Label) -> str:
    """Names the features of the center that a job makes, and the columns that are none, with the reasons.

    Of many columns, the first ones are named. The label has features.
    """
    assert label.features is not None
    names = label.features.names
    unused = [f"{name} ({reason})" for name, reason in label.unused.items()]
    kind = "linear, with cells where they pay" if label.features.cells else "linear"
    if label.features.marginals:
        rule = f" where most are categories and n epsilon / features^2 >= {LEAST_SIGNAL}, else {kind}"
        kind = f"an effect of each feature{rule if label.features.cells else ''}"
    if label.column.classes is not None:
        kind = "probabilities of the classes"
    # Of columns that nobody named, a pass over the records leaves out those that identify them.
    most = "up to " if label.features.all_columns else ""
    text = f"{kind}, from {most}{counted(len(names), 'feature')}: {_first_columns(names)}"
    text += ", without those in which nearly all values differ, as ids do" if most else ""
    return f"{text}; not from {_first_columns(unused)}" if unused else text


def _first_columns(texts: Sequence[str]) -> str:
    return ", ".join(texts[:_COLUMNS_SHOWN]) + (", ..." if len(texts) > _COLUMNS_SHOWN else "")


def warn_of_identifiers(release: Release) -> None:
    """Warns if the columns of units or ids are released: few recipients need them, and they link records to persons."""
    names = release.identifiers
    if names:
        LOGGER.warning(
            "warning: %s %s released with the labels: unless recipients need it, add --leave_out %s",
            one_line(" and ".join(names)), "is" if len(names) == 1 else "are", one_line(",".join(names)),
        )  # fmt: skip


def announce_readers(release: Release, binding: NoiseBinding) -> None:
    """Logs what lets several workers read large files of rows, where one read each of a few.

    Which files are large is told by the number of their records: sizes, and the number of workers that follows from
    them, may depend on labels.
    """
    input = release.input
    files, rows = len(input.parts), binding.records + binding.unusable
    if input.format.name == "parquet" or files >= ENOUGH_FILES or rows < LARGE_FILE * files:
        return
    which = "the input file" if files == 1 else "each input file"
    enough = max(release.output.num_shards, ENOUGH_FILES * files)
    split = input.format.name != "orc" and all(splits(part, input.format.dialect.encoding) for part in input.parts)
    if not (split and reads_parts(release, enough)):
        LOGGER.info("one worker read %s: of %d files or more, several can be read at a time", which, ENOUGH_FILES)
    elif not reads_parts(release):
        LOGGER.info("one worker read the records of %s: with --num_shards %d, several can", which, enough)


def warn_of_other_label(release: Release) -> None:
    """Warns if the mechanism of `apply` was fitted to another label column.

    Its epsilon holds for every column with its domain, but its histogram says nothing about this one.
    """
    fitted, label = release.fitted, release.labels[0].name
    if fitted is not None and fitted.label not in (None, label):
        LOGGER.warning(
            "warning: --label is %s, but --mechanism_file was fitted to %s: epsilon holds, but the mechanism is "
            "optimal for the histogram of %s, and its expected loss and verdict are about that column",
            *(one_line(str(name)) for name in (label, fitted.label, fitted.label)),
        )


def announce(
    request: Request, released: Sequence[ReleasedLabel], key: SigningKey | None = None, verbose: bool = False
) -> None:
    """Prints what was released in four blocks, with `verbose` all its facts after them; logs the warnings.

    `key` is the one that the release is signed with.
    """
    print(_blocks(request, released, key))
    several = len(released) > 1
    if verbose:
        for column in released:
            print(f"\nlabel      {one_line(column.label.name)}: epsilon {column.label.budget.epsilon:.6g}")
            _announce_label(column)
    for column in released:
        without_unit = 0 if column.result.units is None else column.result.units.without_unit
        if without_unit:
            name = one_line(str(column.result.binding.unit.column))
            LOGGER.warning("warning: %s without a unit in %s: left out", counted(without_unit, "record"), name)
        of = f"{one_line(column.label.name)}: " if several else ""
        for warning in (*shown_warnings(column.facts), *measured_warnings(column.measured)):
            LOGGER.warning("warning: %s%s", of, warning.text)


def _blocks(request: Request, released: Sequence[ReleasedLabel], key: SigningKey | None) -> Blocks:
    result, output = released[0].result, one_line(_from_here(request.output))
    names, binding = one_line(" and ".join(column.label.name for column in released)), result.binding
    left_out = describe_missing(binding).removesuffix("; ")
    if not left_out and binding.unusable:
        which = f" in each of {counted(len(released), 'column')}" if len(released) > 1 else ""
        left_out = f"{binding.unusable:,}{unusable_share(result)} without a usable label{which} left out"
    kept = f"; {one_line(left_out)}" if left_out else ""
    if result.units is not None and result.units.left_out:
        kept += f"; {result.units.left_out:,} above --max_records_per_unit left out"
    made = (
        f"The mechanism for {names}, from {binding.records:,} records{kept}"
        if request.command == "fit"
        else f"{binding.records:,} records with new labels in {names}, in {counted(len(result.shards), 'shard')}{kept}"
    )
    signed = "" if key is None else f", signed by sha256:{key.fingerprint}"
    article = "an" if (request.validation or "").startswith("i") else "the"
    validated = "" if request.validation is None else f", validated against {article} {request.validation}"
    judged = [
        (
            f"{one_line(column.label.name)}: " if len(released) > 1 else "",
            verdict(judged_facts(column.facts, request.command), column.measured),
        )
        for column in released
    ]
    follows = f"labeldp audit {output} checks it, labeldp report {output} explains it."
    if request.command == "fit":
        follows = f"labeldp apply INPUT --label {names} --mechanism_file {output} --output DIR releases labels."
    secret = one_line(_from_here(request.key.path))
    return Blocks(
        (made, f"{output}{signed}{validated}"),
        privacy_lines(request.budget.epsilon, [column.mechanism for column in released]),
        use_lines(judged),
        (follows, f"Who has {secret} can remove the noise: keep it with the raw labels, or destroy it."),
    )


def _from_here(path: str) -> str:
    """A path below the current folder, relative to it; any other as it is."""
    return path.removeprefix(f"{os.getcwd()}{os.sep}")


def _announce_label(released: ReleasedLabel) -> None:
    _, result, mechanism, facts, _ = released
    _announce_units(result, mechanism)
    binding = result.binding
    of_record = ", of one record" if binding.unit != SINGLE else ""
    parts = [f"{part.epsilon:.6g} for the {part.name}" for part in mechanism.drawing.parts]
    if mechanism.drawing.solved:
        parts.append(f"{binding.budget.labels:.6g} for the labels")
    print(f"budget     epsilon {' + '.join(parts)}{of_record}")
    if mechanism.classes is not None:
        print(f"classes    {describe_classes(mechanism.classes)}")
    if not mechanism.drawing.solved:
        made = (f"{part.numbers:,} {part.name}" for part in mechanism.drawing.parts[1:])
        made_of = ", ".join(made) or "the histogram alone"
        print(f"center     {one_line(str(mechanism.drawing.column))}: probabilities of the classes, from {made_of}")
        print(f"certified  epsilon {mechanism.center_epsilon!r} for the center, from which classes are drawn")
    else:
        _announce_randomizer(binding, mechanism, facts)
    print(f"debias     {debiasing(facts).line}")


def _announce_randomizer(binding: NoiseBinding, mechanism: MechanismFile, facts: ReleasedFacts) -> None:
    """Prints the lines of a randomizer and of the center that its residuals are taken from."""
    randomizer = mechanism.randomizer
    certificate, loss = randomizer.certificate(), loss_named(facts.loss or "squared")
    delta = "" if randomizer.pure else f" with delta {certificate.delta!r}"
    under = "the noised histogram" if mechanism.prior_epsilon else "the public prior"
    if mechanism.drawing.column:
        column, labels, error = one_line(mechanism.drawing.column), randomizer.labels, mechanism.drawing.clipping
        print(
            f"center     {column}: {binding.missing_centers:,} missing; residuals clipped to {labels[0]:.6g}.."
            f"{labels[-1]:.6g}, expected squared loss of clipping {error.squared:.6g}, for {100 * error.share:.3g} % "
            "of the records"
        )
    if binding.classes is not None:
        print(f"mechanism  {randomizer.mechanism}: {len(binding.classes)} classes to {len(randomizer.outputs)}")
    else:
        labels = counted(len(randomizer.labels), "label")
        print(f"mechanism  {randomizer.mechanism}: {labels} to {_outputs(randomizer)}{_grid(binding)}")
    if randomizer.choice is not None:
        print(f"chosen     {_chosen(**randomizer.choice)}")
    bias = f", largest bias {certificate.max_bias:.6g}" if binding.classes is None else ""
    print(f"certified  epsilon {certificate.epsilon!r}{delta} for the labels{bias}")
    print(f"expected   {loss.name} loss {randomizer.expected_loss(mechanism.prior, loss):.6g}, under {under}")


def unusable_share(result: JobResult) -> str:
    """Share of all records without a usable label, which is public, in brackets; empty if there are none."""
    unusable, units = result.binding.unusable, result.units
    records = result.binding.records + unusable + (0 if units is None else units.left_out + units.without_unit)
    return f" ({100 * unusable / records:.2g} % of {records:,})" if unusable else ""


def describe_missing(column: LabelColumn | NoiseBinding) -> str:
    """Says what a missing label counts as, with a semicolon behind; empty where such records are left out."""
    value = column.missing_label
    if value is None:
        return ""
    return f"a missing label counts as {value if isinstance(value, str) else f'{value:g}'}; "


def describe_classes(classes: LabelClasses) -> str:
    """Lists the classes, or the first ones, and says as which one all values count that are not listed."""
    values = [repr(value) if "," in value else one_line(value) for value in classes.values]
    shown = ", ".join(values[:_COLUMNS_SHOWN]) + (", ..." if len(values) > _COLUMNS_SHOWN else "")
    return f"{shown}; all other values count as {values[classes.other]}"


def _grid(binding: NoiseBinding) -> str:
    """Says which of the declared labels the mechanism uses; empty if all of them."""
    if binding.declared is None:
        return ""
    step = binding.domain[1] - binding.domain[0]
    return f"; grid of {len(binding.domain):,} labels, {step:.6g} apart, for {binding.declared.labels:,} declared ones"


def _announce_units(result: JobResult, mechanism: MechanismFile) -> None:
    """Prints the epsilon of a unit and how many records were left out, in one line."""
    unit, counts = result.binding.unit, result.units
    if counts is None:
        return
    labels, delta = mechanism.labels_budget
    composed = f" with delta {delta:g}" if delta else ""
    print(
        f"units      {one_line(str(unit.column))}: {counts.units:,}, at most {counted(unit.max_records, 'record')} "
        f"each, {counts.left_out:,} left out; epsilon {mechanism.total_epsilon(labels):.6g}{composed} for all labels "
        "of a unit"
    )


def _chosen(mechanism: str, model_errors: Mapping[str, float | None]) -> str:
    """Names the mechanism that was chosen, with its model error and those of the two extremes."""
    shown = {name: model_errors.get(name) for name in CANDIDATES if name in ("unbiased", LABELS, mechanism)}
    errors = ", ".join(f"{name} {error:.4g}" for name, error in shown.items() if error is not None)
    return f"{mechanism}: squared error that labels cause in the largest model that they serve: {errors}"


def counted(number: int, noun: str) -> str:
    """Formats a count with its noun, such as "1 shard" or "2 shards"; the plural ends in s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _outputs(randomizer: Randomizer) -> str:
    """Lists the likeliest output of each label if there are few outputs; otherwise only counts the outputs."""
    count = counted(len(randomizer.outputs), "output")
    if len(randomizer.outputs) > _OUTPUTS_SHOWN:
        return count
    likeliest = randomizer.weights.argmax(axis=1)
    groups = []
    for output in np.unique(likeliest):
        labels = randomizer.labels[likeliest == output]
        span = f"{labels[0]:g}..{labels[-1]:g}" if len(labels) > 1 else f"{labels[0]:g}"
        groups.append(f"{span} -> {randomizer.outputs[output]:.4g}")
    return f"{count}: {', '.join(groups)}"
