"""Makes Beam keep what it otherwise computes again for every stage of a job: half of a small job's CPU time.

The processes of pytest and their forks do that. Commands that tests start use Beam as it is.
"""

import bz2
import functools
from collections.abc import Callable
from types import MethodType, SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary


@functools.cache
def keep_results() -> None:
    """Replaces functions of Beam."""
    from apache_beam.internal import cloudpickle_pickler
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.transforms import core, userstate
    from apache_beam.typehints import decorators

    PipelineOptions.view_as = _keep_views(PipelineOptions.view_as)
    core.get_signature = _keep_signatures(core.get_signature)
    userstate.get_dofn_specs = _keep_specs(userstate.get_dofn_specs)
    # Origins of type hints are for messages only; a traceback for each looks at the files of all its frames.
    decorators.traceback = SimpleNamespace(format_stack=lambda limit: [])
    # Most transforms of a job are pickled to the same bytes as in the job before.
    keep = functools.lru_cache(maxsize=4096)
    cloudpickle_pickler.bz2 = SimpleNamespace(compress=keep(bz2.compress), decompress=keep(bz2.decompress))


def _keep_views(view_as: Any) -> Any:
    """Keeps the views of options. All views of the same options share their values."""
    kept: WeakKeyDictionary[Any, dict[type, Any]] = WeakKeyDictionary()

    @functools.wraps(view_as)
    def view(options: Any, kind: type) -> Any:
        views = kept.setdefault(options, {})
        if kind not in views:
            views[kind] = view_as(options, kind)
        return views[kind]

    return view


def _keep_signatures(get_signature: Any) -> Any:
    """Keeps the signatures of methods, which are those of their functions without the first parameter."""
    kept: dict[Callable[..., Any], Any] = {}

    @functools.wraps(get_signature)
    def signature(function: Any) -> Any:
        if not isinstance(function, MethodType):
            return get_signature(function)
        if function.__func__ not in kept:
            kept[function.__func__] = get_signature(function)
        return kept[function.__func__]

    return signature


def _keep_specs(get_dofn_specs: Any) -> Any:
    """Keeps the specifications of state and timers of DoFns whose methods are all those of their class."""
    kept: dict[tuple[type, frozenset[str]], Any] = {}

    @functools.wraps(get_dofn_specs)
    def specs(dofn: Any) -> Any:
        own = vars(dofn)
        if any(isinstance(value, MethodType) for value in own.values()) or (
            # The wrapper of another DoFn has the arguments of that one.
            hasattr(dofn, "_inspect_process") and "process" not in own
        ):
            return get_dofn_specs(dofn)
        key = type(dofn), frozenset(own)
        if key not in kept:
            kept[key] = get_dofn_specs(dofn)
        return kept[key]

    return specs
