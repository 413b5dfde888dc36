"""Layout of the code: imports follow the layer order without cycles, folders are small, file names are unique."""

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("mechanisms", "transforms", "pipelines", "templates")
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for layer in LAYERS
    for path in (ROOT / layer).rglob("*.py")
}
MOST_MODULES = 12


def imports(name: str, everywhere: bool) -> set[str]:
    """Modules of the project that a module imports, at its top level or everywhere in it."""
    path = MODULES[name]
    tree = ast.parse(path.read_text())
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in MODULES else base)
    return found


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_one_way(name: str) -> None:
    layer = LAYERS.index(name.split(".")[0])
    for other in imports(name, everywhere=True):
        assert LAYERS.index(other.split(".")[0]) <= layer, other


def test_no_circle_of_imports() -> None:
    graph = {name: imports(name, everywhere=False) for name in MODULES}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path, name])
        if name not in done:
            for other in graph.get(name, ()):
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_folders_are_small() -> None:
    counts = Counter(path.parent for path in MODULES.values() if path.name != "__init__.py")
    assert {str(folder): count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_no_two_modules_of_one_name() -> None:
    folders = [*LAYERS, "labeldp", "benchmarks", "docs"]
    names = [path.name for folder in folders for path in (ROOT / folder).rglob("*.py")]
    names += [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert {name for name, count in Counter(names).items() if count > 1} <= {"__init__.py"}
