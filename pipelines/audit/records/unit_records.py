"""Audit of the number of records of each unit in a release."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from .shard_columns import Column


class UnitRecords:
    """Records of each unit, over all shards. Units are compared by hashes of 64 bits."""

    def __init__(self, most: int):
        """Starts without records; `most` is the largest number of records of a unit that the release states."""
        self._most = most
        self._units: list[np.ndarray] = []
        self._without = 0

    def add(self, units: Column) -> None:
        """Adds the units of a batch of records; a code below 0 is that of a record without one."""
        hashes = [hashlib.blake2b(str(value).encode(errors="surrogateescape"), digest_size=8) for value in units.values]
        known = np.frombuffer(b"".join(each.digest() for each in hashes), np.uint64)
        self._units.append(known[units.codes[units.codes >= 0]])
        self._without += int((units.codes < 0).sum())

    def problems(self) -> Iterator[str]:
        """Compares the numbers of records with the bound: one line for each failed check. No unit is named."""
        _, records = self._counts()
        over = int((records > self._most).sum())
        if over:
            yield f"{over} units have more than {self._most} records, the unit.max_records of mechanism.json"
        if self._without:
            yield f"{self._without} records have no unit, so nothing bounds how many belong to one"

    def line(self) -> str:
        """Line of the report that describes what was found."""
        units, records = self._counts()
        most = f"at most {max(records, default=0)} records each, {self._most} are allowed"
        return f"units        {len(units)} units with {most}"

    def _counts(self) -> tuple[np.ndarray, np.ndarray]:
        return np.unique(np.concatenate([np.zeros(0, np.uint64), *self._units]), return_counts=True)
