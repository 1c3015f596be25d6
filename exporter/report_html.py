"""The report of an export as a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from exporter.drawing import EnsembleDrawing
from exporter.model_spec import ModelSpec
from exporter.report import CACHE_FLAG, ExportReport

if TYPE_CHECKING:
    from serving import ParityReport

# Colours are the page's own, and lines are seen through, so that both are right on light and dark.
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
.export-report pre, .export-report .wide { overflow-x: auto; overflow-wrap: normal }
.export-report summary { margin: 1rem 0 .4rem; font-weight: 600; cursor: pointer }
.export-report .options { columns: 17rem; margin: 0; padding: 0; list-style: none }
.export-report .options li { display: flex; justify-content: space-between; gap: 1rem;
  border-bottom: 1px solid #8885; break-inside: avoid }
"""
_PAGE = """
:root { color-scheme: light dark }
body { margin: 1.5rem; background: #fff; color: #1b1f24 }
@media (prefers-color-scheme: dark) { body { background: #0f1215; color: #e6e8eb } }
"""


def page(report: ExportReport, parity: ParityReport | None = None) -> str:
    """A page that needs no other file.

    Args:
        report: of the export.
        parity: the proof of what is served.
    """
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.plan.published.name)}</title><style>{_PAGE}</style>"
        f"<body>{fragment(report, parity)}</body></html>\n"
    )


def fragment(report: ExportReport, parity: ParityReport | None = None) -> str:
    """The same as a part of a page, styles included."""
    name, _, rest = report.title.partition(", ")
    return (
        f'<div class="export-report"><style>{_STYLE}</style>'
        f"<h1>{escape(name)}</h1><p>{escape(rest)}, in <code>{escape(str(report.repository))}</code></p>"
        f'<div class="wide">{EnsembleDrawing.of_plan(report.plan).to_svg()}</div>'
        f"<h2>Parity</h2>{_parity(report, parity)}{_how_to_serve(report)}"
        f"{_options(report)}{_models(report)}{_columns(report)}</div>"
    )


def _options(report: ExportReport) -> str:
    items = "".join(
        f"<li><code>{escape(name)}</code> <span>{escape(word)}</span></li>"
        for name, word in report.settings.items()
    )
    remarks = "".join(f"<p>{escape(remark)}</p>" for remark in report.remarks)
    return f'<h2>Serving options</h2><ul class="options">{items}</ul>{remarks}'


def _models(report: ExportReport) -> str:
    """What clients ask, and its steps to fold out."""
    plan, sizes = report.plan, report.sizes
    steps = "".join(
        f"<details><summary>{_named(step, sizes)}</summary>{_tensors(step)}</details>"
        for step in plan.steps
    )
    return f"<h2>{_named(plan.published, sizes)}</h2>{_tensors(plan.published)}{steps}"


def _named(model: ModelSpec, sizes: Mapping[str, int]) -> str:
    kind = escape(model.backend or model.platform)
    return f"<code>{escape(model.name)}</code>: {kind}, {_size(sizes[model.name])}"


def _tensors(model: ModelSpec) -> str:
    rows = [
        (verb, tensor.name, tensor.dtype, tensor.shape, tensor.time)
        for verb, tensors in (("takes", model.inputs), ("gives", model.outputs))
        for tensor in tensors
    ]
    return _table(("", "tensor", "dtype", "shape", ""), rows)


def _columns(report: ExportReport) -> str:
    features = report.plan.features
    rows = [
        ("cast for the network", [str(cast) for cast in features.casts]),
        ("may be null", [column.name for column in features.inputs if column.nullable]),
        ("labels, not served", features.labels),
        ("not used by the network", features.unused),
    ]
    told = [(title, ", ".join(words)) for title, words in rows if words]
    return f"<h2>Columns</h2>{_table(('', ''), told)}" if told else ""


def _parity(report: ExportReport, parity: ParityReport | None) -> str:
    if parity is not None:
        return parity.to_html()
    name = escape(report.plan.published.name)
    return (
        "<p>Not checked in this page. <code>report.to_html(check_parity(client, workflow, model, "
        f'rows))</code> puts the proof here, and <code>ensemble parity {name} "rows.parquet" '
        f"--repository {escape(str(report.repository))}</code> prints it.</p>"
    )


def _how_to_serve(report: ExportReport) -> str:
    name, folder = report.plan.published.name, str(report.repository)
    kept = report.plan.pipeline.options.response_cache
    ours, theirs = (" --response-cache=64", f" {CACHE_FLAG}") if kept else ("", "")
    backends = sorted({model.backend for model in report.plan.models if model.backend})
    note = " (ours from Triton 25.03 on: docker/Dockerfile)" if "tensorflow" in backends else ""
    text = (
        f"# on this machine\nensemble serve {folder} --model {name}{ours}\n\n"
        f"# with Triton; backends: {', '.join(backends)}{note}\n"
        f"tritonserver --model-repository={folder} --model-control-mode=explicit \\\n"
        f"  --load-model={name} --disable-auto-complete-config{theirs}\n\n"
        "# and ask it, in Python\nfrom serving import EnsembleClient\n"
        f'EnsembleClient("127.0.0.1:8001", "{name}").predict(rows)'
    )
    return f"<h2>How to serve it</h2><pre>{escape(text)}</pre>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    titles = "".join(f"<th>{escape(title)}</th>" for title in head) if any(head) else ""
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f'<div class="wide"><table>{f"<tr>{titles}</tr>" if titles else ""}{body}</table></div>'


def _size(count: int) -> str:
    """Bytes for people.

    Example:
        >>> _size(1_234_567)
        '1.2 MB'
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
