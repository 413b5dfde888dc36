"""Keeps the randomizers that the slow solvers found, for tests of what uses them: many solve the same priors.

The same arguments give the same randomizer, as the tests of the solvers show; those always solve.
"""

import functools
import sys
from collections import OrderedDict
from typing import Any

_SLOW = ("unbiased", "bias_limited", "rr_on_bins", "optm", "mvu", "erm", "rqm", "quantizer")
_MOST_BYTES = 256 << 20


class KeptSolutions:
    """What solvers found in this process.

    Attributes:
      used: Whether solvers may answer with what they found before.
    """

    def __init__(self) -> None:
        self.used = False
        self._found: OrderedDict[Any, Any] = OrderedDict()
        self._bytes = 0
        self._watched: set[type] = set()

    def watch(self) -> None:
        """Keeps what solvers find from now on, once they are loaded."""
        registry = sys.modules.get("labeldp.mechanisms.registry")
        if registry is None or self._watched:
            return
        self._watched = {registry.MECHANISMS[name] for name in _SLOW}
        for family in self._watched:
            family.solve = self._keeping(family.solve)  # type: ignore[attr-defined]

    def _keeping(self, solve: Any) -> Any:
        @functools.wraps(solve)
        def solved(mechanism: Any, prior: Any, epsilon: float) -> Any:
            if not self.used:
                return solve(mechanism, prior, epsilon)
            key = mechanism, prior.labels.tobytes(), prior.weights.tobytes(), epsilon
            if key not in self._found:
                found = solve(mechanism, prior, epsilon)
                self._found[key] = _copied(found)
                self._bytes += found.weights.nbytes
                while self._bytes > _MOST_BYTES:
                    self._bytes -= self._found.popitem(last=False)[1].weights.nbytes
                return found
            return _copied(self._found[key])

        return solved


def _copied(randomizer: Any) -> Any:
    """A copy whose attributes callers may set. Its own way of copying would write it as JSON and certify it again."""
    copied = object.__new__(type(randomizer))
    vars(copied).update(vars(randomizer), parameters=dict(randomizer.parameters))
    return copied
