"""Networks over very many columns: planned, written and proven in work that grows as these do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import polars as pl
import pytest
from python_calls import MOST_GROWTH, SIZES, growth

from exporter import ServingOptions, export_tensorflow_ensemble
from exporter.plan import golden_rows
from exporter.plan.pack_columns import pack_columns
from training import models
from training.network.keras_network import KerasNetwork
from workflow import Workflow, ops
from workflow.wire.format import WireColumn


@cache
def exported(columns: int) -> tuple[Workflow, keras.Model]:
    names = [f"c{n}" for n in range(columns)]
    rows = pl.DataFrame(
        {name: [n, 7, None, 7] for n, name in enumerate(names)} | {"y": [0, 1, 0, 1]}
    )
    numbers = names[1::2] >> ops.FillMissing() >> ops.Normalize()
    workflow = Workflow((names[::2] >> ops.Categorify()) + numbers + "y").fit(rows)
    features = workflow.output_schema.without(["y"])
    return workflow, models.mlp(features, hidden=(2,), max_embedding_dim=2)


@pytest.mark.parametrize("mixed", [True, False], ids=["mixed", "alike"])
def test_packing_grows_as_the_columns_do(mixed):
    def work_of(columns: int) -> Callable[[], Any]:
        dtypes = ["int64", "string", "float32", "bool"] * columns
        wire = [WireColumn(f"c{n}", dtype) for n, dtype in enumerate(dtypes[:columns])]
        return lambda: pack_columns(wire, mixed=mixed)

    assert growth(work_of) <= MOST_GROWTH


@pytest.mark.long
def test_an_export_grows_as_the_columns_do(tmp_path):
    def work_of(columns: int) -> Callable[[], Any]:
        workflow, model = exported(columns)
        folder = tmp_path / f"{columns}-{len(list(tmp_path.iterdir()))}"
        return lambda: export_tensorflow_ensemble(model, workflow, "wide", folder, ["y"])

    assert growth(work_of) <= MOST_GROWTH


def test_golden_rows_are_read_in_work_that_grows_as_their_columns():
    def work_of(columns: int) -> Callable[[], Any]:
        names = [f"c{n}" for n in range(columns)]
        wire = tuple(WireColumn(name, "int64") for name in names)
        options = ServingOptions(golden_rows=pl.DataFrame({name: [1] for name in names}))
        pipeline: Any = SimpleNamespace(client_columns=wire, options=options)
        return lambda: golden_rows.given_rows(pipeline)

    assert growth(work_of) <= MOST_GROWTH


def test_a_network_is_asked_for_the_last_ids_of_all_columns_in_one_row(monkeypatch, tmp_path):
    """A row for each column has as many values as the square of the columns."""
    workflow, model = exported(SIZES[0])
    asked: list[Mapping[str, np.ndarray]] = []
    answer = KerasNetwork.answer

    def recorded(
        network: KerasNetwork, tensors: Mapping[str, np.ndarray]
    ) -> Mapping[str, np.ndarray]:
        asked.append(tensors)
        return answer(network, tensors)

    monkeypatch.setattr(KerasNetwork, "answer", recorded)
    export_tensorflow_ensemble(model, workflow, "wide", tmp_path, ["y"])
    first, *others = asked
    # Padding, null, the unseen, and one or two values.
    assert first["c0"].tolist() == [[4]]
    assert first["c1"].tolist() == [[0]]
    # The golden rows are as many for any number of columns.
    assert len(others) < SIZES[0] // 2
    assert all(len(tensors["c0"]) < SIZES[0] // 2 for tensors in others)
