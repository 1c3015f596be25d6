"""Memory of one instance of a model, estimated from the exported files.

An instance on our backends is a process. Its runtime takes the memory in `_RUNTIME`, its tables as
much as their files, and each entry of a vocabulary a place in a lookup structure. Libraries, and
weights that onnxruntime maps from a file, are in memory once for all instances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.plan.plan import Plan
from workflow.expressions.program.program import Program
from workflow.schema.column import Column, Strings

# Private bytes of a process (`Pss_Anon`) with a minimal model; see the guide on export.
_RUNTIME = {"tensorflow": 58e6, "onnxruntime": 29e6, "python": 21e6}
# Bytes for an entry of a vocabulary in addition to its file: integers and texts.
_ENTRY = {"tensorflow": (15, 60), "onnxruntime": (60, 420), "python": (15, 20)}
# Tables in a file beside an ONNX model.
_MAPPED = "tables.data"


@dataclass(frozen=True)
class InstanceMemory:
    """Estimated bytes of one instance.

    Attributes:
        own: private bytes of each instance.
        mapped: bytes of weights in files, which all instances share.

    Example:
        >>> str(InstanceMemory(226_000_000, 0))
        '226 MB'
    """

    own: int
    mapped: int

    def __str__(self) -> str:
        mapped = f" and {self.mapped / 1e6:.0f} MB of weights from files" if self.mapped else ""
        return f"{self.own / 1e6:.0f} MB{mapped}"


def instance_memory(plan: Plan, folders: Mapping[str, Path]) -> dict[str, InstanceMemory]:
    """The memory of an instance of each model that has instances, by the model's name.

    Args:
        plan: the plan of an export.
        folders: the version folder of each model, by the model's name.
    """
    served = [model for model in plan.models if model.instances]
    preprocessing, *_ = served
    entries = _entries(plan.features.program)
    made = {}
    for model in served:
        files = [file for file in folders[model.name].rglob("*") if file.is_file()]
        mapped = sum(file.stat().st_size for file in files if file.name == _MAPPED)
        tables = sum(file.stat().st_size for file in files) - mapped
        found = entries if model is preprocessing else (0, 0)
        places = sum(n * b for n, b in zip(found, _ENTRY[model.backend], strict=True))
        made[model.name] = InstanceMemory(
            int(_RUNTIME[model.backend] + tables + places), int(mapped)
        )
    return made


def _entries(program: Program) -> tuple[int, int]:
    """The numbers of integers and of texts in a program's lookup tables."""
    tables = {
        id(keys): keys
        for step in program.steps
        if isinstance(keys := step.parameters.get("keys"), Column)
    }.values()
    texts = sum(keys.rows for keys in tables if isinstance(keys.values, Strings))
    return sum(keys.rows for keys in tables) - texts, texts
