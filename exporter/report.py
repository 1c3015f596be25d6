"""What an export did, for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from exporter.model_spec import ModelSpec
from exporter.plan import Plan


@dataclass(frozen=True)
class ExportReport:
    """The result of an export; printing it shows the plan.

    Attributes:
        repository: the model repository.
        plan: the three models, with their casts and columns.
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
        plan, features = self.plan, self.plan.features
        ensemble = plan.ensemble
        lines = [
            f"Ensemble {ensemble.name}, version {ensemble.version}, generation {self.generation}"
        ]
        for model in (plan.preprocess, plan.network):
            lines += [
                "",
                f"  {model.name} ({model.backend})",
                *_tensors("takes", model),
                *_tensors("gives", model),
            ]
        lines += ["", *_list("cast for the network", map(str, features.casts))]
        lines += _list("may be null", (c.name for c in features.inputs if c.nullable))
        lines += _list("labels, not served", features.labels)
        lines += _list("not used by the network", features.unused)
        return "\n".join(lines)


def _tensors(verb: str, model: ModelSpec) -> list[str]:
    tensors = model.inputs if verb == "takes" else model.outputs
    return [f"    {verb if number == 0 else '':6}{tensor}" for number, tensor in enumerate(tensors)]


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
