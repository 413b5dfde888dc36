"""Metadata of Parquet schemas, made fit for release: nothing that describes the label stays.

Writers and owners store key-values beside a schema. Readers need some of them: pandas finds the types of its columns
there (nullable integers, time zones, the index), Spark its schema. But metadata may also hold what was computed from
labels: Spark's ML attributes have the smallest and largest label, owners store statistics, a RangeIndex has values.
So these rules apply:

- the label's field keeps its name and gets its new type, and no metadata;
- in the documents of pandas and Spark, the label's entry is written anew, columns that were added get entries, and a
  RangeIndex is dropped, which would not fit shards;
- whatever else names the label is dropped: other keys, and metadata of other columns; so are ML attributes of the file;
- all other key-values are kept as they are. The owner declares them public.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

_PANDAS = b"pandas"
_SPARK = b"org.apache.spark.sql.parquet.row.metadata"

# Smallest and largest values, or all of them, of a column that it need not name.
_ML_ATTRIBUTES = b"ml_attr"


def released_schema(schema: pa.Schema, label: pa.Field) -> pa.Schema:
    """Replaces the label's field, and keeps the metadata that may be released.

    Args:
      schema: Schema of records, with the metadata of their input file.
      label: The label's field with its new type.

    Returns:
      The schema of the released records.
    """
    place = schema.get_field_index(label.name)
    return _released_schema(schema.serialize().to_pybytes(), place, label.type)


@functools.lru_cache(maxsize=64)
def _released_schema(serialized: bytes, place: int, kind: pa.DataType) -> pa.Schema:
    """Cached, because all batches of a file have one schema."""
    schema = pa.ipc.read_schema(pa.py_buffer(serialized))
    name = schema.field(place).name
    fields = []
    for number, field in enumerate(schema):
        kept = {key: value for key, value in (field.metadata or {}).items() if not _names(name, key, value)}
        fields.append(pa.field(name, kind) if number == place else field.with_metadata(kept or None))
    metadata = released_metadata(pa.schema(fields, metadata=schema.metadata), name)
    return pa.schema(fields, metadata=metadata or None)


def released_metadata(schema: pa.Schema, label: str) -> dict[bytes, bytes]:
    """Finds the metadata of a schema that may be released.

    Args:
      schema: Schema of the released records, with the metadata of the input.
      label: Name of the label.

    Returns:
      The key-values: those of the input that do not name the label, and the documents of pandas and Spark, renewed.
    """
    documents: dict[bytes, Callable[[dict[str, Any], pa.Schema, str], dict[str, Any]]] = {
        _PANDAS: _pandas,
        _SPARK: _spark,
    }
    kept = {}
    for key, value in (schema.metadata or {}).items():
        renew = documents.get(key)
        if renew is None:
            if not _describes(label, key, value):
                kept[key] = value
            continue
        try:
            kept[key] = json.dumps(renew(json.loads(value), schema, label)).encode()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # Readers do without a document that is not in their form.
            continue
    return kept


def schema_without(schema: pa.Schema, names: tuple[str, ...]) -> pa.Schema:
    """Drops columns from a schema, and their entries in the documents of pandas and Spark.

    Args:
      schema: A schema with released metadata.
      names: Names of the columns to drop.

    Returns:
      The schema of the other columns.
    """
    return _schema_without(schema.serialize().to_pybytes(), names)


@functools.lru_cache(maxsize=64)
def _schema_without(serialized: bytes, names: tuple[str, ...]) -> pa.Schema:
    """Cached, because all batches of a file have one schema."""
    schema = pa.ipc.read_schema(pa.py_buffer(serialized))
    metadata = dict(schema.metadata or {})
    for key, entries in ((_PANDAS, "columns"), (_SPARK, "fields")):
        if key in metadata:
            document = json.loads(metadata[key])
            document[entries] = [
                entry for entry in document[entries] if (entry.get("field_name") or entry["name"]) not in names
            ]
            metadata[key] = json.dumps(document).encode()
    return pa.schema([field for field in schema if field.name not in names], metadata=metadata or None)


def published_keys(metadata: Mapping[bytes, bytes] | None, label: str) -> tuple[list[str], list[str]]:
    """Sorts the keys of an owner's metadata, which the owner is told about.

    Args:
      metadata: Metadata of an input schema.
      label: Name of the label.

    Returns:
      Keys that are released with their values as they are, and keys that are dropped because they name the label.
    """
    kept, dropped = [], []
    for key, value in (metadata or {}).items():
        if key not in (_PANDAS, _SPARK, b"ARROW:schema"):
            (dropped if _describes(label, key, value) else kept).append(key.decode(errors="backslashreplace"))
    return kept, dropped


def _describes(label: str, key: bytes, value: bytes) -> bool:
    return key == _ML_ATTRIBUTES or _names(label, key, value)


def _names(label: str, *texts: bytes) -> bool:
    """Tests whether a text has the label's name as a word, in any case, or escaped as in JSON."""
    for name in {label, json.dumps(label)[1:-1]}:
        word = re.compile(rb"(?<![A-Za-z0-9_])%b(?![A-Za-z0-9_])" % re.escape(name.encode()), re.IGNORECASE)
        if any(word.search(text) for text in texts):
            return True
    return False


def _described(document: Any, label: str) -> bool:
    return _names(label, json.dumps(document).encode(), json.dumps(document, ensure_ascii=False).encode())


def _pandas(document: dict[str, Any], schema: pa.Schema, label: str) -> dict[str, Any]:
    """The document of pandas without a RangeIndex, with a new entry for the label and for added columns."""
    columns = []
    for entry in document["columns"]:
        name = entry["name"] if entry.get("field_name") is None else entry["field_name"]
        if name == label:
            columns.append({"name": entry["name"], "field_name": name, **_pandas_types(schema.field(label).type)})
        elif _described(entry.get("metadata"), label):
            columns.append({**entry, "metadata": None})
        else:
            columns.append(entry)
    known = {entry["name"] if entry.get("field_name") is None else entry["field_name"] for entry in columns}
    added = [field for field in schema if field.name not in known]
    columns += [{"name": field.name, "field_name": field.name, **_pandas_types(field.type)} for field in added]
    index = [each for each in document["index_columns"] if isinstance(each, str)]
    renewed = {**document, "index_columns": index, "columns": columns}
    if added:
        # Names of columns that were numbers are text beside names that are not.
        text = {"pandas_type": "unicode", "numpy_type": "object", "metadata": {"encoding": "UTF-8"}}
        renewed["column_indexes"] = [{"name": None, "field_name": None, **text}]
    others = {key: value for key, value in renewed.items() if key not in ("columns", "index_columns", "column_indexes")}
    for key, value in others.items():
        if _names(label, key.encode()) or _described(value, label):
            del renewed[key]
    return renewed


def _pandas_types(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"pandas_type": f"list[{_numpy_name(kind.value_type)}]", "numpy_type": "object", "metadata": None}
    if pa.types.is_string(kind):
        return {"pandas_type": "unicode", "numpy_type": "object", "metadata": None}
    return {"pandas_type": _numpy_name(kind), "numpy_type": _numpy_name(kind), "metadata": None}


def _numpy_name(kind: pa.DataType) -> str:
    return str(kind.to_pandas_dtype()().dtype)


def _spark(document: dict[str, Any], schema: pa.Schema, label: str) -> dict[str, Any]:
    """The schema of Spark with a new entry for the label and for added columns, without which Spark drops them."""
    fields = []
    for entry in document["fields"]:
        if entry["name"] == label:
            fields.append(_spark_field(schema.field(label)))
        elif _described(entry.get("metadata"), label):
            fields.append({**entry, "metadata": {}})
        else:
            fields.append(entry)
    known = {entry["name"] for entry in fields}
    fields += [_spark_field(field) for field in schema if field.name not in known]
    return {"type": "struct", "fields": fields}


def _spark_field(field: pa.Field) -> dict[str, Any]:
    kind: Any = field.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = {"type": "array", "elementType": _spark_name(kind.value_type), "containsNull": True}
    else:
        kind = _spark_name(kind)
    return {"name": field.name, "type": kind, "nullable": True, "metadata": {}}


def _spark_name(kind: pa.DataType) -> str:
    """Spark's name of a type that this project adds. Raises KeyError for others: the schema is dropped then."""
    return {pa.float64(): "double", pa.float32(): "float", pa.int32(): "integer", pa.string(): "string"}[kind]
