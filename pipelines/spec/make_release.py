"""Construction of a checked release of files from the fields of a request: its input, labels, centers and output.

Functions raise FieldError if a field is wrong, and InputError, which names the file, if the first records of the input
are read and cannot be.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow as pa

from ...mechanisms.release.label_column import LabelColumn
from ...transforms.center.feature_columns import is_feature
from ...transforms.class_values import check_class_type
from ...transforms.errors import InputError, listed
from ...transforms.io.hive_partitions import OutputPartitions, folder_of
from ...transforms.missing_labels import Threshold
from ...transforms.progress_log import LOGGER
from ...transforms.validation.tensorflow_libraries import without_features
from ..errors import Fact, FieldError, did_you_mean, field_errors, one_line
from .facts import Facts, look_at, type_of
from .feature_choice import CenterChoice, FeatureTable
from .fields import Fields, Names, names_of, shown
from .input_spec import check_columns, check_twin, unsure_columns
from .label import Label
from .machine import check_extra, check_tfrecord
from .release import InputSpec, OutputSpec, Release, ValidationSpec
from .table_input import check_output_table
from .target_checks import create_key, read_caps, read_unusable_fraction

_MOST_SHARDS = 99_999
"""Shard names have five digits."""


def make_release(command: str, fields: Fields, may_exist: bool = False, creates_key: bool = True) -> Release:
    """Looks at what the fields of `privatize`, `fit` or `apply` name, and checks them against it.

    No check opens a file: `look_at` has read them all. The output must be new, unless it `may_exist`, as a release.

    Creates a noise key file that does not exist, unless not `creates_key` or in a dry run. That is the last step: a
    request that is refused leaves no key.
    """
    CenterChoice.of(fields)
    threshold = Threshold(read_unusable_fraction(fields.max_unusable_fraction))
    caps = read_caps(fields.epsilon_cap, fields.delta_cap, fields.cap_window)
    facts = look_at(command, fields, may_exist)
    input, schema, left_out = facts.input, facts.schema, names_of(fields.leave_out)
    names, asked = [label.name for label in facts.labels], [*zip(facts.labels, facts.centers, strict=True)]
    for label in facts.labels:
        check_fitted_center(label)
    validation = _validation(fields.validate, facts.validation, (*names, *left_out))
    target = facts.target.get()
    if input.left_out:
        LOGGER.warning(
            "warning: the pandas index %s is left out, neither released nor a feature: name it with a flag, such as "
            "--id_column, to keep it",
            one_line(listed(input.left_out)),
        )
    # That of the input, and for CSV Parquet, which can hold its types.
    format = fields.output_format or ("tfrecord" if fields.input_format == "tfrecord" else "parquet")
    for (label, choice), twin in zip(asked, facts.twins, strict=True):
        check_columns(_named_columns(label, choice, fields.unit_column), input, schema)
        check_twin(label.name, input.paths[0], twin)
        _check_classes(label.column, input.paths[0], schema, command != "fit" and format == "tfrecord")
    shards = fields.num_shards
    if shards is not None and not 1 <= shards <= _MOST_SHARDS:
        raise FieldError("{num_shards} must be from 1 to {most:,}, not {given:,}", most=_MOST_SHARDS, given=shards)
    if format == "tfrecord":
        check_tfrecord("--output_format tfrecord", "give --output_format parquet")
    partitions, table = partition_columns(fields.partition_output, input), facts.table.get()
    check_output_table(table, fields.output_table, format, fields.partition_output is not None)
    files = Counter(folder_of(path, partitions) for path in input.paths)
    output = OutputSpec(
        target, format, shards or max(files.values()), fields.compression,
        OutputPartitions(partitions, tuple(sorted(files))), table, tuple(dict.fromkeys(left_out)), bool(fields.shuffle),
    )  # fmt: skip
    sign = facts.sign.get()
    unsure = () if command == "fit" else unsure_columns(schema, input, facts.int96, names, output)
    labels = tuple(with_center(label, choice, facts) for label, choice in asked)
    check_left_out(left_out, labels, partitions, input, schema)
    ledger, (key, missing) = facts.ledger.get(), facts.key.get()
    if missing and creates_key and not fields.dry_run:
        create_key(key)
    return Release(command, input, schema, labels, threshold, caps, output, validation, ledger, key, unsure, sign)


def _check_classes(column: LabelColumn, path: str, schema: pa.Schema, examples: bool) -> None:
    """Checks that the column of a label can hold its classes, if the schema tells its type, and so can tf.Examples."""
    kind = type_of(column, schema)
    if column.classes is None or kind is None:
        return
    kind = pa.float32() if examples and kind == pa.float64() else kind
    with field_errors("{label_classes}: {problem}", InputError):
        check_class_type(kind, column.classes, column.name, path)


def _named_columns(label: Label, choice: CenterChoice, unit: str | None) -> Mapping[str, str | None]:
    """Columns of the input by the fields that name them, without the features of a linear center."""
    column, fitted = label.column, label.mechanism.fitted
    named: dict[str, str | None] = {"label": label.name, "id_column": column.id_column, "unit_column": unit}
    given = fitted.drawing.given_column if fitted else None
    if column.classes is not None:
        # The column of a center is new.
        return named
    if given:
        named["mechanism_file"] = given
    elif not choice.asked:
        # Otherwise it is the name of a column that the job adds.
        named["center_column"] = choice.column
    return named


def _validation(given: bool | str | None, text: Fact[str], hidden: Sequence[str]) -> ValidationSpec | None:
    if given in (None, False):
        return None
    check_extra("--validate", "validation", "tensorflow_data_validation", "tensorflow_metadata")
    if given is True:
        return ValidationSpec(None)
    with field_errors("{validate} {problem}", InputError):
        schema = text.get()
    with field_errors("{validate} {path}: {problem}", path=given):
        return ValidationSpec(without_features(schema, hidden))


def with_center(label: Label, choice: CenterChoice, facts: Facts) -> Label:
    """Adds a center of features to a label, if the job makes one. The new column must not be in the input."""
    if not choice.makes(label):
        return label
    input = facts.input
    where = None if input.where is None else input.where.column
    table = FeatureTable(facts.records.get(), input.paths[0], "{input}", " in its first records", where)
    label = choice.applied(label, table)
    if label.features is None or choice.features is not None:
        return label
    used = (*label.features.names, *label.column.columns)
    unused = {
        field.name: _reason(field.type)
        for field in facts.schema
        if field.name not in used and not is_feature(field.type)
    }
    return dataclasses.replace(label, unused=unused)


def _reason(kind: pa.DataType) -> str:
    if pa.types.is_null(kind):
        return "no value in the first records"
    return f"{kind}, neither numbers nor text"


def check_fitted_center(label: Label) -> None:
    """Checks that the center of the mechanism file of `apply`, if it has one, is no function of the label."""
    fitted = label.mechanism.fitted
    made = fitted.drawing.made if fitted else None
    if made and label.name in made.map.columns:
        # It would be released without noise.
        raise FieldError(
            "{label} {name} is a feature of the center of {mechanism_file}, which is released as it is: name the label "
            "that the file was fitted for",
            name=label.name,
        )


def check_left_out(
    left_out: Sequence[str],
    labels: Sequence[Label],
    partitions: Sequence[tuple[str, bool]],
    input: InputSpec,
    schema: pa.Schema,
) -> None:
    """Checks the columns of `leave_out`: they are in the input, and the output can do without them.

    A name that the input does not have may be misspelled, and the column meant would be released.
    """
    for name in left_out:
        if any(name == label.name for label in labels):
            raise FieldError("{leave_out} {name}: the label is what is released, privatized", name=name)
        if any(name in _of_center(label) for label in labels):
            raise FieldError(
                "{leave_out} {name}: labels are released around a center that is this column, or made of it: leave it "
                "out of the center as well, or keep it",
                name=name,
            )
        if name in dict(partitions):
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
    made = fitted.drawing.made if fitted else None
    used = tuple(made.map.columns) if made else ()
    used += () if label.features is None else tuple(label.features.names)
    return used if column.center is None else (*used, column.center)


def partition_columns(asked: Names | None, input: InputSpec) -> tuple[tuple[str, bool], ...]:
    """Reads `partition_output`: name of each column, and whether it is of int32."""
    if asked is None:
        return ()
    names = names_of(asked)
    known = {partition.name: partition.integer for partition in input.parts[0].partitions}
    if not known:
        given = shown(asked)
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
