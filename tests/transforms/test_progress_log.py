"""Progress log: a function of the number of records only, not of their contents."""

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.transforms import Format, Limits
from labeldp.transforms import progress_log as progress
from labeldp.transforms.io.input_format import FilePart
from labeldp.transforms.progress_log import Progress
from labeldp.transforms.readers.file_reader import FileReader


class Lines(logging.Handler):
    """Collects the logged lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture(scope="module")
def logged() -> Iterator[list[str]]:
    """The logged lines; tests may clear the list."""
    handler, level = Lines(), progress.LOGGER.level
    progress.LOGGER.addHandler(handler)
    progress.LOGGER.setLevel(logging.INFO)
    yield handler.lines
    progress.LOGGER.removeHandler(handler)
    progress.LOGGER.setLevel(level)


def test_a_line_for_every_million_records(logged):
    logged.clear()
    counted = Progress("counted")
    for _ in range(150):
        counted.add(1 << 14)
    assert logged == ["counted 1,000,000 records", "counted 2,000,000 records"]


@settings(deadline=None)
@given(st.lists(st.integers(0, 5_000), max_size=20), st.lists(st.floats(0, 1), max_size=20))
def test_lines_do_not_tell_how_records_were_cut_into_batches(logged, batches, cuts):
    total = sum(batches)
    places = [0, *sorted(round(cut * total) for cut in cuts), total]
    for sizes in (batches, np.diff(places).tolist()):
        logged.clear()
        counted = Progress("counted")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(progress, "RECORDS_BETWEEN_LINES", 1_000)
            for size in sizes:
                counted.add(size)
        assert logged == [f"counted {n:,} records" for n in range(1_000, total + 1, 1_000)]


def test_lines_are_the_same_whatever_the_width_of_labels(tmp_path: Path, monkeypatch, logged):
    """CSV files are read in blocks of bytes, so one more digit may move a record to the next block."""
    monkeypatch.setattr(progress, "RECORDS_BETWEEN_LINES", 100)
    seen, sizes = [], []
    for label in ("7", "52", "1234567"):
        path = tmp_path / f"{label}.csv"
        path.write_text("f,y\n" + f"1,{label}\n" * 2_050)
        logged.clear()
        counted = Progress("counted")
        reader = FileReader(Format("csv", limits=Limits(block_bytes=512)), label_column="y")
        batches = [batch.batch.num_rows for batch in reader.read(FilePart(str(path), str(path)))]
        for size in batches:
            counted.add(size)
        seen.append(list(logged))
        sizes.append(batches)
    assert sizes == [[2_050]] * 3
    assert seen == [[f"counted {n:,} records" for n in range(100, 2_001, 100)]] * 3
