"""The report of an export, as text and as a page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.plan.model_spec import ModelSpec
from exporter.plan.options import DEFAULT_LIMITS, ServingOptions
from exporter.plan.plan import Plan
from exporter.report.ensemble_drawing import EnsembleDrawing
from exporter.report.memory import InstanceMemory, instance_memory
from workflow.picture.markup import safe, table

if TYPE_CHECKING:
    # Imports TensorFlow.
    from exporter.prove.proof import Proof
    from serving import ParityReport

CACHE_FLAG = "--cache-config=local,size=67108864"
# Descriptions of options that are not set.
_UNSET = {
    "columns": "by name",
    "max_queue_size": "any",
    "queue_timeout_us": "none",
    "keep_versions": "all",
}


@dataclass(frozen=True)
class ExportReport:
    """The result of an export; printing it shows the plan, and a notebook shows it as a page.

    Attributes:
        repository: the model repository.
        plan: the models, with their casts and columns.
        generation: the hash of this export's content, which every config contains.
        proof: the golden rows that the written files answered as the workflow and the network do.
        published: False if nothing has changed, so that the published version stays.

    Example:
        >>> Path("report.html").write_text(report.to_html())  # doctest: +SKIP
    """

    repository: Path
    plan: Plan
    generation: str
    proof: Proof
    published: bool = True

    @property
    def paths(self) -> dict[str, Path]:
        """The version folder of each model, by the model's name."""
        return {m.name: self.repository / m.name / str(m.version) for m in self.plan.models}

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each model's version folder as it is now, by the model's name."""
        return {
            name: sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            for name, path in self.paths.items()
        }

    @property
    def memory(self) -> dict[str, InstanceMemory]:
        """The estimated bytes of an instance of each model, by the model's name."""
        return instance_memory(self.plan, self.paths)

    @property
    def title(self) -> str:
        """The subject of the export, in a line."""
        published = self.plan.published
        kind = "Ensemble" if self.plan.steps else "Model"
        return f"{kind} {published.name}, version {published.version}, generation {self.generation}"

    @property
    def settings(self) -> dict[str, str]:
        """Every applicable option of the plan, in words."""
        options, rows = self.plan.pipeline.options, len(self.plan.models[0].warm_up)
        given = f"the first {rows}" if options.golden_rows is not None else "one of zeros"
        return {
            name: _word(options, name) if name != "golden_rows" else given
            for name in options.applicable
        }

    @property
    def matrices(self) -> dict[str, tuple[str, ...]]:
        """The columns of each matrix of the network, in its order."""
        columns = self.plan.pipeline.options.columns
        return {name: tuple(c) for name, c in columns.items() if not isinstance(c, str)}

    @property
    def remarks(self) -> list[str]:
        """Requirements on the server, in sentences."""
        options = self.plan.pipeline.options
        taken = (f"{amount} for {name}" for name, amount in self.memory.items())
        remarks = [
            f"Memory of each instance, estimated: {', '.join(taken)}.",
            "Triton images before 25.07 are not safe among strangers: one request ends the server.",
        ]
        if not self.published:
            version = self.plan.published.version
            remarks.insert(0, f"Nothing has changed: version {version} stays published.")
        if options.response_cache:
            remarks.append(f"The server keeps answers only when started with {CACHE_FLAG}.")
        remarks.append(
            f"{', '.join(options.limits)}: checked before any work by our client, our preprocessing and "
            "our backends; Triton's own backends check max_batch_size only."
        )
        if self.proof.in_server:
            remarks.append("A server has loaded the models and answered the golden rows.")
        else:
            remarks.append("The golden rows were answered in the process of the export.")
        if self.proof.refused:
            remarks.append(
                f"Not proven: {', '.join(self.proof.refused)}, which the workflow or the network "
                "refuses in this process already."
            )
        return remarks

    def __str__(self) -> str:
        features = self.plan.features
        lines = [self.title]
        for model in self.plan.steps or (self.plan.published,):
            lines += [
                "",
                f"  {model.name} ({model.backend})",
                *_tensors("takes", model),
                *_tensors("gives", model),
            ]
        lines += ["", *_list("serving", (f"{name} {word}" for name, word in self.settings.items()))]
        for remark in self.remarks:
            lines += _wrapped(remark)
        lines += _list("proven with", self.proof.rows)
        lines += _list("cast for the network", map(str, features.casts))
        for name, columns in self.matrices.items():
            lines += _list(f"packed as {name}, in this order", columns)
        lines += _list("may be null", (c.name for c in features.inputs if c.nullable))
        lines += _list("labels, not served", features.labels)
        lines += _list("not used by the network", features.unused)
        return "\n".join(lines)

    def to_html(self, parity: ParityReport | None = None) -> str:
        """The report as one page without other files, for light and dark screens.

        Args:
            parity: the proof of served answers, for the page.
        """
        return _page(self, parity)

    def _repr_html_(self) -> str:
        return _fragment(self)


def _word(options: ServingOptions, name: str) -> str:
    if name in DEFAULT_LIMITS:
        return f"{options.limits.get(name, options.max_batch_size):,}"
    value = getattr(options, name)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        value = ", ".join(
            f"{column if isinstance(column, str) else len(column)} as {name}"
            for name, column in value.items()
        )
    return str(value) if value else _UNSET.get(name, "0")


def _tensors(verb: str, model: ModelSpec) -> list[str]:
    tensors = model.inputs if verb == "takes" else model.outputs
    return [f"    {verb if number == 0 else '':6}{tensor}" for number, tensor in enumerate(tensors)]


def _list(title: str, items: Iterable[str]) -> list[str]:
    words = list(items)
    return _wrapped(f"{title}: {', '.join(words)}") if words else []


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        80,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
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
_PAGE = """
:root { color-scheme: light dark }
body { margin: 1.5rem; background: #fff; color: #1b1f24 }
@media (prefers-color-scheme: dark) { body { background: #0f1215; color: #e6e8eb } }
"""


def _page(report: ExportReport, parity: ParityReport | None = None) -> str:
    """A page without other files.

    Args:
        report: the report.
        parity: the proof of served answers.
    """
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(report.plan.published.name)}</title><style>{_PAGE}</style>"
        f"<body>{_fragment(report, parity)}</body></html>\n"
    )


def _fragment(report: ExportReport, parity: ParityReport | None = None) -> str:
    """The report as a part of a page, including styles."""
    name, _, rest = report.title.partition(", ")
    return (
        f'<div class="export-report"><style>{_STYLE}</style>'
        f"<h1>{safe(name)}</h1><p>{safe(rest)}, in <code>{safe(str(report.repository))}</code></p>"
        f'<div style="overflow-x: auto">{EnsembleDrawing.of_plan(report.plan).to_svg()}</div>'
        f"<h2>Parity</h2>{_parity(report, parity)}{_how_to_serve(report)}"
        f"{_options(report)}{_models(report)}{_columns(report)}</div>"
    )


def _options(report: ExportReport) -> str:
    items = "".join(
        f"<li><code>{safe(name)}</code> <span>{safe(word)}</span></li>"
        for name, word in report.settings.items()
    )
    remarks = "".join(f"<p>{safe(remark)}</p>" for remark in report.remarks)
    return f'<h2>Serving options</h2><ul class="options">{items}</ul>{remarks}'


def _models(report: ExportReport) -> str:
    """The model that clients use, and its steps to fold out."""
    plan, sizes = report.plan, report.sizes
    steps = "".join(
        f"<details><summary>{_named(step, sizes)}</summary>{_tensor_rows(step)}</details>"
        for step in plan.steps
    )
    return f"<h2>{_named(plan.published, sizes)}</h2>{_tensor_rows(plan.published)}{steps}"


def _named(model: ModelSpec, sizes: Mapping[str, int]) -> str:
    kind = safe(model.backend or model.platform)
    return f"<code>{safe(model.name)}</code>: {kind}, {_size(sizes[model.name])}"


def _tensor_rows(model: ModelSpec) -> str:
    rows = [
        (verb, tensor.name, tensor.dtype, tensor.shape, tensor.time)
        for verb, tensors in (("takes", model.inputs), ("gives", model.outputs))
        for tensor in tensors
    ]
    return table(rows, ("", "tensor", "dtype", "shape", ""))


def _columns(report: ExportReport) -> str:
    features = report.plan.features
    rows = [
        ("cast for the network", [str(cast) for cast in features.casts]),
        *((f"packed as {n}, in this order", names) for n, names in report.matrices.items()),
        ("may be null", [column.name for column in features.inputs if column.nullable]),
        ("labels, not served", features.labels),
        ("not used by the network", features.unused),
    ]
    told = [(title, ", ".join(words)) for title, words in rows if words]
    return f"<h2>Columns</h2>{table(told)}" if told else ""


def _parity(report: ExportReport, parity: ParityReport | None) -> str:
    if parity is not None:
        return parity.to_html()
    name = safe(report.plan.published.name)
    return (
        "<p>Not checked in this page. <code>report.to_html(check_parity(client, workflow, model, "
        f'rows))</code> puts the proof here, and <code>ensemble parity {name} "rows.parquet" '
        f"--repository {safe(str(report.repository))}</code> prints it.</p>"
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
    return f"<h2>How to serve it</h2><pre>{safe(text, lines=True)}</pre>"


def _size(count: int) -> str:
    """A readable number of bytes.

    Example:
        >>> _size(1_234_567)
        '1.2 MB'
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
