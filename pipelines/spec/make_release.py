"""Construction of a checked release of files from the fields of a request.

Functions raise FieldError if a field is wrong, and InputError, which names the file, if the first records of the input
are read and cannot be.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ...mechanisms.core.label_classes import LabelClasses
from ...mechanisms.release.label_column import LabelColumn
from ...transforms.arrow_values import value_type
from ...transforms.class_values import check_class_type
from ...transforms.errors import InputError, listed
from ...transforms.io.filesystems import absolute, read_text
from ...transforms.noise_binding import Threshold
from ...transforms.progress_log import LOGGER
from ...transforms.validation.tensorflow_libraries import without_features
from ..errors import field_errors, one_line
from .center_fields import check_fitted_center, with_center
from .feature_choice import check_center, is_asked_for
from .fields import Fields, names_of, shown
from .input_spec import check_columns, check_twins, input_spec, read_as, read_schema, unsure_columns
from .label import Label, fitted_label, make_label
from .limits import read_caps, read_unusable_fraction
from .machine import check_extra
from .mechanism_file import read_mechanism_file
from .output_spec import check_left_out, output_format, output_spec
from .release import InputSpec, Release, ValidationSpec
from .several_labels import fields_of_labels
from .target_checks import check_target, resolve_ledger, resolve_noise_key, resolve_signing_key


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
