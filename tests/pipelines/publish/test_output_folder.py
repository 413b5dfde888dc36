"""Output folder: the manifest, fit and apply, staging, publication, and input that changes during a job."""

import hashlib
import json
import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from labeldp.mechanisms.core.budget import BudgetSplit


def manifest_of(output: Path) -> dict[str, Any]:
    """Manifest of an output folder."""
    return json.loads((output / "release.json").read_text())


# The output folder and its manifest.


# Fit and apply.


@pytest.fixture
def fitted(job: Any, after_job: Any, invoke: Any, outputs: Path) -> Path:
    """A mechanism file, fitted on `small_log` with epsilon 1."""
    after_job("fit")
    return outputs / "mechanism.json"


def test_fit_writes_the_mechanism_and_charges_the_histogram(
    fitted: Path, invoke: Any, outputs: Path, entries: Any
) -> None:
    mechanism = json.loads(fitted.read_text())

    assert sorted(path.name for path in outputs.iterdir()) == ["labeldp_ledger.jsonl", "mechanism.json"]
    assert invoke(["audit", str(fitted)]).code == 0
    (entry,) = entries(outputs)
    assert [(charge["what"], charge["epsilon"]) for charge in entry["charges"]] == [
        ("prior", mechanism["prior"]["epsilon"])
    ]
    assert mechanism["prior"]["epsilon"] + mechanism["epsilon"] == pytest.approx(1, rel=1e-12)


def test_apply_to_another_log_costs_the_randomizer_only(
    job: Any, invoke: Any, fitted: Path, outputs: Path, tmp_path: Path, write_csv: Any, entries: Any, spent: Any
) -> None:
    path = write_csv(tmp_path / "other.csv", [f"{i},{i % 3}" for i in range(500)])
    invoke(job("apply", input=path)).ok()

    fit, apply = (entry["charges"] for entry in entries(outputs))
    assert [charge["what"] for charge in apply] == ["prior", "labels"]
    assert apply[:1] == fit
    certified = json.loads(fitted.read_text())["certificate"]["epsilon"]
    assert spent(outputs) == Fraction(fit[0]["epsilon"]) + Fraction(certified)
    assert manifest_of(outputs / "released")["records"] == 500


# The job result.


def test_a_job_result_survives_the_way_through_its_file() -> None:
    from labeldp.pipelines.publish.job_result import JobResult
    from labeldp.transforms import InputError, NoiseBinding

    binding = NoiseBinding(2**256 - 1, "y", domain=(0.1, 0.2), budget=BudgetSplit(0.1, 0.9), records=3, unusable=1)
    result = JobResult(binding, 2**256 - 1, {"part": 3}, frozenset(["ab", None]))
    assert JobResult.from_json(result.to_json()) == result
    result.check_same_input()
    JobResult(binding, digest_applied=None, shards={}).check_same_input()  # fit reads the input once
    with pytest.raises(InputError, match="the input changed"):
        JobResult(binding, digest_applied=0, shards={}).check_same_input()


# Staging and publishing.


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, None])
def test_staging_is_beside_the_target_and_goes_away(outputs: Path, error: type[BaseException] | None) -> None:
    from labeldp.pipelines.publish.output_folder import staging_folder

    def use() -> None:
        with staging_folder(str(outputs / "released")) as place:
            staging = place.work
            assert place.release == f"{staging}/release"
            assert Path(staging).parent == outputs
            assert Path(staging).name.startswith(".released.")
            (Path(staging) / "data").mkdir()
            (Path(staging) / "data" / "part").write_text("part")
            if error is not None:
                raise error

    if error is None:
        use()
    else:
        with pytest.raises(error):
            use()
    assert list(outputs.iterdir()) == []


def test_publishing_never_replaces_anything(outputs: Path) -> None:
    from labeldp.pipelines.publish.output_folder import Staging, publish_folder
    from labeldp.transforms import StageError

    staging = Staging(str(outputs / "staging"), str(outputs / "staging"))
    (outputs / "staging").mkdir()
    (outputs / "staging" / "new").write_text("new")
    (outputs / "released").mkdir()
    (outputs / "released" / "old").write_text("old")
    with pytest.raises(StageError, match="/released failed: Directory not empty"):
        publish_folder(staging, str(outputs / "released"))
    assert [path.name for path in (outputs / "released").iterdir()] == ["old"]

    (outputs / "released" / "old").unlink()
    publish_folder(staging, str(outputs / "released"))
    assert [path.name for path in outputs.iterdir()] == ["released"]
    assert (outputs / "released" / "new").read_text() == "new"


def test_a_remote_folder_is_signed_and_published_in_batches_and_manifests_last(
    outputs: Path, tree: Any, signing_key: Path
) -> None:
    from apache_beam.io.filesystem import FileMetadata
    from apache_beam.io.localfilesystem import LocalFileSystem
    from labeldp.pipelines.publish.output_folder import Staging, publish_folder
    from labeldp.pipelines.publish.signature import sign_release
    from labeldp.pipelines.spec.signing_key import SigningKeyFile

    renamed: list[list[str]] = []

    class BatchesFileSystem(LocalFileSystem):
        """Of the paths batches:///..., like one of a cloud that renames into folders that exist."""

        CHUNK_SIZE = 100

        @classmethod
        def scheme(cls) -> str:  # pyrefly: ignore[bad-override]
            return "batches"

        def _list(self, dir_or_prefix: str) -> Any:
            for found in super()._list(local(dir_or_prefix)):
                yield FileMetadata(f"batches://{found.path}", found.size_in_bytes, found.last_updated_in_seconds)

        def exists(self, path: str) -> bool:
            return os.path.exists(local(path))

        def mkdirs(self, path: str) -> None:
            os.makedirs(local(path))

        def open(self, path: str, *settings: Any, **more: Any) -> Any:
            return super().open(local(path), *settings, **more)

        def create(self, path: str, *settings: Any, **more: Any) -> Any:
            return super().create(local(path), *settings, **more)

        def delete(self, paths: list[str]) -> None:
            super().delete([local(path) for path in paths])

        def rename(self, source_file_names: list[str], destination_file_names: list[str]) -> None:
            renamed.append([local(path) for path in destination_file_names])
            for source, target in zip(source_file_names, destination_file_names, strict=True):
                os.rename(local(source), local(target))

    def local(path: str) -> str:
        return path.removeprefix("batches://")

    data = outputs / "staging" / "labels" / "y" / "data"
    data.mkdir(parents=True)
    for shard in range(250):
        (data / f"part-{shard:05d}").write_text(str(shard))
    for folder in (outputs / "staging", data.parent):
        (folder / "release.json").write_text("a manifest")
    # Left by an earlier attempt.
    (outputs / "staging" / "signature.json").write_text("a signature")
    work, manifests = f"batches://{outputs}/staging", ["labels/y/release.json", "release.json"]
    staging = Staging(work, work)
    shards = [f"labels/y/data/part-{shard:05d}" for shard in range(250)]
    manifests = sign_release(staging, shards, manifests, SigningKeyFile(str(signing_key)).load())
    before = tree(outputs / "staging")
    renamed.clear()
    publish_folder(staging, f"batches://{outputs}/released/", manifests)

    released = tree(outputs / "released")
    assert released == before
    assert [len(batch) for batch in renamed] == [100, 100, 50, 1, 1, 1]
    last = ["labels/y/release.json", "signature.json", "release.json"]
    assert renamed[3:] == [[f"{outputs}/released/{name}"] for name in last]
    signed = json.loads(released.pop("signature.json"))["files"]
    assert {name: file["sha256"] for name, file in signed.items()} == {
        name: hashlib.sha256(content).hexdigest() for name, content in released.items()
    }


# Input that changes between the two passes.


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Function (change) that arranges a call of `change` after labels are counted and before they are privatized."""

    def arrange(change: Callable[[], None]) -> None:
        from labeldp.mechanisms.response.rr_on_bins import RROnBins

        solve = RROnBins.solve

        def solve_and_change(*arguments: Any) -> Any:
            change()
            return solve(*arguments)

        monkeypatch.setattr(RROnBins, "solve", solve_and_change)

    return arrange


ROWS = [f"{i},{i % 5}" for i in range(300)]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(["0,1", *ROWS[1:]], id="a label"),
        pytest.param(["0,0.25", *ROWS[1:]], id="a label that stays nearest to the same"),
        pytest.param([*ROWS[:5], *ROWS[6:]], id="a record less"),
        pytest.param([*ROWS, "300,0"], id="a record more"),
        pytest.param(["1,1", "0,0", *ROWS[2:]], id="the order"),
    ],
)
def test_input_that_changes_while_the_job_runs(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, write_csv: Any, meanwhile: Any, rows: list[str]
) -> None:
    path = write_csv(tmp_path / "in.csv", ROWS)
    meanwhile(lambda: write_csv(path, rows))

    outcome = invoke(job(input=path))

    assert outcome.code == 1
    assert "the input changed while the job ran" in outcome.error
    assert list(outputs.iterdir()) == []


def test_a_file_that_arrives_while_the_job_runs(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, write_csv: Any, meanwhile: Any
) -> None:
    """The runner may or may not have matched the files already: the new file is left out, or the job fails."""
    write_csv(tmp_path / "in" / "a.csv", ROWS)
    meanwhile(lambda: write_csv(tmp_path / "in" / "b.csv", ["300,0"]))

    outcome = invoke(job(input=tmp_path / "in" / "*.csv"))

    if outcome.code == 0:
        assert manifest_of(outputs / "released")["records"] == 300
        assert pq.read_table(outputs / "released" / "data").column("f").to_pylist() == list(range(300))
    else:
        assert outcome.code == 1
        assert "the input changed while the job ran" in outcome.error
        assert list(outputs.iterdir()) == []


def test_a_file_that_vanishes_while_the_job_runs(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, write_csv: Any, meanwhile: Any
) -> None:
    path = write_csv(tmp_path / "in.csv", ROWS)
    meanwhile(path.unlink)

    outcome = invoke(job(input=path))

    assert outcome.code == 1
    assert str(path) in outcome.error
    assert list(outputs.iterdir()) == []


def test_order_does_not_matter_to_records_with_ids(
    job: Any, invoke: Any, outputs: Path, tmp_path: Path, write_csv: Any, meanwhile: Any
) -> None:
    path = write_csv(tmp_path / "in.csv", ROWS)
    meanwhile(lambda: write_csv(path, ROWS[::-1]))

    invoke(job(input=path, id_column="f")).ok()

    reversed_rows = pq.read_table(outputs / "released" / "data").to_pylist()
    (tmp_path / "straight").mkdir()
    invoke(job(input=path, id_column="f", output=tmp_path / "straight" / "released")).ok()
    assert reversed_rows == pq.read_table(tmp_path / "straight" / "released" / "data").to_pylist()
    assert [row["f"] for row in reversed_rows] == list(range(299, -1, -1))
