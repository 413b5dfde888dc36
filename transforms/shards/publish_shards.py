"""Publishing of shards, once both passes over the input are known to have seen the same records."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsSingleton, PCollection

from ..errors import InputError, StageError
from ..io.filesystems import exists, is_empty_folder, make_directory, move_files
from ..shown_transform import ShownTransform
from .shard_writer import ShardFile

MOVED_AT_ONCE = 100
"""Shards of a bundle that are moved together."""


@dataclass
class ReleaseShards(ShownTransform):
    """Moves shards to the release folder, once both passes over the input are known to have seen the same records.

    Takes the PCollection of ShardFile of WriteTFRecords or WriteParquet; gives the shards at their new paths. If the
    input changed, or not all labels were drawn by one mechanism, the job fails and the release folder stays empty. Only
    files wait for the comparison, so memory use does not grow. Object stores cannot rename: there, shards are copied
    within the store. Files hold privatized records: delete them when the job
    has ended, also when it failed.

    Attributes:
      directory: A new or empty folder, on the filesystem of the shards. Any other raises InputError when the pipeline
        is built.
      digest: The digest of `PrivatizedLabels`.
    """

    directory: str
    digest: PCollection[int]

    def expand(self, shards: PCollection[ShardFile]) -> PCollection[ShardFile]:
        require_empty(self.directory)
        digest = AsSingleton(self.digest)
        batches = shards | "Batch" >> beam.BatchElements(MOVED_AT_ONCE, MOVED_AT_ONCE)
        return batches | "Move" >> beam.FlatMap(_move, self.directory, digest).with_output_types(ShardFile)


def require_digest(digest: int) -> None:
    """Checks the digest of `PrivatizedLabels`, a side input, in stages that wait for it.

    Raises StageError if there is none.
    """
    # Beam gives a side input without elements a value of another type.
    if not isinstance(digest, int):
        raise StageError("releasing failed: the input digests of the two passes were never compared")


def _move(shards: list[ShardFile], directory: str, digest: int) -> list[ShardFile]:
    require_digest(digest)
    moved = [dataclasses.replace(shard, path=FileSystems.join(directory, shard.name)) for shard in shards]
    for folder in sorted({FileSystems.split(shard.path)[0] for shard in moved}):
        make_directory(folder)
    moves = []
    for shard, target in zip(shards, moved, strict=True):
        if exists(shard.path):
            moves.append((shard.path, target.path))
        elif not exists(target.path):
            # If it exists, this is a retry of a bundle that has moved the shard.
            raise StageError(f"releasing failed: the shard {shard.path} is missing")
    move_files(moves)
    return moved


def require_empty(folder: str) -> None:
    """Checks that a release folder is new or empty, because shards of two releases in one folder look like one release.

    Raises InputError if it is a file or holds anything.
    """
    if not is_empty_folder(folder):
        raise InputError(f"{folder} exists and is not an empty folder: name another, or delete it")
