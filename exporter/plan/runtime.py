"""Runtimes: the models that serve a pipeline, and the writers of their files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.plan.model_spec import ModelSpec
from exporter.plan.pipeline import Pipeline

if TYPE_CHECKING:
    # Imports TensorFlow.
    from exporter.network.network import Network

Writer = Callable[[Path], None]


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
