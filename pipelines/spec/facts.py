"""Facts that a request of files is checked against: files, folders, keys and stores are looked at once, by `look_at`.

A look that failed is kept as it is (`Fact`), and its error raised by the check that asks for it: a user reads the first
error in the order of the checks, whatever else is wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ...mechanisms.core.label_classes import LabelClasses
from ...mechanisms.release.label_column import LabelColumn
from ...transforms.arrow_values import value_type
from ...transforms.errors import InputError
from ...transforms.io.filesystems import absolute, read_text
from ...transforms.noise_key_file import NoiseKeyFile
from ...transforms.readers.parquet_reader import int96_columns
from ...transforms.readers.table_snapshot import TableUrl
from ..errors import Fact, field_errors
from .feature_choice import CenterChoice
from .fields import Fields, names_of, shown
from .input_spec import Twin, find_twin, first_schema, input_spec, read_as, read_schema
from .label import Label, fitted_label, make_label
from .label_domain import with_texts
from .mechanism_file import read_mechanism_file
from .release import InputSpec
from .several_labels import fields_of_labels, with_parts_of_budget
from .signing_key import SigningKeyFile
from .table_input import look_at_table
from .target_checks import check_target, find_noise_key, resolve_ledger, resolve_signing_key


@dataclass(frozen=True)
class Facts:
    """Facts that are read for a request before it is checked.

    Attributes:
      input: The files, with their format and the filter, as the labels are read from them.
      schema: Columns of the first file that has some, read without a label.
      labels: The labels, by label files and the mechanism file.
      centers: The center that is asked for of each of them.
      records: Columns of the first records; those of `schema` where no center is made, or in a dry run.
      twins: By label, what has its name but for case and white space.
      int96: Columns of timestamps of the type INT96.
      validation: Text of the TFDV schema that features must match; empty without one.
      target: Path of the output, which can be written.
      table: Table that the shards are added to; None without one.
      ledger: Path or URL of the ledger, which can be written.
      key: The noise key file, and whether it is to be created.
      sign: File of the signing key; None without one.
    """

    input: InputSpec
    schema: pa.Schema
    labels: Sequence[Label]
    centers: Sequence[CenterChoice]
    records: Fact[pa.Schema]
    twins: Sequence[Twin | None]
    int96: Fact[list[str]]
    validation: Fact[str]
    target: Fact[str]
    table: Fact[TableUrl | None]
    ledger: Fact[str]
    key: Fact[tuple[NoiseKeyFile, bool]]
    sign: Fact[SigningKeyFile | None]


def look_at(command: str, fields: Fields, may_exist: bool = False) -> Facts:
    """Reads everything that a request of `privatize`, `fit` or `apply` is checked against.

    Errors of input and labels come first, and are raised at once. The output may exist with `may_exist`, as a release.
    The first records are read for their features, which a TFRecord file does not tell otherwise; but not in a dry run,
    which reads no label.
    """
    names = names_of(fields.label)
    input = input_spec(fields if len(names) > 1 else dataclasses.replace(fields, label=names[0]))
    schema = read_schema(input, names)
    if len(names) > 1 and shown(fields.label) in schema.names:
        # A column has the whole text as its name.
        names = (shown(fields.label),)
    labels, centers = _labels(command, fields, names, input, schema)
    input = _with_labels(input, [label.column for label in labels])
    if input.format.missing:
        # Of TFRecords, whether the first ones lack a label must not show: its missing ones are put in, as in the job.
        schema = read_schema(input, names)

    def records() -> pa.Schema:
        makes = any(center.makes(label) for label, center in zip(labels, centers, strict=True))
        return first_schema(input, labels[0].column) if makes and not fields.dry_run else schema

    target, mode = (fields.mechanism_file if command == "fit" else fields.output) or "", fields.noise_key_mode
    return Facts(
        input,
        schema,
        labels,
        centers,
        Fact.of(records),
        [find_twin(name, input, schema, names_of(fields.leave_out)) for name in names],
        Fact.of(lambda: int96_columns(input.paths[0]) if input.format.name == "parquet" else []),
        Fact.of(lambda: read_text(fields.validate) if isinstance(fields.validate, str) else ""),
        Fact.of(lambda: _target(command, target, may_exist)),
        Fact.of(lambda: look_at_table(fields.output_table)),
        Fact.of(lambda: resolve_ledger(fields.ledger, target)),
        # Noise of a fit and of its releases is of one key.
        Fact.of(lambda: find_noise_key(fields.noise_key_file, target, command != "apply", mode)),
        Fact.of(lambda: resolve_signing_key(fields.sign, target, mode)),
    )


def _target(command: str, target: str, may_exist: bool) -> str:
    check_target("mechanism_file" if command == "fit" else "output", target, may_exist)
    return target if command == "fit" else absolute(target)


def _labels(
    command: str, fields: Fields, names: Sequence[str], input: InputSpec, schema: pa.Schema
) -> tuple[list[Label], list[CenterChoice]]:
    """Reads the files of labels and the mechanism file of `apply`, and makes each label of them, with its center."""
    parts = [with_texts(part) for part in fields_of_labels(command, fields, names, input)]
    if command == "apply":
        with field_errors("{mechanism_file} {problem}", InputError):
            fitted = read_mechanism_file(str(fields.mechanism_file))
        labels = [fitted_label(parts[0], fitted)]
    else:
        parts = with_parts_of_budget(parts)
        labels = [make_label(part, [name for name in names if name != part.label]) for part in parts]
    return [_as_read(label, input, schema) for label in labels], [CenterChoice.of(part) for part in parts]


def _with_labels(input: InputSpec, columns: Sequence[LabelColumn]) -> InputSpec:
    """The input with what readers need to know of labels: their classes, and what missing ones count as."""
    meanings = {column.name: column.meaning for column in columns}
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
    classes, kind = column.classes, type_of(column, schema)
    if classes is not None and kind is not None and pa.types.is_boolean(kind):
        values = tuple(value.lower() for value in classes.values)
        if {*values} == {"false", "true"}:
            meaning = dataclasses.replace(column.meaning, classes=LabelClasses(values, classes.other))
            column = dataclasses.replace(column, meaning=meaning)
    return dataclasses.replace(label, column=column)


def type_of(column: LabelColumn, schema: pa.Schema) -> pa.DataType | None:
    """Type of the values of a label column, if the schema tells it."""
    index = schema.get_field_index(column.name)
    return None if index < 0 else value_type(schema.field(index).type)
