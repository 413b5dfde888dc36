"""Shards are released only after the digest; a folder is released, refused or deleted as a whole."""

import apache_beam as beam
import pytest
from labeldp.transforms import InputError, ReleaseShards, ShardFile, StageError
from labeldp.transforms.io.filesystems import delete_folder
from labeldp.transforms.shards.publish_shards import _move, require_empty


def test_no_shard_is_released_without_a_digest(failure, tmp_path):
    """This holds for any order in which a runner executes the stages."""
    (tmp_path / "shard").touch()

    def build(pipeline):
        digest = pipeline | "No digest" >> beam.Create([])
        shards = pipeline | "Shards" >> beam.Create([ShardFile(str(tmp_path / "shard"), 7)])
        return {"out": shards | ReleaseShards(str(tmp_path / "out"), digest)}

    assert "the input digests of the two passes were never compared" in failure(build)
    assert (tmp_path / "shard").exists()
    assert not (tmp_path / "out").exists()


def test_a_retry_finds_the_shard_moved_already(tmp_path):
    shard = ShardFile(str(tmp_path / "shard"), 7)
    (tmp_path / "shard").write_text("records")
    once, again = (_move([shard], str(tmp_path / "out"), 0) for _ in range(2))
    assert once == again == [ShardFile(str(tmp_path / "out" / "shard"), 7)]
    assert (tmp_path / "out" / "shard").read_text() == "records"
    (tmp_path / "out" / "shard").unlink()
    with pytest.raises(StageError, match="is missing"):
        _move([shard], str(tmp_path / "out"), 0)


def test_a_retry_moves_what_is_left_of_a_batch(tmp_path):
    shards = [ShardFile(str(tmp_path / name), 7) for name in ("a", "b", "c")]
    for shard in shards:
        (tmp_path / shard.name).write_text(shard.name)
    _move([shards[1]], str(tmp_path / "out"), 0)
    moved = _move(shards, str(tmp_path / "out"), 0)
    assert [shard.path for shard in moved] == [str(tmp_path / "out" / name) for name in ("a", "b", "c")]
    assert [(tmp_path / "out" / name).read_text() for name in ("a", "b", "c")] == ["a", "b", "c"]


def test_shards_stay_in_the_folders_of_their_partitions(tmp_path):
    (tmp_path / "k=1").mkdir()
    (tmp_path / "k=1" / "shard").write_text("records")
    (moved,) = _move([ShardFile(str(tmp_path / "k=1" / "shard"), 7, folder="k=1")], str(tmp_path / "out"), 0)
    assert (moved.path, moved.name) == (str(tmp_path / "out" / "k=1" / "shard"), "k=1/shard")
    assert (tmp_path / "out" / "k=1" / "shard").read_text() == "records"


def test_a_folder_that_is_not_empty_is_refused_before_the_job_runs(tmp_path):
    folder = tmp_path / "out[1]"
    pipeline = beam.Pipeline()
    shards, digest = pipeline | "Shards" >> beam.Create([]), pipeline | "Digest" >> beam.Create([1])
    require_empty(str(folder))
    folder.mkdir()
    require_empty(str(folder))
    (folder / "part-00000-of-00002.parquet").touch()
    with pytest.raises(InputError, match=r"out\[1\] exists and is not an empty folder"):
        _ = shards | ReleaseShards(str(folder), digest)
    with pytest.raises(InputError, match="not an empty folder"):
        require_empty(str(folder / "part-00000-of-00002.parquet"))


def test_a_folder_is_deleted_with_all_that_is_in_it(tmp_path):
    (tmp_path / "temp[1]" / "shards").mkdir(parents=True)
    (tmp_path / "temp[1]" / "segment").touch()
    for _ in range(2):
        delete_folder(str(tmp_path / "temp[1]"))
        assert list(tmp_path.iterdir()) == []
