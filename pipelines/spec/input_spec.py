"""Input files of a request: their format, the filter on their records, and the columns that fields name.

Functions raise FieldError if a field is wrong, and InputError, which names the file, if a file cannot be read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from ...mechanisms.release.label_column import LabelColumn
from ...transforms.arrow_values import folded, index_levels, namesakes, value_type
from ...transforms.csv_input.csv_columns import are_names, delimiter_advice, missing_column, spaced_names
from ...transforms.errors import InputError, listed
from ...transforms.io.csv_dialect import Dialect
from ...transforms.io.filesystems import absolute, match
from ...transforms.io.hive_partitions import folder_names
from ...transforms.io.input_format import Equals, Format, file_parts
from ...transforms.io.table_columns import TableColumns
from ...transforms.progress_log import LOGGER
from ...transforms.readers.file_reader import FileReader
from ...transforms.readers.orc_reader import orc_schema
from ...transforms.readers.parquet_reader import parquet_index_levels
from ...transforms.readers.table_snapshot import is_table
from ..errors import Fact, FieldError, as_flag, did_you_mean, field_errors, one_line
from .fields import DIALECT, INPUT_FORMATS, NULL_COLUMNS, PARTITIONS, Fields, Names, names_of, pairs_of
from .machine import check_tfrecord
from .release import InputSpec, OutputSpec
from .table_input import check_no_table, check_not_ordered, table_spec, union_columns

_COLUMNS = (
    "label", "id_column", "unit_column", "center_column", "center_features", "where", "leave_out",
)  # fmt: skip
"""Fields that name columns of the input."""


def input_spec(fields: Fields) -> InputSpec:
    """Finds the input files; at least one must match, and none of their folders may name the label or the id."""
    format, where = input_format(fields), where_filter(fields.where, fields.label)
    given, labels = fields.input or "", names_of(fields.label)
    named = {name.partition("=")[0] for field in _COLUMNS for name in names_of(getattr(fields, field))}
    if is_table(given):
        input = _without_index(table_spec(given, format, where), labels, named)
        check_no_folder(input, "label", str(fields.label))
        return input
    with field_errors("{problem}", InputError):
        pattern = absolute(given)
        sizes = match(pattern)
        check_no_table(pattern, list(sizes))
        if fields.missing_columns == NULL_COLUMNS:
            format = dataclasses.replace(format, table=union_columns(list(sizes)))
        parts = tuple(file_parts(list(sizes), format))
    for path in sizes:
        try:
            path.encode()
        except UnicodeEncodeError:
            raise FieldError("{input} {path!a}: the file name is not UTF-8; rename the file", path=path) from None
    input = InputSpec(pattern, parts, sum(sizes.values()) / len(sizes), format, where)
    input = _without_index(input, labels, named)
    check_no_folder(input, "label", str(fields.label))
    check_no_folder(input, "id_column", fields.id_column)
    return input


def _without_index(input: InputSpec, labels: Sequence[str], named: Collection[str]) -> InputSpec:
    """Leaves out the levels of a pandas index that no field names: they are often copies of columns, also of the label.

    Raises FieldError if one has the name of a label. Names alone decide, never values.
    """
    format = input.format
    if format.table is not None:
        levels = index_levels(format.table.schema)
    elif format.name == "parquet":
        levels = parquet_index_levels(input.paths[0])
    elif format.name == "orc":
        levels = index_levels(orc_schema(input.paths[0])[0])
    else:
        return input
    for column, level in levels.items():
        if level in labels and column not in labels:
            raise FieldError(
                "{input} {path}: column {column!r} is a pandas index with the name of the label, {level}: it may hold "
                "the true labels, and would be released as it is. Write the file without it: to_parquet(index=False)",
                path=input.paths[0],
                column=column,
                level=level,
            )
    left = tuple(column for column in levels if column not in named)
    if not left:
        return input
    if format.table is not None:
        kept = tuple(column for column in format.table.columns if column.name not in left)
        format = dataclasses.replace(format, table=TableColumns(kept))
    else:
        format = dataclasses.replace(format, hidden=left)
    return dataclasses.replace(input, format=format, left_out=left)


def check_no_folder(input: InputSpec, field: str, name: str | None) -> None:
    """Checks that a column, if there is one, is not one of those that the input's folders are named by.

    Folders of the label are refused even if no partitions are read: the file of a record tells its label then. Nor may
    the label be one that decides on the file, or on the place in it, of a table's records.
    """
    if field == "label":
        if input.table is not None:
            check_not_ordered(input.table, str(name))
        for folder in sorted(folder_names(input.paths)):
            if folded(folder) == folded(str(name)):
                raise FieldError(
                    "{label} {name}: files of the input lie in folders {folder}=..., so the file of a record, which is "
                    "public, tells its label: write the log again in one folder, in an order that does not follow from "
                    "{name}",
                    name=name,
                    folder=folder,
                )
    if name in [partition.name for partition in input.parts[0].partitions]:
        raise FieldError(
            f"{{{field}}} {{name}} is a folder of the input, {{name}}=..., whose name is public and the same for all "
            "records in it: name a column in the files",
            name=name,
        )


def input_format(fields: Fields) -> Format:
    """Reads format and dialect of the files, types of CSV columns, and what folders named KEY=VALUE are."""
    if fields.input_format is None:
        raise FieldError(
            "{input} {path}: the name does not tell the format: give {input_format} {known}",
            path=fields.input,
            known=", ".join(INPUT_FORMATS[:-1]) + f" or {INPUT_FORMATS[-1]}",
        )
    if fields.missing_columns == NULL_COLUMNS and fields.input_format != "parquet":
        raise FieldError("{missing_columns} null takes {input_format} parquet")
    if fields.input_format == "tfrecord":
        check_tfrecord("--input_format tfrecord", "convert the files and give --input_format parquet or csv")
    types = pairs_of(fields.csv_types, "NAME=TYPE", "{csv_types}")
    partitions = fields.partitions == PARTITIONS[0]
    dialect = csv_dialect(fields.csv_dialect)
    with field_errors():
        return Format(str(fields.input_format), types or None, partitions=partitions, dialect=dialect)


def read_as(column: LabelColumn, format: Format) -> LabelColumn:
    """The column with the options by which its labels are read from text, other than the default."""
    if format.name != "csv":
        return column
    default, types = asdict(Dialect()), format.csv_types or {}
    given = {name: value for name, value in asdict(format.dialect).items() if value != default[name]}
    if column.name in types:
        given["type"] = types[column.name]
    reading = tuple((name, value if isinstance(value, str) else json.dumps(value)) for name, value in given.items())
    return dataclasses.replace(column, meaning=dataclasses.replace(column.meaning, reading=reading))


_WANTED = {"newlines": "must be true or false", "columns": "must be names"}


def csv_dialect(given: Names | Mapping[str, Any] | None) -> Dialect:
    """Reads the CSV dialect, of settings NAME=VALUE or a mapping; of several values of one setting, the last."""
    if not isinstance(given, Mapping):
        texts = [given] if isinstance(given, str) else given or ()
        given = {name: value for name, _, value in (text.partition("=") for text in texts)}
    settings: dict[str, Any] = {}
    for name, value in given.items():
        if name not in DIALECT:
            raise FieldError(
                "{csv_dialect}: unknown setting {name!r}; known: {known}{meant}",
                name=str(name),
                known=", ".join(DIALECT),
                meant=did_you_mean(str(name), DIALECT),
            )
        settings[name] = _setting(name, value)
        if settings[name] is None:
            raise FieldError("{csv_dialect} {name} {wanted}", name=name, wanted=_WANTED.get(name, "must be text"))
    with field_errors():
        return Dialect(**settings)


def _setting(name: str, value: Any) -> Any:
    """The value of a setting of the CSV dialect; None if its type is wrong."""
    if name == "newlines":
        return {"true": True, "false": False}.get(str(value).lower())
    if name == "columns" and (isinstance(value, str) or all(isinstance(column, str) for column in value)):
        return names_of(value)
    return value if isinstance(value, str) else None


def where_filter(text: str | None, label: object) -> Equals | None:
    """Reads `where`, NAME=VALUE, which must not name the label; None without it."""
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise FieldError("{where} takes NAME=VALUE, not {text!r}", text=text)
    if name == label:
        raise FieldError("{where} must not use the label: the choice of released records would depend on it")
    return Equals(name, value)


def read_schema(input: InputSpec, labels: Sequence[str]) -> pa.Schema:
    """Columns of the first file that has some, found without reading a label; none if all files are empty.

    There is at least one private column.
    """
    reader, schema = FileReader(input.format, label_column=labels[0], other_labels=labels[1:]), pa.schema([])
    for part in input.parts:
        schema = reader.schema(part)
        if schema.names:
            break
    return schema


def first_schema(input: InputSpec, column: LabelColumn) -> pa.Schema:
    """Reads the schema of the first records. Files without any, as some writers make them, are passed over.

    The schema is empty if no file has a record.
    """
    reader = FileReader(input.format, None, input.where, column.name, other_labels=column.others)
    for part in input.parts:
        for batch in reader.read(part):
            return batch.batch.schema
    return pa.schema([])


def check_columns(named: Mapping[str, str | None], input: InputSpec, schema: pa.Schema) -> None:
    """Checks that the columns exist that fields name, and that of the filter.

    Records of a TFRecord file may lack a feature, so a name that the first records do not have is only warned of.

    `named` has the column by name of the field; None where none is given.
    """
    if not schema.names:
        return
    where = None if input.where is None else input.where.column
    for field, name in {**named, "where": where}.items():
        if name is not None and name not in schema.names:
            problem = FieldError.at(field, _missing(name, input, schema.names))
            if input.format.name != "tfrecord":
                raise problem
            LOGGER.warning("warning: %s", problem.text(as_flag))


Twin = tuple[str, str]
"""Column, and what in it has the name of a label but for case or white space: itself, a field, or a key of a map."""


def find_twin(label: str, input: InputSpec, schema: pa.Schema, left_out: Sequence[str] = ()) -> Twin | None:
    """Finds what has the label's name in the columns that are released, with the keys of maps in the first records."""
    kept = pa.schema([field for field in schema if field.name not in left_out])
    return next(namesakes(label, _first_maps(input, kept, label)), None)


def check_twin(label: str, path: str, twin: Twin | None) -> None:
    """Refuses what has the label's name: it may be a copy, and looks like it."""
    if twin is not None:
        column, other = twin
        raise FieldError(
            "{label} {name!r}: {path} also has {what} {other!r}, which would be released as it is: drop or rename it, "
            "or give {leave_out} {column}", name=label, path=path, column=column, other=other,
            what="a column" if column == other else "a field",
        )  # fmt: skip


def _first_maps(input: InputSpec, schema: pa.Schema, label: str) -> Iterator[tuple[str, pa.Array]]:
    """Name of each column without values, and columns with maps with those of the first records."""
    yield from ((field.name, pa.nulls(0, field.type)) for field in schema)
    maps = [field.name for field in schema if field.name != label and "map<" in str(field.type)]
    for part in input.parts if maps else ():
        # The job reports a file that cannot be read.
        with contextlib.suppress(InputError):
            for batch in FileReader(input.format, [*maps, label], None, label).read(part):
                yield from ((name, column) for name in maps if (column := batch.column(name)) is not None)
                return


def _missing(name: str, input: InputSpec, names: list[str]) -> str:
    dialect = input.format.dialect
    if input.format.name == "csv" and (
        dialect.columns or not are_names(names) or delimiter_advice(name, names, dialect) or spaced_names(name, names)
    ):
        return f"{input.paths[0]}: {missing_column(name, names, dialect)}" + (
            did_you_mean(name, names) if are_names(names) and not spaced_names(name, names) else ""
        )
    records = "the first records of " if input.format.name == "tfrecord" else ""
    where = f"{records}{input.paths[0]}"
    return f"there is no column {name!r} in {where}; it has: {listed(names)}{did_you_mean(name, names)}"


def unsure_columns(
    schema: pa.Schema, input: InputSpec, int96: Fact[list[str]], labels: Sequence[str], output: OutputSpec
) -> tuple[str, ...]:
    """Names the columns of which only the values tell whether the output can hold them.

    These are timestamps of the type INT96, which `int96` names, and for TFRecords integers that may be beyond int64;
    not private columns, which are replaced, nor columns that are left out of the output. Raises FieldError, which names
    the column, if the output can hold no value of it.
    """
    names = []
    if output.format == "tfrecord" != input.format.name:
        # Imported late: loads protobuf.
        from ...transforms.tfrecord.example_encoder import kind_of, may_not_fit, not_held

        held = [field for field in schema if field.name not in output.left_out]
        for field in held:
            if field.name not in labels and kind_of(value_type(field.type)) is None:
                raise FieldError(
                    "{output_format} tfrecord: {reason}", reason=one_line(not_held(field.name, field.type))
                )
        names = [field.name for field in held if may_not_fit(field.type)]
    if input.format.name == "parquet":
        # Of a table, by the names in the file: column by column of the tables that have such times.
        names += [name for name in int96.get() if name in schema.names]
    return tuple(name for name in names if name not in labels)


def announce_csv_columns(input: InputSpec, labels: Sequence[str]) -> None:
    """Warns of columns of numbers that CSV files have as text; `labels` are the private columns."""
    reader = FileReader(input.format, label_column=labels[0], other_labels=labels[1:])
    try:
        notes = reader.notes(input.parts[0])
    except InputError:
        # The job reports the file.
        return
    for note in notes:
        LOGGER.warning("warning: %s", one_line(note))
