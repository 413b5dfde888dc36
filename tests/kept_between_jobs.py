"""Makes Beam keep more than it keeps for a command: what it computes again in every job of a process.

The processes of pytest and their forks do that, and keep what commands keep from their first test on.
"""

import bz2
import functools
from types import MethodType, SimpleNamespace
from typing import Any


@functools.cache
def keep_results() -> None:
    """Replaces functions of Beam."""
    from apache_beam.internal import cloudpickle_pickler
    from apache_beam.transforms import core, ptransform, userstate
    from apache_beam.typehints import decorators
    from labeldp.pipelines.runner import kept_by_beam

    kept_by_beam.keep_results()
    userstate.get_dofn_specs = _keep_specs(userstate.get_dofn_specs)
    # Origins of type hints are for messages only; a traceback for each looks at the files of all its frames.
    decorators.traceback = SimpleNamespace(format_stack=lambda limit: [])
    # It reads the source of each DoFn, to warn of those that both yield and return.
    core._check_fn_use_yield_and_return = _keep_checks(core._check_fn_use_yield_and_return)
    # This makes errors clearer for what cannot be pickled. The job fails without it, too.
    ptransform.pickler = SimpleNamespace(**{**vars(ptransform.pickler), "roundtrip": lambda value: value})
    # Most transforms of a job are pickled to the same bytes as in the job before.
    keep = functools.lru_cache(maxsize=4096)
    cloudpickle_pickler.bz2 = SimpleNamespace(compress=keep(bz2.compress), decompress=keep(bz2.decompress))


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


def _keep_checks(check: Any) -> Any:
    """Keeps the results of a check of methods, by their functions."""
    kept: dict[Any, bool] = {}

    @functools.wraps(check)
    def checked(method: Any) -> bool:
        function = getattr(method, "__func__", None)
        if function is None:
            return check(method)
        if function not in kept:
            kept[function] = check(method)
        return kept[function]

    return checked
