"""Store of finished evaluation cells: one file for each cell, written atomically, on any filesystem."""

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
class CellStore:
    """Output folder of an evaluation, a path or URL. Cached cells found there are reused."""

    folder: str

    def write(self, name: str, content: str | bytes) -> None:
        """Writes a file under a temporary name, then renames it; text is encoded as UTF-8."""
        path = FileSystems.join(self.folder, name)
        parent = FileSystems.split(path)[0]
        if not FileSystems.exists(parent):
            _make_folder(parent)
        partial = f"{path}.{uuid.uuid4().hex}"
        with FileSystems.create(partial, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            file.write(content.encode() if isinstance(content, str) else content)
        FileSystems.rename([partial], [path])

    def add(self, key: str, cell: Cell, score: Score, seconds: float) -> None:
        """Stores a finished cell with its key, by `cell_key`, and the seconds that it took."""
        document = {"cell": asdict(cell), "score": asdict(score), "seconds": round(seconds, 3)}
        self.write(FileSystems.join(_CELLS, f"{key}.json"), json.dumps(document) + "\n")

    def finished(self, keys: Iterable[str]) -> set[str]:
        """Selects those of the keys that are in the store."""
        pattern = FileSystems.join(self.folder, _CELLS, "*.json")
        found = FileSystems.match([pattern])[0].metadata_list
        names = {FileSystems.split(each.path)[1].removesuffix(".json") for each in found}
        return names & set(keys)

    def score(self, key: str) -> Score:
        """Reads the score of a finished cell. Raises InputError, which names the file, if it is corrupt."""
        path = FileSystems.join(self.folder, _CELLS, f"{key}.json")
        try:
            return Score(**json.loads(read_text(path))["score"])
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{path} is corrupt: delete it and run again to recompute the cell") from None


def _make_folder(folder: str) -> None:
    try:
        FileSystems.mkdirs(folder)
    except Exception:
        # Another worker may have made the folder in the meantime.
        if not FileSystems.exists(folder):
            raise
