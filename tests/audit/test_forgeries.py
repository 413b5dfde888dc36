"""Forged releases, in which a party hides something beside the records that readers see: the audit refuses each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.audit import parquet_bytes
from labeldp.audit.audit_release import audit_path
from labeldp.pipelines.cli.commands import main
from labeldp.transforms import Limits

from tests.audit.written_files import shards, write_shard


def shard(folder: Path) -> Path:
    return shards(folder)[0]


def test_a_column_of_nearly_the_name_of_the_label_is_refused_before_the_job(
    tmp_path: Path, invoke: Any, command: Any, write_csv: Any, key_file: Path
) -> None:
    flags = {"input_format": "csv", "label": "y", "label_min": 0, "label_max": 1, "label_step": 1, "epsilon": 1}
    for name in ("Y", "y "):
        log = write_csv(tmp_path / "log.csv", ["0,1"] * 9, f"{name},y")
        more = {"input": log, "output": tmp_path / "out", "noise_key_file": key_file}
        outcome = invoke(command("privatize", flags | more))
        assert outcome.code == 2
        assert "drop or rename it" in outcome.err


def rewritten(**options: Any) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        path = shard(folder)
        pq.write_table(pq.read_table(path), path, compression="none", **options)

    return forge


def with_table(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    return lambda folder: write_shard(change(pq.read_table(shard(folder))), shard(folder))


def with_metadata(folder: Path) -> None:
    table = pq.read_table(shard(folder))
    pq.write_table(table.replace_schema_metadata({"n": "1"}), shard(folder), compression="none")


def with_field_metadata(folder: Path) -> None:
    table = pq.read_table(shard(folder))
    fields = [field.with_metadata({"n": "1"}) for field in table.schema]
    pq.write_table(table.cast(pa.schema(fields)), shard(folder), compression="none")


def with_bytes(folder: Path) -> None:
    """Four bytes between the last page and the footer."""
    content = shard(folder).read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    shard(folder).write_bytes(content[:start] + b"true" + content[start:])


def in_footer(before: bytes, after: bytes) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        content = shard(folder).read_bytes()
        assert before in content
        shard(folder).write_bytes(content.replace(before, after))

    return forge


def in_values(folder: Path) -> None:
    """Lengths of definition levels, which readers skip: a run of 3,000 levels that is cut in two."""
    pq.write_table(
        pq.read_table(shard(folder)), shard(folder), compression="none", data_page_size=64, write_statistics=True
    )


PARQUET: dict[str, Callable[[Path], None]] = {
    "metadata": with_metadata,
    "metadata of a field": with_field_metadata,
    "bytes before the footer": with_bytes,
    "row groups": rewritten(row_group_size=700),
    "pages": in_values,
    "dictionaries": rewritten(use_dictionary=False),
    "page indexes": rewritten(write_page_index=True),
    "checksums of pages": rewritten(write_page_checksum=True),
    "no statistics": rewritten(write_statistics=False),
    "sorting columns": rewritten(sorting_columns=[pq.SortingColumn(0)]),
    "pages of version 2": rewritten(data_page_version="2.0"),
    "encodings": rewritten(column_encoding={"days": "BYTE_STREAM_SPLIT"}, use_dictionary=["k"]),
    "library": in_footer(b"parquet-cpp-arrow version", b"parquet-cpp-arroW version"),
    "another column": with_table(lambda table: table.append_column("Y ", table["f"])),
    "another type": with_table(lambda table: table.set_column(1, "f", table["f"].cast(pa.float32()))),
    "another name": with_table(lambda table: table.rename_columns(["id", "F", *table.column_names[2:]])),
    "another order": with_table(lambda table: table.select(table.column_names[::-1])),
}


@pytest.mark.parametrize("forgery", PARQUET)
def test_forged_shards(copied: Any, forgery: str) -> None:
    folder = copied("days to parquet")
    PARQUET[forgery](folder)
    (problem,) = audit_path(str(folder), data=True).problems
    assert problem.startswith(f"data/{shard(folder).name} ")


def test_row_groups_end_early_where_records_are_large_and_only_there(
    copied: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied("days to parquet")
    for path in (folder / "data").iterdir():
        write_shard(pq.read_table(path), path, limits=Limits(group_bytes=1 << 12))
    for size in (1 << 12, 1 << 13, 1 << 11):
        monkeypatch.setattr(parquet_bytes, "GROUP_BYTES", size)
        problems = audit_path(str(folder), data=True).problems
        assert any("row groups that end" in problem for problem in problems) == bool(problems) == (size != 1 << 12)


@pytest.mark.parametrize("forgery", sorted(PARQUET.keys() - {"pages", "dictionaries"}))
def test_forged_shards_of_another_version(copied: Any, forgery: str, monkeypatch: Any) -> None:
    """Without the bytes, members, tiles, row groups, statistics and encodings are compared still."""
    monkeypatch.setattr(pa, "__version__", "1.2.3")
    folder = copied("days to parquet")
    assert any("audit with pyarrow" in line for line in audit_path(str(folder), data=True).data_lines)
    PARQUET[forgery](folder)
    assert audit_path(str(folder), data=True).problems


def test_an_invented_version_of_pyarrow_is_not_compared(copied: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copied("days to parquet")
    version = f"version {pa.__version__} ".encode().strip()
    for path in (folder / "data").iterdir():
        content = path.read_bytes()
        assert version in content
        path.write_bytes(content.replace(version, b"version 9" + version[9:]))
    assert main(["audit", str(folder), "--data"]) == 3
    verdict = capsys.readouterr().out.splitlines()[-1]
    assert verdict.startswith("NOT COMPARED: bytes within pages of Parquet shards: audit with pyarrow 9")
