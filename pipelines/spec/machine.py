"""Optional parts, processors and local files of this machine. An error says how to get a missing one."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator

from ..errors import FieldError, UsageError


def check_extra(purpose: str, extra: str, *modules: str) -> None:
    """Checks that the modules of an extra are installed. Raises UsageError, which names the extra, if one is not.

    `purpose` is the subject of the message: the flag or command that needs the extra.
    """
    if not all(map(_importable, modules)):
        raise UsageError(f"{purpose} needs the extra {extra}: pip install 'labeldp[{extra}]'")


def check_tfrecord(purpose: str, instead: str) -> None:
    """Checks that the compiled part, which TFRecords need, is installed. Raises UsageError if it is not.

    `purpose` is the subject of the message, `instead` what can be done without the compiled part.
    """
    # Loads numpy, which help does without.
    from ...transforms.tfrecord.wire import COMPILED, NOT_COMPILED

    if not COMPILED:
        raise UsageError(f"{purpose} {NOT_COMPILED}, or {instead}")


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def available_cpus() -> int:
    """Counts the CPUs that this process may use; at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def one_thread_for_fits() -> Iterator[None]:
    """Limits scikit-learn and BLAS to one thread, until the context or the decorated function ends.

    OpenMP's threads wait for each other actively. Where they do not all have a processor, beside another job or below a
    container's quota, fits take ten times as long and more. One thread also adds floats in a fixed order.
    """
    # Only libraries that are loaded can be limited; this one loads OpenMP.
    import sklearn  # noqa: F401
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        yield


def check_file(flag: str, path: str) -> None:
    """Checks that a file can be written in an existing folder. Raises UsageError, which names the flag."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UsageError(f"{flag} {path} lies in a folder that does not exist: create it first")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{flag} {path} lies in a folder that is not writable: name another")
    if os.path.isdir(path):
        raise UsageError(f"{flag} {path} is a folder: name a file")


def check_can_create(field: str, target: str) -> None:
    """Checks that a file or folder can be created, with the folders above it. Raises FieldError if it cannot."""
    parent = os.path.dirname(os.path.abspath(target))
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not (os.path.isdir(parent) and os.access(parent, os.W_OK)):
        raise FieldError(
            f"{{{field}}} {{target}} cannot be created: {{parent}} is not a writable folder",
            target=target,
            parent=parent,
        )
