"""Whether `train` holds on a GPU, fed by the GPU's loader: about a minute, a line for each part.

    python -m benchmarks.gpu_train_check [--only resumed]

Each line ends with ok, or the program with a traceback. On a machine without a GPU it runs too.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import polars as pl
import tensorflow as tf

from loader import KerasSequenceLoader, LoaderCheckpoint
from training import TrainingError, models, optimizers, train

ROWS, BATCH, IDS = 400_000, 8192, 1000


def write(folder: Path) -> Path:
    """Rows of an id, a list, a number and a label; the number of 1 row in 1,000 is null."""
    random = np.random.default_rng(0)
    user = random.integers(0, IDS, ROWS)
    tags = np.split(random.integers(0, 50, 2 * ROWS).astype("int32"), range(2, 2 * ROWS, 2))
    age = random.normal(size=ROWS).astype("float32")
    holes = pl.Series(age).set(pl.Series(np.arange(ROWS) % 1000 == 0), None)
    frame = pl.DataFrame(
        {
            "user": user.astype("int32"),
            "tags": tags,
            "age": age,
            "holes": holes,
            "label": (user % 2 + age > 0.5).astype("int8"),
        }
    )
    frame.write_parquet(folder / "rows.parquet", row_group_size=50_000)
    return folder / "rows.parquet"


def load(path: Path, number: str = "age") -> KerasSequenceLoader:
    """The loader, on the GPU where there is one."""
    return KerasSequenceLoader(
        path, BATCH, ["label"], cat_names=["user", "tags"], cont_names=[number], seed=0
    )


def make(number: str = "age") -> keras.Model:
    """The network."""
    keras.utils.set_random_seed(0)
    sizes = {"user": (IDS, 16)}, {"tags": (50, 8)}
    return models.mlp(
        sizes, [number], hidden=(64, 32), dropout=0.1, id_dtypes={"tags": ("int32", "int32")}
    )


def everything(path: Path, folder: Path) -> str:
    """All options of `train` at once, and what they report."""
    data = load(path)
    report = train(
        make(), data, load(path), epochs=2, precision="bfloat16",
        class_weight={1: 2.0}, tensorboard=folder / "logs", verbose=True, validate_ids=True,
        patience=2, checkpoint=folder / "all", metrics=["auc", "accuracy"],
        optimizer=keras.optimizers.Adam(0.01),
    )  # fmt: skip
    if report.samples != 2 * ROWS or (report.val_auc or 0) < 0.95:
        raise AssertionError(report)
    return f"{data.device}: {report!r}"


def resumed(path: Path, folder: Path) -> str:
    """A run that is given up goes on, and ends as one that was not, but for the order of sums."""

    def fit(name: str, stop: float = math.inf) -> list[Any]:
        class Stop(keras.callbacks.Callback):
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
                if int(self.model.optimizer.iterations) >= stop:
                    raise InterruptedError

        model, data = make(), load(path)
        options: dict[str, Any] = {
            "checkpoint": LoaderCheckpoint(data, folder / name, save_freq=10),
            # What Adam makes of a gradient of zero and one of nearly zero is not nearly the same.
            "optimizer": optimizers.SGD(0.1),
            # Not a divisor of an epoch's steps.
            "steps_per_execution": 8,
        }
        with suppress(InterruptedError):
            train(model, data, epochs=2, callbacks=[Stop()], **options)
        return [int(model.optimizer.iterations), *model.get_weights()]

    def difference(one: list[Any], other: list[Any]) -> float:
        return max(abs(a - b).max() for a, b in zip(one[1:], other[1:], strict=True))

    whole, again = fit("whole"), fit("again")
    fit("stopped", 67)
    on, short = fit("stopped"), fit("short", whole[0] - 1)
    found, chance, step = (difference(each, whole) for each in (on, again, short))
    told = (
        f"largest difference of a weight {found:.1e}, by chance {chance:.1e}, by a step {step:.1e}"
    )
    if on[0] != whole[0] or found > step / 10:
        raise AssertionError(f"{told}; {on[0]} steps instead of {whole[0]}")
    return told


def nan(path: Path, _: Path) -> str:
    """A null float is found and named."""
    try:
        train(make("holes"), load(path, "holes"))
    except TrainingError as error:
        if "column 'holes'" not in str(error):
            raise
        return str(error)[:100]
    raise AssertionError("NaN went through")


def unknown_ids(_: Path, __: Path) -> str:
    """Ids out of range give the same on CPU and GPU."""
    model = make()
    ids = tf.constant([[0], [IDS - 1], [IDS], [-1], [2**31 - 1], [-(2**31)]])
    empty = tf.zeros((0, 1), tf.int32), tf.zeros((6, 1), tf.int32)
    answers = []
    for device in dict.fromkeys(["/cpu:0", tf.test.gpu_device_name() or "/cpu:0"]):
        with tf.device(device):
            features = {"user": ids, "tags": empty, "age": tf.zeros((6, 1))}
            answers.append(model(features).numpy())
    np.testing.assert_allclose(answers[0], answers[-1], rtol=1e-3)
    if len(set(answers[0][2:, 0])) != 1:
        raise AssertionError(answers[0])
    return f"{len(answers)} devices"


def sparse(_: Path, __: Path) -> str:
    """Optimizers do to rows of a table the same on CPU and GPU, repeated rows too."""
    random = np.random.default_rng(0)
    steps = [
        (random.zipf(1.3, 20_000) % IDS, random.normal(size=(20_000, 8)).astype("float32"))
        for _ in range(3)
    ]

    def table(device: str, optimizer: keras.optimizers.Optimizer) -> Any:
        with tf.device(device):
            variable = keras.Variable(np.ones((IDS, 8), "float32"))
            optimizer.build([variable])

            @tf.function
            def step(rows: tf.Tensor, values: tf.Tensor) -> None:
                optimizer.apply([tf.IndexedSlices(values, rows, tf.constant((IDS, 8)))], [variable])

            for rows, values in steps:
                step(tf.constant(rows), tf.constant(values))
            return variable.numpy()

    told = []
    for make_optimizer in (
        partial(optimizers.SGD, 0.01),
        partial(optimizers.SGD, 0.01, momentum=0.9),
        partial(optimizers.SGD, 0.01, clipnorm=1.0),
        partial(optimizers.Adagrad, 0.1),
        partial(optimizers.Adam, 0.1),
        partial(optimizers.Adam, 0.1, amsgrad=True),
    ):
        devices = ("/cpu:0", tf.test.gpu_device_name() or "/cpu:0")
        one, other = (table(device, make_optimizer()) for device in devices)
        told.append(float(abs(one - other).max() / abs(one - 1).max()))
        np.testing.assert_allclose(other, one, rtol=2e-4, atol=2e-5)
    return f"largest difference {max(told):.1e} of the largest change"


PARTS: list[Callable[[Path, Path], str]] = [sparse, everything, resumed, nan, unknown_ids]


def main() -> None:
    """Runs all parts, or those wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="parts whose names hold this")
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        path = write(folder)
        for part in (part for part in PARTS if only in part.__name__):
            print(f"{part.__name__}: {part(path, folder)}  ok", flush=True)


if __name__ == "__main__":
    main()
