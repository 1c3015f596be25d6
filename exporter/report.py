"""What an export did, for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.model_spec import ModelSpec
from exporter.options import LIMITS, ServingOptions
from exporter.plan import Plan

if TYPE_CHECKING:
    # It imports TensorFlow.
    from exporter.proof import Proof
    from serving import ParityReport

CACHE_FLAG = "--cache-config=local,size=67108864"
# What an option says where it sets nothing.
_UNSET = {
    "columns": "by name",
    "max_queue_size": "any",
    "queue_timeout_us": "none",
    "keep_versions": "all",
    **dict.fromkeys(LIMITS, "any"),
}


@dataclass(frozen=True)
class ExportReport:
    """The result of an export; printing it shows the plan, and a notebook shows it as a page.

    Attributes:
        repository: the model repository.
        plan: the models, with their casts and columns.
        generation: the name of this export's content; every config carries it.
        proof: the golden rows that the written files answered as the workflow and the network do.

    Example:
        >>> Path("report.html").write_text(report.to_html())  # doctest: +SKIP
    """

    repository: Path
    plan: Plan
    generation: str
    proof: Proof

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
    def title(self) -> str:
        """What was exported, in a line."""
        published = self.plan.published
        kind = "Ensemble" if self.plan.steps else "Model"
        return f"{kind} {published.name}, version {published.version}, generation {self.generation}"

    @property
    def settings(self) -> dict[str, str]:
        """Every option of the plan that applies to it, in words."""
        options, rows = self.plan.pipeline.options, len(self.plan.models[0].warm_up)
        given = f"the first {rows}" if options.golden_rows is not None else "one of zeros"
        return {
            name: _word(options, name) if name != "golden_rows" else given
            for name in options.applicable
        }

    @property
    def remarks(self) -> list[str]:
        """What the options need of the server, in sentences."""
        options = self.plan.pipeline.options
        remarks = []
        if options.response_cache:
            remarks.append(f"The server keeps answers only when started with {CACHE_FLAG}.")
        if options.limits:
            remarks.append(
                f"{', '.join(options.limits)}: checked before any work by our preprocessing and our "
                "backends; a backend of Triton's own checks max_batch_size alone."
            )
        if self.proof.refused:
            remarks.append(
                f"Not proven: {', '.join(self.proof.refused)}, which the workflow or the network "
                "refuses here already."
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
        lines += _list("may be null", (c.name for c in features.inputs if c.nullable))
        lines += _list("labels, not served", features.labels)
        lines += _list("not used by the network", features.unused)
        return "\n".join(lines)

    def to_html(self, parity: ParityReport | None = None) -> str:
        """The report as one page that needs no other file, for light and dark screens.

        Args:
            parity: the proof of what is served, to stand in the page.
        """
        from exporter.report_html import page  # noqa: PLC0415 - it draws reports

        return page(self, parity)

    def _repr_html_(self) -> str:
        from exporter.report_html import fragment  # noqa: PLC0415 - it draws reports

        return fragment(self)


def _word(options: ServingOptions, name: str) -> str:
    value = getattr(options, name)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        value = ", ".join(f"{column} as {name}" for name, column in value.items())
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
