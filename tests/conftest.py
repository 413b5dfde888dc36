"""Configuration of all tests: warnings are errors, except some of other projects about themselves.

The examples that hypothesis tries are the same in every run; LABELDP_EXPLORE=1 tries new ones, and LABELDP_EXPLORE=20
twenty times as many.
"""

import functools
import gc
import gettext
import importlib
import os
import runpy
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

_THIRD_PARTY_WARNINGS = (
    # Google's libraries warn on import about the end of support for a Python version.
    "ignore:You are using a Python version:FutureWarning:google.api_core._python_version_support",
    # Threads of servers and runners use it at any time, which hypothesis takes for the strategy that draws then.
    "ignore:Do not use the `random` module inside strategies:hypothesis.errors.HypothesisDeprecationWarning",
)

# One thread for each library, in processes that tests start, too: threads of two workers of pytest-xdist wait for each
# other. The libraries read it when they are loaded.
assert "numpy" not in sys.modules
for _pool in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_pool, "1")

_TESTS = Path(__file__).parent
# Fixtures of commands, releases and texts, which tests of core and wings share.
pytest_plugins = ["tests.commands", "tests.gallery", "tests.snapshots"]
_keep_results_of_beam = runpy.run_path(str(_TESTS / "kept_between_jobs.py"))["keep_results"]
_solutions = runpy.run_path(str(_TESTS / "kept_solutions.py"))["KeptSolutions"]()
_loggers_restored = runpy.run_path(str(_TESTS / "restored_loggers.py"))["loggers_restored"]
# Centers that are fitted in a process: tests read the same ones again and again.
_MOST_FITS = 50
# Tests of the solvers, and those that change them; those that use solvers may be answered with what was found before.
_SOLVE = (_TESTS / "mechanisms", _TESTS / "attack")
_USE = tuple(_TESTS / "mechanisms" / name for name in ("analysis", "center"))

# Lanes of tests by folder or file, the first that holds it; all others are of the lane `unit`.
_STORES = "transforms/stores"
_LANE_PATHS = {
    "engine": ("engines",),
    "browser": ("report/test_report_browser.py",),
    "privacy": ("privacy",),
    "docs": ("docs",),
    "job": ("embedding", "pipelines", "audit", "attack", "report", "study", "training", "templates", "fuzz", _STORES),
}
_LANES = {lane: [(_TESTS / path).resolve(strict=True) for path in paths] for lane, paths in _LANE_PATHS.items()}
# More than half of the CPU time is theirs: simulations of estimates and of attacks, tables of papers, centers and
# documents with every fault, other processors, stores, killed runs, whole commands beside the main ones, and pages
# whose examples take long. `make test` leaves them out.
_SLOW_PATHS = """
    attack/test_feature_leaks.py attack/test_truth_attack.py audit/test_center_predictions.py
    audit/test_class_center_audit.py audit/test_malformed_documents.py audit/test_planted_centers.py
    audit/test_planted_records.py benchmarks
    docs/test_notebooks.py docs/test_site.py docs/test_training_guides.py fuzz
    mechanisms/additive/test_additive.py mechanisms/analysis/test_planning.py mechanisms/center/test_cell_center.py
    mechanisms/quantization/test_published_figures.py mechanisms/test_cpu_matrix.py pipelines/demo pipelines/faults
    pipelines/finish/test_finish_command.py pipelines/job/test_boolean_labels.py
    pipelines/job/test_core_without_extras.py pipelines/job/test_job_metrics.py
    pipelines/job/test_mechanisms_on_census.py pipelines/job/test_tables.py
    pipelines/remove/test_remove_command.py pipelines/stores report/test_claim_file.py report/test_every_state.py
    report/test_report_browser.py report/test_report_input.py study/test_compare_command.py
    study/test_evaluate_command.py study/test_plan_command.py templates/test_beam_yaml.py templates/test_dataflow.py
    test_packaging.py test_without_posix.py training/test_class_curves.py training/test_class_estimates.py
    training/test_class_training.py training/test_estimates.py
    transforms/test_center_attacks.py transforms/validation
"""
_SLOW = [(_TESTS / path).resolve(strict=True) for path in _SLOW_PATHS.split()]
_LONGEST_ID = 80
_STARTED = pytest.StashKey[float]()

# Hypothesis's own limits of time measure how busy the machine is.
settings.register_profile("fixed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
_EXPLORE = int(os.environ.get("LABELDP_EXPLORE") or 0)
settings.load_profile("default" if _EXPLORE else "fixed")
if not _EXPLORE:
    # Hypothesis also tries constants of the project's modules: of those that earlier tests of the process have loaded.
    mock.patch.object(providers, "_get_local_constants", providers.Constants).start()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the flag of the durations file."""
    parser.addoption("--durations_file", help="file to write: seconds, CPU seconds and name of each test")


def pytest_configure(config: pytest.Config) -> None:
    """Adds to the filters of pyproject.toml."""
    # With the libraries loaded, Python would spend a tenth of the time on looking for garbage.
    gc.set_threshold(50_000, 20, 100)
    # Every text of argparse looks for translations on the disk.
    texts: Any = gettext
    texts.find = functools.cache(gettext.find)
    for line in _THIRD_PARTY_WARNINGS:
        config.addinivalue_line("filterwarnings", line)


# Before pytest-xdist reads the groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lets one worker of pytest-xdist run the tests that share fixtures of their module, which are then made once.

    Marks each test with its lane, and gives each property its number of examples.
    """
    for item in items:
        lanes = (lane for lane, paths in _LANES.items() if any(map(item.path.is_relative_to, paths)))
        item.add_marker(next(lanes, "unit"))
        if any(map(item.path.is_relative_to, _SLOW)):
            item.add_marker("slow")
        fixtures = [made[-1] for made in item._fixtureinfo.name2fixturedefs.values()]  # type: ignore[attr-defined]
        shared = [each for each in fixtures if each.scope != "function" and each.baseid.endswith(".py")]
        if shared and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    if _EXPLORE > 1:
        for test in {getattr(item.obj, "__func__", item.obj) for item in items if isinstance(item, pytest.Function)}:
            if getattr(test, "is_hypothesis_test", False):
                own: Any = test._hypothesis_internal_use_settings or settings.default
                test._hypothesis_internal_use_settings = settings(own, max_examples=own.max_examples * _EXPLORE)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names long texts by their parameter and length."""
    return f"{argname} of {len(val)}" if isinstance(val, str | bytes) and len(val) > _LONGEST_ID else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Makes Beam and solvers keep their results, as soon as a test has loaded them."""
    _solutions.watch()
    solve, use = (any(item.path.is_relative_to(folder) for folder in folders) for folders in (_SOLVE, _USE))
    _solutions.used = use or not solve
    if latest_fit := sys.modules.get("labeldp.mechanisms.center.latest_fit"):
        vars(latest_fit)["MOST_KEPT"] = 1 if solve else _MOST_FITS
    if "apache_beam" in sys.modules:
        _keep_results_of_beam()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Restores the loggers that a command configured in this process: a test would find them in another state."""
    item.stash[_STARTED] = sum(os.times()[:4])
    with _loggers_restored():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Adds the CPU time of the test, with its fixtures and the processes that it waited for."""
    report = yield
    if call.when == "teardown":
        report.user_properties.append(("cpu", sum(os.times()[:4]) - item.stash[_STARTED]))
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Writes the durations file: seconds, CPU seconds and name of each test, the slowest first."""
    if path := config.getoption("--durations_file"):
        seconds: dict[str, float] = {}
        cpu: dict[str, float] = {}
        for report in (each for reports in terminalreporter.stats.values() for each in reports):
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
                if report.when == "teardown":
                    cpu[report.nodeid] = float(dict(report.user_properties)["cpu"])  # type: ignore[arg-type]
        lines = [f"{seconds[name]:8.2f} {cpu.get(name, 0.0):8.2f} {name}\n" for name in seconds]
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("".join(sorted(lines, key=lambda line: -float(line.split()[0]))))


@pytest.fixture(scope="session")
def data_sets(pytestconfig: pytest.Config) -> Path:
    """Folder of the data sets of docs/results: LABELDP_DATA, or shared/data beside the checkout. Skips without it."""
    named = os.environ.get("LABELDP_DATA")
    folder = Path(named or pytestconfig.rootpath / ".." / "shared" / "data").resolve()
    if not named and not folder.is_dir():
        pytest.skip("no data sets: name the folder of those of docs/results/README.md in LABELDP_DATA")
    assert folder.is_dir(), f"LABELDP_DATA: {folder} is missing"
    return folder


@pytest.fixture(scope="session")
def loggers_restored() -> Callable[[], AbstractContextManager[None]]:
    """The function of that name in restored_loggers.py."""
    return _loggers_restored


@pytest.fixture(scope="session")
def beam_yaml() -> ModuleType:
    """Beam's program for YAML jobs, without its transforms for machine learning.

    No job uses them, and importing them takes 10 seconds of CPU time, for TensorFlow and others.
    """

    def any_class(name: str) -> type:
        if name.startswith("__"):  # Others read the files of all modules, such as hypothesis.
            raise AttributeError(name)
        return object

    unused = ModuleType("apache_beam.yaml.yaml_ml")
    vars(unused)["__getattr__"] = any_class
    sys.modules.setdefault(unused.__name__, unused)
    from apache_beam.yaml import main

    return main


@pytest.fixture
def new_catalog(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Function (name, folder, setting=value, ...) -> a catalog of pyiceberg, in SQLite, with tables in that folder."""
    catalogs = pytest.importorskip("pyiceberg.catalog")
    made = []

    def make(name: str, folder: Path, **settings: str) -> Any:
        settings = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse", **settings}
        for key, value in settings.items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__{name.upper()}__{key.upper()}", value)
        # It reads its configuration when it is imported.
        monkeypatch.setattr(catalogs, "_ENV_CONFIG", importlib.import_module("pyiceberg.utils.config").Config())
        made.append(catalogs.load_catalog(name))
        return made[-1]

    yield make
    for catalog in made:
        catalog.close()
