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


RESUMED = """
import keras
from torch.utils.data import DataLoader
from loader import TorchLoader

def make():
    return TorchLoader("rows.parquet", batch_size=50, label_names=["label"], cat_names=["user"], seed=1)

interrupted = make()
batches = iter(interrupted)
taken = [user for _ in range(12) for user in next(batches)[0]["user"][:, 0].tolist()]
resumed = make()
resumed.load_state_dict(interrupted.state_dict())
user = keras.Input((1,), name="user", dtype="int32")
table = keras.layers.Embedding(1000, 1, embeddings_initializer="zeros")
model = keras.Model({"user": user}, keras.layers.Flatten()(table(user)))
model.compile(keras.optimizers.SGD(50.0), keras.losses.BinaryCrossentropy(from_logits=True))
model.fit(DataLoader(resumed, batch_size=None), verbose=0, shuffle=False)
trained = table.get_weights()[0][:, 0].nonzero()[0].tolist()
print(len(set(trained) | set(taken)), len(trained), resumed.get_state()["epoch"])
"""


def test_fit_resumes_within_an_epoch(tmp_path):
    """Keras begins a pass to build the model, and then another one to train."""
    row = np.arange(1000)
    pl.DataFrame({"user": row, "label": (row % 2).astype(np.int8)}).write_parquet(
        tmp_path / "rows.parquet", row_group_size=100
    )
    done = subprocess.run(
        [sys.executable, "-c", RESUMED],
        check=False,
        env=os.environ | {"KERAS_BACKEND": "torch"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    # The 400 rows that were left, which with the 600 before are all of them.
    assert done.stdout.split() == ["1000", "400", "1"]
