"""End-to-end jobs: only labels change, and they are drawn from the certified distribution."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.false_alarms import chi_square_bounds, count_bounds

"""How often a correct job fails a test of frequencies: the key is fixed, but paths, which name records, are not."""

CENSUS_RECORDS = 254_654
CENSUS_SHARDS = 4
CENSUS_TYPES = dict.fromkeys(("morekids", "gender1", "gender2", "afam", "hispanic", "other"), bytes) | {"age": int}
CENSUS_FLAGS = {
    "label": "work",
    "label_min": 0,
    "label_max": 52,
    "label_step": 1,
    "epsilon": 1,
    "num_shards": CENSUS_SHARDS,
}

Columns = dict[str, np.ndarray]


def in_shards(files: dict[str, Columns], shards: int) -> list[Columns]:
    """Expected contents of each shard: the rows of every file in order, files in the order of their paths."""
    from labeldp.transforms.shards.shard_ranges import SourceRows, divide_rows

    rows = {path: len(next(iter(columns.values()))) for path, columns in files.items()}
    ranges = divide_rows([SourceRows(path, number, number) for path, number in rows.items()], shards)
    parts: list[list[Columns]] = [[] for _ in range(shards)]
    for path, columns in sorted(files.items()):
        for shard, start, end in ranges.of_file(path, 0).parts(np.arange(rows[path])):
            parts[shard].append({name: values[start:end] for name, values in columns.items()})
    return [{name: np.concatenate([part[name] for part in each]) for name in each[0]} for each in parts]


@dataclass(frozen=True)
class CensusRun:
    """A finished job. went_in, came_out: the columns of each shard's records."""

    outcome: Any
    output: Path
    went_in: list[Columns]
    came_out: list[Columns]

    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        """Input labels and output labels of all records."""
        return (
            np.concatenate([shard["work"] for shard in self.went_in]),
            np.concatenate([shard["work"] for shard in self.came_out]),
        )


@pytest.fixture(scope="session")
def census_columns(census: Path, read_csv: Callable[[Path], dict[str, list[str]]]) -> Columns:
    """Columns of the census: text features (bytes), age (int64) and work (float64)."""
    columns = read_csv(census)
    types: dict[str, Any] = CENSUS_TYPES | {"work": float}
    return {name: np.array(values, "S" if types[name] is bytes else types[name]) for name, values in columns.items()}


@pytest.fixture(scope="session")
def tfrecord_run(
    census: Path, census_columns: Columns, key_file: Path, invoke: Any, command: Any, shard_paths: Any,
    read_examples: Any, tmp_path_factory: pytest.TempPathFactory,
) -> CensusRun:  # fmt: skip
    """Job from CSV to TFRecord."""
    output = tmp_path_factory.mktemp("census") / "released"
    flags = {"input": census, "input_format": "csv", "output_format": "tfrecord"}
    outcome = invoke(command("privatize", CENSUS_FLAGS | flags | {"output": output, "noise_key_file": key_file})).ok()
    came_out = [read_examples(path, CENSUS_TYPES | {"work": float}) for path in shard_paths(output)]
    return CensusRun(outcome, output, in_shards({str(census): census_columns}, CENSUS_SHARDS), came_out)


@pytest.fixture(scope="session")
def parquet_run(
    census_columns: Columns, key_file: Path, invoke: Any, command: Any, shard_paths: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> CensusRun:  # fmt: skip
    """Job from two Parquet files with an integer label to Parquet."""
    folder = tmp_path_factory.mktemp("census_parquet")
    (folder / "in").mkdir()
    files = {}
    for name, rows in {"one": slice(0, 150_000), "two": slice(150_000, None)}.items():
        path = folder / "in" / f"{name}.parquet"
        columns = files[str(path)] = {column: values[rows] for column, values in census_columns.items()}
        typed = {c: pa.array(v.astype(str)) if v.dtype.kind == "S" else pa.array(v) for c, v in columns.items()}
        pq.write_table(pa.table(typed | {"work": pa.array(columns["work"].astype(np.int64))}), path)
    output = folder / "released"
    flags = {
        "input": f"{folder}/in/*.parquet",
        "input_format": "parquet",
        "output": output,
        "output_format": "parquet",
        "noise_key_file": key_file,
    }
    outcome = invoke(command("privatize", CENSUS_FLAGS | flags)).ok()
    came_out = []
    for path in shard_paths(output):
        table = pq.read_table(path)
        assert table.schema.field("work").type == pa.float64()
        arrays = {name: table.column(name).to_numpy() for name in table.schema.names}
        came_out.append({n: v.astype(bytes) if v.dtype.kind == "O" else v for n, v in arrays.items()})
    return CensusRun(outcome, output, in_shards(files, CENSUS_SHARDS), came_out)


@pytest.fixture(params=["tfrecord", "parquet"])
def census_run(request: pytest.FixtureRequest) -> CensusRun:
    """The same log in either format."""
    return request.getfixturevalue(f"{request.param}_run")


@pytest.mark.xdist_group("census")
class TestCensus:
    """254,654 records of the US census of 1980 at epsilon 1."""

    def test_every_record_comes_out_once_in_four_shards(self, census_run: CensusRun) -> None:
        sizes = [len(shard["work"]) for shard in census_run.came_out]

        assert len(sizes) == CENSUS_SHARDS
        assert sum(sizes) == CENSUS_RECORDS
        assert max(sizes) <= 2 * min(sizes) + 1  # each shard has rows of one file, of which there are up to three

    def test_features_go_through_unchanged(self, census_run: CensusRun) -> None:
        for went_in, came_out in zip(census_run.went_in, census_run.came_out, strict=True):
            assert set(came_out) == set(went_in)
            for name in CENSUS_TYPES:
                np.testing.assert_array_equal(came_out[name], went_in[name], err_msg=name)

    def test_labels_are_outputs_of_the_mechanism(
        self, tfrecord_run: CensusRun, parquet_run: CensusRun, mechanism_of: Any
    ) -> None:
        for run, kind in ((tfrecord_run, np.float32), (parquet_run, np.float64)):
            _, outputs, _ = mechanism_of(run.output)
            _, came_out = run.labels()

            assert came_out.dtype == kind
            assert set(came_out) == set(outputs.astype(kind))

    def test_frequencies_are_those_of_the_certificate(self, census_run: CensusRun, mechanism_of: Any) -> None:
        labels, outputs, probabilities = mechanism_of(census_run.output)
        went_in, came_out = census_run.labels()
        alphabet = outputs.astype(came_out.dtype)
        observed = np.zeros(probabilities.shape)
        np.add.at(observed, (np.searchsorted(labels, went_in), np.searchsorted(alphabet, came_out)), 1)
        expected = observed.sum(axis=1, keepdims=True) * probabilities

        assert expected.min() >= 10  # needed for the chi-square approximation
        statistic = ((observed - expected) ** 2 / expected).sum()
        freedom = len(labels) * (len(outputs) - 1)
        low, high = chi_square_bounds(freedom)
        assert low < statistic < high

    def test_audits_pass(self, census_run: CensusRun, invoke: Any) -> None:
        for path in (census_run.output, census_run.output / "mechanism.json"):
            audit = invoke(["audit", str(path)]).ok()
            assert audit.out.splitlines()[-1] == "PASS"

    def test_the_manifest_tells_what_was_released(self, census_run: CensusRun, shard_paths: Any) -> None:
        manifest = json.loads((census_run.output / "release.json").read_text())

        assert manifest["epsilon"] == 1
        assert manifest["records"] == CENSUS_RECORDS
        assert manifest["records_without_label"] == 0
        assert manifest["label"] == "work"
        assert manifest["domain"] == {"min": 0, "max": 52, "labels": 53}
        sizes = [len(shard["work"]) for shard in census_run.came_out]
        assert manifest["shards"] == {
            path.name: size for path, size in zip(shard_paths(census_run.output), sizes, strict=True)
        }


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
def released(release: Any) -> Path:
    """TFRecord release."""
    return release()


@pytest.fixture(scope="session")
def released_parquet(release: Any) -> Path:
    """The same release as Parquet."""
    return release(output_format="parquet")


@pytest.fixture(scope="session")
def on_two_workers(release: Any, forked: Any) -> Path:
    """The same release as `released`, from two worker threads of another process."""
    return release(lambda argv: forked(argv).wait(), direct_num_workers=2)


@pytest.fixture(scope="session")
def records_of(shard_paths: Any) -> Callable[[Path], list[list[Any]]]:
    """Function (output folder of TFRecords) -> per shard, each record as its sorted features."""
    tensorflow: Any = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

    def features(record: bytes) -> Any:
        found = tensorflow.train.Example.FromString(record).features.feature
        return tuple(sorted((name, value.SerializeToString()) for name, value in found.items()))

    def read(output: Path) -> list[list[Any]]:
        shards = [tensorflow.data.TFRecordDataset(str(path)) for path in shard_paths(output)]
        return [[features(record) for record in shard.as_numpy_iterator()] for shard in shards]

    return read


def shard_bytes(output: Path) -> dict[str, bytes]:
    """Bytes of every shard, by name."""
    return {path.name: path.read_bytes() for path in (output / "data").iterdir()}


@pytest.mark.xdist_group("determinism")
class TestDeterminism:
    """The same input and key give the same release, however it is computed; any other input or key does not."""

    def test_shards_hold_the_log(self, released: Path, records_of: Any) -> None:
        shards = records_of(released)

        assert len(shards) == 3
        assert sum(map(len, shards)) == 4000
        assert len({record for shard in shards for record in shard}) > 2000

    def test_on_two_workers_the_same_bytes(self, released: Path, on_two_workers: Path) -> None:
        assert shard_bytes(on_two_workers) == shard_bytes(released)

    def test_a_large_parquet_file_read_in_parts_the_same_bytes(
        self, release: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from labeldp.transforms.readers import file_reader, parquet_reader

        numbers = np.arange(60_000)
        path = tmp_path / "log.parquet"
        pq.write_table(pa.table({"f": numbers, "y": numbers % 21 / 2}), path, row_group_size=6000)
        parts: list[int] = []
        split = file_reader.split_parquet

        def watched(file: Any) -> Any:
            for part in split(file):
                parts.append(part.parts)
                yield part

        monkeypatch.setattr(file_reader, "split_parquet", watched)
        flags = {"input": path, "input_format": "parquet", "output_format": "parquet"}
        whole = release(**flags)
        assert set(parts) == {1}
        monkeypatch.setattr(parquet_reader, "_PART_VALUES", 1)
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

    def test_another_number_of_shards_holds_the_same_records(
        self, released_parquet: Path, release: Any, shard_paths: Any
    ) -> None:
        more = release(output_format="parquet", num_shards=5)

        assert len(shard_paths(more)) == 5
        assert all(pq.read_metadata(path).num_rows for path in shard_paths(more))
        assert parquet_records(more) == parquet_records(released_parquet)

    def test_another_key_gives_other_labels(
        self, released_parquet: Path, release: Any, other_key_file: Path, log: Path
    ) -> None:
        other = release(output_format="parquet", noise_key_file=other_key_file)

        assert (other / "mechanism.json").read_bytes() != (released_parquet / "mechanism.json").read_bytes()
        digests = [json.loads((run / "release.json").read_text())["input_digest"] for run in (released_parquet, other)]
        assert digests[0] != digests[1]
        assert parquet_records(other) != parquet_records(released_parquet)

    @pytest.mark.parametrize("suffix", ["tfrecord.gz", "parquet"])
    def test_gzip_changes_the_container_only(
        self, released: Path, released_parquet: Path, release: Any, records_of: Any, shard_paths: Any, suffix: str
    ) -> None:
        format = suffix.partition(".")[0]
        zipped = release(output_format=format, compression="gzip")

        assert all(path.name.endswith(f".{suffix}") for path in shard_paths(zipped))
        if format == "parquet":
            assert parquet_records(zipped) == parquet_records(released_parquet)
            column = pq.ParquetFile(shard_paths(zipped)[0]).metadata.row_group(0).column(0)
            assert column.compression == "GZIP"
        else:
            tensorflow: Any = pytest.importorskip("tensorflow")
            for path, shard in zip(shard_paths(zipped), records_of(released), strict=True):
                assert len(list(tensorflow.data.TFRecordDataset(str(path), "GZIP"))) == len(shard)


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
