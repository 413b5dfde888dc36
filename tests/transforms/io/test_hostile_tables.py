"""Tables whose metadata others wrote: what leaves the table, names code or deletes records is refused."""

import copy
import json
import random
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.transforms import InputError

FIRST = pa.table({"x": [1.0, 2.0, 3.0], "y": [1, 2, 3], "m": ["a", "a", "b c"]})


def log_of(folder: str) -> Path:
    return Path(folder, "_delta_log", "00000000000000000000.json")


def rewritten(folder: str, change: Callable[[dict[str, Any]], None]) -> str:
    """The Delta table with every action of its first commit changed."""
    actions = [json.loads(line) for line in log_of(folder).read_text().splitlines()]
    for action in actions:
        change(action)
    log_of(folder).write_text("\n".join(map(json.dumps, actions)))
    return f"delta://{folder}"


def with_feature(name: str) -> Callable[[dict[str, Any]], None]:
    def change(action: dict[str, Any]) -> None:
        if "protocol" in action:
            action["protocol"] = {
                "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [name], "writerFeatures": [name],
            }  # fmt: skip

    return change


def test_deletion_vectors_of_a_delta_table_are_refused(delta, snapshot, records):
    def change(action: dict[str, Any]) -> None:
        with_feature("deletionVectors")(action)
        if "add" in action:
            action["add"]["deletionVector"] = {
                "storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 1, "sizeInBytes": 36,
                "cardinality": 1,
            }  # fmt: skip

    folder = delta(FIRST)
    plain = rewritten(folder, with_feature("deletionVectors"))
    assert records(snapshot(plain)) == FIRST.to_pylist()
    with pytest.raises(InputError, match=r"events .*has deletion vectors"):
        snapshot(rewritten(folder, change))


def test_features_of_delta_tables_that_change_files_are_refused(delta, snapshot, records):
    def mapped(action: dict[str, Any]) -> None:
        if "metaData" in action:
            action["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}

    def of_version_2(action: dict[str, Any]) -> None:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}

    folder = delta(FIRST)
    assert records(snapshot(rewritten(folder, of_version_2))) == FIRST.to_pylist()
    with pytest.raises(InputError, match=r"typeWidening|cannot be read"):
        snapshot(rewritten(folder, with_feature("typeWidening")))
    with pytest.raises(InputError, match="column mapping"):
        snapshot(rewritten(folder, mapped))


@pytest.mark.parametrize(
    "path", ["../secret.parquet", "a/../../secret.parquet", "%2E%2E/secret.parquet", "/secret.parquet", "./a.parquet",
             "a//b.parquet", "s3://bucket/secret.parquet", "file:///secret.parquet"]
)  # fmt: skip
def test_paths_that_leave_a_delta_table_are_refused(delta, path, snapshot):
    def change(action: dict[str, Any]) -> None:
        if "add" in action:
            action["add"]["path"] = path

    with pytest.raises(InputError, match=r"delta://.*(does not lie below the table's folder|cannot be read)"):
        snapshot(rewritten(delta(FIRST), change))


def test_two_columns_of_a_delta_file_in_other_capitals_are_no_column_of_nulls(delta, snapshot, records):
    found = snapshot(f"delta://{delta(FIRST)}")
    (part,) = found.parts()
    pq.write_table(FIRST.rename_columns(["X", "y", "m"]), part.path)
    with pytest.raises(InputError, match="'X' has other capitals than 'x'"):
        records(found)


@pytest.mark.parametrize("name", ["s3.endpoint", "py-io-impl", "client.region"])
def test_an_iceberg_table_must_not_say_where_credentials_go(iceberg, name, snapshot):
    table = iceberg.create_table("n.t", FIRST.schema)
    table.append(FIRST)
    path = Path(table.metadata_location.removeprefix("file://"))
    document = json.loads(path.read_text())
    # pyiceberg imports the class that py-io-impl names, and calls it.
    path.write_text(json.dumps({**document, "properties": {name: "os.system"}}))
    with pytest.raises(InputError, match=f"sets the property {name}, which only a catalog may"):
        snapshot("iceberg://cat/n.t")


def test_files_outside_of_an_iceberg_table_are_refused(iceberg, tmp_path, snapshot):
    table = iceberg.create_table("n.t", FIRST.schema)
    path = tmp_path / "elsewhere.parquet"
    pq.write_table(FIRST, path)
    table.add_files([f"file://{path}"])
    with pytest.raises(InputError, match=r"n\.t names the file .*elsewhere.parquet, which does not lie below"):
        snapshot("iceberg://cat/n.t")


def test_a_data_file_that_is_there_twice_is_refused(iceberg, tmp_path, snapshot):
    table = iceberg.create_table("n.t", FIRST.schema)
    table.append(FIRST)
    (part,) = snapshot("iceberg://cat/n.t").parts()
    plain = tmp_path / "warehouse" / "n" / "t" / "data" / "other.parquet"
    shutil.copy(part.path, plain)
    pq.write_table(FIRST, plain)
    table.add_files([f"file://{plain}"])
    table.add_files([f"file://{plain}"], check_duplicate_files=False)
    with pytest.raises(InputError, match=r"names the data file data/other.parquet twice"):
        snapshot("iceberg://cat/n.t")


@pytest.mark.parametrize(
    ("content", "format", "named"),
    [("POSITION_DELETES", "PARQUET", "position deletes"), ("EQUALITY_DELETES", "PARQUET", "equality deletes"),
     ("POSITION_DELETES", "PUFFIN", "deletion vectors"), ("DATA", "ORC", "format ORC")],
)  # fmt: skip
def test_deletes_and_other_formats_of_iceberg_are_refused(iceberg, monkeypatch, content, format, named, snapshot):
    """pyiceberg writes none of them, so the entries of its manifests are changed as they are read."""
    from pyiceberg import manifest

    iceberg.create_table("n.t", FIRST.schema).append(FIRST)
    real = manifest.ManifestFile.fetch_manifest_entry

    def fetch(self: Any, io: Any, discard_deleted: bool = True) -> Any:
        entries = real(self, io, discard_deleted)
        for entry in entries:
            entry.data_file._data[0] = manifest.DataFileContent[content]
            entry.data_file._data[2] = manifest.FileFormat[format]
        return entries

    monkeypatch.setattr(manifest.ManifestFile, "fetch_manifest_entry", fetch)
    with pytest.raises(InputError, match=rf"iceberg://cat/n\.t .*{named}"):
        snapshot("iceberg://cat/n.t")


def test_damaged_logs_of_a_delta_table_are_errors_or_the_same_records(delta, snapshot, records):
    folder, draws = delta(FIRST), random.Random(1)
    whole, wanted = log_of(folder).read_bytes(), FIRST.to_pylist()
    words = [b"null", b"-1", b"1e400", b'"../x"', b"{}", b"[]", b"9" * 40, b"\xff", b'"']
    for _ in range(150):
        content = bytearray(whole)
        place = draws.randrange(len(content))
        content[place : place + draws.randint(0, 20)] = draws.choice(words)
        log_of(folder).write_bytes(content)
        try:
            found = records(snapshot(f"delta://{folder}"))
        except InputError:
            continue
        assert len(found) in (0, len(wanted))


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values of a JSON document."""
    if not isinstance(document, dict | list):
        return
    inner = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in inner:
        yield (*path, key)
        yield from places(value, (*path, key))


def test_changed_metadata_of_an_iceberg_table_is_an_error_or_the_same_records(iceberg, snapshot, records):
    table, draws = iceberg.create_table("n.t", FIRST.schema), random.Random(1)
    table.append(FIRST)
    path = Path(table.metadata_location.removeprefix("file://"))
    whole = json.loads(path.read_text())
    values = [None, -1, 1 << 63, "", "../../x", "/etc/passwd", "s3://bucket/x", [], {}, True, 1.5, "file:///x", "\0"]
    for place in draws.choices(list(places(whole)), k=150):
        document = owner = copy.deepcopy(whole)
        for key in place[:-1]:
            owner = owner[key]
        owner[place[-1]] = draws.choice(values)
        path.write_text(json.dumps(document))
        try:
            found = records(snapshot("iceberg://cat/n.t"))
        except InputError:
            continue
        assert len(found) == FIRST.num_rows


def test_a_data_file_that_is_a_link_out_of_the_table_is_refused(delta, tmp_path, snapshot):
    (part,) = snapshot(f"delta://{delta(FIRST)}").parts()
    shutil.move(part.path, tmp_path / "elsewhere.parquet")
    Path(part.path).symlink_to(tmp_path / "elsewhere.parquet")
    with pytest.raises(InputError, match=f"{part.path}, which is a link out of the table's folder"):
        snapshot(f"delta://{tmp_path}/events")


def test_a_manifest_that_expands_to_more_is_refused(iceberg, monkeypatch, snapshot):
    table = iceberg.create_table("n.t", FIRST.schema)
    table.append(FIRST)
    from labeldp.transforms.readers import iceberg_table

    assert snapshot("iceberg://cat/n.t").files
    (manifest,) = table.current_snapshot().manifests(table.io)
    block = zlib.compress(bytes(10 * manifest.manifest_length))[2:-4]
    path = Path(manifest.manifest_path.removeprefix("file://"))
    content = path.read_bytes()
    sync = content[-16:]
    head = content[: content.index(sync) + 16]
    monkeypatch.setattr(iceberg_table, "LARGEST_METADATA", len(content) + 1000)
    path.write_bytes(head + b"\x02" + _zigzag(len(block)) + block + sync)
    with pytest.raises(InputError, match=r"n\.t: .*\.avro has more than .* when expanded"):
        snapshot("iceberg://cat/n.t")


def test_a_log_of_a_delta_table_that_expands_to_more_is_refused(delta, monkeypatch, snapshot):
    from deltalake import DeltaTable
    from labeldp.transforms.readers import delta_table

    folder = delta(FIRST)
    DeltaTable(folder).create_checkpoint()
    monkeypatch.setattr(delta_table, "LARGEST_METADATA", 1 << 16)
    assert snapshot(f"delta://{folder}").files
    path = log_of(folder).with_suffix(".checkpoint.parquet")
    table = pq.read_table(path)
    row = table.slice(table["add"].is_valid().index(True).as_py(), 1)
    names = [field.name for field in row["add"].type]
    values = [pa.array(["x" * 1000]) if name == "stats" else row["add"].combine_chunks().field(name) for name in names]
    added = row.set_column(0, "add", pa.StructArray.from_arrays(values, names)).select(["add"])
    pq.write_table(pa.concat_tables([added] * 100), path)
    assert path.stat().st_size < 1 << 16
    with pytest.raises(InputError, match=r"events: .*\.checkpoint\.parquet has more than .* when expanded"):
        snapshot(f"delta://{folder}")
    path.unlink()
    (log_of(folder).parent / "_last_checkpoint").unlink()
    assert snapshot(f"delta://{folder}").files
    with log_of(folder).open("a") as log:
        log.write(f'\n{{"commitInfo": {{"note": "{"x" * (1 << 16)}"}}}}')
    with pytest.raises(InputError, match=r"events: .*0\.json has more than .* when expanded"):
        snapshot(f"delta://{folder}")


def _zigzag(number: int) -> bytes:
    found, number = bytearray(), 2 * number
    while number >= 128:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
