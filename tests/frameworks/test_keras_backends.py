"""Keras 3 on its PyTorch and JAX backends trains from the loaders; `make test-frameworks` runs these."""

import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

pytest.importorskip("torch", reason="`make test-frameworks` has PyTorch")
pytest.importorskip("jax", reason="`make test-frameworks` has JAX")
pytestmark = pytest.mark.frameworks

# A table of logits by user, whose label is the user's parity.
PROGRAM = """
import sys
import keras
from loader import ArrayLoader, JaxLoader, TorchLoader

columns = {"batch_size": 50, "label_names": ["label"], "cat_names": ["user"], "seed": 1}
if sys.argv[1] == "TorchLoader":
    from torch.utils.data import DataLoader
    loader = TorchLoader("rows.parquet", **columns)
    data, steps = DataLoader(loader, batch_size=None), None
else:
    loader = {"JaxLoader": JaxLoader, "ArrayLoader": ArrayLoader}[sys.argv[1]]("rows.parquet", **columns)
    data, steps = loader.repeat(), len(loader)
user = keras.Input((1,), name="user", dtype="int32")
logit = keras.layers.Flatten()(keras.layers.Embedding(1000, 1, embeddings_initializer="zeros")(user))
model = keras.Model({"user": user}, logit)
model.compile(keras.optimizers.SGD(50.0), keras.losses.BinaryCrossentropy(from_logits=True))
losses = model.fit(data, steps_per_epoch=steps, epochs=3, verbose=0, shuffle=False).history["loss"]
print(keras.backend.backend(), *losses)
"""


@pytest.mark.parametrize(
    ("backend", "loader"),
    [
        ("torch", "TorchLoader"),
        ("torch", "ArrayLoader"),
        ("jax", "JaxLoader"),
        ("jax", "ArrayLoader"),
    ],
)
def test_fit(tmp_path, backend, loader):
    row = np.arange(1000)
    pl.DataFrame({"user": row, "label": (row % 2).astype(np.int8)}).write_parquet(
        tmp_path / "rows.parquet", row_group_size=100
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, loader],
        check=False,
        env=os.environ | {"KERAS_BACKEND": backend},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    name, *losses = done.stdout.split()
    assert name == backend
    # A user's logit moves by half a step of 50 / 50 once an epoch: softplus of 0, -0.5 and so on.
    expected = 0.0
    for loss in map(float, losses):
        assert loss == pytest.approx(np.log1p(np.exp(-expected)), rel=1e-4)
        expected += 1 / (1 + np.exp(expected))
