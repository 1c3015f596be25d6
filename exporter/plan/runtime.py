"""Runtimes: the models that serve a pipeline, and the writers of their files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The names of the runtimes are known without numpy and TensorFlow.
    from exporter.network.network import Network
    from exporter.plan.model_spec import ModelSpec
    from exporter.plan.pipeline import Pipeline

Writer = Callable[[Path], None]


@dataclass(frozen=True)
class RuntimeKind:
    """Properties of a runtime that are known without its libraries.

    Attributes:
        is_fused: whether it serves preprocessing and network as one model.
        is_served: whether the embedded server has its backend. The parity suite and docs/parity.md
            cover such runtimes only.
        ends_at_nul: whether the server reads a string up to a NUL, as Triton's onnxruntime backend
            does, see `WireColumn`.
    """

    is_fused: bool = False
    is_served: bool = True
    ends_at_nul: bool = False


# exporter/runtimes/registry.py has the implementations.
RUNTIMES: Mapping[str, RuntimeKind] = {
    "tensorflow": RuntimeKind(),
    "onnx": RuntimeKind(ends_at_nul=True),
    "fused_onnx": RuntimeKind(is_fused=True, ends_at_nul=True),
    "fused_tensorflow": RuntimeKind(is_fused=True),
}


@dataclass(frozen=True)
class Runtime:
    """One way to serve a pipeline.

    Attributes:
        plan: makes the models, steps first and the published one last.
        prepare: converts the network, and returns a function for each model with files, by the
            model's name, which writes them into a version folder. Features that the runtime cannot
            express raise `ExportError` in one of the two, before anything is written; the writers
            raise it if the disk refuses the files.
    """

    plan: Callable[[Pipeline], tuple[ModelSpec, ...]]
    prepare: Callable[[Network, Pipeline], Mapping[str, Writer]]
