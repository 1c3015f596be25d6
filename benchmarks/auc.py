"""Whether a model learns the same from our loader as from TensorFlow's: AUC and loss as they grow.

    python -m benchmarks.auc [--rows 1000000] [--batch 4096] [--pictures docs/pictures]

The rows are Criteo-like, with a label that can be learnt. TensorFlow has them in memory, which no
shuffling of files can better; ours reads them from parquet. Each contestant trains the same model
from the same start, in the files' order and shuffled. AUC is exact (by ranks, not by thresholds),
on rows that none of them trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import polars as pl
import tensorflow as tf
from sklearn.metrics import roc_auc_score

from benchmarks.data import CATS, CONTS, cardinalities, prepared_clicks
from benchmarks.feeds import open_loader
from benchmarks.measure import options, show
from training import models, train
from workflow.picture.line_chart import line_chart

EVALUATIONS = 8
MOST = 100_000


class Examiner(keras.callbacks.Callback):
    """A callback that measures a model on unseen rows a few times within training.

    Attributes:
        auc: on these rows, each after some rows of training.
        loss: likewise, the mean of training since the point before.
    """

    def __init__(self, unseen: pl.DataFrame, steps: int, batch: int) -> None:
        super().__init__()
        self.auc: list[tuple[float, float]] = []
        self.loss: list[tuple[float, float]] = []
        self._labels = unseen["label"].to_numpy()
        x = {name: unseen[name].to_numpy()[:, None] for name in [*CONTS, *CATS]}
        self._data = tf.data.Dataset.from_tensor_slices((x,)).batch(32_768)
        self._every, self._batch = max(1, steps // EVALUATIONS), batch
        self._total = self._steps = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Add a point to the curves."""
        if (batch + 1) % self._every:
            return
        total, rows = logs["loss"] * (batch + 1), (batch + 1) * self._batch
        self.loss.append((rows, (total - self._total) / (batch + 1 - self._steps)))
        self._total, self._steps = total, batch + 1
        scores = self.model.predict(self._data, verbose=0)[:, 0]
        self.auc.append((rows, float(roc_auc_score(self._labels, scores))))


def contestants(
    path: Path, frame: pl.DataFrame, batch: int
) -> dict[str, tuple[Callable[[], Any], str]]:
    """Name -> what makes the data, and the precision of the dense layers."""
    memory = {name: tf.constant(frame[name].to_numpy()[:, None]) for name in frame.columns}

    def take(rows: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        x = {name: tf.gather(column, rows) for name, column in memory.items()}
        return x, x.pop("label")

    def native(*, shuffle: bool) -> tf.data.Dataset:
        rows = tf.data.Dataset.range(len(frame))
        rows = rows.shuffle(len(frame), seed=1) if shuffle else rows
        return rows.batch(batch).map(take).prefetch(2)

    def ours(*, shuffle: bool) -> Any:
        return open_loader([path], batch, shuffle=shuffle, seed=1, parts_per_chunk=4)

    return {
        "tf.data, in order": (partial(native, shuffle=False), "float32"),
        "ours, in order": (partial(ours, shuffle=False), "float32"),
        "ours, in order, bfloat16": (partial(ours, shuffle=False), "bfloat16"),
        "tf.data, shuffled": (partial(native, shuffle=True), "float32"),
        "ours, shuffled": (partial(ours, shuffle=True), "float32"),
    }


def learn(data: Any, examiner: Examiner, precision: str) -> None:
    """Train the model from its fixed start."""
    keras.utils.set_random_seed(3)
    sizes = {name: (size, 16) for name, size in cardinalities(MOST).items()}
    model = models.mlp(sizes, CONTS, hidden=(128, 64))
    train(model, data, metrics=(), callbacks=[examiner], optimizer="adam", precision=precision)


def draw(examiners: Mapping[str, Examiner], folder: Path) -> None:
    """Write `training-auc.svg` and `training-loss.svg`."""
    folder.mkdir(parents=True, exist_ok=True)
    for what, axis, title in (
        ("auc", "AUC", "AUC on unseen rows"),
        ("loss", "loss", "Loss in training"),
    ):
        points = {name: getattr(examiner, what) for name, examiner in examiners.items()}
        (folder / f"training-{what}.svg").write_text(
            line_chart(points, title, "rows trained on", axis)
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the last AUC of each, and draw the curves if wanted."""
    parser = options(__doc__, files=True, rows=1_000_000, batch=4096)
    parser.add_argument("--pictures", type=Path, help="a folder for the curves")
    parsed = parser.parse_args(arguments)
    rows, batch = parsed.rows, parsed.batch

    def clicks(count: int, seed: int) -> pl.DataFrame:
        return prepared_clicks(count, np.random.default_rng([1, seed]), most=MOST)

    frame, unseen = clicks(rows, 0), clicks(max(1000, rows // 20), 1)
    parsed.folder.mkdir(parents=True, exist_ok=True)
    path = parsed.folder / f"auc_{rows}.parquet"
    frame.write_parquet(path, row_group_size=max(batch, rows // 16))
    examiners: dict[str, Examiner] = {}

    def lines() -> Iterator[dict[str, str]]:
        for name, (make, precision) in contestants(path, frame, batch).items():
            examiners[name] = Examiner(unseen, rows // batch, batch)
            learn(make(), examiners[name], precision)
            auc, loss = examiners[name].auc[-1][1], examiners[name].loss[-1][1]
            gained = auc - next(iter(examiners.values())).auc[-1][1]
            yield {
                "": name,
                "AUC": f"{auc:.5f}",
                "difference": f"{gained:+.5f}",
                "loss": f"{loss:.5f}",
            }

    show(f"AUC on {len(unseen):,} unseen rows after {rows:,}, batch {batch:,}, Adam", lines())
    if parsed.pictures is not None:
        draw(examiners, parsed.pictures)


if __name__ == "__main__":
    main()
