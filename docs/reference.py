"""Hook of mkdocs that generates the API reference: a page for each package, and one that lists all modules."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("labeldp", "mechanisms", "transforms", "pipelines", "templates", "benchmarks")
# Programs that import nothing of their folder's package: listed, but no part of the API.
PROGRAMS = ("benchmarks", "benchmarks/baselines", "templates/flink", "templates/spark", "templates/dataflow")
MODULES = "reference/modules.md"
"""Page that lists all modules."""
FIELDS = "reference/fields.md"
"""Page of the fields of a release, and of who takes them."""
DOCUMENTS = "reference/documents.md"
"""Page of the documents of a release, member by member."""
LOADED = {"label_privatizer": "LabelPrivatizer, NotFittedError"}
"""Modules with docstrings of which parts are generated when they are loaded, and what is shown of them."""


def packages() -> dict[str, list[Path]]:
    """Modules by their folder, in the order of `FOLDERS`, folders within them by name.

    Returns:
      Folder, relative to the root, to its modules without `__init__.py`.
    """
    found: dict[str, list[Path]] = {}
    for top in FOLDERS:
        for path in sorted((ROOT / top).rglob("*.py"), key=lambda path: (path.parent.as_posix(), path.name)):
            folder = found.setdefault(path.parent.relative_to(ROOT).as_posix(), [])
            if path.name not in ("__init__.py", "__main__.py"):
                folder.append(path)
    return found


def first_line(path: Path) -> str:
    """First sentence or line of a module's docstring.

    Args:
      path: The module.

    Returns:
      The line without its final period; empty where the module has no docstring.
    """
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ").rstrip(".")


def module_tables() -> str:
    """The tables of all modules.

    Returns:
      Markdown: a heading and a table for each folder.
    """
    parts = []
    for folder, modules in packages().items():
        init = ROOT / folder / "__init__.py"
        about = f"\n\n{first_line(init)}." if init.exists() else ""
        rows = [f"| `{path.stem}` | {first_line(path)} |" for path in modules]
        table = "\n\n" + "\n".join(["| module | |", "|---|---|", *rows]) if rows else ""
        parts.append(f"## {folder}/{about}{table}")
    return "\n\n".join(parts)


def field_table() -> str:
    """The table of all fields of a release, of their declarations.

    Returns:
      Markdown: a row for each field, with the commands and classes that take it.
    """
    import inspect

    import labeldp
    from labeldp.pipelines.cli.commands import command_parser
    from labeldp.pipelines.errors import FieldNames, as_flag
    from labeldp.pipelines.spec.fields import Fields, declared, flag_name
    from labeldp.templates.beam_yaml import LabelDP

    commands = {name: command_parser(name).flags() for name in ("privatize", "fit", "apply")}
    classes = (labeldp.LabelPrivatizer, labeldp.PrivatizeFiles, LabelDP)
    rows = ["| flag | what it says | taken by |", "|---|---|---|"]
    for name, each in declared(Fields).items():
        text = FieldNames(each.metadata["help"]).text(as_flag).replace("|", "\\|")
        takers = [command for command, flags in commands.items() if flag_name(name) in flags]
        takers += [f"`{each.__name__}`" for each in classes if name in inspect.signature(each).parameters]
        rows.append(f"| `--{flag_name(name)}` | {text} | {', '.join(takers)} |")
    return "\n".join(rows)


def document_tables() -> str:
    """The tables of the members of all documents of a release, and of the objects in them.

    Returns:
      Markdown: a heading and a table for each object, with the type, the meaning and the range of each member.
    """
    schema = json.loads((ROOT / "labeldp" / "documents.json").read_text(encoding="utf-8"))

    def target(form: Any) -> Any:
        if "/properties/" not in form.get("$ref", ""):
            return form
        *_, owner, _, name = form["$ref"].split("/")
        return target(schema["$defs"][owner]["properties"][name])

    def kind(form: Any) -> str:
        if "$ref" in form:
            name = form["$ref"].rpartition("/")[2]
            return f"[{name}](#{name})"
        if "anyOf" in form:
            return " or ".join(map(kind, form["anyOf"]))
        if "items" in form and form["type"] == "array":
            return f"array of {kind(form['items'])}"
        if "additionalProperties" in form:
            return f"object of {kind(form['additionalProperties'])}"
        return " or ".join(form["type"] if isinstance(form["type"], list) else [form["type"]])

    def limits(form: Any) -> str:
        inner = form.get("items") or form.get("additionalProperties") or {}
        texts = [_range(form, "minimum", "maximum"), ", ".join(map(str, form.get("enum", ())))]
        texts += [f"`{form['pattern']}`" if "pattern" in form else "", limits(inner) if inner else ""]
        sizes = _range(form, "minItems", "maxItems")
        texts += [f"{sizes} entries" if sizes else ""]
        return "; ".join(filter(None, texts)).replace("|", "\\|")

    parts = [f"Version {schema['version']}."]
    for name, owner in schema["$defs"].items():
        rows = ["| member | type | what it says | range |", "|---|---|---|---|"]
        for key, part in owner["properties"].items():
            form, lacking = target(part), "" if key in owner["required"] else ", may be absent"
            rows.append(f"| `{key}` | {kind(form)}{lacking} | {form['description']} | {limits(form)} |")
        parts.append(f"## {name}\n\n{owner['description']}\n\n" + "\n".join(rows))
    return "\n\n".join(parts)


def _range(form: Any, least: str, most: str) -> str:
    ends = [_power(form[key]) for key in (least, most) if key in form]
    return "" if not ends else " to ".join(ends) if len(ends) == 2 else f"at least {ends[0]}"


def _power(value: float) -> str:
    """Text of a bound: large powers of two as such."""
    if isinstance(value, float) or abs(value) < 1 << 10:
        return f"{value:,}"
    size, more = (abs(value), "") if abs(value) & (abs(value) - 1) == 0 else (abs(value) + 1, " - 1")
    if size & (size - 1):
        return f"{value:,}"
    power = f"2^{size.bit_length() - 1}{more}"
    return power if value > 0 else f"-({power})" if more else f"-{power}"


def reference_pages() -> dict[str, str]:
    """The pages of the API reference.

    Returns:
      Path of the page, relative to the docs, to its Markdown.
    """
    about = "A flag of a command is a keyword of the same name in Python and Beam YAML, `for_` for `--for`."
    pages = {MODULES: f"# Modules\n\n{module_tables()}\n", FIELDS: f"# Fields\n\n{about}\n\n{field_table()}\n"}
    about = (
        "Members of mechanism.json, release.json, center.json and signature.json, in the order that labeldp writes "
        "them. The form is `documents.json` in the package, a JSON Schema; readers and the audit interpret it."
    )
    pages[DOCUMENTS] = f"# Documents\n\n{about}\n\n{document_tables()}\n"
    for folder, modules in packages().items():
        if folder in PROGRAMS:
            continue
        name = f"labeldp.{folder.replace('/', '.')}".replace("labeldp.labeldp", "labeldp")
        lines = [f"# {name}", "", f"{first_line(ROOT / folder / '__init__.py')}.", ""]
        for path in modules:
            lines += [f"## {path.stem}", "", f"::: {name}.{path.stem}", "    options:"]
            lines += ["      show_root_heading: false", "      show_root_toc_entry: false", ""]
            if path.stem in LOADED:
                lines[-1:] = ["      force_inspection: true", f"      members: [{LOADED[path.stem]}]", ""]
        if modules:
            pages[f"reference/{name}.md"] = "\n".join(lines)
    return pages


def on_config(config: Any) -> Any:
    """Adds the API reference to the navigation (hook of mkdocs).

    Args:
      config: The configuration of mkdocs.

    Returns:
      The same configuration.
    """
    groups: dict[str, list[dict[str, str]]] = {}
    for page in reference_pages():
        if page in (MODULES, FIELDS, DOCUMENTS):
            continue
        name = page.removeprefix("reference/").removesuffix(".md")
        # The root of the package has a group of its own.
        groups.setdefault(name.removeprefix("labeldp.").split(".")[0], []).append({name.removeprefix("labeldp."): page})
    first = [{"Overview": "reference/index.md"}, {"Modules": MODULES}, {"Fields": FIELDS}, {"Documents": DOCUMENTS}]
    config.nav.append({"API reference": [*first, *({top: pages} for top, pages in groups.items())]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages of the API reference (hook of mkdocs).

    Args:
      files: The files of the site.
      config: The configuration of mkdocs.

    Returns:
      The same files with the new pages.
    """
    from mkdocs.structure.files import File

    for page, text in reference_pages().items():
        files.append(File.generated(config, page, content=text))
    return files
