"""The way from files that a workflow wrote to a network that a real server answers for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import keras
import numpy as np
import polars as pl
import tritonclient.grpc as triton

from loader import KerasSequenceLoader
from training import models
from workflow import Workflow


@dataclass
class Way:
    """The fitted workflow and the exports of one data set.

    Attributes:
        folder: everything that was written: `train`, `models`.
        workflow: fitted.
        model: trained a little.
        learnt: the raw rows that the workflow was fitted to.
        unseen: raw rows that it was not fitted to.
    """

    folder: Path
    workflow: Workflow
    model: keras.Model
    learnt: pl.DataFrame
    unseen: pl.DataFrame

    @cached_property
    def features(self) -> pl.DataFrame:
        """The features of the rows that the workflow has not seen."""
        return self.workflow.transform(self.unseen).collect()


def in_odd_files(rows: pl.DataFrame, folder: Path) -> Path:
    """The rows in files and row groups of different sizes."""
    folder.mkdir()
    ends = [0, 1, rows.height // 3, rows.height]
    for number, (start, end) in enumerate(itertools.pairwise(ends)):
        rows[start:end].write_parquet(folder / f"{number}.parquet", row_group_size=9_973)
    return folder


def train_a_little(workflow: Workflow, folder: Path, batch_size: int) -> keras.Model:
    """A network over all that is tagged, after one epoch."""
    keras.utils.set_random_seed(1)
    model = models.mlp(workflow.output_schema, hidden=(32,), max_embedding_dim=8)
    model.compile("adam", "binary_crossentropy")
    model.fit(KerasSequenceLoader(folder, batch_size, seed=2), shuffle=False, verbose=0)
    return model


def numbers_in_batches(folder: Path, column: str, batch_size: int) -> list[int]:
    """The values of a column of row numbers, as one epoch delivers them."""
    batches = KerasSequenceLoader(folder, batch_size, cat_names=[column], cont_names=[], seed=3)
    return [int(n) for batch in batches for n in np.ravel(_inputs(batch)[column])]


def _inputs(batch: Any) -> Any:
    return batch[0] if isinstance(batch, tuple) else batch


def ask_plainly(
    url: str, model: str, tensors: dict[str, np.ndarray], outputs: Sequence[str]
) -> Any:
    """One request with NVIDIA's client alone, as another program would send it."""
    wire = {
        "int32": "INT32",
        "int64": "INT64",
        "float64": "FP64",
        "float32": "FP32",
        "object": "BYTES",
    }
    inputs = []
    for name, values in tensors.items():
        inputs.append(triton.InferInput(name, values.shape, wire[values.dtype.name]))
        inputs[-1].set_data_from_numpy(values)
    with triton.InferenceServerClient(url) as client:
        answer = client.infer(model, inputs)
    return [answer.as_numpy(name) for name in outputs]


def ids_by_frequency(values: Any, least: int = 1) -> dict[Any, int]:
    """The ids of a vocabulary by pandas: the frequent first, ties by value, from 3 on."""
    counts = values.dropna().value_counts()
    counts = counts[counts >= least]
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {value: 3 + place for place, (value, _) in enumerate(ordered)}
