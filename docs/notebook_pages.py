"""Adds a page for each notebook to the site: its text, its code, and the outputs that it stores (hook of mkdocs)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "notebooks"


def notebook_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """Converts a notebook to Markdown.

    Args:
      path: The notebook, with its outputs.

    Returns:
      The Markdown, and its pictures by file name.
    """
    parts, pictures = [], {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for kind, content in _outputs(cell):
            if kind == "image/png":
                name = f"{path.stem}-{len(pictures)}.png"
                pictures[name] = base64.b64decode(content)
                parts.append(f"![Output of the code above]({name})")
            else:
                parts.append(f"```text\n{content.rstrip()}\n```")
    return "\n\n".join(parts) + "\n", pictures


def _outputs(cell: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Kind and content of each output of a cell; pictures rather than their text."""
    for output in cell["outputs"]:
        found = output.get("data", {"text/plain": output.get("text", "")})
        kind = "image/png" if "image/png" in found else "text/plain"
        yield kind, "".join(found[kind])


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages and their pictures.

    Args:
      files: The files of the site.
      config: The configuration of mkdocs.

    Returns:
      The same files with the new ones.
    """
    from mkdocs.structure.files import File

    for path in sorted(FOLDER.glob("*.ipynb")):
        page, pictures = notebook_page(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    return files
