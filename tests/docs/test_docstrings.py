"""Docstrings: complete and in Google style where users import a name, one text without sections inside.

Parsed by griffe. A public function documents each parameter (Args), its result (Returns or Yields) and each exception
that it raises itself (Raises). A public class documents its fields (Attributes) or the parameters of its constructor
(Args). Everything else that has no underscore has a docstring.
"""

import ast
import importlib
import inspect
import pydoc
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import griffe
import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("mechanisms", "transforms", "pipelines", "templates")
MODULES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
    if path.parent.name not in ("flink", "spark", "dataflow")
)
# Methods that Beam calls and documents.
OVERRIDES = {
    "expand", "process", "setup", "teardown", "start_bundle", "finish_bundle", "create_accumulator", "add_input",
    "merge_accumulators", "compact", "extract_output", "encode", "decode", "is_deterministic", "to_type_hint",
    "default_label", "estimate_size", "error",
}  # fmt: skip
RIDDLES = ("What ", "Whether ", "Where ", "Of ", "Who ", "How ")


@cache
def module_of(path: str) -> griffe.Module:
    name = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    source = (ROOT / path).read_text()
    return griffe.visit(f"labeldp.{name}", filepath=ROOT / path, code=source)


def public(container: Any) -> Iterator[Any]:
    """Yields the functions, methods, properties and classes that users and other modules may use."""
    for member in container.members.values():
        if member.is_alias or member.name.startswith("_") or member.name in OVERRIDES:
            continue
        if member.is_class:
            yield member
            yield from public(member)
        elif member.is_function or (member.is_attribute and "property" in member.labels):
            yield member


def sections(member: Any) -> dict[str, set[str]]:
    """Maps each kind of section to the names in it (parameters, exceptions), or to a single empty name."""
    found: dict[str, set[str]] = {}
    docstring = member.docstring
    if any(str(each.value) == "_of_records" for each in getattr(member, "decorators", ())):
        # The decorator adds a section.
        owner = getattr(importlib.import_module(member.module.path), member.parent.name)
        docstring = griffe.Docstring(inspect.getdoc(getattr(owner, member.name)) or "", parent=member)
    for section in docstring.parse("google", warnings=False):
        names = section.value if isinstance(section.value, list) else []
        found[section.kind.value] = {
            getattr(each, "name", None) or str(getattr(each, "annotation", "")) for each in names
        }
    return found


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def raised(member: Any) -> set[str]:
    """Exception classes that the body raises by name, nested functions included."""
    tree = tree_of(Path(member.filepath))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == member.name and node.lineno >= member.lineno:
            if node.lineno > member.endlineno:
                continue
            for inner in ast.walk(node):
                if isinstance(inner, ast.Raise) and isinstance(inner.exc, ast.Call):
                    called = inner.exc.func
                    if isinstance(called, ast.Name):
                        names.add(called.id)
    return {name for name in names if name[:1].isupper()}


@cache
def classes() -> dict[str, Any]:
    return {name: each for path in MODULES for name, each in module_of(path).classes.items()}


def documented(member: Any) -> Any:
    """Finds the method of a base class whose docstring a method inherits; the member itself if it has its own."""
    if member.docstring is None and member.parent.is_class:
        inherited = next(of_bases(member.parent, member.name), None)
        if inherited is not None:
            return documented(inherited)
    return member


def of_bases(owner: Any, name: str) -> Iterator[Any]:
    """Yields the members of this name of the bases of a class, the nearest first."""
    for base in owner.bases:
        found = classes().get(str(base).partition("[")[0].split(".")[-1])
        if found is not None:
            yield from [found.members[name]] if name in found.members else of_bases(found, name)


def problems(member: Any) -> Iterator[str]:
    """Yields the parts that are missing from the docstring of a member, or from the one that it inherits."""
    source = documented(member)
    if source.docstring is None:
        yield "no docstring"
        return
    text = source.docstring.value
    if text.startswith(RIDDLES):
        yield f"the first line begins with {text.split()[0]!r}: name the thing, or begin with a verb"
    found = sections(source)
    if member.is_attribute:
        return
    if member.is_class:
        bases = {str(base).split(".")[-1] for base in member.bases}
        fields = {
            name for name, each in member.members.items()
            if each.is_attribute and not name.startswith("_") and "property" not in each.labels
            and each.annotation is not None and "ClassVar" not in str(each.annotation)
            and not str(each.value).startswith(("option(", "renewed("))  # declared with a text
        }  # fmt: skip
        wanted = fields if "dataclass" in member.labels or "NamedTuple" in bases else set()
        missing = wanted - found.get("attributes", set()) - found.get("parameters", set())
        if missing:
            yield f"Attributes: {', '.join(sorted(missing))}"
        constructor = member.members.get("__init__")
        # Others have the texts of declared fields, which the test below looks for.
        own = f"keywords_of({member.name}.__init__" not in Path(member.filepath).read_text().replace("(\n    ", "(")
        if constructor is not None and constructor.is_function and own:
            given = {each.name.lstrip("*") for each in constructor.parameters} - {"self"}
            named = found.get("parameters", set())
            if constructor.docstring is not None:
                for section in constructor.docstring.parse("google", warnings=False):
                    if section.kind.value == "parameters":
                        named |= {each.name for each in section.value}
            missing = given - {name.lstrip("*") for name in named}
            if missing:
                yield f"Args of the constructor: {', '.join(sorted(missing))}"
        return
    parameters = {each.name.lstrip("*") for each in member.parameters} - {"self", "cls"}
    missing = parameters - {name.lstrip("*") for name in found.get("parameters", set())}
    if missing:
        yield f"Args: {', '.join(sorted(missing))}"
    extra = {name.lstrip("*") for name in found.get("parameters", set())} - parameters
    if extra:
        yield f"Args that are no parameters: {', '.join(sorted(extra))}"
    returns = str(member.returns) if member.returns is not None else "None"
    if returns not in ("None", "NoReturn") and not {"returns", "yields"} & set(found):
        yield "Returns"
    missing = raised(member) - {name.split(".")[-1] for name in found.get("raises", set())}
    if missing:
        yield f"Raises: {', '.join(sorted(missing))}"


@cache
def exported() -> set[str]:
    """Names that users import: of the package, of its two layers for pipelines of their own, and of the kit."""
    names = ("labeldp", "labeldp.mechanisms", "labeldp.transforms", "labeldp.training")
    return {name for face in map(importlib.import_module, names) for name in face.__all__}


@pytest.mark.parametrize("path", MODULES)
def test_everything_has_a_docstring_and_what_users_import_a_complete_one(path: str) -> None:
    module = module_of(path)
    assert module.docstring is not None, "the module has no docstring"
    assert not module.docstring.value.startswith(RIDDLES)
    lacking = []
    for member in public(module):
        top = member.path.removeprefix(f"{module.path}.").partition(".")[0]
        found = list(problems(member))
        if top not in exported():
            found = [problem for problem in found if problem.startswith(("no docstring", "the first line"))]
        lacking += [f"{member.path}: {problem}" for problem in found]
    assert lacking == [], "\n" + "\n".join(lacking)


def test_what_takes_declared_fields_has_them_in_its_signature_and_help() -> None:
    """Each parameter with the text that its field declares, in the words of Python."""
    from labeldp import LabelPrivatizer, PrivatizeFiles
    from labeldp.templates.beam_yaml import LabelDP

    for taker in (LabelPrivatizer, PrivatizeFiles, LabelDP):
        help_text = pydoc.plain(pydoc.render_doc(taker))
        for name in inspect.signature(taker).parameters:
            assert re.search(rf"^ *\|? +{name}: [A-Z\"].{{9}}", help_text, re.MULTILINE), (taker, name)
        assert not re.search(r"\{\w+\}| --\w+_", inspect.getdoc(taker.__init__) or "")
    assert inspect.signature(LabelPrivatizer).parameters["epsilon"].default is inspect.Parameter.empty
    assert inspect.signature(LabelPrivatizer).parameters["loss"].default == "squared"


def test_griffe_parses_the_docstrings() -> None:
    """Counts the documented members that users import and their sections; the counts are printed with -s."""
    members = [
        documented(member)
        for path in MODULES
        for name, each in module_of(path).members.items()
        if name in exported() and not each.is_alias and (each.is_class or each.is_function)
        for member in [each, *public(each)]
    ]
    parsed = [sections(member) for member in members if member.docstring is not None]
    counts = {
        kind: sum(kind in found for found in parsed) for kind in ("parameters", "returns", "raises", "attributes")
    }
    print(f"{len(members)} public, {len(parsed)} with a docstring, sections: {counts}")
    assert len(parsed) == len(members) > 100
    assert min(counts.values()) > 0
