"""Runs fuzz targets: draws inputs, limits time and memory, counts outcomes and keeps the inputs that fail.

A target is a strategy of hypothesis for its inputs, and a check. The check returns whether the input was accepted, and
raises at any outcome that is a failure. Inputs are named parts of bytes, so that every input can be written to a file.
"""

import base64
import contextlib
import json
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

Case = dict[str, bytes]

SECONDS = 60.0
"""Most time for one input. A whole job takes about one second on an idle machine."""


# Health checks of hypothesis about the speed and the size of inputs.
_HEALTH_CHECKS = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.large_base_example,
)


class OverTimeError(BaseException):
    """One input took too long. Not an Exception, so that no handler of the product takes it for an error of its own."""


@dataclass(frozen=True)
class Target:
    """Part of the product under test.

    Attributes:
      name: Name on the command line and in reports.
      inputs: Inputs to try.
      check: Tries an input: True if it is accepted, False if it is refused as it should be; raises otherwise.
      examples: Inputs in the short run with fixed seeds.
      memory: Bytes of address space that the target may add while it runs.
    """

    name: str
    inputs: SearchStrategy[Case]
    check: Callable[[Case], bool]
    examples: int
    memory: int = 1 << 30


@dataclass
class Counts:
    """Inputs by outcome."""

    tried: int = 0
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Failure:
    """Smallest input found that fails, and how."""

    target: str
    case: Case
    error: str


@dataclass
class Campaign:
    """Runs targets and sums up.

    Attributes:
      folder: Folder for failing inputs, and for the input in progress in case the process dies; None keeps none.
      counts: Counts by target.
      failures: Failures, at most one for each run of a target.
    """

    folder: Path | None = None
    counts: dict[str, Counts] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def run(self, target: Target, number: int, examples: int, until: float | None = None) -> Failure | None:
        """Tries inputs of one target.

        Args:
          target: The target.
          number: Seed of the inputs.
          examples: Number of inputs; fewer if the strategy has fewer, or at a failure.
          until: Time, of `time.monotonic`, after which no further inputs are tried; None for no limit.

        Returns:
          The failure, if there is one.
        """
        counts = self.counts.setdefault(target.name, Counts())
        last = self._last()
        failing: list[tuple[Case, str]] = []

        def attempt(case: Case) -> None:
            if until is not None and not failing and time.monotonic() > until:
                return
            if last is not None:
                last.write_text(case_text(target.name, case), encoding="utf-8")
            try:
                accepted = tried(target, case)
            except BaseException:
                failing.append((case, traceback.format_exc()))
                raise
            # Inputs that are tried to make a failing one smaller are not counted.
            if not failing:
                counts.tried += 1
                counts.accepted += accepted
                counts.refused += not accepted

        search = settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=False,
            suppress_health_check=_HEALTH_CHECKS,
            phases=[Phase.generate, Phase.shrink],
            report_multiple_bugs=False,
            print_blob=False,
        )
        started = time.monotonic()
        try:
            with memory_limit(target.memory):
                seed(number)(search(given(target.inputs)(attempt)))()
        except KeyboardInterrupt:
            raise
        except BaseException:
            if not failing:
                raise
        finally:
            counts.seconds += time.monotonic() - started
            if last is not None:
                last.unlink(missing_ok=True)
        if not failing:
            return None
        failure = Failure(target.name, *failing[-1])
        self.failures.append(failure)
        return failure

    def _last(self) -> Path | None:
        if self.folder is None:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / "in_progress.json"


def assert_holds(target: Target) -> None:
    """Tries a few inputs of a fixed seed: the target accepts some and refuses some.

    Args:
      target: The target.

    Raises:
      AssertionError: If an input fails, or all have the same outcome.
    """
    campaign = Campaign()
    failure = campaign.run(target, 1, target.examples)
    assert failure is None, f"{failure.error}\n{case_text(target.name, failure.case)}"
    counts = campaign.counts[target.name]
    assert counts.tried == counts.accepted + counts.refused >= target.examples // 2
    assert counts.accepted
    assert counts.refused


def tried(target: Target, case: Case) -> bool:
    """Tries one input, with warnings as errors and a limit on its time.

    Args:
      target: The target.
      case: The input.

    Returns:
      Whether it was accepted.
    """

    def over_time(*_: Any) -> None:
        raise OverTimeError

    before = signal.signal(signal.SIGALRM, over_time)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", category=FutureWarning, module="google")
            return target.check(case)
    except OverTimeError:
        raise AssertionError(f"not done after {SECONDS:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def memory_limit(more: int) -> Iterator[None]:
    """Limits the address space of this process, so that a huge allocation fails.

    Args:
      more: Bytes beyond those in use.

    Yields:
      Nothing.
    """
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = used + more if hard == resource.RLIM_INFINITY else min(used + more, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def case_text(target: str, case: Case) -> str:
    """Writes an input as JSON.

    Args:
      target: Name of the target.
      case: The input.

    Returns:
      The text of the file.
    """
    return json.dumps(
        {"target": target, "parts": {name: base64.b64encode(part).decode() for name, part in case.items()}}
    )


def read_case(path: Path) -> tuple[str, Case]:
    """Reads what `case_text` wrote.

    Args:
      path: The file.

    Returns:
      Name of the target, and the input.
    """
    document = json.loads(path.read_text())
    return document["target"], {name: base64.b64decode(part) for name, part in document["parts"].items()}
