"""Construction of a checked release of files from the fields of a request, one function per part.

Functions raise FieldError if a field is wrong, and InputError, which names the file, if the first records of the input
are read and cannot be.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from ...mechanisms.analysis.automatic import CANDIDATES, default_mechanism
from ...mechanisms.analysis.planning import label_shares, split_exactly
from ...mechanisms.core.label_classes import LabelClasses
from ...mechanisms.registry import AUTO, Mechanism, mechanism_named
from ...mechanisms.release.label_column import LabelColumn
from ...transforms.arrow_values import value_type
from ...transforms.class_values import check_class_type
from ...transforms.errors import InputError, listed
from ...transforms.io.filesystems import absolute, read_text
from ...transforms.io.hive_partitions import OutputPartitions, folder_of
from ...transforms.noise_binding import Threshold
from ...transforms.progress_log import LOGGER
from ...transforms.validation.tensorflow_libraries import without_features
from ..errors import FieldError, did_you_mean, one_line
from .center_fields import center_features, unused_columns
from .feature_choice import check_center, class_features, is_asked_for, makes_class_center, new_center
from .fields import DEFAULT_LOSS, Fields, names_of, shown
from .input_spec import (
    check_columns,
    check_no_folder,
    check_twins,
    first_schema,
    input_spec,
    read_as,
    read_schema,
    unsure_columns,
)
from .label import GRID, Label, check_split, make_label, read_caps, read_unusable_fraction, working_domain
from .machine import check_extra, check_tfrecord
from .mechanism_file import MechanismFile, read_mechanism_file
from .release import InputSpec, OutputSpec, Release, ValidationSpec
from .table_input import output_table
from .target_checks import check_target, resolve_ledger, resolve_noise_key, resolve_signing_key

_MOST_SHARDS = 99_999
"""Shard names have five digits."""
_MOST_LABELS = 32
_PER_LABEL = (*GRID, "label_values", "center_column")
"""Fields that take one value for all labels, or one for each; not for those of classes."""
_WITHOUT_NUMBERS: dict[str, Any] = dict.fromkeys((*_PER_LABEL, "rounding"))
_PUBLIC = ("id_column", "unit_column", "center_features", "where")
"""Fields that name public columns, none of which may be a label."""


def make_release(command: str, fields: Fields, new_key: bool = False, may_exist: bool = False) -> Release:
    """Checks the fields of `privatize`, `fit` or `apply`, and finds the input files.

    The output must be new, unless it `may_exist`, as a release.

    Creates the user's default noise key file if none is named, but not in a dry run; with `new_key` also a local file
    that is named. That is the last step: a request that is refused leaves no key.
    """
    check_center(fields)
    threshold, caps = Threshold(read_unusable_fraction(fields)), read_caps(fields)
    _check_formats(fields)
    names = names_of(fields.label)
    input = schema = None
    if len(names) > 1:
        input = input_spec(fields)
        schema = read_schema(input, names)
        if shown(fields.label) in schema.names:
            # A column has the whole text as its name.
            names, schema = (shown(fields.label),), None
    parts = _parts(command, fields, names, input) if len(names) > 1 else [dataclasses.replace(fields, label=names[0])]
    fitted = _fitted(str(fields.mechanism_file)) if command == "apply" else None
    labels = [make_label(part, fitted, [name for name in names if name != part.label]) for part in parts]
    validation = _validation(fields, names)
    target = _target(command, fields, may_exist)
    input = _with_labels(input_spec(parts[0]) if input is None else input, labels)
    labels = [dataclasses.replace(label, column=read_as(label.column, input.format)) for label in labels]
    schema = read_schema(input, names) if schema is None else schema
    labels = [_with_plain_booleans(label, schema) for label in labels]
    input = _with_labels(input, labels)
    if input.left_out:
        LOGGER.warning(
            "warning: the pandas index %s is left out, neither released nor a feature: name it with a flag, such as "
            "--id_column, to keep it",
            one_line(listed(input.left_out)),
        )
    for part, label in zip(parts, labels, strict=True):
        check_columns(_named_columns(part, label), input, schema)
        check_twins(label.name, input, schema)
        _check_classes(label.column, input, schema, command != "fit" and output_format(fields) == "tfrecord")
    output = _output(fields, target, input)
    sign = resolve_signing_key(fields.sign, target, fields.noise_key_mode)
    unsure = () if command == "fit" else unsure_columns(schema, input, names, output.format)
    return Release(
        command=command,
        input=input,
        labels=tuple(_with_center(part, label, input, schema) for part, label in zip(parts, labels, strict=True)),
        threshold=threshold,
        caps=caps,
        output=output,
        validation=validation,
        ledger=resolve_ledger(fields.ledger, target),
        key=resolve_noise_key(fields.noise_key_file, target, not fields.dry_run, new_key, fields.noise_key_mode),
        unsure=unsure,
        sign=sign,
    )


def _check_formats(fields: Fields) -> None:
    formats = {"input_format": fields.input_format}
    if fields.output is not None:
        formats["output_format"] = output_format(fields)
    for name, format in formats.items():
        if format == "tfrecord":
            check_tfrecord(f"--{name} tfrecord")


def _fitted(path: str) -> MechanismFile:
    try:
        return read_mechanism_file(path)
    except InputError as error:
        raise FieldError("{mechanism_file} {problem}", problem=error) from None


def _with_center(fields: Fields, label: Label, input: InputSpec, schema: pa.Schema) -> Label:
    """Finds the features of a linear center, or checks those of a fitted one."""
    column, fitted = label.column, label.mechanism.fitted
    if fitted is not None:
        linear = fitted.made_center
        if linear is not None and column.name in linear.map.columns:
            # A function of the label would be released without noise.
            raise FieldError(
                "{label} {name} is a feature of the center of {mechanism_file}, which is released as it is: name the "
                "label that the file was fitted for",
                name=column.name,
            )
        return label
    if column.classes is not None:
        check_center(fields)
        if not makes_class_center(fields, column):
            return label
        found = schema if fields.dry_run else first_schema(input, column)
        where = None if input.where is None else input.where.column
        label = class_features(fields, label, found, input.paths[0], " in its first records", where)
        unused = unused_columns(fields, label.column, label.features, schema)
        return dataclasses.replace(label, unused=unused)
    # A dry run reads no label, so it finds the features in the schema instead of the first records.
    features = center_features(fields, input, column, label.mechanism.name, schema if fields.dry_run else None)
    if features is not None and column.center is None:
        column = dataclasses.replace(column, center=new_center(fields))
    unused = unused_columns(fields, column, features, schema)
    return dataclasses.replace(label, column=column, features=features, unused=unused)


def _with_labels(input: InputSpec, labels: Sequence[Label]) -> InputSpec:
    """The input with what readers need to know of labels: their classes, and what missing ones count as."""
    classes = {label.name: label.column.classes for label in labels if label.column.classes is not None}
    missing = {label.name: label.column.missing for label in labels if label.column.missing is not None}
    if not (classes or missing):
        return input
    return dataclasses.replace(
        input, format=dataclasses.replace(input.format, classes=classes or None, missing=missing or None)
    )


def _with_plain_booleans(label: Label, schema: pa.Schema) -> Label:
    """The label with the classes false and true, if they are given in other letters, as Python has them.

    Only for a column of booleans: in text, True is another class than true.
    """
    classes, place = label.column.classes, schema.get_field_index(label.name)
    if classes is None or place < 0 or not pa.types.is_boolean(value_type(schema.field(place).type)):
        return label
    plain = tuple(value.lower() for value in classes.values)
    if {*plain} != {"false", "true"}:
        return label
    column = dataclasses.replace(label.column, classes=LabelClasses(plain, classes.other))
    return dataclasses.replace(label, column=column)


def _check_classes(column: LabelColumn, input: InputSpec, schema: pa.Schema, examples: bool) -> None:
    """Checks that the column of a label can hold its classes, if the schema tells its type, and so can tf.Examples."""
    place = schema.get_field_index(column.name)
    if column.classes is None or place < 0:
        return
    kind = value_type(schema.field(place).type)
    try:
        check_class_type(
            pa.float32() if examples and kind == pa.float64() else kind, column.classes, column.name, input.paths[0]
        )
    except InputError as error:
        raise FieldError.at("label_classes", error) from None


def _named_columns(fields: Fields, label: Label) -> dict[str, str | None]:
    """Columns of the input by the fields that name them, without the features of a linear center."""
    fitted = label.mechanism.fitted
    if label.column.classes is not None:
        # The column of a center is new.
        return {"label": label.name, "id_column": fields.id_column, "unit_column": fields.unit_column}
    named = {"label": label.name, "id_column": fields.id_column, "unit_column": fields.unit_column}
    center = None if fitted is None else fitted.center
    if center is not None and center.linear is None:
        named["mechanism_file"] = center.column
    elif not is_asked_for(fields):
        # Otherwise it is the name of a column that the job adds.
        named["center_column"] = fields.center_column
    return named


def _validation(fields: Fields, labels: Sequence[str]) -> ValidationSpec | None:
    if fields.validate in (None, False):
        return None
    check_extra("--validate", "validation", "tensorflow_data_validation", "tensorflow_metadata")
    if fields.validate is True:
        return ValidationSpec(None)
    try:
        return ValidationSpec(without_features(read_text(fields.validate), labels))
    except InputError as error:
        raise FieldError("{validate} {problem}", problem=error) from None
    except ValueError as error:
        raise FieldError("{validate} {path}: {problem}", path=fields.validate, problem=error) from None


def _target(command: str, fields: Fields, may_exist: bool) -> str:
    field = "mechanism_file" if command == "fit" else "output"
    target = getattr(fields, field) or ""
    check_target(field, target, may_exist)
    return target if command == "fit" else absolute(target)


def output_format(fields: Fields) -> str:
    """Format of the shards: by default that of the input, and for CSV Parquet, which can hold its types."""
    return fields.output_format or ("tfrecord" if fields.input_format == "tfrecord" else "parquet")


def _output(fields: Fields, target: str, input: InputSpec) -> OutputSpec:
    if fields.num_shards is not None and not 1 <= fields.num_shards <= _MOST_SHARDS:
        raise FieldError(
            "{num_shards} must be from 1 to {most:,}, not {given:,}", most=_MOST_SHARDS, given=fields.num_shards
        )
    columns = _partition_columns(fields, input)
    files = Counter(folder_of(path, columns) for path in input.paths)
    num_shards = fields.num_shards or max(files.values())
    partitions = OutputPartitions(columns, tuple(sorted(files)))
    table = output_table(fields, output_format(fields))
    return OutputSpec(target, output_format(fields), num_shards, fields.compression, partitions, table)


def _partition_columns(fields: Fields, input: InputSpec) -> tuple[tuple[str, bool], ...]:
    """Reads `partition_output`: name of each column, and whether it is of int32."""
    if fields.partition_output is None:
        return ()
    names, known = names_of(fields.partition_output), {each.name: each.integer for each in input.parts[0].partitions}
    if not known:
        given = shown(fields.partition_output)
        problem = "{partition_output} {given}: the input has no partition columns, "
        if input.table is not None:
            raise FieldError(f"{problem}a table has none in the names of folders", given=given)
        if input.format.partitions:
            raise FieldError(f"{problem}no folder is named KEY=VALUE", given=given)
        raise FieldError(f"{problem}{{partitions}} none ignores them", given=given)
    for name in names:
        if name not in known:
            raise FieldError(
                "{partition_output}: {name!r} is no partition column of the input; these are: {known}{meant}",
                name=name,
                known=listed([*known]),
                meant=did_you_mean(name, [*known]),
            )
        if names.count(name) > 1:
            raise FieldError("{partition_output} names {name!r} twice: give every column once", name=name)
    return tuple((name, known[name]) for name in names)


def _parts(command: str, fields: Fields, names: Sequence[str], input: InputSpec | None) -> list[Fields]:
    """The fields of each of several labels, with one budget for all."""
    assert input is not None
    _check_several(command, fields, names)
    for name in names:
        check_no_folder(input, "label", name)
    parts = _values_of_labels(fields, names)
    epsilon = fields.epsilon or 0.0
    domains = [np.array(working_domain(part, epsilon)[0]) for part in parts]
    check_split(epsilon, fields.prior_epsilon)
    if any(part.label_classes is not None for part in parts):
        # Errors of classes and of numbers cannot be compared.
        shares = [Fraction(1, len(parts))] * len(parts)
    else:
        shares = label_shares(epsilon, domains, _planned_mechanism(fields))
    # A delta out of range is refused for each label.
    deltas: Sequence[float | None] = [fields.delta] * len(parts)
    if fields.delta is not None and 0 < fields.delta < 1:
        deltas = split_exactly(fields.delta, [Fraction(1, len(parts))] * len(parts))
    priors: Sequence[float | None] = [None] * len(parts)
    if fields.prior_epsilon is not None:
        priors = split_exactly(fields.prior_epsilon, shares)
    return [
        dataclasses.replace(part, epsilon=epsilon, delta=delta, prior_epsilon=prior)
        for part, epsilon, delta, prior in zip(parts, split_exactly(epsilon, shares), deltas, priors, strict=True)
    ]


def _check_several(command: str, fields: Fields, names: Sequence[str]) -> None:
    given = shown(fields.label)
    if command != "privatize":
        raise FieldError(
            "{label} {given}: {command} takes one label; run it for each of them, or privatize for all together",
            given=given,
            command=command,
        )
    if not all(names):
        raise FieldError("{label} {given}: a name between two commas is empty", given=given)
    if len({*names}) < len(names):
        raise FieldError("{label} {given} names a column twice: give every label once", given=given)
    if len(names) > _MOST_LABELS:
        raise FieldError(
            "{label}: at most {most} labels, not {count}: each gets a part of epsilon",
            most=_MOST_LABELS,
            count=len(names),
        )
    for field in _PUBLIC:
        for name in names_of(getattr(fields, field)):
            if name.partition("=")[0] in names:
                raise FieldError(
                    f"{{{field}}} must not name the label {{name}}: it is private", name=name.partition("=")[0]
                )


def _values_of_labels(fields: Fields, names: Sequence[str]) -> list[Fields]:
    parts = [dataclasses.replace(fields, label=name, **_classes_of(fields, name, names)) for name in names]
    numbers = [part for part in parts if part.label_classes is None]
    for field in _PER_LABEL:
        given = getattr(fields, field)
        if given is None or not isinstance(given, str):
            continue
        values = given.split(",")
        if len(values) not in (1, len(numbers)):
            raise FieldError(
                f"{{{field}}} {{given}}: give one value for all labels, or {{count}}, one for each",
                given=given,
                count=len(numbers),
            )
        each = values * (len(numbers) if len(values) == 1 else 1)
        changed: list[dict[str, Any]] = [{field: value} for value in each]
        numbers = [dataclasses.replace(part, **change) for part, change in zip(numbers, changed, strict=True)]
    found = {str(part.label): part for part in numbers}
    rest = dict(_WITHOUT_NUMBERS)
    if fields.center == "linear":
        # It is asked for the numbers; classes have their default beside it.
        rest["center"] = None
    parts = [found.get(str(part.label), dataclasses.replace(part, **rest)) for part in parts]
    centers = [part.center_column for part in parts if part.center_column is not None]
    if len({*centers, *names}) < len(centers) + len(names):
        raise FieldError(
            "{center_column} {given}: give {count} different columns, one for each label, none of which is a label",
            given=fields.center_column,
            count=len(names),
        )
    return parts


def _classes_of(fields: Fields, name: str, names: Sequence[str]) -> dict[str, Any]:
    """The fields of the classes of one of several labels, which is a number if it is not named there."""
    found = {}
    for field, form in (("label_classes", "LABEL=CLASSES"), ("other_class", "LABEL=CLASS")):
        given = getattr(fields, field)
        if given is None or isinstance(given, Mapping):
            named = dict(given or {})
        else:
            parts = [each.partition("=") for each in str(given).split(";")] if isinstance(given, str) else []
            named = {label: text for label, _, text in parts}
            if not parts or len(named) < len(parts) or not all(equals and text for _, equals, text in parts):
                raise FieldError(
                    f"{{{field}}}: with several labels give {form};..., each label of classes once", count=len(names)
                )
        unknown = next((label for label in named if label not in names), None)
        if unknown is not None:
            raise FieldError(f"{{{field}}} names {{unknown!r}}, which is not one of {{label}}", unknown=unknown)
        found[field] = named.get(name)
    return Fields.of({"label": name, **found}).classes


def _planned_mechanism(fields: Fields) -> Mechanism:
    """The mechanism whose errors decide the split; of auto, the first candidate for models."""
    name = fields.mechanism_name or default_mechanism(fields.for_, fields.loss or DEFAULT_LOSS)
    if name != AUTO:
        # One with parameters that it must be given is not compared by its own errors.
        with contextlib.suppress(TypeError, ValueError):
            return mechanism_named(name)
    return next(iter(CANDIDATES.values()))
