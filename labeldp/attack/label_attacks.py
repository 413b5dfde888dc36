"""`labeldp attack --truth` and `--features`: attacks that need true labels. The labels party runs them for itself.

What is printed is computed from true labels without noise, and its first line says so. Errors hold no label.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from labeldp import InputError, UsageError

from ..mechanisms.release.drawing import DRAWN_BY_CENTER
from ..pipelines.errors import one_line
from ..pipelines.flags.arguments import local_copy
from ..pipelines.publish.released import Released
from ..pipelines.spec.fields import Fields, names_of
from ..pipelines.spec.input_spec import input_spec
from ..pipelines.spec.label_domain import GRID, label_classes, label_domain, with_texts
from ..pipelines.spec.machine import check_extra, check_tfrecord
from ..transforms.progress_log import LOGGER, progress_bar
from .feature_leaks import CERTAIN, MUCH, NEARLY_THE_LABEL, Leaks, Prediction, alone, find_leaks, label_quantiles
from .label_beliefs import FOLDS, LEAST_RECORDS, GuessedLabels
from .reconstruction import LEAST_GROUP, QUANTILES, GroupAdvantage, Reconstruction, most_affected, reconstruct
from .record_features import PLACES, FeatureMatrix, texts_of
from .released_channel import ReleasedChannel
from .released_records import ReleasedRecords, open_release, read_release
from .true_labels import labelled_records, true_labels, truth_input

_WARNING = (
    "NOT FOR RELEASE    computed from true labels without noise, for the labels party alone; nothing is charged or "
    "written"
)
_MOST_SHOWN = 10
_LONGEST = 40  # characters of a value
# Labels of an input without a declared domain.
_MOST_LABELS, _QUANTILES = 512, 257


def run(args: argparse.Namespace) -> int:
    """Runs the attack of `--truth` or `--features` and prints what it finds.

    Returns the exit code: 0 if it passes, 1 if not or if records cannot be used, 2 for bad usage, 3 if it warns.
    """
    check_extra("--truth" if args.truth else "--features", "evaluation", "sklearn")
    _check_numbers(args)
    with progress_bar():
        found = _attack_release(args) if args.truth else _attack_features(args)
    print("\n".join([_WARNING, *found.lines, found.verdict]))
    return 1 if found.problems else 3 if found.doubts else 0


@dataclass(frozen=True)
class _Findings:
    """Lines of an attack, problems that fail it, and doubts, for which it does not pass, either."""

    lines: list[str]
    problems: list[str]
    doubts: list[str]

    @property
    def verdict(self) -> str:
        """The last line, which says what the worst line says."""
        worst = self.problems or self.doubts
        return f"{'FAIL' if self.problems else 'WARN'}: {'; '.join(worst)}" if worst else "PASS"


def _unread_lines(unread: Sequence[str]) -> Iterator[str]:
    for place, column in enumerate(unread):
        yield _line("" if place else "not examined", f"{one_line(column)}: released as it is")


def _unread_doubts(unread: Sequence[str]) -> Iterator[str]:
    if unread:
        yield f"not examined: {one_line(', '.join(unread))}; write them as numbers or texts, or leave them out"


def _check_numbers(args: argparse.Namespace) -> None:
    if args.within is not None and not 0 <= args.within < math.inf:
        raise UsageError(f"--within must be finite and not negative, not {args.within:g}")
    if args.most_records < LEAST_RECORDS:
        raise UsageError(f"--most_records must be at least {LEAST_RECORDS}, not {args.most_records}")
    if args.max_advantage is not None and not 0 <= args.max_advantage <= 1:
        raise UsageError(f"--max_advantage must be between 0 and 1, not {args.max_advantage:g}")
    if args.show_rows is not None and args.show_rows < 1:
        raise UsageError(f"--show_rows must be at least 1, not {args.show_rows}")
    if args.seed < 0:
        raise UsageError(f"--seed must not be negative, not {args.seed}")
    if not args.truth and not args.features:
        raise UsageError("name the files with the true labels of a release: --truth FILES; or give --features")
    if args.truth and args.path is None:
        raise UsageError("--truth needs a release: name its output folder as the argument")
    if args.features and args.path is not None:
        raise UsageError(f"--features is for an input before its release: leave out {args.path}, or give --truth")
    if args.input_format == "tfrecord":
        check_tfrecord("--input_format tfrecord", "convert the files and give --input_format parquet or csv")


def _progress(line: str) -> None:
    LOGGER.info("%s", line)


def _check_records(records: int) -> None:
    if records < LEAST_RECORDS:
        raise InputError(f"there are {records} records with a label; a predictor needs at least {LEAST_RECORDS}")


def _line(name: str, text: str) -> str:
    return f"{name:<18} {text}"


def _name(text: str) -> str:
    return repr(one_line(text[:_LONGEST] + "..." * (len(text) > _LONGEST)))


# Attack on a release


def _attack_release(args: argparse.Namespace) -> _Findings:
    local = local_copy(args, args.path)
    if not os.path.exists(local):
        raise UsageError(f"{args.path} does not exist: name an output folder")
    files = open_release(local, args.path, args.label)
    if args.within is not None and files.classes is not None:
        raise UsageError("--within is for labels that are numbers: no guess is close to a class. Leave it out")
    fields = Fields.of({**vars(args), "input": args.truth, "label": files.label})
    if fields.input_format is None:
        raise UsageError(f"--truth {args.truth}: the name does not tell the format: give --input_format")
    try:
        input = truth_input(fields, files)
    except UsageError as error:
        raise UsageError(str(error).replace("`input` ", "--truth ", 1)) from None
    id_column = args.id_column or files.id_column
    _progress("reading the release")
    records = read_release(files, args.most_records, args.seed, id_column, args.group_column)
    _check_records(len(records.rows))
    _progress("reading true labels")
    labels, matched = true_labels(input, files, records, id_column)
    domain = files.column.labels
    within = (domain[-1] - domain[0]) / 20 if args.within is None else args.within
    guessed = GuessedLabels(domain, 0.0 if files.classes else float(within), files.classes is not None)
    columns = {**records.columns, **records.places}
    found = reconstruct(
        FeatureMatrix.of(columns, len(labels)),
        guessed.places(labels),
        guessed,
        records.released,
        ReleasedChannel(files.mechanism.randomizer, records.released, files.column)
        if files.probabilities is None
        else None,
        None if files.stated.certified_delta else files.record_epsilon,
        args.seed,
        _progress,
    )
    none, by_column = Prediction(0.0, 0.0), alone(columns, guessed.places(labels), guessed, args.seed, _progress)
    leaks = Leaks(none, none, by_column)
    groups = None if records.groups is None else found.by_group(texts_of(records.groups))
    lines = [
        *_release_lines(files, records, args.truth, matched),
        *_alone_lines(leaks, guessed),
        *_advantage_lines(found, guessed),
        *_group_lines(args.group_column, groups),
        *_unread_lines(records.unread),
    ]
    if args.show_rows is not None:
        rows = ", ".join(str(row) for row in most_affected(found.gains, records.rows, args.show_rows))
        lines.append(_line("most affected", f"row numbers in the release, the largest gain first: {rows}"))
    problems = [*_release_problems(found, groups, args), *_leak_problems(leaks)]
    return _Findings(lines, problems, [*_leak_doubts(leaks), *_unread_doubts(records.unread)])


def _release_lines(files: Released, records: ReleasedRecords, truth: str, matched: str) -> Iterator[str]:
    manifest, randomizer = files.stated, files.mechanism.drawing.solved
    delta = f" with delta {manifest.certified_delta:.6g}" if manifest.certified_delta else ""
    of = "" if files.unit is None else " of one record"
    name = randomizer.mechanism if randomizer else DRAWN_BY_CENTER
    yield _line(
        "release",
        f"{name}: label {_name(files.label)} of {manifest.records:,} records; claims epsilon "
        f"{files.record_epsilon:.6g}{delta} for all that was released of it{of}",
    )
    sample = f"; a sample of {len(records.rows):,} records" if len(records.rows) < manifest.records else ""
    yield _line("truth", f"{one_line(truth)}, {matched}{sample}")
    columns = f"{len(records.columns)} public column{'' if len(records.columns) == 1 else 's'}"
    folds = f"the true labels of {FOLDS - 1} of {FOLDS} folds, and guess those of the fifth"
    yield _line("adversaries", f"know {columns}, file and row of each record, and {folds}")


def _advantage_lines(found: Reconstruction, guessed: GuessedLabels) -> Iterator[str]:
    what = "exact" if not guessed.tolerance else f"within {guessed.tolerance:g} of the label"
    yield _line("right guesses", f"{found.features.utility:.4g} from features alone, {what}")
    said = {"channel": "with the released label and its mechanism", "learned": "with all that was released, learned"}
    bound = "no bound for approximate DP" if found.bound is None else f"at most {found.bound:.4g} at this epsilon"
    for place, (name, each) in enumerate(found.advantages.items()):
        text = f"{each.value:.4g}, standard error {each.error:.2g}: {each.after:.4g} {said[name]}; {bound}"
        yield _line("" if place else "advantage", text)
    beliefs, odds = "; two fitted predictors are compared: no bound holds for each record", ""
    if found.channel is not None:
        beliefs = "" if found.bound_of_record is None else f"; at most {found.bound_of_record:.4g} at this epsilon"
        odds = "" if found.epsilon is None else f"; at most {math.exp(found.epsilon):.4g} at this epsilon"
    yield _line("each record", f"belief in the true label rises by {_quantile_text(found.gains)}{beliefs}")
    yield _line("", f"its odds are multiplied by {_quantile_text(np.exp(found.log_odds))}{odds}")


def _quantile_text(values: np.ndarray) -> str:
    """Quantiles over the records: "0.1 (50 %), ...", and the largest one."""
    *found, largest = np.quantile(values, QUANTILES)
    parts = [f"{value:.4g} (for {share * 100:g} % of them)" for value, share in zip(found, QUANTILES[:-1], strict=True)]
    return f"at most {', '.join(parts)}, {largest:.4g} (for all)"


def _group_lines(column: str | None, groups: list[GroupAdvantage] | None) -> Iterator[str]:
    if groups is None:
        return
    more = f", {_MOST_SHOWN} of them shown" if len(groups) > _MOST_SHOWN else ""
    count = f"{len(groups):,} values of {_name(str(column))} with at least {LEAST_GROUP} records{more}"
    yield _line("groups", f"mean gain in belief, the largest first; {count}")
    for group in groups[:_MOST_SHOWN]:
        records = f"{group.records:,} records"
        yield _line("", f"{group.advantage:.4g} for {_name(group.value)}: from {group.before:.4g} to "
                    f"{group.after:.4g}; {records}")  # fmt: skip


def _release_problems(
    found: Reconstruction, groups: list[GroupAdvantage] | None, args: argparse.Namespace
) -> Iterator[str]:
    added = found.contradiction
    if added is not None:
        yield (
            f"released labels add {added.value:.4g}, which is more than epsilon allows: the release is not what its "
            "manifest claims"
        )
    if args.max_advantage is None:
        return
    allowed = f"above --max_advantage {args.max_advantage:g}"
    if found.largest > args.max_advantage:
        yield f"the advantage {found.largest:.4g} is {allowed}"
    for group in groups or []:
        if group.advantage > args.max_advantage:
            yield f"the advantage {group.advantage:.4g} for {_name(group.value)} is {allowed}"


# Attack by features


def _attack_features(args: argparse.Namespace) -> _Findings:
    fields = with_texts(Fields.of(vars(args)))
    without = names_of(args.exclude)
    if args.label in without:
        raise UsageError(f"--exclude names the label {args.label!r}, which is no feature: leave it out")
    classes = label_classes(fields)
    if args.within is not None and classes is not None:
        raise UsageError("--within is for labels that are numbers: no guess is close to a class. Leave it out")
    input = input_spec(fields)
    _progress("reading the input")
    excluded = [*(("exclude", name) for name in without)]
    excluded += [] if args.id_column is None else [("id_column", args.id_column)]
    columns, labels, unread = labelled_records(input, args.label, classes, excluded, args.most_records)
    _check_records(len(labels))
    if columns.keys() <= {*PLACES} and not unread:
        raise InputError(f"--input {args.input} has no feature beside the label {args.label!r}")
    guessed = GuessedLabels(np.array(classes.domain), 0.0, True) if classes else _guessed_numbers(fields, labels, args)
    leaks = find_leaks(columns, guessed.places(labels), guessed, args.seed, _progress)
    lines = [*_leak_lines(leaks, guessed, args, len(labels)), *_unread_lines(unread)]
    return _Findings(lines, [*_leak_problems(leaks)], [*_leak_doubts(leaks), *_unread_doubts(unread)])


def _guessed_numbers(fields: Fields, labels: np.ndarray, args: argparse.Namespace) -> GuessedLabels:
    """The declared label domain; without one, the labels themselves, or quantiles of them."""
    declared = fields.label_values is not None or any(getattr(fields, name) is not None for name in GRID)
    if declared:
        domain = label_domain(fields)
        length = float(domain[-1]) - float(domain[0])
        if len(domain) > _MOST_LABELS:
            labels = np.clip(labels, domain[0], domain[-1])
    else:
        domain = np.unique(labels)
        low, high = label_quantiles(labels)
        length = max(high - low, 0.0)
    if len(domain) > _MOST_LABELS:
        domain = np.unique(np.quantile(labels, np.linspace(0, 1, _QUANTILES), method="nearest"))
    return GuessedLabels(domain, length / 20 if args.within is None else args.within)


def _leak_lines(leaks: Leaks, guessed: GuessedLabels, args: argparse.Namespace, records: int) -> Iterator[str]:
    shown = f", of which the best {_MOST_SHOWN} are shown" if len(leaks.columns) > _MOST_SHOWN else ""
    yield _line("input", f"{one_line(args.input)}: label {_name(args.label)} of {records:,} records, "
                f"{len(leaks.columns.keys() - {*PLACES})} features and the place of the record{shown}")  # fmt: skip
    yield _line("all features", _prediction_text(leaks.features, guessed))
    near = "" if not guessed.tolerance else f" within {guessed.tolerance:g}"
    yield _line("determined", f"{leaks.features.determined:.4g} of the labels are known{near} with a certainty of "
                f"{CERTAIN * 100:g} % from features, {leaks.without.determined:.4g} without")  # fmt: skip
    for place, (name, each) in enumerate(list(leaks.columns.items())):
        if place < _MOST_SHOWN or name in leaks.telling:
            yield _line("" if place else "each alone", _column_text(name, each, guessed))


def _alone_lines(leaks: Leaks, guessed: GuessedLabels) -> Iterator[str]:
    """The place of a record alone, and columns that are nearly the label or tell many labels."""
    shown = [name for name in leaks.columns if name in (*PLACES, *leaks.named, *leaks.telling)]
    for number, name in enumerate(shown):
        yield _line("" if number else "each alone", _column_text(name, leaks.columns[name], guessed))


def _column_text(name: str, alone: Prediction, guessed: GuessedLabels) -> str:
    text = f"{_name(name)}: {_prediction_text(alone, guessed)}; determines {alone.determined:.4g} of the labels"
    if alone.explained >= NEARLY_THE_LABEL:
        return f"{text}, nearly the label"
    return f"{text}, {_percent(alone.told)} exactly" if alone.told >= MUCH else text


def _percent(share: float) -> str:
    return f"{share * 100:.2g} %"


def _prediction_text(prediction: Prediction, guessed: GuessedLabels) -> str:
    area = "" if prediction.area is None else f", area under the ROC curve {prediction.area:.4g}"
    of = "entropy of the classes (1 - normalized log loss)" if guessed.classes else "variance of the labels (R2)"
    # Worse than no prediction: by chance. NaN stays what it is.
    return f"explains {max(prediction.explained, 0.0):.4g} of the {of}{area}"


def _leak_problems(leaks: Leaks) -> Iterator[str]:
    for name in leaks.named:
        yield f"{_name(name)} is nearly the label: it reveals labels, whatever epsilon is; {_advice(name)}"
    for name in leaks.unknown:
        yield f"how much {_name(name)} explains is not a finite number, so that nothing is known of it"
    if math.isnan(leaks.features.explained):
        yield "how much the features explain together is not a finite number, so that nothing is known of it"
    if not leaks.named and leaks.features.explained >= NEARLY_THE_LABEL:
        yield "the features together are nearly the label: they reveal it, whatever epsilon is"


def _leak_doubts(leaks: Leaks) -> Iterator[str]:
    for name in leaks.telling:
        told = _percent(leaks.columns[name].told)
        yield f"{_name(name)} determines {told} of the labels: it reveals them, whatever epsilon is; {_advice(name)}"


def _advice(name: str) -> str:
    if name in PLACES:
        return "write the log again in one order, of files and within them, that does not follow from the label"
    return "leave the column out"
