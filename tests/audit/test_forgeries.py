"""Forged releases, in which a party hides something beside the records that readers see: the audit refuses each."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labeldp.audit import parquet_bytes
from labeldp.audit.audit_release import audit_path
from labeldp.pipelines.cli.commands import main
from labeldp.transforms.shards import shard_formats

from tests.audit.written_files import write_document, write_shard

RECORDS = 3000
FORMS: dict[str, dict[str, Any]] = {
    "parquet": {},
    "gzip": {"compression": "gzip"},
    "records": {"output_format": "tfrecord", "compression": "gzip"},
    "labels": {"label": "y,z"},
    "partitions": {"partition_output": "part", "input": "part=*/log.parquet"},
}


@pytest.fixture(scope="module")
def released(tmp_path_factory: Any, invoke: Any, command: Any, key_file: Path) -> dict[str, Path]:
    """Releases by name of their form. Most labels are 0, and one column is a list, one a category."""
    pytest.importorskip("google_crc32c", reason="the extra tfrecord is not installed")
    folder, place = tmp_path_factory.mktemp("forged"), np.arange(RECORDS)
    labels = np.where(place * 7919 % 10 < 8, 0, place % 5)
    # With ids, draws are the same in every run: a test says which forgery is found.
    columns = {"i": place, "f": place / 4, "l": [[float(each % 3)] * (each % 2 + 1) for each in place.tolist()],
               "k": [("red", "blue")[each] for each in place % 2], "y": labels, "z": place % 5}  # fmt: skip
    table = pa.table(columns)
    (folder / "part=A").mkdir()
    pq.write_table(table, folder / "part=A" / "log.parquet")
    flags = {
        "input": "log.parquet", "input_format": "parquet", "label": "y", "label_min": 0, "label_max": 4,
        "label_step": 1, "epsilon": 1, "mechanism": "rr", "center": "none", "noise_key_file": key_file,
        "num_shards": 2, "id_column": "i",
    }  # fmt: skip
    pq.write_table(table, folder / "log.parquet")
    for name, more in FORMS.items():
        asked = {**flags, **more, "output": folder / name}
        invoke(command("privatize", asked | {"input": folder / asked["input"]})).ok()
    return {name: folder / name for name in FORMS}


def shard(folder: Path) -> Path:
    return min(path for path in (folder / "data").rglob("*") if path.is_file())


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


@pytest.mark.parametrize("form", FORMS)
def test_releases_pass(released: dict[str, Path], form: str) -> None:
    audit = audit_path(str(released[form]), data=True)
    assert audit.problems == ()
    lines = "\n".join([*audit.data_lines, *(line for _, part in audit.parts for line in part.data_lines)])
    assert ("every byte of the Parquet shards" in lines) == (form != "records")


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
    "encodings": rewritten(column_encoding={"y": "BYTE_STREAM_SPLIT"}, use_dictionary=["k"]),
    "library": in_footer(b"parquet-cpp-arrow version", b"parquet-cpp-arroW version"),
    "another column": with_table(lambda table: table.append_column("Y ", table["f"])),
    "another type": with_table(lambda table: table.set_column(1, "f", table["f"].cast(pa.float32()))),
    "another name": with_table(lambda table: table.rename_columns(["i", "F", *table.column_names[2:]])),
    "another order": with_table(lambda table: table.select(table.column_names[::-1])),
}


@pytest.mark.parametrize("forgery", PARQUET)
def test_forged_shards(released: dict[str, Path], tmp_path: Path, forgery: str) -> None:
    folder = shutil.copytree(released["parquet"], tmp_path / "forged")
    PARQUET[forgery](folder)
    (problem,) = audit_path(str(folder), data=True).problems
    assert problem.startswith(f"data/{shard(folder).name} ")


def test_row_groups_end_early_where_records_are_large_and_only_there(
    released: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(released["parquet"], tmp_path / "forged")
    with monkeypatch.context() as patch:
        patch.setattr(shard_formats, "GROUP_BYTES", 1 << 12)
        for path in (folder / "data").iterdir():
            write_shard(pq.read_table(path), path)
    for size in (1 << 12, 1 << 13, 1 << 11):
        monkeypatch.setattr(parquet_bytes, "_GROUP_BYTES", size)
        problems = audit_path(str(folder), data=True).problems
        assert any("row groups that end" in problem for problem in problems) == bool(problems) == (size != 1 << 12)


@pytest.mark.parametrize("forgery", sorted(PARQUET.keys() - {"pages", "dictionaries"}))
def test_forged_shards_of_another_version(
    released: dict[str, Path], tmp_path: Path, forgery: str, monkeypatch: Any
) -> None:
    """Without the bytes, members, tiles, row groups, statistics and encodings are compared still."""
    monkeypatch.setattr(pa, "__version__", "1.2.3")
    folder = shutil.copytree(released["parquet"], tmp_path / "forged")
    assert any("audit with pyarrow" in line for line in audit_path(str(folder), data=True).data_lines)
    PARQUET[forgery](folder)
    assert audit_path(str(folder), data=True).problems


def text_of(name: str, change: Callable[[str], str]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        text = (folder / name).read_text()
        assert change(text) != text
        (folder / name).write_text(change(text))

    return forge


def member_of(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    return lambda folder: write_document(folder / name, change(json.loads((folder / name).read_text())))


def with_file(name: str) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(BITS)

    return forge


BITS = "0110100110010110" * 4
DOCUMENTS: dict[str, Callable[[Path], None]] = {
    "a member": member_of("release.json", lambda document: document | {"note": "1"}),
    "a member below": member_of("release.json", lambda it: it | {"domain": it["domain"] | {"note": 1}}),
    "a member of the mechanism": member_of("mechanism.json", lambda document: document | {"note": [1]}),
    "a member of the prior": member_of("mechanism.json", lambda it: it | {"prior": it["prior"] | {"note": 1}}),
    "a space": text_of("release.json", lambda text: text.replace(": ", ":  ", 1)),
    "a line": text_of("mechanism.json", lambda text: text + "\n"),
    "a number": text_of("release.json", lambda text: text.replace('"epsilon": 1.0', '"epsilon": 1.00')),
    "an integer": text_of("release.json", lambda text: text.replace('"epsilon": 1.0', '"epsilon": 1')),
    "an escape": text_of("release.json", lambda text: text.replace('"label": "y"', '"label": "\\u0079"')),
    "a key twice": text_of("release.json", lambda text: text.replace('"label": "y"', '"label": "y", "label": "y"')),
    "an order": text_of("release.json", lambda text: json.dumps(dict([*json.loads(text).items()][::-1]), indent=2)),
    "no output": member_of("release.json", lambda it: {key: it[key] for key in it if key != "output"}),
    "row groups": member_of("release.json", lambda it: it | {"output": it["output"] | {"row_group": 700}}),
    "compression": member_of("release.json", lambda it: it | {"output": it["output"] | {"compression": "gzip"}}),
    "an identity": member_of("release.json", lambda it: it | {"identity": BITS}),
    "a loss": member_of("release.json", lambda it: it | {"loss": BITS}),
    "an expected loss": member_of(
        "release.json", lambda it: it | {"expected_loss": it["expected_loss"] | {"absolute": 1e300}}
    ),
    "a version": member_of("release.json", lambda it: it | {"versions": it["versions"] | {"numpy": BITS}}),
    "a bill": member_of("release.json", lambda it: it | {"versions": it["versions"] | {"sbom": BITS}}),
    "a validation": text_of(
        "release.json", lambda text: text.replace('  "output"', f'  "validation": "{BITS}",\n  "output"')
    ),
    "a gap": member_of("mechanism.json", lambda it: it | {"gap": 1.5}),
    **{
        f"the file {name}": with_file(name)
        for name in (
            "truth.csv",
            ".truth",
            "data/.truth",
            "data/.d/x",
            "labels/y",
            "validation/x",
            "signature.json/x",
            "center.json",
        )
    },
    "a folder": lambda folder: (folder / BITS).mkdir(),
    "a hidden folder of the shards": lambda folder: (folder / "data" / f".{BITS}").mkdir(),
    "a link": lambda folder: (folder / "link").symlink_to("release.json"),
}


@pytest.mark.parametrize("forgery", DOCUMENTS)
def test_forged_documents(released: dict[str, Path], tmp_path: Path, forgery: str) -> None:
    folder = shutil.copytree(released["parquet"], tmp_path / "forged")
    DOCUMENTS[forgery](folder)
    assert audit_path(str(folder), data=True).problems


@pytest.mark.parametrize("change", [lambda it: it + gzip.compress(b""), lambda it: it[:4] + b"true" + it[8:]])
def test_forged_gzip(released: dict[str, Path], tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    """An empty stream after the records, and a time in the header."""
    folder = shutil.copytree(released["records"], tmp_path / "forged")
    shard(folder).write_bytes(change(shard(folder).read_bytes()))
    (problem,) = audit_path(str(folder), data=True).problems
    assert "gzip" in problem


def test_an_invented_version_of_pyarrow_is_not_compared(
    released: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(released["parquet"], tmp_path / "forged")
    version = f"version {pa.__version__} ".encode().strip()
    for path in (folder / "data").iterdir():
        content = path.read_bytes()
        assert version in content
        path.write_bytes(content.replace(version, b"version 9" + version[9:]))
    assert main(["audit", str(folder), "--data"]) == 3
    verdict = capsys.readouterr().out.splitlines()[-1]
    assert verdict.startswith("NOT COMPARED: bytes within pages of Parquet shards: audit with pyarrow 9")


def test_true_labels_of_a_part_of_the_records(released: dict[str, Path], tmp_path: Path) -> None:
    """Of the true labels 84 % are 0, of any draws 40 % at most; the noise of the histogram hides both."""
    folder = shutil.copytree(released["parquet"], tmp_path / "forged")
    table = pq.read_table(shard(folder))
    true = pa.array(np.where(np.arange(600) * 7919 % 10 < 8, 0, np.arange(600) % 5).astype(float))
    column = pa.concat_arrays([true, table["y"].combine_chunks()[600:]])
    place = table.schema.get_field_index("y")
    write_shard(table.set_column(place, "y", column), shard(folder))
    (problem,) = audit_path(str(folder), data=True).problems
    assert problem.startswith("the labels of a part of the records were not drawn from the channel")
