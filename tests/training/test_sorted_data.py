"""Training on data that was written in the order of its labels, or of a feature."""

from __future__ import annotations

import keras
import numpy as np
import polars as pl
import pytest

from loader import KerasSequenceLoader
from training import train

GROUPS = 40


def rows(count, seed):
    random = np.random.default_rng(seed)
    columns = {name: random.normal(size=count).astype(np.float32) for name in "abcd"}
    a, b, c, d = columns.values()
    chance = 1 / (1 + np.exp(-(a - 0.8 * b + 0.6 * c + 0.3 * d - 0.9)))
    return pl.DataFrame({**columns, "label": (random.random(count) < chance).astype(np.float32)})


def trained(folder, frame, valid, epochs, rate, **options):
    """AUC and loss on other data, of a model trained on rows in their order in the files."""
    folder.mkdir()
    frame.write_parquet(folder / "a.parquet", row_group_size=len(frame) // GROUPS)
    data = {"label_names": ["label"], "cont_names": list("abcd"), "device": "cpu"}
    batches = KerasSequenceLoader(folder, len(frame) // 160, seed=1, **data, **options)
    keras.utils.set_random_seed(0)
    inputs = [keras.Input((1,), name=name) for name in "abcd"]
    hidden = keras.layers.Dense(16, "relu")(keras.layers.concatenate(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(hidden))
    report = train(
        model,
        batches,
        KerasSequenceLoader(valid, 10_000, shuffle=False, **data),
        optimizer=keras.optimizers.Adam(rate),
        epochs=epochs,
    )
    assert report.mixing == batches.mixing()
    assert f"A batch draws from {report.mixing} row groups." in str(report)
    return report.mixing, np.array([report.val_auc, report.history["val_loss"][-1]])


@pytest.mark.parametrize(
    ("by", "group_rows", "epochs", "options", "mixing"),
    [
        ("label", 1_000, 4, {}, GROUPS),
        pytest.param("a", 1_000, 4, {}, GROUPS, marks=pytest.mark.long),
        pytest.param("label", 16_384, 4, {}, 16, marks=pytest.mark.long),
        pytest.param("a", 16_384, 4, {}, 16, marks=pytest.mark.long),
        pytest.param("a", 65_536, 2, {}, 8, marks=pytest.mark.long),
        pytest.param("label", 65_536, 2, {}, 8, marks=pytest.mark.long),
        pytest.param("label", 65_536, 2, {"parts_per_chunk": 40}, GROUPS, marks=pytest.mark.long),
    ],
)
def test_sorted_data_trains_as_well_as_shuffled_data(
    tmp_path, by, group_rows, epochs, options, mixing
):
    frame, valid = rows(GROUPS * group_rows, seed=0), rows(40_000, seed=1)
    common = (valid, epochs, 0.003)
    by_chance, expected = trained(tmp_path / "shuffled", frame, *common, parts_per_chunk=GROUPS)
    drawn, found = trained(tmp_path / "sorted", frame.sort(by), *common, **options)
    assert (by_chance, drawn) == (GROUPS, mixing)
    assert abs(found[0] - expected[0]) < 0.002
    assert found[1] < 1.01 * expected[1]
