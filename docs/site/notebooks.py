"""Tutorials: notebooks without outputs in the repository, executed copies of them on the site."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from html import escape
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "tutorials"
PACKAGES = ("workflow", "loader", "training", "exporter", "triton_models", "serving")
EXECUTED = ROOT / "build" / "tutorials"
# Colours, and messages of TensorFlow with paths of the machine.
_NOISE = re.compile(r"\x1b\[[0-9;]*m|^INFO:tensorflow:.*\n?", re.MULTILINE)


def execute(path: Path, folder: Path) -> Any:
    """Run a notebook in a folder, in a kernel of its own.

    Returns:
        The notebook with its outputs.

    Raises:
        CellExecutionError: a cell raised an error.
    """
    import nbclient  # noqa: PLC0415 - it takes seconds, and most builds execute nothing

    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    client = nbclient.NotebookClient(notebook, timeout=280, resources=resources)
    client.execute(stderr=subprocess.DEVNULL)  # libraries write there before Python starts
    return notebook


def executed(path: Path) -> Any:
    """The executed copy of a notebook: kept for as long as neither it nor the packages change.

    With the environment variable `TUTORIALS=source` the notebook itself, without outputs.
    """
    if os.environ.get("TUTORIALS") == "source":
        return nbformat.read(path, as_version=4)
    kept = EXECUTED / f"{path.stem}-{_content(path)}.ipynb"
    if not kept.exists():
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(path, Path(folder))
        kept.parent.mkdir(parents=True, exist_ok=True)
        for old in kept.parent.glob(f"{path.stem}-*.ipynb"):
            old.unlink()
        nbformat.write(notebook, kept)
    return nbformat.read(kept, as_version=4)


def _content(path: Path) -> str:
    files = [path, *sorted(f for name in PACKAGES for f in (ROOT / name).rglob("*.py"))]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


def page(path: Path) -> tuple[str, list[str]]:
    """A notebook as Markdown, and the HTML for each of its places `<div data-output="0">`."""
    notebook, parts, pictures = executed(path), [], list[str]()
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source.replace(".ipynb)", ".md)"))
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            if shown := _shown(output):
                parts.append(f'<div data-output="{len(pictures)}"></div>')
                pictures.append(shown)
    title, *rest = parts
    link = f"[Open it in Jupyter]({path.name}): the same, to be run."
    return "\n\n".join([title, link, *rest]) + "\n", pictures


def _shown(output: Any) -> str:
    """An output as HTML: its picture or its text.

    Messages on the standard error are left out, and so is progress, which depends on the machine.
    """
    data = output.get("data", {})
    if output.output_type == "display_data" and "text/html" not in data:
        return ""
    if "text/html" in data:
        return f'<div class="output">{data["text/html"]}</div>'
    text = output.text if output.get("name") == "stdout" else data.get("text/plain", "")
    plain = escape(_NOISE.sub("", text).rstrip())
    return f'<div class="output"><pre><code>{plain}</code></pre></div>' if plain else ""
