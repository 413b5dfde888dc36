"""Layout of the code: a package imports only packages below it, a folder only folders below it, and no imports circle.

The core makes releases; the wings below `labeldp` stand beside it. Imports within functions and those for types alone
count as well.
"""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("mechanisms", "transforms", "pipelines", "templates", "labeldp")
WINGS = ("audit", "training", "report", "study", "attack")
ORDER = {
    "mechanisms": (
        "core", "noise", "additive", "response", "quantization", "unbiased", "registry", "center", "analysis",
        "release",
    ),
    "transforms": (
        "errors", "beam_internals", "progress_log", "job_metrics", "arrow_values", "class_values",
        "missing_labels", "stores", "io", "noise_key_file", "tfrecord", "batches", "csv_input", "shown_transform",
        "readers", "beam_rows", "usable_records", "input_checks", "units", "center", "release_passes",
        "solve_randomizer", "privatize_labels", "shards", "validation",
    ),
    "pipelines": (
        "errors", "ledger", "spec", "publish", "job", "api", "flags", "cli",
    ),
    "labeldp": (*WINGS, "__main__"),
}  # fmt: skip
"""Folders and modules of each package, from the lowest to the highest. ARCHITECTURE.md says what they hold."""
# What of the core imports the audit, which is a leaf: what publishes, and the command.
CALLERS_OF_AUDIT = {f"pipelines.cli.{name}" for name in ("audit_command", "existing_release", "remove_command")}
# What wings may import of the core, beside public names, which they take from `labeldp`, and `Released`.
READS = "pipelines.publish.released"
COMMANDS = """pipelines.errors pipelines.flags.arguments pipelines.spec.machine transforms.errors
    transforms.progress_log"""
FILES = "pipelines.spec.written_files transforms.io.filesystems"
FLAGS = "pipelines.flags.command_parser pipelines.flags.job_flags"
RECORDS = """mechanisms.center.feature_rows transforms.arrow_values transforms.batches transforms.center.feature_columns
    transforms.readers.file_reader"""
REQUESTS = """pipelines.spec.fields pipelines.spec.input_spec pipelines.spec.label_domain
    mechanisms.release.drawing"""
BESIDE = {
    # Replays what follows from noised numbers.
    "audit": """mechanisms.center.cell_partition mechanisms.center.center_model mechanisms.center.class_center
        mechanisms.center.class_document mechanisms.center.class_logit mechanisms.center.class_partition
        mechanisms.center.feature_rows mechanisms.center.linear_center mechanisms.center.residuals""",
    "training": f"""{READS} mechanisms.analysis.channel mechanisms.analysis.explained mechanisms.core.reproducible
        mechanisms.center.feature_rows mechanisms.release.feature_sample transforms.center.feature_columns
        pipelines.api.feature_frames pipelines.spec.machine""",
    # Figures of a page follow from the mechanism; sums of a ledger from its entries.
    "report": f"""{READS} {COMMANDS} {FILES} mechanisms.analysis.class_utility mechanisms.analysis.privacy_attacks
        mechanisms.analysis.utility mechanisms.analysis.verdict mechanisms.center.class_center
        mechanisms.center.class_trees mechanisms.center.marginal_center mechanisms.center.residuals
        mechanisms.core.budget mechanisms.core.integer_weights mechanisms.noise.sum_zero_laplace
        pipelines.flags.release_flags pipelines.ledger.charged_runs pipelines.ledger.spent_budget
        pipelines.publish.release_blocks pipelines.spec.label_folders pipelines.spec.yaml_file""",
    # Solves, plans and privatizes what it never releases.
    "study": f"""{COMMANDS} {FILES} {FLAGS} {RECORDS} {REQUESTS} mechanisms.analysis.planning
        mechanisms.analysis.utility mechanisms.center.residuals mechanisms.core.budget mechanisms.core.randomizer
        mechanisms.noise.noisy_histogram
        mechanisms.registry mechanisms.release.records_per_unit pipelines.api.array_release
        pipelines.cli.store_copies pipelines.cli.text_format pipelines.job.unit_counts pipelines.spec.label
        pipelines.spec.mechanism_spec
        pipelines.spec.prior_file pipelines.spec.target_checks transforms.io.input_format""",
    # Reads logs with true labels as well.
    "attack": f"""{READS} {COMMANDS} {FLAGS} {RECORDS} {REQUESTS} mechanisms.analysis.privacy_attacks
        pipelines.spec.release""",
}
# What of the core names modules of wings, which are loaded when they are used.
NAMES_WINGS = {"pipelines.cli.commands": WINGS, "pipelines.api.label_privatizer": ("report",)}
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for layer in LAYERS
    for path in (ROOT / layer).rglob("*.py")
}


def imports(name: str) -> set[str]:
    """Modules of the project that a module imports: at its top level, in a function, or for types alone."""
    path = MODULES[name]
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            above = ["labeldp", *package] if package[0] != "labeldp" else package
            parts = above[: len(above) - node.level + 1] if node.level else []
            base = ".".join([*parts, *filter(None, [node.module])])
            if not base.startswith("labeldp."):
                continue
            # The packages of the core lie beside the import root.
            inner = base.removeprefix("labeldp.")
            base = inner if inner.partition(".")[0] in LAYERS else base
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in MODULES else base)
    return found


def place(name: str) -> tuple[str, str]:
    """Package of a module, and its folder there, or its own name beside the folders; empty for the package itself."""
    layer, _, rest = name.partition(".")
    return layer, rest.partition(".")[0]


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_one_way(name: str) -> None:
    layer, folder = place(name)
    for other in imports(name):
        below, inner = place(other)
        if name in CALLERS_OF_AUDIT and other.startswith("labeldp.audit."):
            continue
        assert LAYERS.index(below) <= LAYERS.index(layer), other
        # The face of a package names what is in it.
        if below == layer and layer in ORDER and folder:
            assert ORDER[layer].index(inner) <= ORDER[layer].index(folder), other


def test_the_audit_is_a_leaf_but_for_replays_of_centers() -> None:
    """One module of the audit imports centers, to replay what follows from their noised numbers."""
    audit = {name: imports(name) for name in MODULES if name.startswith("labeldp.audit.")}
    shared = {
        name: {other for other in others if not other.startswith("labeldp.audit.")} for name, others in audit.items()
    }
    assert {name for name, others in shared.items() if others} == {"labeldp.audit.center_replay"}
    assert {other.rpartition(".")[0] for other in shared["labeldp.audit.center_replay"]} == {"mechanisms.center"}


@pytest.mark.parametrize("wing", WINGS)
def test_wings_see_a_release_as_one_object(wing: str) -> None:
    """A wing imports public names, and of the modules below no others than these; one that it left is left out here."""
    taken = set[str]().union(*(imports(name) for name in MODULES if name.startswith(f"labeldp.{wing}.")))
    assert {name for name in taken if not name.startswith("labeldp.")} - set(BESIDE[wing].split()) == set()
    assert set(BESIDE[wing].split()) <= {*taken} | {*f"{COMMANDS} {FILES}".split()}


def test_the_core_names_wings_where_they_are_offered() -> None:
    for name, path in MODULES.items():
        texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        named = {f"labeldp.{str(text).removeprefix('labeldp.').partition(':')[0]}" for text in texts}
        wings = {place(module)[1] for module in named & {*MODULES} if module.count(".") == 2} & {*WINGS}
        assert name.startswith("labeldp") or wings <= {*NAMES_WINGS.get(name, ())}, name


def test_the_order_has_every_folder() -> None:
    for layer, order in ORDER.items():
        assert {folder for each, folder in map(place, MODULES) if each == layer and folder} == {*order}


def test_no_circle_of_imports() -> None:
    """Between files, of all packages. The error names the modules of a circle."""
    TopologicalSorter({name: imports(name) for name in MODULES}).prepare()
