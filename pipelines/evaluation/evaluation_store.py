"""The finished cells of an evaluation: a file each, on any filesystem, written whole or not at all."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from ...transforms.errors import InputError
from ...transforms.io.filesystems import read_text
from .evaluation_cell import Cell, Score

_CELLS = "cells"


@dataclass(frozen=True)
class Store:
    """The output folder of an evaluation. A cell that is there is never computed again."""

    folder: str

    def put(self, name: str, content: str | bytes) -> None:
        """Writes a file of the folder, under another name first."""
        path = FileSystems.join(self.folder, name)
        parent = FileSystems.split(path)[0]
        if not FileSystems.exists(parent):
            _make(parent)
        partial = f"{path}.{uuid.uuid4().hex}"
        with FileSystems.create(partial, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            file.write(content.encode() if isinstance(content, str) else content)
        FileSystems.rename([partial], [path])

    def add(self, key: str, cell: Cell, score: Score, seconds: float) -> None:
        """Keeps a finished cell."""
        document = {"cell": asdict(cell), "score": asdict(score), "seconds": round(seconds, 3)}
        self.put(FileSystems.join(_CELLS, f"{key}.json"), json.dumps(document) + "\n")

    def finished(self, keys: Iterable[str]) -> set[str]:
        """Which of the cells are there."""
        pattern = FileSystems.join(self.folder, _CELLS, "*.json")
        found = FileSystems.match([pattern])[0].metadata_list
        names = {FileSystems.split(each.path)[1].removesuffix(".json") for each in found}
        return names & set(keys)

    def score(self, key: str) -> Score:
        """A finished cell's score. Raises InputError, naming the file, when it is damaged."""
        path = FileSystems.join(self.folder, _CELLS, f"{key}.json")
        try:
            return Score(**json.loads(read_text(path))["score"])
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{path} is damaged: delete it, and the cell is computed again") from None


def _make(folder: str) -> None:
    try:
        FileSystems.mkdirs(folder)
    except Exception:
        # Another worker was faster.
        if not FileSystems.exists(folder):
            raise
