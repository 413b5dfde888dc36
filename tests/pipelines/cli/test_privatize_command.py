"""End-to-end jobs: one input and key give one release, others independent ones."""

import json
from collections import Counter
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


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory, write_csv: Any) -> Path:
    """Two CSV files, 4,000 records of integers, floats and text with missing values; the label y is 0, 0.5, ..., 10."""
    folder = tmp_path_factory.mktemp("two_files")
    for name, rows in {"a": 2500, "b": 1500}.items():
        lines = [
            f"{i},{'' if i % 7 == 0 else i / 8},{'' if i % 5 == 0 else f'text {i % 3}'},{i % 21 / 2}"
            for i in range(rows)
        ]
        write_csv(folder / f"{name}.csv", lines, "i,x,t,y")
    return folder


@pytest.fixture(scope="session")
def flags(log: Path, key_file: Path) -> Callable[..., dict[str, Any]]:
    """Function (flag=value, ...) -> the flags of a job over `log` under the tests' key."""

    def complete(**others: Any) -> dict[str, Any]:
        return {
            "input": log / "*.csv",
            "input_format": "csv",
            "label": "y",
            "label_min": 0,
            "label_max": 10,
            "label_step": 0.5,
            "epsilon": 2,
            "output_format": "tfrecord",
            "num_shards": 3,
            "noise_key_file": key_file,
        } | others

    return complete


@pytest.fixture(scope="session")
def release(flags: Any, invoke: Any, command: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Function (runner=invoke, flag=value, ...) -> the output folder of that job."""

    def run(runner: Any = invoke, **others: Any) -> Path:
        output = tmp_path_factory.mktemp("release") / "released"
        runner(command("privatize", flags(output=output, **others))).ok()
        return output

    return run


@pytest.fixture(scope="session")
def released_parquet(release: Any) -> Path:
    """The same release as Parquet."""
    return release(output_format="parquet")


def shard_bytes(output: Path) -> dict[str, bytes]:
    """Bytes of every shard, by name."""
    return {path.name: path.read_bytes() for path in (output / "data").iterdir()}


@pytest.mark.xdist_group("determinism")
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
        flags = {"input": path, "input_format": "parquet", "output_format": "parquet"}
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
            "input": f"{tmp_path}/log/*", "input_format": "csv", "output_format": "parquet", "num_shards": 1,
            "direct_num_workers": 2,
        }  # fmt: skip
        from labeldp.transforms.shards import shard_writer

        segments: list[str] = []
        create = shard_writer.create
        monkeypatch.setattr(shard_writer, "create", lambda path: segments.append(path) or create(path))
        together, few = release(**flags), len(segments)
        monkeypatch.setattr("labeldp.pipelines.spec.release._RUNS", 200)
        one_by_one, many = release(**flags), len(segments) - few

        assert shard_bytes(together) == shard_bytes(one_by_one)
        # 200 files are read in 67 runs of neighbors, of which a bundle writes at most one segment each.
        assert 1 < few <= 67 < many <= 200

    def test_another_key_gives_other_labels(
        self, released_parquet: Path, release: Any, other_key_file: Path, log: Path
    ) -> None:
        other = release(output_format="parquet", noise_key_file=other_key_file)

        assert (other / "mechanism.json").read_bytes() != (released_parquet / "mechanism.json").read_bytes()
        digests = [json.loads((run / "release.json").read_text())["input_digest"] for run in (released_parquet, other)]
        assert digests[0] != digests[1]
        assert parquet_records(other) != parquet_records(released_parquet)


def parquet_records(output: Path) -> Counter[Any]:
    """Number of occurrences of each record in an output folder of Parquet."""
    tables = [pq.read_table(path) for path in sorted((output / "data").iterdir())]
    return Counter(tuple(record.items()) for table in tables for record in table.to_pylist())


RR_RECORDS = 20_000
RR_LABELS = 4


@pytest.fixture(scope="session")
def two_versions(
    tmp_path_factory: pytest.TempPathFactory, write_csv: Any, key_file: Path, invoke: Any, command: Any
) -> list[Path]:
    """Outputs of a log, of the log with one label changed, and of the first log again."""
    folder = tmp_path_factory.mktemp("one_label")
    path = folder / "in" / "log.csv"
    labels = np.random.default_rng(5).integers(0, RR_LABELS, RR_RECORDS)
    changed = labels.copy()
    changed[12_345] = (changed[12_345] + 1) % RR_LABELS
    outputs = []
    for number, version in enumerate((labels, changed, labels)):
        write_csv(path, [f"{i},{y}" for i, y in enumerate(version)])
        outputs.append(folder / "out" / f"{number}")
        flags = {
            "input": path,
            "input_format": "csv",
            "label": "y",
            "label_min": 0,
            "label_max": RR_LABELS - 1,
            "label_step": 1,
            "epsilon": 3,
            "mechanism": "rr",
            "output": outputs[-1],
            "output_format": "parquet",
            "noise_key_file": key_file,
        }
        invoke(command("privatize", flags)).ok()
    return outputs


@pytest.mark.xdist_group("one_label")
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

    monkeypatch.setattr(progress_log, "_RECORDS_BETWEEN_LINES", 1_000)
    for name in "abcd":
        write_csv(tmp_path / f"{name}.csv", [f"{row},{row % 5}" for row in range(600)], "f,y")
    for output in ("once", "again"):
        outcome = invoke(job(input=tmp_path / "?.csv", output=tmp_path / output, direct_num_workers=2)).ok()
        for doing in ("counted", "privatized"):
            lines = [line for line in outcome.err.splitlines() if f" {doing} " in line]
            assert lines == [f"labeldp: {doing} {records} records" for records in ("1,000", "2,000")]
