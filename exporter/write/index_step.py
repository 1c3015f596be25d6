"""The search in a FAISS index as a step in Python: its index, the model that searches it, and its files."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import triton_models.backends
from exporter.plan.model_spec import NO_BYTE_CODE, ModelSpec, ModelTensor
from exporter.plan.pipeline import Pipeline
from exporter.plan.plan import Writer
from exporter.plan.runtime import INDEX_STEP
from training.item_index import ItemIndex

_OWN = ("triton_models/nearest_items/model.py", "triton_models/nearest_items/search.py")


def index_spec(
    name: str, pipeline: Pipeline, inputs: tuple[ModelTensor, ...], outputs: tuple[ModelTensor, ...]
) -> ModelSpec:
    """A model of Triton's Python backend."""
    options = pipeline.options
    return ModelSpec(
        name=name,
        version=pipeline.version,
        backend="python",
        inputs=inputs,
        outputs=outputs,
        parameters={INDEX_STEP: "faiss"},
        instances=options.network_instances,
        max_batch_size=options.max_batch_size,
        queue=options.queue,
    )


def writer(index: ItemIndex) -> Writer:
    """Write a version folder that a Triton whose Python has faiss serves."""
    return partial(_write, index)


def _write(index: ItemIndex, folder: Path) -> None:
    index.write(folder)
    packages = Path(triton_models.backends.__file__).parents[2]
    for name in (*triton_models.backends.SHARED_FILES, *_OWN):
        shutil.copyfile(packages / name, folder / Path(name).name)
    (folder / NO_BYTE_CODE).touch()
