"""Fixtures of the transform tests: a key file, batches, and pipelines on a pinned runner."""

import pickle
import sys
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import write_key


@pytest.fixture(scope="session")
def secret() -> bytes:
    """The 32 bytes in the key file."""
    return bytes(range(100, 132))


@pytest.fixture
def key(tmp_path: Path, secret: bytes) -> Any:
    """A NoiseKeyFile of `secret`, mode 0600."""
    from labeldp.transforms import NoiseKeyFile

    path = write_key(tmp_path / "noise.key", secret)
    return NoiseKeyFile(str(path))


@pytest.fixture(scope="session")
def labelled() -> Callable[..., Any]:
    """(columns by name, source, first row) -> a LabelledBatch of those columns."""
    import pyarrow as pa
    from labeldp.transforms import LabelledBatch

    def make(columns: dict[str, Any], source: str = "/logs/a", start: int = 0) -> LabelledBatch:
        return LabelledBatch.whole(source, start, pa.RecordBatch.from_pydict(columns))

    return make


@pytest.fixture(scope="session")
def recut() -> Callable[..., list[Any]]:
    """(batch, first rows of the second and later pieces, ascending) -> the same records in pieces."""
    from itertools import pairwise

    import numpy as np
    from labeldp.transforms import LabelledBatch

    def cut(batch: LabelledBatch, *bounds: int) -> list[LabelledBatch]:
        edges = [batch.start, *bounds, batch.stop]
        pieces = []
        for start, stop in pairwise(edges):
            low, high = np.searchsorted(batch.rows, [start, stop]).tolist()
            piece = batch.batch.slice(low, high - low)
            pieces.append(LabelledBatch(batch.source, start, stop, batch.rows[low:high], piece))
        return pieces

    return cut


@pytest.fixture(scope="session")
def records_of() -> Callable[[list[Any]], dict[tuple[str, int], dict[str, Any]]]:
    """Batches -> {(source, row): the record's columns}. A record that occurs twice is an error."""

    def collect(batches: list[Any]) -> dict[tuple[str, int], dict[str, Any]]:
        records = {}
        for batch in batches:
            for row, record in zip(batch.rows.tolist(), batch.batch.to_pylist(), strict=True):
                assert (batch.source, row) not in records
                records[batch.source, row] = record
        return records

    return collect


@pytest.fixture(scope="session")
def fuzzed() -> Callable[[str], None]:
    """(name) -> asserts that this target of the formats in tests/fuzz holds for a few inputs of a fixed seed."""
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    # Its modules import each other by name, as those of a script.
    sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))
    from format_targets import format_targets
    from harness import assert_holds

    return lambda name: assert_holds(*format_targets([name]))


Build = Callable[[Any], dict[str, Any]]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Build], dict[str, list[Any]]]:
    """(pipeline -> PCollections by name) -> their elements by name, computed on FnApiRunner."""
    import apache_beam as beam
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    def compute(build: Build) -> dict[str, list[Any]]:
        folder = tmp_path_factory.mktemp("collected")
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            for name, collection in build(pipeline).items():
                (folder / name).mkdir()
                _ = collection | f"Collect {name}" >> beam.Map(_save, str(folder / name))
        return {
            each.name: [pickle.loads(path.read_bytes()) for path in sorted(each.iterdir())]
            for each in sorted(folder.iterdir())
        }

    return compute


def _save(element: Any, folder: str) -> None:
    (Path(folder) / uuid.uuid4().hex).write_bytes(pickle.dumps(element))


@pytest.fixture(scope="session")
def failure(run: Callable[[Build], dict[str, list[Any]]]) -> Callable[[Build], str]:
    """(pipeline -> PCollections by name) -> the error of its run as text, including the traceback."""

    def text_of(build: Build) -> str:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            run(build)
        return "".join(traceback.format_exception(caught.value))

    return text_of
