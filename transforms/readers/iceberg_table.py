"""Snapshots of Iceberg tables, through a catalog that pyiceberg is configured for (extra `iceberg`).

pyiceberg reads the table's metadata and the manifests of a snapshot, never a data file. Properties in the metadata that
would choose its code, or the store and the credentials that it uses, are refused: only the catalog may say these.
"""

from __future__ import annotations

import contextlib
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from ..arrow_values import plain_schema
from ..errors import InputError, describe
from ..io.table_columns import TableColumn, TableColumns, inner_fields
from .table_snapshot import (
    LARGEST_METADATA,
    MOST_FILES,
    TableFile,
    TableSnapshot,
    TableUrl,
    local_path,
    name_in_table,
    readable_type,
    scalar,
    sorted_files,
)

_OF_CATALOG = ("py-", "s3.", "gcs.", "adls.", "abfs.", "hdfs.", "hf.", "oss.", "client.", "rest.", "auth")
"""Beginnings of properties that a table must not set."""
_MOST_MANIFESTS = 10_000
_CONFIGURE = "configure the catalog for pyiceberg, in ~/.pyiceberg.yaml or PYICEBERG_CATALOG__NAME__URI"
_DELETES = {
    "EQUALITY_DELETES": "equality deletes",
    "POSITION_DELETES": "position deletes",
}


def iceberg_snapshot(url: TableUrl) -> TableSnapshot:
    """Finds the data files and columns of a snapshot: of the one that the URL names, or the current one.

    The columns are those of the snapshot, or for the current one those of the table now. Raises InputError, which names
    the table, if there is no such snapshot, or it cannot be read as a list of Parquet files.
    """
    what = f"iceberg://{url.table}" + ("" if url.snapshot is None else f"@{url.snapshot}")
    try:
        return _snapshot(url, what)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{what} cannot be read ({describe(error)}): check catalog, table and its files; {_CONFIGURE}"
        ) from None


def _snapshot(url: TableUrl, what: str) -> TableSnapshot:
    table = _load(url, what)
    check_properties(table.metadata.properties, what)
    snapshot = table.current_snapshot() if url.snapshot is None else table.snapshot_by_id(url.snapshot)
    if snapshot is None:
        problem = "has no data yet" if url.snapshot is None else "is no snapshot of the table, or one that expired"
        raise InputError(f"{what} {problem}: nothing can be read")
    now = url.snapshot is None or snapshot.schema_id is None
    schema = table.schema() if now else table.schemas()[snapshot.schema_id]
    folder = _folder(table.metadata_location, what)
    entries = list(_entries(table, snapshot, folder, what))
    return TableSnapshot(
        format="iceberg",
        table=url.table,
        table_id=str(table.metadata.table_uuid),
        snapshot=snapshot.snapshot_id,
        schema_id=str(schema.schema_id),
        folder=folder,
        files=sorted_files((_file(table, schema, entry, folder, what) for entry in entries), what),
        columns=_columns(table, schema),
        ordered_by=_ordered_by(table, schema, entries),
    )


@contextlib.contextmanager
def open_catalog(text: str, what: str) -> Iterator[tuple[Any, str]]:
    """Opens the catalog of CATALOG/NAMESPACE.TABLE, with the name of the table in it; closes its connections.

    Tables that it loads choose neither code nor stores. Raises InputError, which begins with `what`, if there is no
    such catalog; its `load_table` raises one for a table that names code.
    """
    from pyiceberg.catalog import load_catalog

    name, _, table = text.partition("/")
    try:
        catalog: Any = load_catalog(name)
    except ValueError:
        raise InputError(f"{what}: there is no catalog {name}: {_CONFIGURE}") from None
    load_file_io = catalog._load_file_io

    def checked(properties: Mapping[str, str] = {}, location: str | None = None) -> Any:
        # It would import the class that the property names.
        if "py-io-impl" in properties:
            raise InputError(f"{what}: the table sets the property py-io-impl, which only a catalog may: remove it")
        return load_file_io(properties, location)

    catalog._load_file_io = checked
    with contextlib.closing(catalog):
        yield catalog, table


def _load(url: TableUrl, what: str) -> Any:
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    with open_catalog(url.table, what) as (catalog, name):
        try:
            return catalog.load_table(name)
        except (NoSuchTableError, NoSuchNamespaceError):
            raise InputError(f"{what}: the catalog {url.table.partition('/')[0]} has no table {name}") from None


def check_properties(properties: Mapping[str, str], what: str) -> None:
    """Checks that a table's properties choose neither code nor stores. Raises InputError, which begins with `what`."""
    for name in properties:
        if name.startswith(_OF_CATALOG):
            raise InputError(
                f"{what}: the table sets the property {name}, which only a catalog may, because it decides where "
                "credentials are sent: remove it from the table"
            )


def _folder(metadata_location: str, what: str) -> str:
    """Folder of a table: the one with the folder metadata/, in which the catalog says that its metadata is."""
    folder, _, file = local_path(metadata_location).rpartition("/metadata/")
    if not folder or "/" in file:
        raise InputError(f"{what}: the metadata {metadata_location} is not in a folder metadata/ of the table")
    return folder


def _entries(table: Any, snapshot: Any, folder: str, what: str) -> Iterator[Any]:
    """Entries of the live data files of a snapshot. Raises InputError if files of it delete records of others."""
    name_in_table(local_path(snapshot.manifest_list), folder, what)
    _check_expanded(table.io.new_input(snapshot.manifest_list), _MOST_MANIFESTS, what)
    manifests = snapshot.manifests(table.io)
    for manifest in manifests:
        name_in_table(local_path(manifest.manifest_path), folder, what)
        _check_expanded(table.io.new_input(manifest.manifest_path), MOST_FILES, what)
        for entry in manifest.fetch_manifest_entry(table.io):
            _check_file(entry.data_file, what)
            yield entry.data_file


def _check_expanded(file: Any, most: int, what: str) -> None:
    """Checks the sizes of an Avro file, as it is and expanded, and its number of records, before any is made of it.

    Raises InputError, which names the file.
    """
    from pyiceberg.avro.codecs import KNOWN_CODECS
    from pyiceberg.avro.file import SYNC_SIZE, AvroFile

    large = InputError(
        f"{what}: {file.location} has more than {most:,} entries, or {LARGEST_METADATA >> 20} MiB when expanded: "
        "compact the table (rewrite_manifests)"
    )
    if len(file) > LARGEST_METADATA:
        raise large
    with AvroFile(file) as avro:
        names: dict[Any, str] = {codec: name for name, codec in KNOWN_CODECS.items()}
        expand, expanded, records = _PARTS[names[avro.header.compression_codec()]], 0, 0
        while True:
            try:
                records += avro.decoder.read_int()
                block = avro.decoder.read_bytes()
            except EOFError:
                return
            for size in expand(block):
                expanded += size
                if expanded > LARGEST_METADATA:
                    raise large
            if records > most:
                raise large
            avro.decoder.skip(SYNC_SIZE)


def _deflated(block: bytes) -> Iterator[int]:
    decompressor = zlib.decompressobj(-zlib.MAX_WBITS)
    while block:
        yield len(decompressor.decompress(block, _PART))
        block = decompressor.unconsumed_tail


def _streamed(codec: str, block: bytes) -> Iterator[int]:
    with pa.CompressedInputStream(pa.BufferReader(block), codec) as stream:
        while part := stream.read(_PART):
            yield len(part)


def _snappy(block: bytes) -> Iterator[int]:
    """The length with which a block begins, in groups of 7 bits."""
    length = 0
    for place, byte in enumerate(block[:5]):
        length |= (byte & 127) << 7 * place
        if byte < 128:
            break
    yield length


_PART = 1 << 20
_PARTS: dict[str, Callable[[bytes], Iterator[int]]] = {
    "null": lambda block: iter([len(block)]),
    "deflate": _deflated,
    "zstandard": partial(_streamed, "zstd"),
    "bzip2": partial(_streamed, "bz2"),
    "snappy": _snappy,
}
"""By codec of Avro, the lengths of the parts of a block, expanded one after the other."""


def _check_file(file: Any, what: str) -> None:
    kind, format = file.content.name, file.file_format.name
    if kind != "DATA":
        deletes = "deletion vectors" if format == "PUFFIN" else _DELETES.get(kind, "deletes")
        raise InputError(
            f"{what} has {deletes}, which labeldp does not apply: deleted records would be released. Rewrite the data "
            "files without them (rewrite_data_files with delete-file-threshold 1), or export the table to Parquet files"
        )
    if format != "PARQUET":
        raise InputError(f"{what} has data files of the format {format}, and labeldp reads those of Parquet: rewrite")


def _file(table: Any, schema: Any, file: Any, folder: str, what: str) -> TableFile:
    name = name_in_table(local_path(file.file_path), folder, what)
    constants = _defaults(schema, what)
    for place, field in enumerate(table.specs()[file.spec_id].fields):
        column = schema.find_column_name(field.source_id)
        if str(field.transform) == "identity" and column in schema.column_names and "." not in column:
            value = file.partition[place]
            value = value.bytes if isinstance(value, uuid.UUID) else value
            constants[column] = scalar(value, readable_type(_arrow_type(schema, field.source_id)))
    return TableFile(name, file.file_size_in_bytes, tuple(constants.items()))


def _defaults(schema: Any, what: str) -> dict[str, Any]:
    """Values of columns in files that were written before the columns were added, where they are not null."""
    found = {}
    for field in schema.fields:
        if field.initial_default is not None:
            kind = readable_type(_arrow_type(schema, field.field_id))
            if not isinstance(field.initial_default, bool | int | float | str):
                raise InputError(f"{what}: column {field.name!r} has a default that cannot be read: rewrite the table")
            found[field.name] = scalar(field.initial_default, kind)
    return found


def _arrow_type(schema: Any, field_id: int) -> pa.DataType:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    kind: Any = schema_to_pyarrow(schema.find_type(field_id))
    return kind


def _columns(table: Any, schema: Any) -> TableColumns:
    mapping = table.name_mapping()
    names = {} if mapping is None else {field.field_id: tuple(field.names) for field in mapping}
    arrow: pa.Schema = schema.as_arrow()
    plain = plain_schema(arrow)
    return TableColumns(
        tuple(
            TableColumn(
                field.name, readable_type(plain.field(place).type), field.field_id, names.get(field.field_id, ()),
                inner_fields(arrow.field(place).type),
            )
            for place, field in enumerate(schema.fields)
        )
    )  # fmt: skip


def _ordered_by(table: Any, schema: Any, files: list[Any]) -> frozenset[str]:
    """Columns by which the table is partitioned or sorted, by any transform, in any of these files."""
    orders, specs = table.sort_orders(), table.specs()
    sources = {field.source_id for file in files for field in specs[file.spec_id].fields}
    for number in {table.sort_order().order_id, *(file.sort_order_id for file in files)}:
        sources |= {field.source_id for field in orders[number].fields} if number in orders else set()
    return frozenset(name for source in sources if (name := schema.find_column_name(source)) is not None)
