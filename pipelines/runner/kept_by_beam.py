"""Makes Beam keep what it otherwise computes again for every transform of a pipeline: two fifths of a short job's time.

Beam asks for views of its options some 600 times in a job, and builds a parser of command lines for each; it reads the
signatures of all methods of each DoFn whenever it looks for their state and timers, 16,000 times in a job of 64; and it
measures every side input with the help of objsize, which goes through all modules of the process each time.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.worker import statecache
from apache_beam.transforms import core


@functools.cache
def keep_results() -> None:
    """Replaces two functions of Beam and one of objsize in this process by ones that return the same from memory.

    A release without one of them keeps less.
    """
    PipelineOptions.view_as = _keep_views(PipelineOptions.view_as)
    if hasattr(core, "get_signature"):
        core.get_signature = _keep_signatures(core.get_signature)
    traverse: Any = getattr(getattr(statecache, "objsize", None), "traverse", None)
    if hasattr(traverse, "_iter_modules_globals"):
        traverse._iter_modules_globals = _keep_globals(traverse._iter_modules_globals)


def _keep_views(view_as: Any) -> Any:
    """Keeps the views of options. All views of the same options share their values."""
    kept: WeakKeyDictionary[Any, dict[type, Any]] = WeakKeyDictionary()

    @functools.wraps(view_as)
    def view(options: Any, cls: type) -> Any:
        views = kept.setdefault(options, {})
        if cls not in views:
            views[cls] = view_as(options, cls)
        return views[cls]

    return view


def _keep_signatures(get_signature: Any) -> Any:
    """Keeps the signatures of methods, which are those of their functions without the first parameter."""
    kept: WeakKeyDictionary[Callable[..., Any], Any] = WeakKeyDictionary()

    @functools.wraps(get_signature)
    def signature(func: Any) -> Any:
        if not (isinstance(func, MethodType) and isinstance(func.__func__, FunctionType)):
            return get_signature(func)
        if func.__func__ not in kept:
            kept[func.__func__] = get_signature(func)
        return kept[func.__func__]

    return signature


def _keep_globals(modules_globals: Callable[[], Iterator[Any]]) -> Callable[[], list[Any]]:
    """Keeps the list of all modules' global variables until the number of modules changes."""
    kept: tuple[int, list[Any]] = (0, [])

    @functools.wraps(modules_globals)
    def found() -> list[Any]:
        nonlocal kept
        if kept[0] != len(sys.modules):
            kept = len(sys.modules), list(modules_globals())
        return kept[1]

    return found
