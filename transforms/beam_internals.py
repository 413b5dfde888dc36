"""Gaps of Beam, and its parts that are not public: all uses of them, but that of Flink's worker, which stands alone.

`tests/embedding` and `tests/pipelines/job/test_local_runner.py` use each, so a release of Beam that changes it is told.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from graphlib import TopologicalSorter
from types import FunctionType, MethodType, UnionType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Union, cast, get_args
from weakref import WeakKeyDictionary

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.value_provider import RuntimeValueProvider
from apache_beam.pvalue import DoOutputsTuple, PCollection
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms import core
from apache_beam.transforms.environments import EmbeddedPythonEnvironment
from apache_beam.typehints.row_type import RowTypeConstraint

if TYPE_CHECKING:
    from apache_beam.portability.api import beam_runner_api_pb2
    from apache_beam.runners.portability.fn_api_runner.translations import Stage, TransformContext
    from google.auth.credentials import Credentials

T = TypeVar("T")
_View: TypeAlias = Callable[[PipelineOptions, type[PipelineOptions]], PipelineOptions]
_Sign: TypeAlias = Callable[[Callable[..., object]], inspect.Signature]


def typed_outputs(outputs: DoOutputsTuple, kinds: Mapping[str, Any]) -> dict[str, PCollection[Any]]:
    """Gives each output of a ParDo with several the type of its elements, by tag; the ParDo itself declares `object`.

    Beam has one type for all outputs of a stage: its coder would be that of other elements, and its type checks at run
    time (`--performance_runtime_type_check`) compare each output with the types of the consumers of all of them. So the
    only consumer is a stage that takes anything. It can go once Beam 2.69 does, if types of tags are then checked.
    """
    assert outputs.producer is not None
    name, typed = outputs.producer.full_label.rpartition("/")[2], {}
    for tag, kind in kinds.items():
        output = outputs[tag]
        output.element_type = kind
        typed[tag] = output | f"{name} {tag}" >> beam.Map(_same).with_output_types(kind)
    return typed


def schema_fields(kind: Any) -> dict[str, Any] | None:
    """Types of the fields of rows by name, given the type of the rows; None for elements without a schema.

    Beam has no other way to list them with their Python types, which a schema of its own loses. It does not know unions
    as Python writes them.
    """
    rows, union = RowTypeConstraint.from_user_type(kind) or kind, cast(Any, Union)
    if not isinstance(rows, RowTypeConstraint):
        return None
    return {name: union[get_args(kind)] if isinstance(kind, UnionType) else kind for name, kind in rows._fields}


class LocalRunner(FnApiRunner):
    """FnApiRunner, which opens no port, with each stage after those that it must follow.

    Beam sorts its stages over all that read or write a collection, so a reader can come before the writer (seen in
    Beam 2.77). The runner then takes the reader for the stage that fills a side input, and an empty one is read in
    its place: a bound of units would leave nothing out. Whether that happens depends on addresses in memory; it was
    seen where no stages are fused. It can go once `translations.sort_stages` looks for writers alone.
    """

    def create_stages(self, pipeline_proto: beam_runner_api_pb2.Pipeline) -> tuple[TransformContext, list[Stage]]:
        """Makes the stages as FnApiRunner does, and sorts them."""
        context, stages = super().create_stages(pipeline_proto)
        known = frozenset(stages)
        before = {stage: (stage.must_follow & known) - {stage} for stage in stages}
        return context, list(TopologicalSorter(before).static_order())


def option_parser() -> argparse.ArgumentParser:
    """Parser of the flags of all runners, without abbreviations. Beam has none that tells which flags are unknown."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, add_help=False, conflict_handler="resolve", exit_on_error=False
    )
    for family in _below(PipelineOptions):
        family._add_argparse_args(parser)
    return parser


def _below(base: type) -> list[Any]:
    """Lists all subclasses, direct and indirect."""
    below = base.__subclasses__()
    return below + [deeper for kind in below for deeper in _below(kind)]


def has_grpc_workers(runner: object) -> bool:
    """Tells if a runner in this process was given workers that listen on ports, which no option shows."""
    environment = getattr(runner, "_default_environment", None)
    return isinstance(runner, FnApiRunner) and not isinstance(environment, EmbeddedPythonEnvironment)


@contextlib.contextmanager
def kept_results() -> Iterator[None]:
    """Makes Beam keep, for a block, what it otherwise computes again for every transform.

    It asks for views of its options some 1,000 times in a job, and builds a parser of command lines for each; and it
    reads the signatures of all methods of each DoFn whenever it looks for their state and timers, 30,000 times in a
    job. Measured on 2,000 records with all defaults: 18 % more CPU time without it, half for views and half for
    signatures. It can go once `PipelineOptions.view_as` and `core.get_signature` keep their results in Beam; a release
    without the second one keeps less. Blocks may overlap, in threads as well: the last one puts both back.
    """
    with _LOCK:
        if not _REPLACED:
            _replace(PipelineOptions, "view_as", _keep_views)
            _replace(core, "get_signature", _keep_signatures)
        _BLOCKS.append(None)
    try:
        yield
    finally:
        with _LOCK:
            _BLOCKS.pop()
            while _REPLACED and not _BLOCKS:
                setattr(*_REPLACED.pop())


_LOCK = threading.Lock()
_BLOCKS: list[None] = []
_REPLACED: list[tuple[object, str, object]] = []


def _replace(owner: object, name: str, keep: Callable[[Any], object]) -> None:
    if hasattr(owner, name):
        _REPLACED.append((owner, name, getattr(owner, name)))
        setattr(owner, name, keep(getattr(owner, name)))


def _keep_views(view_as: _View) -> _View:
    """Keeps the views of options. All views of the same options share their values."""
    kept: WeakKeyDictionary[PipelineOptions, dict[type, PipelineOptions]] = WeakKeyDictionary()

    @functools.wraps(view_as)
    def view(options: PipelineOptions, cls: type[PipelineOptions]) -> PipelineOptions:
        views = kept.setdefault(options, {})
        if cls not in views:
            views[cls] = view_as(options, cls)
        return views[cls]

    return view


def _keep_signatures(get_signature: _Sign) -> _Sign:
    """Keeps the signatures of methods, which are those of their functions without the first parameter."""
    kept: WeakKeyDictionary[Callable[..., object], inspect.Signature] = WeakKeyDictionary()

    @functools.wraps(get_signature)
    def signature(func: Callable[..., object]) -> inspect.Signature:
        if not (isinstance(func, MethodType) and isinstance(func.__func__, FunctionType)):
            return get_signature(func)
        if func.__func__ not in kept:
            kept[func.__func__] = get_signature(func)
        return kept[func.__func__]

    return signature


def options_of_filesystems() -> PipelineOptions | None:
    """Options that Beam's filesystems have in this process, or those that the runner has sent to its worker."""
    return FileSystems._pipeline_options or RuntimeValueProvider.runtime_options


def impersonated(credentials: Credentials, options: PipelineOptions) -> Credentials:
    """Credentials of the service account of Beam's options, without the half minute of retries of `get_credentials`."""
    from apache_beam.internal.gcp import auth

    return auth._Credentials._add_impersonation_credentials(credentials, options)


def _same(element: T) -> T:
    return element
