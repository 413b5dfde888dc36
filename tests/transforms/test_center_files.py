"""Centers in temporary files: the last pass finds those that the pass before it computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from labeldp.mechanisms.release.label_column import LabelColumn
from labeldp.transforms.batches import LabelledBatch
from labeldp.transforms.center import center_files
from labeldp.transforms.center.center_files import CenterFiles, CenterRows
from labeldp.transforms.errors import InputError, StageError

COLUMN = LabelColumn("y", tuple(float(each) for each in range(11)), center="c")
ROWS = 1000


def batch(source: str, start: int, stop: int, centers: bool = True) -> LabelledBatch:
    """Records of some rows, all but every seventh, with the centers of `expected`."""
    rows = np.array([row for row in range(start, stop) if row % 7], np.int64)
    columns = {"y": pa.array(np.zeros(len(rows)))}
    if centers:
        columns["c"] = pa.array(expected(source, rows))
    return LabelledBatch(source, start, stop, rows, pa.RecordBatch.from_pydict(columns))


def expected(source: str, rows: np.ndarray) -> np.ndarray:
    return (rows * 31 + len(source)) % 11.0


def written(folder: Path, *bundles: list[LabelledBatch], column: LabelColumn = COLUMN) -> list[CenterRows]:
    stage, parts = center_files._Write(str(folder), column, True), []
    for bundle in bundles:
        stage.start_bundle()
        for each in bundle:
            parts += stage.process(each)
        parts += [element.value for element in stage.finish_bundle()]
    return parts


def read(parts: list[CenterRows], batch: LabelledBatch, column: LabelColumn = COLUMN) -> Any:
    stage: Any = center_files._Append(column)
    stage.setup()
    (found,) = stage.process(batch, CenterFiles.of(parts))
    return found.column("c").to_numpy()


def cut(source: str, size: int) -> list[LabelledBatch]:
    return [batch(source, start, min(start + size, ROWS)) for start in range(0, ROWS, size)]


@pytest.mark.parametrize("size", [1000, 300, 77])
@pytest.mark.parametrize("most", [1 << 20, 150])
@pytest.mark.parametrize("labels", [11, 70_000])
def test_centers_are_found_by_source_and_row(tmp_path: Path, monkeypatch: Any, size: int, most: int, labels: int):
    """Tests batches of other rows than those that were written, in bundles of several sources."""
    monkeypatch.setattr(center_files, "MOST_ROWS", most)
    column = LabelColumn("y", tuple(float(each) for each in range(labels)), center="c")
    bundles = [cut("/logs/a", 100), cut("/logs/bb", 64)[:5] + cut("/logs/ccc", 100), cut("/logs/bb", 64)[5:]]
    parts = written(tmp_path, *bundles, column=column)
    assert len({part.path for part in parts}) >= 3
    for source in ("/logs/a", "/logs/bb", "/logs/ccc"):
        for each in cut(source, size):
            records = batch(source, each.start, each.stop, centers=False)
            np.testing.assert_array_equal(read(parts[::-1], records, column), expected(source, each.rows))


def test_a_repeated_bundle_changes_nothing(tmp_path: Path) -> None:
    bundle = cut("/logs/a", 100)
    parts = written(tmp_path, bundle, bundle[3:])
    for each in cut("/logs/a", 77):
        records = batch("/logs/a", each.start, each.stop, centers=False)
        np.testing.assert_array_equal(read(parts, records), expected("/logs/a", each.rows))


def test_a_batch_without_records_is_read(tmp_path: Path) -> None:
    assert written(tmp_path, []) == []
    assert len(read([], batch("/logs/a", 0, 1, centers=False))) == 0


@pytest.mark.parametrize(("source", "stop"), [("/logs/a", ROWS + 2), ("/logs/b", ROWS)])
def test_records_that_were_not_there_before_end_the_job(tmp_path: Path, source: str, stop: int) -> None:
    parts = written(tmp_path, cut("/logs/a", 100))
    with pytest.raises(InputError, match="the input changed while the job ran"):
        read(parts, batch(source, 900, stop, centers=False))


def test_a_truncated_file_ends_the_job(tmp_path: Path) -> None:
    parts = written(tmp_path, cut("/logs/a", 100))
    path = Path(parts[0].path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StageError, match="truncated; is the disk full"):
        read(parts, batch("/logs/a", 0, ROWS, centers=False))
    path.unlink()
    with pytest.raises(StageError, match=f"reading {path} failed: No such file"):
        read(parts, batch("/logs/a", 0, ROWS, centers=False))


def test_a_column_of_the_name_of_the_center_is_refused(tmp_path: Path) -> None:
    parts = written(tmp_path, cut("/logs/a", 100))
    with pytest.raises(InputError, match="there is a column 'c' already"):
        read(parts, batch("/logs/a", 0, ROWS))
