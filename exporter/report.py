"""What an export did, for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from exporter.model_spec import ModelSpec
from exporter.options import ServingOptions
from exporter.plan import Plan

_SHOWN = (
    *("max_queue_delay_us", "max_queue_size", "queue_timeout_us", "response_cache", "warm_up"),
    *("network_instances", "preprocess_instances", "keep_versions"),
)


@dataclass(frozen=True)
class ExportReport:
    """The result of an export; printing it shows the plan.

    Attributes:
        repository: the model repository.
        plan: the models, with their casts and columns.
        generation: the name of this export's content; every config carries it.
    """

    repository: Path
    plan: Plan
    generation: str

    @property
    def paths(self) -> dict[str, Path]:
        """The version folder of each model, by the model's name."""
        return {m.name: self.repository / m.name / str(m.version) for m in self.plan.models}

    def __str__(self) -> str:
        plan, features = self.plan, self.plan.pipeline.features
        published = plan.published
        kind = "Ensemble" if plan.steps else "Model"
        title = f"{kind} {published.name}, version {published.version}"
        lines = [f"{title}, generation {self.generation}"]
        for model in plan.steps or (published,):
            lines += [
                "",
                f"  {model.name} ({model.backend})",
                *_tensors("takes", model),
                *_tensors("gives", model),
            ]
        lines += ["", *_list("serving", _settings(self.plan.pipeline.options))]
        lines += [*_list("cast for the network", map(str, features.casts))]
        lines += _list("may be null", (c.name for c in features.inputs if c.nullable))
        lines += _list("labels, not served", features.labels)
        lines += _list("not used by the network", features.unused)
        return "\n".join(lines)


def _tensors(verb: str, model: ModelSpec) -> list[str]:
    tensors = model.inputs if verb == "takes" else model.outputs
    return [f"    {verb if number == 0 else '':6}{tensor}" for number, tensor in enumerate(tensors)]


def _settings(options: ServingOptions) -> list[str]:
    """The options that say how requests are taken, as far as they say anything."""
    words = [f"runtime {options.runtime}"]
    if options.max_batch_size:
        words.append(f"requests joined to {options.max_batch_size} rows")
    shown = {name: getattr(options, name) for name in _SHOWN}
    words += [f"{name} {value}" for name, value in shown.items() if value]
    words += [f"{name} {value}" for name, value in options.limits.items()]
    words.append(f"network on {options.network_kind}")
    return words


def _list(title: str, items: Iterable[str]) -> list[str]:
    words = list(items)
    if not words:
        return []
    text = f"{title}: {', '.join(words)}"
    return textwrap.wrap(
        text,
        80,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
