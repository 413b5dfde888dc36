"""End-to-end jobs: one input and key give one release, others independent ones."""

import json
from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.false_alarms import count_bounds


@pytest.fixture
def release(job: Any, invoke: Any, tmp_path: Path) -> Callable[..., Path]:
    """Function (flag=value, ...) -> the output folder of that job, whose label is in 0, 0.5, ..., 10."""
    grid = {"label_max": 10, "label_step": 0.5, "epsilon": 2, "num_shards": 3}

    def run(**flags: Any) -> Path:
        output = tmp_path / f"released {len(list(tmp_path.glob('released *')))}"
        invoke(job(**{**grid, **flags, "output": output})).ok()
        return output

    return run


def shard_bytes(output: Path) -> dict[str, bytes]:
    """Bytes of every shard, by name."""
    return {path.name: path.read_bytes() for path in (output / "data").iterdir()}


class TestDeterminism:
    """The same input and key give the same release, however it is computed; any other input or key does not."""

    def test_a_large_parquet_file_read_in_parts_the_same_bytes(
        self, release: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from labeldp.pipelines.spec import input_spec
        from labeldp.transforms import Format, Limits
        from labeldp.transforms.readers import file_reader

        numbers = np.arange(60_000)
        path = tmp_path / "log.parquet"
        pq.write_table(pa.table({"f": numbers, "y": numbers % 21 / 2}), path, row_group_size=6000)
        parts: list[int] = []
        split = file_reader.split_parquet

        def watched(*arguments: Any) -> Any:
            for part in split(*arguments):
                parts.append(part.parts)
                yield part

        monkeypatch.setattr(file_reader, "split_parquet", watched)
        flags = {"input": path, "input_format": "parquet"}
        whole = release(**flags)
        assert set(parts) == {1}
        monkeypatch.setattr(input_spec, "Format", partial(Format, limits=Limits(part_values=1)))
        in_parts = release(**flags)
        assert set(parts) == {1, 4}
        in_parts_by_threads = release(**flags, direct_num_workers=3)

        assert shard_bytes(in_parts) == shard_bytes(in_parts_by_threads) == shard_bytes(whole)
        assert sum(pq.read_metadata(path).num_rows for path in (whole / "data").iterdir()) == 60_000

    def test_many_small_files_read_together_the_same_bytes(
        self, release: Any, tmp_path: Path, write_csv: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(200):
            write_csv(tmp_path / "log" / f"part-{number:03d}.csv", [f"{number},{number % 21 / 2}", f"{number},1"])
        flags = {
            "input": f"{tmp_path}/log/*", "num_shards": 1, "direct_num_workers": 2,
        }  # fmt: skip
        from labeldp.transforms.shards import shard_writer

        segments: list[str] = []
        create = shard_writer.create
        monkeypatch.setattr(shard_writer, "create", lambda path: segments.append(path) or create(path))
        together, few = release(**flags), len(segments)
        monkeypatch.setattr("labeldp.pipelines.spec.release.RUNS", 200)
        one_by_one, many = release(**flags), len(segments) - few

        assert shard_bytes(together) == shard_bytes(one_by_one)
        # 200 files are read in 67 runs of neighbors, of which a bundle writes at most one segment each.
        assert 1 < few <= 67 < many <= 200


RR_RECORDS = 20_000
RR_LABELS = 4


@pytest.fixture(scope="module")
def two_versions(
    tmp_path_factory: pytest.TempPathFactory, write_csv: Any, key_file: Path, invoke: Any, command: Any
) -> list[Path]:
    """Outputs of a log, of the log with one label changed, and of the first log again."""
    folder, labels = tmp_path_factory.mktemp("one_label"), np.random.default_rng(5).integers(0, RR_LABELS, RR_RECORDS)
    flags = {
        "input": folder / "in" / "log.csv", "input_format": "csv", "label": "y", "label_min": 0,
        "label_max": RR_LABELS - 1, "label_step": 1, "epsilon": 3, "mechanism": "rr", "noise_key_file": key_file,
    }  # fmt: skip
    outputs = [folder / "out" / f"{number}" for number in range(3)]
    for output, change in zip(outputs, (0, 1, 0), strict=True):
        rows = enumerate((labels + change * (np.arange(RR_RECORDS) == 12_345)) % RR_LABELS)
        write_csv(folder / "in" / "log.csv", [f"{row},{label}" for row, label in rows])
        invoke(command("privatize", flags | {"output": output})).ok()
    return outputs


class TestOneLabelChanged:
    """Two versions of a log that differ in one label must not share noise, which would reveal the changed label."""

    @staticmethod
    def labels(output: Path) -> np.ndarray:
        table = pq.read_table(output / "data" / "part-00000-of-00001.parquet")
        assert table.column("f").to_pylist() == list(range(RR_RECORDS))
        return table.column("y").to_numpy()

    def test_outputs_agree_as_often_as_independent_draws(self, two_versions: list[Path], mechanism_of: Any) -> None:
        _, _, p = mechanism_of(two_versions[0])
        _, _, q = mechanism_of(two_versions[1])
        agreeing = (p * q).sum(axis=1)  # by label: probability that two independent draws are equal
        np.testing.assert_allclose(agreeing, agreeing[0], rtol=1e-9)  # the same for all labels: the count is binomial
        low, high = count_bounds(RR_RECORDS, agreeing[0])

        assert high < 0.9 * RR_RECORDS  # the bound would detect shared noise
        assert low <= (self.labels(two_versions[0]) == self.labels(two_versions[1])).sum() <= high

    def test_the_histograms_have_independent_noise(self, two_versions: list[Path]) -> None:
        one, two = (json.loads((run / "mechanism.json").read_text())["prior"]["weights"] for run in two_versions[:2])

        # If neither count changed, equal noise would give an equal ratio of the two weights.
        for i, j in combinations(range(RR_LABELS), 2):
            assert one[i] / one[j] != pytest.approx(two[i] / two[j], rel=1e-9)

    def test_the_log_as_it_was_gives_the_same_release(self, two_versions: list[Path]) -> None:
        assert shard_bytes(two_versions[2]) == shard_bytes(two_versions[0])

    def test_both_versions_are_charged_and_each_once(self, two_versions: list[Path], spent: Any) -> None:
        ledger = two_versions[0].parent / "labeldp_ledger.jsonl"
        entries = [json.loads(line) for line in ledger.read_text().splitlines()]
        releases = [{charge["release"] for charge in entry["charges"]} for entry in entries]

        assert [len(names) for names in releases] == [2, 2, 2]  # one charge for the histogram, one for the labels
        assert not releases[0] & releases[1]
        assert releases[2] == releases[0]
        costs = [sum(charge["epsilon"] for charge in entry["charges"]) for entry in entries]
        assert spent(two_versions[0].parent) == pytest.approx(costs[0] + costs[1], rel=1e-12)
        assert costs[0] == pytest.approx(3, rel=1e-9)
        assert max(costs) <= 3


def test_workers_of_a_process_log_what_they_did_together(
    job: Any, invoke: Any, write_csv: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If each counted by itself, both would log 1,000, and no line would say that 2,000 are done."""
    from labeldp.transforms import progress_log

    monkeypatch.setattr(progress_log, "RECORDS_BETWEEN_LINES", 1_000)
    for name in "abcd":
        write_csv(tmp_path / f"{name}.csv", [f"{row},{row % 5}" for row in range(600)], "f,y")
    for output in ("once", "again"):
        outcome = invoke(job(input=tmp_path / "?.csv", output=tmp_path / output, direct_num_workers=2)).ok()
        for doing in ("counted", "privatized"):
            lines = [line for line in outcome.err.splitlines() if f" {doing} " in line]
            assert lines == [f"labeldp: {doing} {records} records" for records in ("1,000", "2,000")]
