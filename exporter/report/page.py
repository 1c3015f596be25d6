"""Parts of pages that reports of an export and of a proof share, each a string of HTML without files."""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from exporter.report.ensemble_drawing import EnsembleDrawing
from exporter.report.latency import Latency, latency_chart
from workflow.files.store_commands import copy_command, server_path
from workflow.picture.markup import safe, table

_PACKAGES = (
    *("parquet-to-triton", "tensorflow-cpu", "tensorflow", "keras", "numpy", "polars"),
    *("onnx", "onnxruntime", "tritonclient", "nvidia-pytriton"),
)
# Colours come from the page, and lines are translucent, so that both suit light and dark.
_STYLE = """
.export-report { font: 14px/1.5 system-ui, sans-serif; max-width: 62rem; overflow-wrap: anywhere }
.export-report h1 { font-size: 1.4rem; margin: 0 }
.export-report h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem }
.export-report table { border-collapse: collapse; text-align: left }
.export-report th, .export-report td {
  padding: .2rem 1.2rem .2rem 0; border-bottom: 1px solid #8885; vertical-align: top;
  text-align: left }
.export-report code, .export-report pre {
  font: .92em ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace }
.export-report pre { padding: .7rem .9rem; background: #8882; border-radius: 6px }
.export-report pre { overflow-x: auto; overflow-wrap: normal }
.export-report summary { margin: 1rem 0 .4rem; font-weight: 600; cursor: pointer }
.export-report .options { columns: 17rem; margin: 0; padding: 0; list-style: none }
.export-report .options li { display: flex; justify-content: space-between; gap: 1rem;
  border-bottom: 1px solid #8885; break-inside: avoid }
"""


def in_styles(*sections: str) -> str:
    """Sections as a part of a page, including styles."""
    return f'<div class="export-report"><style>{_STYLE}</style>{"".join(sections)}</div>'


def heading(title: str, text: str, code: str) -> str:
    """The title, and a line of text that ends with code."""
    return f"<h1>{safe(title)}</h1><p>{safe(text)} <code>{safe(code)}</code></p>"


def picture(drawing: EnsembleDrawing) -> str:
    """The picture of a model, which a narrow page scrolls."""
    return f'<div style="overflow-x: auto">{drawing.to_svg()}</div>'


def measured(latency: Sequence[Latency], name: str, folder: str) -> str:
    """The chart of response times, or the command that measures them."""
    if latency:
        return f"<h2>Latency</h2>{latency_chart(latency)}"
    return (
        f"<h2>Latency</h2><p>Not measured in this page. <code>{safe(parity_command(name, folder))}"
        "</code> measures it as well.</p>"
    )


def parity_command(name: str, folder: str) -> str:
    """The command that proves a model, for a shell.

    Example:
        >>> parity_command("movielens", "my models")
        "ensemble parity movielens rows.parquet --repository 'my models'"
    """
    return shlex.join(["ensemble", "parity", name, "rows.parquet", "--repository", folder])


def how_to_serve(
    name: str, folder: str, note: str, ours: str = "", theirs: str = "", *, url: str = ""
) -> str:
    """Commands that serve a model of a repository, and ask it.

    Args:
        name: the model.
        folder: the repository on this machine.
        note: a requirement on Triton.
        ours: further options of `ensemble serve`.
        theirs: further flags of `tritonserver`.
        url: the repository, if it is in an object store.
    """
    place = server_path(url) if url else folder
    local_folder, place, shown = map(shlex.quote, (folder, place, name))
    copy = f"{copy_command(url, folder)}\n" if url else ""
    text = (
        f"# on this machine\n{copy}ensemble serve {local_folder} --model {shown}{ours}\n\n"
        f"# with Triton; {note}\n"
        f"tritonserver --model-repository={place} --model-control-mode=explicit \\\n"
        f"  --load-model={shown} --disable-auto-complete-config{theirs}\n\n"
        "# and ask it, in Python\nfrom serving import EnsembleClient\n"
        f'EnsembleClient("127.0.0.1:8001", {json.dumps(name)}).predict(rows)'
    )
    return f"<h2>How to serve it</h2><pre>{safe(text, lines=True)}</pre>"


def versions() -> str:
    """The versions of Python and of the packages that made and proved the model."""
    rows = [("Python", platform.python_version())]
    for name in _PACKAGES:
        try:
            rows.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return f"<h2>Versions</h2>{table(rows)}"


def size_text(count: int) -> str:
    """A readable number of bytes.

    Example:
        >>> size_text(1_234_567)
        '1.2 MB'
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
