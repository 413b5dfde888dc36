"""Construction of a checked release of files from the fields of a request: its input, labels, centers and output.

Functions raise FieldError if a field is wrong, and InputError, which names the file, if the first records of the input
are read and cannot be.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ...mechanisms.core.label_classes import LabelClasses
from ...mechanisms.release.label_column import LabelColumn
from ...transforms.arrow_values import value_type
from ...transforms.center.feature_columns import is_feature
from ...transforms.class_values import check_class_type
from ...transforms.errors import InputError, listed
from ...transforms.io.filesystems import absolute, read_text
from ...transforms.io.hive_partitions import OutputPartitions, folder_of
from ...transforms.noise_binding import Threshold
from ...transforms.progress_log import LOGGER
from ...transforms.validation.tensorflow_libraries import without_features
from ..errors import FieldError, did_you_mean, field_errors, one_line
from .feature_choice import FeatureTable, check_center, is_asked_for, makes_center, with_new_center
from .fields import Fields, names_of, shown
from .input_spec import check_columns, check_twins, first_schema, input_spec, read_as, read_schema, unsure_columns
from .label import Label, fitted_label, make_label
from .machine import check_extra, check_tfrecord
from .mechanism_file import read_mechanism_file
from .release import InputSpec, OutputSpec, Release, ValidationSpec
from .several_labels import fields_of_labels
from .table_input import output_table
from .target_checks import (
    check_target,
    read_caps,
    read_unusable_fraction,
    resolve_ledger,
    resolve_noise_key,
    resolve_signing_key,
)


def make_release(command: str, fields: Fields, may_exist: bool = False, creates_key: bool = True) -> Release:
    """Checks the fields of `privatize`, `fit` or `apply`, and finds the input files.

    The output must be new, unless it `may_exist`, as a release.

    Creates a noise key file that does not exist, unless not `creates_key` or in a dry run. That is the last step: a
    request that is refused leaves no key.
    """
    check_center(fields)
    threshold, caps = Threshold(read_unusable_fraction(fields)), read_caps(fields)
    names = names_of(fields.label)
    input = input_spec(fields if len(names) > 1 else dataclasses.replace(fields, label=names[0]))
    schema = read_schema(input, names)
    if len(names) > 1 and shown(fields.label) in schema.names:
        # A column has the whole text as its name.
        names = (shown(fields.label),)
    if len(names) > 1:
        parts = fields_of_labels(command, fields, names, input)
    else:
        parts = [dataclasses.replace(fields, label=names[0])]
    labels = [_as_read(label, input, schema) for label in _labels(command, parts, names)]
    input = _with_labels(input, labels)
    if input.format.missing:
        # Of TFRecords, whether the first ones lack a label must not show: its missing ones are put in, as in the job.
        schema = read_schema(input, names)
    validation, target = _validation(fields, names), _target(command, fields, may_exist)
    if input.left_out:
        LOGGER.warning(
            "warning: the pandas index %s is left out, neither released nor a feature: name it with a flag, such as "
            "--id_column, to keep it",
            one_line(listed(input.left_out)),
        )
    examples = command != "fit" and output_format(fields) == "tfrecord"
    for part, label in zip(parts, labels, strict=True):
        check_columns(_named_columns(part, label), input, schema)
        check_twins(label.name, input, schema, names_of(fields.leave_out))
        _check_classes(label.column, input, schema, examples)
    output = output_spec(fields, target, input)
    sign = resolve_signing_key(fields.sign, target, fields.noise_key_mode)
    unsure = () if command == "fit" else unsure_columns(schema, input, names, output.format, output.left_out)
    labels = [with_center(part, label, input, schema) for part, label in zip(parts, labels, strict=True)]
    check_left_out(fields, labels, input, schema)
    return Release(
        command=command,
        input=input,
        labels=tuple(labels),
        threshold=threshold,
        caps=caps,
        output=output,
        validation=validation,
        ledger=resolve_ledger(fields.ledger, target),
        # Noise of a fit and of its releases is of one key.
        key=resolve_noise_key(
            fields.noise_key_file, target, creates_key and not fields.dry_run, command != "apply", fields.noise_key_mode
        ),
        unsure=unsure,
        sign=sign,
    )


def _labels(command: str, parts: Sequence[Fields], names: Sequence[str]) -> list[Label]:
    """Checks each label, for the mechanism file of `apply`."""
    if command != "apply":
        return [make_label(part, [name for name in names if name != part.label]) for part in parts]
    with field_errors("{mechanism_file} {problem}", InputError):
        fitted = read_mechanism_file(str(parts[0].mechanism_file))
    label = fitted_label(parts[0], fitted)
    check_fitted_center(label)
    return [label]


def _with_labels(input: InputSpec, labels: Sequence[Label]) -> InputSpec:
    """The input with what readers need to know of labels: their classes, and what missing ones count as."""
    meanings = {label.name: label.column.meaning for label in labels}
    missing = {name: meaning.missing for name, meaning in meanings.items() if meaning.missing is not None}
    classes = {name: meaning.classes for name, meaning in meanings.items() if meaning.classes is not None}
    if not (classes or missing):
        return input
    return dataclasses.replace(
        input, format=dataclasses.replace(input.format, classes=classes or None, missing=missing or None)
    )


def _as_read(label: Label, input: InputSpec, schema: pa.Schema) -> Label:
    """The label as it is read from the files: by the options of CSV, and classes of booleans as false and true.

    In a column of booleans, these may be given in other letters, as Python has them; in text, True is another class.
    """
    column = read_as(label.column, input.format)
    classes, kind = column.classes, _type_of(column, schema)
    if classes is not None and kind is not None and pa.types.is_boolean(kind):
        values = tuple(value.lower() for value in classes.values)
        if {*values} == {"false", "true"}:
            meaning = dataclasses.replace(column.meaning, classes=LabelClasses(values, classes.other))
            column = dataclasses.replace(column, meaning=meaning)
    return dataclasses.replace(label, column=column)


def _check_classes(column: LabelColumn, input: InputSpec, schema: pa.Schema, examples: bool) -> None:
    """Checks that the column of a label can hold its classes, if the schema tells its type, and so can tf.Examples."""
    kind = _type_of(column, schema)
    if column.classes is None or kind is None:
        return
    kind = pa.float32() if examples and kind == pa.float64() else kind
    with field_errors("{label_classes}: {problem}", InputError):
        check_class_type(kind, column.classes, column.name, input.paths[0])


def _type_of(column: LabelColumn, schema: pa.Schema) -> pa.DataType | None:
    index = schema.get_field_index(column.name)
    return None if index < 0 else value_type(schema.field(index).type)


def _named_columns(fields: Fields, label: Label) -> Mapping[str, str | None]:
    """Columns of the input by the fields that name them, without the features of a linear center."""
    named: dict[str, Any] = {"label": label.name, "id_column": fields.id_column, "unit_column": fields.unit_column}
    center = None if label.mechanism.fitted is None else label.mechanism.fitted.center
    if label.column.classes is not None:
        # The column of a center is new.
        return named
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
    with field_errors("{validate} {problem}", InputError):
        text = read_text(fields.validate)
    with field_errors("{validate} {path}: {problem}", path=fields.validate):
        return ValidationSpec(without_features(text, (*labels, *names_of(fields.leave_out))))


def _target(command: str, fields: Fields, may_exist: bool) -> str:
    field = "mechanism_file" if command == "fit" else "output"
    target = getattr(fields, field) or ""
    check_target(field, target, may_exist)
    return target if command == "fit" else absolute(target)


def with_center(fields: Fields, label: Label, input: InputSpec, schema: pa.Schema) -> Label:
    """Adds a center of features to a label, if the job makes one; `schema` is that of the input, found without records.

    The first records of the first input file are read for their features, which a TFRecord file does not tell
    otherwise; but not in a dry run, which reads no label. The new column must not be in the input.
    """
    if label.mechanism.fitted is not None or not makes_center(fields, label):
        return label
    found = schema if fields.dry_run else first_schema(input, label.column)
    where = None if input.where is None else input.where.column
    table = FeatureTable(found, input.paths[0], "{input}", " in its first records", where)
    label = with_new_center(fields, label, table)
    if label.features is None or fields.center_features is not None:
        return label
    used = (*label.features.names, *label.column.columns)
    unused = {
        field.name: _reason(field.type) for field in schema if field.name not in used and not is_feature(field.type)
    }
    return dataclasses.replace(label, unused=unused)


def _reason(kind: pa.DataType) -> str:
    if pa.types.is_null(kind):
        return "no value in the first records"
    return f"{kind}, neither numbers nor text"


def check_fitted_center(label: Label) -> None:
    """Checks that the center of the mechanism file of `apply`, if it has one, is no function of the label."""
    fitted = label.mechanism.fitted
    made = None if fitted is None else fitted.made_center
    if made is not None and label.name in made.map.columns:
        # It would be released without noise.
        raise FieldError(
            "{label} {name} is a feature of the center of {mechanism_file}, which is released as it is: name the label "
            "that the file was fitted for",
            name=label.name,
        )


_MOST_SHARDS = 99_999
"""Shard names have five digits."""


def output_format(fields: Fields) -> str:
    """Format of the shards: by default that of the input, and for CSV Parquet, which can hold its types."""
    return fields.output_format or ("tfrecord" if fields.input_format == "tfrecord" else "parquet")


def output_spec(fields: Fields, target: str, input: InputSpec) -> OutputSpec:
    """Reads format, shards and folders of the output `target`."""
    if fields.num_shards is not None and not 1 <= fields.num_shards <= _MOST_SHARDS:
        raise FieldError(
            "{num_shards} must be from 1 to {most:,}, not {given:,}", most=_MOST_SHARDS, given=fields.num_shards
        )
    format = output_format(fields)
    if format == "tfrecord":
        check_tfrecord("--output_format tfrecord", "give --output_format parquet")
    columns = _partition_columns(fields, input)
    files = Counter(folder_of(path, columns) for path in input.paths)
    num_shards = fields.num_shards or max(files.values())
    partitions = OutputPartitions(columns, tuple(sorted(files)))
    table, left_out = output_table(fields, format), tuple(dict.fromkeys(names_of(fields.leave_out)))
    return OutputSpec(target, format, num_shards, fields.compression, partitions, table, left_out, bool(fields.shuffle))


def check_left_out(fields: Fields, labels: Sequence[Label], input: InputSpec, schema: pa.Schema) -> None:
    """Checks the columns of `leave_out`: they are in the input, and the output can do without them.

    A name that the input does not have may be misspelled, and the column meant would be released.
    """
    for name in names_of(fields.leave_out):
        if any(name == label.name for label in labels):
            raise FieldError("{leave_out} {name}: the label is what is released, privatized", name=name)
        if any(name in _of_center(label) for label in labels):
            raise FieldError(
                "{leave_out} {name}: labels are released around a center that is this column, or made of it: leave it "
                "out of the center as well, or keep it",
                name=name,
            )
        if name in names_of(fields.partition_output):
            raise FieldError("{leave_out} {name}: {partition_output} writes it into the names of folders", name=name)
        if schema.names and name not in schema.names:
            records = "the first records of " if input.format.name == "tfrecord" else ""
            raise FieldError(
                "{leave_out}: there is no column {name!r} in {records}{path}; it has: {names}{meant}",
                name=name,
                records=records,
                path=input.paths[0],
                names=listed(schema.names),
                meant=did_you_mean(name, schema.names),
            )


def _of_center(label: Label) -> tuple[str, ...]:
    """Columns of the input that recipients need to compute or to use the center of a label."""
    column, fitted = label.column, label.mechanism.fitted
    made = None if fitted is None else fitted.made_center
    used = () if made is None else tuple(made.map.columns)
    used += () if label.features is None else tuple(label.features.names)
    return used if column.center is None else (*used, column.center)


def _partition_columns(fields: Fields, input: InputSpec) -> tuple[tuple[str, bool], ...]:
    """Reads `partition_output`: name of each column, and whether it is of int32."""
    if fields.partition_output is None:
        return ()
    names = names_of(fields.partition_output)
    known = {partition.name: partition.integer for partition in input.parts[0].partitions}
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
