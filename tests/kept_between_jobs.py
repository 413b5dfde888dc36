"""Makes Beam keep more than it keeps for a command: what it computes again in every job of a process.

The processes of pytest and their forks do that, and keep what commands keep from their first test on.
"""

import bz2
import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Hashable
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

_until_the_end = contextlib.ExitStack()


@functools.cache
def keep_results() -> None:
    """Replaces functions of Beam."""
    from apache_beam.internal import cloudpickle_pickler
    from apache_beam.internal.cloudpickle import cloudpickle
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability.fn_api_runner import execution
    from apache_beam.runners.worker import bundle_processor, operations, statecache, statesampler
    from apache_beam.transforms import core, ptransform, userstate, util
    from apache_beam.typehints import decorators
    from labeldp.transforms import beam_internals

    # What is replaced has other types.
    of_core: Any = core
    of_hints: Any = decorators
    of_pickler: Any = cloudpickle_pickler
    _until_the_end.enter_context(beam_internals.kept_results())
    userstate.get_dofn_specs = _keep_specs(userstate.get_dofn_specs)
    # Origins of type hints are for messages only; a traceback for each looks at the files of all its frames.
    of_hints.traceback = SimpleNamespace(format_stack=lambda limit: [])
    # It reads the source of each DoFn, to warn of those that both yield and return.
    of_core._check_fn_use_yield_and_return = _by_signature(core._check_fn_use_yield_and_return)
    # Signatures, and what Beam derives from them alone. Lambdas and closures are new in each job, but of the same code.
    of_hints.get_signature = _by_signature(decorators.get_signature)
    of_core.get_signature = _by_signature(core.get_signature)
    util.get_signature = decorators.get_signature
    hints: Any = decorators.IOTypeHints
    hints.from_callable = staticmethod(_by_signature(hints.from_callable))
    arguments = _by_signature(core.get_function_args_defaults)
    of_core.get_function_args_defaults = lambda function: tuple(list(part) for part in arguments(function))
    # The names of the options of a view, which each access to one lists.
    PipelineOptions._visible_option_list = _keep_option_names(PipelineOptions._visible_option_list)
    # For each function that is pickled by value, this goes through all modules of the process.
    cloudpickle._find_imported_submodules = _keep_submodules(cloudpickle._find_imported_submodules)
    # This makes errors clearer for what cannot be pickled. The job fails without it, too.
    ptransform.pickler = SimpleNamespace(**{**vars(ptransform.pickler), "roundtrip": lambda value: value})
    # Each bundle would start a thread that samples the time of its stages, and wait until that wakes up and ends.
    samplers: Any = statesampler.StateSampler
    samplers.start = _start_without_thread
    samplers.stop = _stop_without_thread
    # To measure a side input, this would list the names in all modules. No job of a test fills the cache.
    caches: Any = statecache
    caches.get_deep_size = functools.wraps(statecache.get_deep_size)(_shallow_size)
    # Most transforms of a job are pickled to the same bytes as in the job before.
    keep = functools.lru_cache(maxsize=4096)
    of_pickler.bz2 = SimpleNamespace(compress=keep(bz2.compress), decompress=keep(bz2.decompress))
    # Of each DoFn that it has loaded, a bundle makes bytes again, with its windows, and loads those twice.
    of_bundles: Any = bundle_processor
    of_operations: Any = operations
    of_bundles.pickler = SimpleNamespace(
        **{**vars(bundle_processor.pickler), "dumps": _Made, "loads": _load_unless_made(bundle_processor.pickler.loads)}
    )
    of_operations.pickler = SimpleNamespace(**{**vars(operations.pickler), "loads": of_bundles.pickler.loads})
    # Each bundle makes its operations in a thread, which is stopped after an hour.
    futures = SimpleNamespace(ThreadPoolExecutor=_SameThread, TimeoutError=TimeoutError)
    of_bundles.concurrent = SimpleNamespace(futures=futures)
    # Each bundle reports four times of each stage, which are zero without the samplers.
    of_bundles.BundleProcessor.monitoring_infos = _infos_without_times
    # Each bundle gets copies of all collections of the job, and takes them apart twice.
    contexts: Any = execution.BundleContextManager
    contexts._build_process_bundle_descriptor = _descriptor_of_stage


def _shallow_size(*objects: Any) -> int:
    return sum(map(sys.getsizeof, objects))


def _start_without_thread(sampler: Any) -> None:
    from apache_beam.runners.worker import statesampler

    sampler.tracked_thread = threading.current_thread()
    statesampler.set_current_tracker(sampler)
    sampler.started = True


def _stop_without_thread(sampler: Any) -> None:
    from apache_beam.runners.worker import statesampler

    statesampler.set_current_tracker(None)
    sampler.finished = True


class _Made:
    """Object in place of its pickled bytes, which would be loaded in the same bundle."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _load_unless_made(loads: Any) -> Any:
    @functools.wraps(loads)
    def loaded(data: Any, **options: Any) -> Any:
        return data.value if isinstance(data, _Made) else loads(data, **options)

    return loaded


class _SameThread:
    """Executor of concurrent.futures that calls a function at once."""

    def __init__(self, **_options: Any) -> None:
        pass

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def submit(self, function: Any, *arguments: Any) -> Any:
        result = function(*arguments)
        return SimpleNamespace(result=lambda timeout: result)


def _infos_without_times(bundle: Any) -> list[Any]:
    infos: dict[Any, Any] = {}
    for name, operation in bundle.ops.items():
        outputs = dict(bundle.process_bundle_descriptor.transforms[name].outputs)
        infos.update(operation.pcollection_count_monitoring_infos(outputs))
        infos.update(operation.user_monitoring_infos(name))
    return list(infos.values())


def _descriptor_of_stage(manager: Any) -> Any:
    from apache_beam.portability.api import beam_fn_api_pb2

    parts, transforms = manager.execution_context.pipeline_components, manager.stage.transforms
    used = {name for each in transforms for ends in (each.inputs, each.outputs) for name in ends.values()}
    return beam_fn_api_pb2.ProcessBundleDescriptor(
        id=manager.bundle_uid,
        transforms={each.unique_name: each for each in transforms},
        pcollections={name: parts.pcollections[name] for name in used},
        coders=dict(parts.coders.items()),
        windowing_strategies=dict(parts.windowing_strategies.items()),
        environments=dict(parts.environments.items()),
        state_api_service_descriptor=manager.state_api_service_descriptor(),
        timer_api_service_descriptor=manager.data_api_service_descriptor(),
    )


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


def _signature_key(function: Any) -> Hashable | None:
    """Equal for functions whose code, name, defaults and annotations are equal; None for other callables."""
    plain = function.__func__ if isinstance(function, MethodType) else function
    if type(plain) is not FunctionType:
        return None
    if plain.__dict__:
        # Its attributes may be those of another function, which it wraps.
        return None if "<" in plain.__qualname__ else (plain is function, plain)
    defaults = plain.__defaults__, tuple((plain.__kwdefaults__ or {}).items())
    key = plain is function, plain.__code__, plain.__name__, defaults, tuple(plain.__annotations__.items())
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _by_signature(compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Keeps the results of a function of functions."""
    kept: dict[Hashable, Any] = {}

    @functools.wraps(compute)
    def computed(function: Any) -> Any:
        key = _signature_key(function)
        if key is None:
            return compute(function)
        if key not in kept:
            kept[key] = compute(function)
        return kept[key]

    return computed


def _keep_option_names(visible: Any) -> Any:
    kept: dict[tuple[str, ...], list[str]] = {}

    @functools.wraps(visible)
    def names(options: Any) -> list[str]:
        key = tuple(vars(options._visible_options))
        if key not in kept:
            kept[key] = visible(options)
        return kept[key]

    return names


def _keep_submodules(find: Any) -> Any:
    kept: dict[Any, list[ModuleType]] = {}

    @functools.wraps(find)
    def found(code: Any, dependencies: Any) -> list[ModuleType]:
        dependencies = list(dependencies)
        modules = tuple(each.__name__ for each in dependencies if isinstance(each, ModuleType))
        key = code, modules, len(sys.modules)
        if key not in kept:
            kept[key] = find(code, dependencies)
        return list(kept[key])

    return found
