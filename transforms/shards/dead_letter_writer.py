"""Writes dead letters to files of limited length, each sorted by source and row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsSingleton, PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from ..batches import check_whole_input
from ..errors import redact_errors
from ..io.filesystems import write_text
from ..io.limits import LIMITS, Limits
from ..privatize_labels import DeadLetter
from .shard_writer import shard_of_rows


class LetterFile(NamedTuple):
    """Complete file of dead letters, and its number of lines.

    The name is dead_letters.jsonl, or dead_letters-00000-of-00004.jsonl if there are several.
    """

    name: str
    letters: int


@dataclass
class WriteDeadLetters(beam.PTransform):
    """Writes dead letters as JSON lines. Contents depend neither on the runner's bundles nor on its workers.

    Takes a PCollection of DeadLetter; gives a LetterFile for each file. One file takes up to 262,144 dead letters; if
    there are more, blocks of 256 rows go to several files in turn. Without dead letters there is no file.

    Attributes:
      directory: Folder of the files.
      expected: Exactly one integer, the number of records without a usable label in the first pass: it sets the number
        of files.
      temp_directory: Temporary folder of the run, if other runs may write to `directory`.
      limits: Dead letters of a file, and those that a bundle holds.
    """

    directory: str
    expected: PCollection[int]
    temp_directory: str | None = None
    limits: Limits = LIMITS

    def expand(self, letters: PCollection[DeadLetter]) -> PCollection[LetterFile]:
        """Raises InputError for windows, or an unbounded input."""
        check_whole_input(letters, self)
        spread: PCollection[tuple[int, _Rows]] = letters | "Spread" >> beam.ParDo(
            _Spread(self.limits), AsSingleton(self.expected)
        ).with_output_types(tuple[int, _Rows])
        return (
            spread
            | "Gather" >> beam.GroupByKey()
            | "Write"
            >> beam.ParDo(
                _Write(self.directory, self.temp_directory, self.limits), AsSingleton(self.expected)
            ).with_output_types(LetterFile)
        )


class _Rows(NamedTuple):
    """Rows of one source with the same stage and error. Shape (n,), int64."""

    source: str
    stage: str
    error: str
    rows: np.ndarray


def _number_of_files(expected: int, limits: Limits) -> int:
    return max(-(-expected // limits.letters), 1)


class _Spread(beam.DoFn):
    """Collects the rows of a bundle, so that arrays are shuffled in place of single dead letters."""

    def __init__(self, limits: Limits):
        self._limits = limits

    def start_bundle(self) -> None:
        self._held: dict[tuple[int, str, str, str], list[int]] = {}
        self._count = 0

    @redact_errors("gathering dead letters")
    def process(self, letter: DeadLetter, expected: int) -> Iterator[tuple[int, _Rows]]:
        files = _number_of_files(expected, self._limits)
        (file,) = shard_of_rows(letter.source, np.array([letter.row]), files, self._limits.shard_rows).tolist()
        self._held.setdefault((file, letter.source, letter.stage, letter.error), []).append(letter.row)
        self._count += 1
        if self._count == self._limits.held_letters:
            yield from self._flush()

    @redact_errors("gathering dead letters")
    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(GlobalWindows.windowed_value, self._flush())

    def _flush(self) -> Iterator[tuple[int, _Rows]]:
        held, self._held, self._count = self._held, {}, 0
        for (file, source, stage, error), rows in held.items():
            yield file, _Rows(source, stage, error, np.array(rows, np.int64))


class _Write(beam.DoFn):
    def __init__(self, directory: str, temp: str | None, limits: Limits):
        self._directory, self._temp, self._limits = directory, temp, limits

    @redact_errors("writing dead letters")
    def process(self, element: tuple[int, Iterable[_Rows]], expected: int) -> Iterator[LetterFile]:
        number, found = element
        files = _number_of_files(expected, self._limits)
        name = "dead_letters.jsonl" if files == 1 else f"dead_letters-{number:05d}-of-{files:05d}.jsonl"
        letters = sorted((part.source, row, part.stage, part.error) for part in found for row in part.rows.tolist())
        text = "".join(f"{DeadLetter(*each).to_json()}\n" for each in letters)
        write_text(FileSystems.join(self._directory, name), text, self._temp)
        yield LetterFile(name, len(letters))
