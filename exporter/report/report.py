"""The report of an export, as text and as a page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.errors import ExportError
from exporter.plan.model_spec import ModelSpec
from exporter.plan.options import DEFAULT_LIMITS, ServingOptions
from exporter.plan.plan import Plan
from exporter.report.ensemble_drawing import EnsembleDrawing
from exporter.report.latency import Latency
from exporter.report.memory import InstanceMemory
from exporter.report.page import (
    heading,
    how_to_serve,
    in_styles,
    measured,
    parity_command,
    picture,
    size_text,
    versions,
)
from workflow.files.store_commands import copy_command
from workflow.picture.diagram import printable
from workflow.picture.markup import safe, table
from workflow.picture.page import as_page
from workflow.schema.own_names import OwnNames

if TYPE_CHECKING:
    # Imports TensorFlow.
    from exporter.prove.proof import Proof
    from serving import ParityReport

CACHE_FLAG = "--cache-config=local,size=67108864"
# The folder of this machine in commands, for a repository in an object store.
_LOCAL = "models"
# Descriptions of options that are not set.
_UNSET = {
    "columns": "by name",
    "max_queue_size": "any",
    "queue_timeout_us": "none",
    "keep_versions": "all",
}


@dataclass(frozen=True, repr=False)
class ExportReport(metaclass=OwnNames):
    """The result of an export; printing it shows the plan, and a notebook shows it as a page.

    Attributes:
        repository: the model repository, a path; a string if it is in an object store.
        plan: the models, with their casts and columns.
        generation: the hash of this export's content, which every config contains.
        proof: the golden rows that the written files answered as the workflow and the network do.
        sizes: the bytes of each model's version folder, by the model's name.
        memory: the estimated bytes of an instance of each model, by the model's name.
        published: False if nothing has changed, so that the published version stays.
        spare: tables with more rows than their columns have ids, in words.
        recall: the share of the k nearest items that the index of a `NearestItems` finds, by the kind
            of queries with which it was measured.
        changes: the columns that have changed since the previous version, to which its clients have to
            be adapted, in words.

    Example:
        >>> Path("report.html").write_text(report.to_html())  # doctest: +SKIP
    """

    repository: Path | str
    plan: Plan
    generation: str
    proof: Proof
    sizes: Mapping[str, int]
    memory: Mapping[str, InstanceMemory]
    published: bool = True
    spare: tuple[str, ...] = ()
    recall: Mapping[str, float] = field(default_factory=dict)
    changes: tuple[str, ...] = ()

    @property
    def paths(self) -> dict[str, Path]:
        """The version folder of each model, by the model's name.

        Raises:
            ExportError: the repository is in an object store.
        """
        if isinstance(self.repository, str):
            raise ExportError(
                f"Expected a repository in a folder. Received: {self.repository}. Copy it: "
                f"{copy_command(self.repository, _LOCAL)}."
            )
        return {m.name: self.repository / m.name / str(m.version) for m in self.plan.models}

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
        golden_text = f"the first {rows}" if options.golden_rows is not None else "one of zeros"
        return {
            name: _word(options, name) if name != "golden_rows" else golden_text
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
        estimates = (f"{amount} for {name}" for name, amount in self.memory.items())
        remarks = [
            f"Memory of each instance, estimated: {', '.join(estimates)}.",
            "A single request can end Triton images before 25.07: let only clients that you trust reach them.",
        ]
        if (index := self.plan.pipeline.index) is not None:
            recalls = ", ".join(f"{share:.3f} with {asked}" for asked, share in self.recall.items())
            remarks.insert(
                0,
                f"Index {index.description}, searched instead of all items: its recall against "
                f"the exact search is {recalls}. check_parity measures it with your rows. The server's "
                "Python needs faiss-cpu.",
            )
        if self.spare:
            remarks.insert(
                0,
                f"Tables with more rows than the workflow has ids: {', '.join(self.spare)}. If the "
                "network was trained with another workflow, its ids mean other values: train again, "
                "or export that workflow.",
            )
        if self.changes:
            remarks.insert(
                0,
                "Clients of the version before have to be adapted, since columns have changed: "
                f"{'; '.join(self.changes)}. Ours encode as the new version says, and refuse a table of "
                "another form.",
            )
        if not self.published:
            version = self.plan.published.version
            remarks.insert(0, f"Nothing has changed: version {version} stays published.")
        if options.response_cache:
            remarks.append(f"The server keeps answers only when started with {CACHE_FLAG}.")
            if len(self.plan.published.outputs) > 1:
                remarks.append(
                    "Triton keeps the outputs that the first of equal requests asks for, and repeats no "
                    "others: all clients have to ask for all outputs, as ours does."
                )
        remarks.append(
            f"{', '.join(options.limits)}: checked before any work by our client, our preprocessing and "
            "our backends; Triton's own backends check max_batch_size only."
        )
        if self.proof.in_server:
            remarks.append("A server has loaded the models and answered the golden rows.")
        else:
            remarks.append("The golden rows were answered in the process of the export.")
        if self.proof.no_server:
            remarks.append(f"No server answered them too. {self.proof.no_server}")
        remarks += self._of_nan()
        if self.proof.refused:
            remarks.append(
                f"Not proven: {', '.join(self.proof.refused)}, which the workflow or the network "
                "refuses in this process already."
            )
        return remarks

    def _of_nan(self) -> Iterator[str]:
        if self.proof.nan:
            yield (
                f"NaN can reach the network: {', '.join(self.proof.nan)}, in golden rows. Its answer "
                "then depends on the runtime and the processor. Clip or fill these columns if your "
                "data may have such values."
            )
        if self.proof.made_nan:
            yield (
                f"The network makes NaN of golden rows: {', '.join(self.proof.made_nan)}. Its answer to "
                "such rows depends on the runtime and the processor."
            )

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

    def to_html(self, parity: ParityReport | None = None, latency: Sequence[Latency] = ()) -> str:
        """The report as one page without other files, for light and dark screens.

        Args:
            parity: the proof of served answers, for the page.
            latency: measured response times, for the page.
        """
        return as_page(self.plan.published.name, _fragment(self, parity, latency))

    def __repr__(self) -> str:
        return f"ExportReport({self.title}, in {str(self.repository)!r})"

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
    return [
        f"    {verb if number == 0 else '':6}{printable(str(tensor))}"
        for number, tensor in enumerate(tensors)
    ]


def _local(report: ExportReport) -> str:
    """The repository in commands of this machine."""
    return _LOCAL if isinstance(report.repository, str) else str(report.repository)


def _list(title: str, items: Iterable[str]) -> list[str]:
    words = [*map(printable, items)]
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


def _fragment(
    report: ExportReport, parity: ParityReport | None = None, latency: Sequence[Latency] = ()
) -> str:
    """The report as a part of a page, including styles."""
    name, _, rest = report.title.partition(", ")
    published = report.plan.published.name
    return in_styles(
        heading(name, f"{rest}, in", str(report.repository)),
        picture(EnsembleDrawing.of_plan(report.plan)),
        f"<h2>Parity</h2>{_parity(report, parity)}",
        measured(latency, published, _local(report)),
        _how_to_serve(report),
        _options(report),
        _models(report),
        _columns(report),
        versions(),
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
    return f"<code>{safe(model.name)}</code>: {kind}, {size_text(sizes[model.name])}"


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
        ("cast for the network", [str(cast) for cast in features.casts] or ["none"]),
        *((f"packed as {n}, in this order", names) for n, names in report.matrices.items()),
        ("may be null", [column.name for column in features.inputs if column.nullable]),
        ("labels, not served", features.labels),
        ("not used by the network", features.unused),
    ]
    entries = [(title, ", ".join(words)) for title, words in rows if words]
    return f"<h2>Columns</h2>{table(entries)}" if entries else ""


def _parity(report: ExportReport, parity: ParityReport | None) -> str:
    if parity is not None:
        return parity.to_html()
    command = parity_command(report.plan.published.name, _local(report))
    return (
        "<p>Not checked in this page. <code>report.to_html(check_parity(client, workflow, model, "
        f"rows))</code> puts the proof here, and <code>{safe(command)}</code> prints it.</p>"
    )


def _how_to_serve(report: ExportReport) -> str:
    name, place = report.plan.published.name, report.repository
    url = place if isinstance(place, str) else ""
    is_cached = report.plan.pipeline.options.response_cache
    ours, theirs = (" --response-cache-bytes=67108864", f" {CACHE_FLAG}") if is_cached else ("", "")
    backends = sorted({model.backend for model in report.plan.models if model.backend})
    note = " (ours from Triton 25.03 on: docker/Dockerfile)" if "tensorflow" in backends else ""
    note = f"backends: {', '.join(backends)}{note}"
    return how_to_serve(name, _local(report), note, ours, theirs, url=url)
