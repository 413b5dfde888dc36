"""Record and replay of the noise of a release, within the process of an attack alone.

Code of a release has no hook for this. For the length of a block, the functions that draw noise and labels are replaced
wherever modules of labeldp hold them, and put back at its end. In the block, too, other threads and contexts get
the functions as they are. Recorded noise is that of synthetic labels under test keys.

A recorder sees each draw of a release: the scale of its noise, the next words of its stream, and the raw numbers that
the noise is added to, because noise comes as integers that tell what they are added to. A replay of another input gives
the *released* numbers and drawn outputs of the record in place of its own, so that both runs take the same path.
Noise that is not added, or added twice, is found in the same way. Source of the method: Cebere, Erb, Desfontaines,
Bellet, Fitzsimons 2026, "Privacy in Theory, Bugs in Practice: Grey-Box Auditing of Differential Privacy Libraries".
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from types import FunctionType
from typing import Any

import numpy as np
from labeldp.mechanisms.center import class_center
from labeldp.mechanisms.core.randomizer import Randomizer
from labeldp.mechanisms.noise import discrete_laplace, sum_zero_laplace
from labeldp.mechanisms.noise.discrete_laplace import ByteStream

Place = tuple[str, str]
LAPLACE, SUM_ZERO = "discrete Laplace", "sum-zero Laplace"
# Functions that draw from a stream that is public and always the same, to estimate an error: no released number has it.
_SIMULATED = {"mean_square"}
_PACKAGE = "labeldp"
# Words of a stream that identify it and its place: equal ones by chance have a probability of 2^-256.
_IDENTIFYING = 32


@dataclass(eq=False)
class NoiseDraw:
    """One draw of a noised vector.

    Attributes:
      place: Names of the function that drew it, and of its caller.
      sampler: Distribution of the noise, LAPLACE or SUM_ZERO.
      scale: Scale of the noise.
      shape: Number of vectors, and of their entries; for LAPLACE one vector.
      words: Next bytes of the stream before the draw.
      noise: The noise; in a replay, of the same draw in the record.
      released: Released numbers of the record; None while it is recorded.
      raw: Numbers that the noise was added to; None for those that are not known.
      twice: True if some of the noise was added more than once.
    """

    place: Place
    sampler: str
    scale: Fraction
    shape: tuple[int, int]
    words: bytes = field(repr=False)
    noise: list[int] = field(repr=False)
    released: list[int] | None = field(repr=False, default=None)
    raw: list[int | None] = field(repr=False, default_factory=list)
    twice: bool = False

    def __post_init__(self) -> None:
        self.raw = [None] * len(self.noise)

    def add(self, place: int, raw: int) -> int:
        """Adds the noise of a place to a raw number; gives what is released."""
        self.twice |= self.raw[place] is not None
        self.raw[place] = raw
        return raw + self.noise[place] if self.released is None else self.released[place]

    def outputs(self) -> list[int]:
        """Released numbers; where the raw one is not known, the noise."""
        return [(raw or 0) + noise for raw, noise in zip(self.raw, self.noise, strict=True)]


@dataclass(eq=False)
class LabelDraw:
    """One draw of labels.

    Attributes:
      randomizer: The randomizer; None for classes that are drawn from probabilities.
      rows: Rows of the randomizer, shape (n,), or coded probabilities of the records, shape (n, K).
      words: Words of the records, shape (n,), uint64.
      outputs: Places of the outputs, shape (n,); in a replay those of the record.
    """

    randomizer: Randomizer | None
    rows: np.ndarray = field(repr=False)
    words: np.ndarray = field(repr=False)
    outputs: np.ndarray = field(repr=False)


class NoiseRecorder:
    """Records the draws of a release, or replays those of a record for another input.

    Attributes:
      noise: Draws of noised vectors, in their order.
      labels: Draws of labels, in their order.
      problems: Differences from the record by which the two inputs are told apart.
    """

    def __init__(self, record: NoiseRecorder | None = None):
        """Starts a record, or the replay of a record."""
        self.noise: list[NoiseDraw] = []
        self.labels: list[LabelDraw] = []
        self.problems: list[str] = []
        self._record = record

    def draw_noise(
        self, place: Place, sampler: str, stream: ByteStream, scale: Fraction, shape: tuple[int, int]
    ) -> NoiseDraw:
        """Draws noise, or takes that of the record."""
        words = copy.copy(stream).take(_IDENTIFYING)
        recorded = None if self._record is None else self._recorded(self._record.noise, len(self.noise), "noise")
        if recorded is not None and (recorded.sampler, recorded.shape) != (sampler, shape):
            self.problems.append(f"{place[0]} draws other noise: its kind or its size depends on labels")
            recorded = None
        if recorded is not None and recorded.scale != scale:
            self.problems.append(f"the scale of the noise of {place[0]} depends on labels")
        noise = _sampled(sampler, stream, scale, shape) if recorded is None else recorded.noise
        draw = NoiseDraw(place, sampler, scale, shape, words, noise, None if recorded is None else recorded.outputs())
        self.noise.append(draw)
        return draw

    def draw_labels(
        self, randomizer: Randomizer | None, rows: np.ndarray, words: np.ndarray, draw: Callable[..., np.ndarray]
    ) -> np.ndarray:
        """Draws labels, or takes the outputs of the record; `draw` takes rows and words."""
        recorded = None if self._record is None else self._recorded(self._record.labels, len(self.labels), "labels")
        if recorded is not None and recorded.words.shape != words.shape:
            self.problems.append("the number of labels that are drawn depends on labels")
            recorded = None
        outputs = draw(rows, words) if recorded is None else recorded.outputs
        self.labels.append(LabelDraw(randomizer, np.array(rows), np.array(words), np.array(outputs)))
        return outputs.copy()

    def _recorded(self, draws: Sequence[Any], number: int, of: str) -> Any:
        if number < len(draws):
            return draws[number]
        self.problems.append(f"more {of} are drawn: the number of draws depends on labels")
        return None

    def finish(self) -> None:
        """Looks for noise that was drawn in the record alone, was not added as drawn, or was drawn twice."""
        if self._record is not None and (
            len(self.noise) < len(self._record.noise) or len(self.labels) < len(self._record.labels)
        ):
            self.problems.append("fewer draws: the number of draws depends on labels")
        for draw in self.noise:
            if None in draw.raw:
                self.problems.append(f"noise of {draw.place[0]} is not added to numbers as it is drawn")
            if draw.twice:
                self.problems.append(f"noise of {draw.place[0]} is added to two numbers")
        if len({draw.words for draw in self.noise}) < len(self.noise):
            self.problems.append("two vectors have the same noise")
        words = [draw.words for draw in self.labels]
        together = np.concatenate([np.zeros(0, np.uint64), *words])
        # Among 10,000 words two are equal by chance with a probability of 3e-12.
        if len(np.unique(together)) < len(together):
            self.problems.append("two labels are drawn with the same word")
        if self._record is not None:
            self._find_reused(self._record)

    def _find_reused(self, record: NoiseRecorder) -> None:
        """Finds noise that does not depend on the labels, so that a release of changed data would show differences."""
        before = {draw.words for draw in record.noise}
        for draw in self.noise:
            if draw.words in before:
                self.problems.append(f"{draw.place[0]} reuses its noise for changed data")
        for one, two in zip(record.labels, self.labels, strict=False):
            if np.isin(two.words, one.words).any():
                self.problems.append("labels are drawn with the same words for changed data")


class _NoiseInteger(int):
    """Integer of noise that tells its draw what it is added to."""

    draw: NoiseDraw
    place: int

    @classmethod
    def of(cls, draw: NoiseDraw, place: int) -> _NoiseInteger:
        made = cls(draw.noise[place])
        made.draw, made.place = draw, place
        return made

    def __add__(self, other: int) -> int:
        return self.draw.add(self.place, int(other))

    # An integer on the left leaves the sum to a subclass on the right.
    __radd__ = __add__


class _NoiseArray(np.ndarray):
    """Array of noise that tells its draw what it is added to, if all of it is added at once."""

    draw: NoiseDraw | None

    @classmethod
    def of(cls, draw: NoiseDraw, values: np.ndarray) -> _NoiseArray:
        made = values.view(cls)
        made.draw = draw
        return made

    def __array_finalize__(self, other: Any) -> None:
        # Parts and results are plain noise.
        self.draw = None

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        plain = [each.view(np.ndarray) if isinstance(each, _NoiseArray) else each for each in inputs]
        if ufunc is np.add and method == "__call__" and not keywords:
            noise, raw = (inputs[0], plain[1]) if isinstance(inputs[0], _NoiseArray) else (inputs[1], plain[0])
            if noise.draw is not None and np.shape(raw) == noise.shape:
                integers = np.asarray(raw, np.int64).ravel().tolist()
                added = [noise.draw.add(place, each) for place, each in enumerate(integers)]
                return np.array(added, np.int64).reshape(noise.shape)
        return getattr(ufunc, method)(*plain, **keywords)


_RECORDER: ContextVar[NoiseRecorder | None] = ContextVar("recorder", default=None)
# One block at a time: functions are replaced in all modules.
_REPLACING = threading.Lock()


@contextlib.contextmanager
def recorded_noise(recorder: NoiseRecorder) -> Iterator[None]:
    """Lets a recorder draw the noise of the releases in this block.

    Other threads wait for the block to end before theirs begins; their releases have their own noise in the meantime.
    """
    with _REPLACING:
        token = _RECORDER.set(recorder)
        try:
            with _replaced():
                yield
        finally:
            _RECORDER.reset(token)
    recorder.finish()


@contextlib.contextmanager
def _replaced() -> Iterator[None]:
    """Replaces the functions that draw noise in all modules of this package that hold them."""
    makers = {
        discrete_laplace.discrete_laplace: _laplace_array,
        discrete_laplace.discrete_laplace_integers: _laplace_integers,
        sum_zero_laplace.sum_zero_laplace: _sum_zero_array,
        sum_zero_laplace.sum_zero_laplace_integers: _sum_zero_integers,
        class_center.draw_classes: _class_draw,
    }
    replacements = {original: _in_context(original, made) for original, made in makers.items()}
    draw = Randomizer.draw
    _swap(replacements)
    Randomizer.draw = _in_context(draw, functools.partial(_label_draw, draw))
    try:
        yield
    finally:
        Randomizer.draw = draw
        _swap({made: original for original, made in replacements.items()})


def _swap(replacements: dict[Callable[..., Any], Callable[..., Any]]) -> None:
    """Puts functions in the place of others, also in modules that were imported in between."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == _PACKAGE:
            for attribute, value in list(vars(module).items()):
                if isinstance(value, FunctionType) and value in replacements:
                    setattr(module, attribute, replacements[value])


def _in_context(original: Callable[..., Any], recorded: Callable[..., Any]) -> Callable[..., Any]:
    """The function `recorded`, with the recorder first, where there is a recorder; else the original."""

    @functools.wraps(original)
    def drawn(*arguments: Any, **keywords: Any) -> Any:
        recorder = _RECORDER.get()
        if recorder is None:
            return original(*arguments, **keywords)
        caller = sys._getframe(1)
        before = caller.f_back
        place = caller.f_code.co_name, "" if before is None else before.f_code.co_name
        with _paused():
            if place[0] in _SIMULATED:
                return original(*arguments, **keywords)
            return recorded(recorder, place, *arguments, **keywords)

    return drawn


@contextlib.contextmanager
def _paused() -> Iterator[None]:
    """Draws that a draw makes inside are not recorded."""
    token = _RECORDER.set(None)
    try:
        yield
    finally:
        _RECORDER.reset(token)


def _sampled(sampler: str, stream: ByteStream, scale: Fraction, shape: tuple[int, int]) -> list[int]:
    if sampler == LAPLACE:
        return discrete_laplace.discrete_laplace_integers(stream, scale, shape[1])
    vectors = sum_zero_laplace.sum_zero_laplace_integers(stream, scale, shape[1], shape[0])
    return [each for vector in vectors for each in vector]


def _laplace_integers(
    recorder: NoiseRecorder, place: Place, stream: ByteStream, scale: Fraction, count: int
) -> list[int]:
    draw = recorder.draw_noise(place, LAPLACE, stream, scale, (1, count))
    return [_NoiseInteger.of(draw, number) for number in range(count)]


def _laplace_array(
    recorder: NoiseRecorder, place: Place, stream: ByteStream, scale: Fraction, count: int
) -> np.ndarray:
    draw = recorder.draw_noise(place, LAPLACE, stream, scale, (1, count))
    return _NoiseArray.of(draw, np.array(draw.noise, np.int64).reshape(count))


def _sum_zero_integers(
    recorder: NoiseRecorder, place: Place, stream: ByteStream, scale: Fraction, classes: int, count: int
) -> list[tuple[int, ...]]:
    draw = recorder.draw_noise(place, SUM_ZERO, stream, scale, (count, classes))
    marked = [_NoiseInteger.of(draw, number) for number in range(count * classes)]
    return [tuple(marked[start : start + classes]) for start in range(0, len(marked), classes)]


def _sum_zero_array(
    recorder: NoiseRecorder, place: Place, stream: ByteStream, scale: Fraction, classes: int, count: int
) -> np.ndarray:
    draw = recorder.draw_noise(place, SUM_ZERO, stream, scale, (count, classes))
    return _NoiseArray.of(draw, np.array(draw.noise, np.int64).reshape(count, classes))


def _label_draw(
    draw: Callable[..., np.ndarray],
    recorder: NoiseRecorder,
    place: Place,
    randomizer: Randomizer,
    label_indices: np.ndarray,
    words: np.ndarray,
) -> np.ndarray:
    return recorder.draw_labels(randomizer, label_indices, words, functools.partial(draw, randomizer))


def _class_draw(recorder: NoiseRecorder, place: Place, probabilities: np.ndarray, words: np.ndarray) -> np.ndarray:
    return recorder.draw_labels(None, probabilities, words, class_center.draw_classes)
