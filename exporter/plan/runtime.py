"""Runtimes: which models serve a pipeline, and how their files are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.plan.model_spec import ModelSpec
from exporter.plan.pipeline import Pipeline

if TYPE_CHECKING:
    # It imports TensorFlow.
    from exporter.network.network import Network

Writer = Callable[[Path], None]


@dataclass(frozen=True)
class Runtime:
    """One way to serve a pipeline.

    Attributes:
        plan: the models, those that are steps first and the published one last.
        prepare: converts the network, and gives a function for each model that has files of
            its own, by the model's name, which writes them into a version folder. What the
            runtime cannot express is an `ExportError` of one of the two, before anything is
            written; the writers raise it where the disk does not take the files.
    """

    plan: Callable[[Pipeline], tuple[ModelSpec, ...]]
    prepare: Callable[[Network, Pipeline], Mapping[str, Writer]]
