"""Configuration of all tests: warnings are errors, except warnings of other projects about themselves on import.

The examples that hypothesis tries are the same in every run; LABELDP_EXPLORE=1 tries new ones.

In the processes of pytest, Beam keeps what it otherwise computes again for every stage of every job, more than half of
a small job's CPU time. Commands that tests run in processes of their own use Beam as it is.
"""

import functools
import os
import sys
from collections.abc import Callable
from types import MethodType
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from hypothesis import settings

_THIRD_PARTY_WARNINGS = (
    # Google's libraries warn on import about the end of support for a Python version.
    "ignore:You are using a Python version:FutureWarning:google.api_core._python_version_support",
)

settings.register_profile("fixed", derandomize=True)
settings.load_profile("default" if os.environ.get("LABELDP_EXPLORE") else "fixed")


def pytest_configure(config: pytest.Config) -> None:
    """Adds to the filters of pyproject.toml."""
    for line in _THIRD_PARTY_WARNINGS:
        config.addinivalue_line("filterwarnings", line)


# Before pytest-xdist reads the groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lets one worker of pytest-xdist run the tests that share fixtures of their module, which are then made once."""
    for item in items:
        fixtures = [made[-1] for made in item._fixtureinfo.name2fixturedefs.values()]  # type: ignore[attr-defined]
        shared = [each for each in fixtures if each.scope != "function" and each.baseid.endswith(".py")]
        if shared and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_runtest_setup() -> None:
    """Makes Beam keep its results, as soon as a test has loaded it."""
    if "apache_beam" in sys.modules:
        _keep_results_of_beam()


@functools.cache
def _keep_results_of_beam() -> None:
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.transforms import core, userstate

    PipelineOptions.view_as = _keep_views(PipelineOptions.view_as)
    core.get_signature = _keep_signatures(core.get_signature)
    userstate.get_dofn_specs = _keep_specs(userstate.get_dofn_specs)


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
