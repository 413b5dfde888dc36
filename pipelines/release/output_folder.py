"""Output folder: staged beside its target, and moved there when it is complete."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from ...transforms.errors import named_file
from ...transforms.io.filesystems import delete_folder, is_remote
from .manifest import MANIFEST_NAME
from .staging_locks import locked_staging, remove_leftovers

DATA_NAME = "data"
DEAD_LETTERS_NAME = "dead_letters.jsonl"
_DELETIONS = 3


@contextlib.contextmanager
def staging_folder(target: str) -> Iterator[str]:
    """Creates a hidden folder beside the target, and deletes what is left of it when the block ends.

    Staging folders that killed runs with this target have left behind are removed first.

    Args:
      target: Path of the output.

    Yields:
      Path of the staging folder.

    Raises:
      StageError: If it cannot be created.
    """
    remove_leftovers(target)
    with contextlib.ExitStack() as until_the_end:
        with named_file("creating a folder beside", target):
            staging = until_the_end.enter_context(locked_staging(target))
        try:
            yield staging
        finally:
            # Repeated, because a runner that was interrupted may still be writing.
            for _ in range(_DELETIONS):
                with contextlib.suppress(BeamIOError, OSError):
                    delete_folder(staging)


def publish_folder(staging: str, output: str) -> None:
    """Moves a complete staging folder to its target; on a local disk in one atomic step.

    Args:
      staging: The staging folder.
      output: The target, which is new or an empty folder.

    Raises:
      StageError: If a local target is not empty, or the operating system refuses for another reason.
    """
    if is_remote(output):
        found = FileSystems.match([FileSystems.join(staging, "**")])[0].metadata_list
        moves = [(entry.path, output.rstrip("/") + entry.path[len(staging.rstrip("/")) :]) for entry in found]
        # The manifest is moved last: a folder without one is not a release.
        moves.sort(key=lambda move: move[1].endswith(MANIFEST_NAME))
        for source, destination in moves:
            FileSystems.rename([source], [destination])
        return
    # Replaces an empty folder and fails at anything else.
    with named_file("publishing", output):
        os.rename(staging, output)


def publish_file(staging: str, name: str, target: str) -> None:
    """Moves one file of a staging folder to its target.

    Args:
      staging: The staging folder.
      name: Name of the file in it.
      target: Path of the target.

    Raises:
      StageError: If the operating system refuses.
    """
    with named_file("publishing", target):
        FileSystems.rename([FileSystems.join(staging, name)], [target])
