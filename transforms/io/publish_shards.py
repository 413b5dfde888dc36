"""What keeps shards back until both passes over the input are known to have seen the same, and whole folders."""

from __future__ import annotations

import os
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsSingleton, PCollection

from ..errors import InputError, StageError
from .filesystems import is_remote, make_directory
from .shard_writer import ShardFile


@dataclass
class ReleaseShards(beam.PTransform):
    """Moves shards to where they are released, once both passes over the input are known to have seen the same.

    Takes the PCollection of ShardFile of WriteTFRecords or WriteParquet; gives them at their new place. If the input
    changed, the job fails and the new place stays empty. Only files wait, so memory stays flat; what waits are
    privatized records all the same, to be deleted when the job has ended, however it ended.

    directory: a new or empty folder, on the filesystem of the shards. digest: that of `PrivatizedLabels`.
    """

    directory: str
    digest: PCollection[int]

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, shards: PCollection[ShardFile]) -> PCollection[ShardFile]:
        """Raises InputError when the folder is not empty."""
        require_empty(self.directory)
        digest = AsSingleton(self.digest)
        return shards | "Move" >> beam.Map(_move, self.directory, digest).with_output_types(ShardFile)


def require_digest(digest: int) -> None:
    """For stages that wait for the digest of `PrivatizedLabels`. Raises StageError when there is none."""
    # Beam gives a side input of no elements a value, too.
    if not isinstance(digest, int):
        raise StageError("releasing failed: nobody compared what the two passes over the input saw")


def _move(shard: ShardFile, directory: str, digest: int) -> ShardFile:
    require_digest(digest)
    moved = ShardFile(FileSystems.join(directory, FileSystems.split(shard.path)[1]), shard.records)
    make_directory(directory)
    if FileSystems.exists(shard.path):
        FileSystems.rename([shard.path], [moved.path])
    elif not FileSystems.exists(moved.path):
        # Else this is a retry of a bundle that had moved it.
        raise StageError(f"releasing failed: {shard.path} is gone")
    return moved


def require_empty(folder: str) -> None:
    """Raises InputError unless the folder is new or empty: shards of two releases side by side look like one."""
    if is_remote(folder):
        empty = not FileSystems.match([FileSystems.join(folder, "**")], [1])[0].metadata_list
    else:
        # Beam would take brackets in the name for a pattern.
        empty = not os.path.lexists(folder) or (os.path.isdir(folder) and not os.listdir(folder))
    if not empty:
        raise InputError(f"{folder} exists and is not an empty folder: name another, or delete it")
