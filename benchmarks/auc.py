"""Whether a model learns the same from our loader as from TensorFlow's: AUC and loss as they grow.

    python -m benchmarks.auc [--rows 1000000] [--batch 4096] [--pictures docs/pictures]

The rows are Criteo-like, with a label that can be learnt. TensorFlow has them in memory, which no
shuffling of files can better; ours reads them from parquet. Each contestant trains the same model
from the same start, in the files' order and shuffled. AUC is exact (by ranks, not by thresholds),
on rows that none of them trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass
class Curve:
    """AUC on unseen rows, and the mean loss since the point before, after some rows each."""

    auc: list[tuple[float, float]] = field(default_factory=list)
    loss: list[tuple[float, float]] = field(default_factory=list)


class Examiner(keras.callbacks.Callback):
    """A callback that measures a model on unseen rows a few times within training."""

    def __init__(self, unseen: pl.DataFrame, steps: int, batch: int) -> None:
        super().__init__()
        self.curve = Curve()
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
        self.curve.loss.append((rows, (total - self._total) / (batch + 1 - self._steps)))
        self._total, self._steps = total, batch + 1
        scores = self.model.predict(self._data, verbose=0)[:, 0]
        self.curve.auc.append((rows, float(roc_auc_score(self._labels, scores))))


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
        "tf.data, in order": (lambda: native(shuffle=False), "float32"),
        "ours, in order": (lambda: ours(shuffle=False), "float32"),
        "ours, in order, bfloat16": (lambda: ours(shuffle=False), "bfloat16"),
        "tf.data, shuffled": (lambda: native(shuffle=True), "float32"),
        "ours, shuffled": (lambda: ours(shuffle=True), "float32"),
    }


def learn(data: Any, examiner: Examiner, precision: str) -> Curve:
    """Train the model from its fixed start, and return its curves."""
    keras.utils.set_random_seed(3)
    sizes = {name: (size, 16) for name, size in cardinalities(MOST).items()}
    model = models.mlp(sizes, CONTS, hidden=(128, 64))
    options: dict[str, Any] = {"optimizer": "adam", "precision": precision}
    train(model, data, metrics=(), callbacks=[examiner], **options)
    return examiner.curve


def draw(curves: Mapping[str, Curve], folder: Path) -> None:
    """Write `training-auc.svg` and `training-loss.svg`."""
    folder.mkdir(parents=True, exist_ok=True)
    for what, title in (("auc", "AUC on unseen rows"), ("loss", "Loss in training")):
        points = {name: getattr(curve, what) for name, curve in curves.items()}
        chart = line_chart(points, title, "rows trained on", what.replace("auc", "AUC"))
        (folder / f"training-{what}.svg").write_text(chart)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the last AUC of each, and draw the curves if wanted."""
    parser = options(__doc__, rows=1_000_000, batch=4096, folder=Path("build/benchmarks"))
    parser.add_argument("--pictures", type=Path, help="a folder for the curves")
    parsed = parser.parse_args(arguments)
    rows, batch = parsed.rows, parsed.batch

    def clicks(count: int, seed: int) -> pl.DataFrame:
        return prepared_clicks(count, np.random.default_rng([1, seed]), most=MOST)

    frame, unseen = clicks(rows, 0), clicks(max(1000, rows // 20), 1)
    parsed.folder.mkdir(parents=True, exist_ok=True)
    path = parsed.folder / f"auc_{rows}.parquet"
    frame.write_parquet(path, row_group_size=max(batch, rows // 16))
    curves: dict[str, Curve] = {}
    table = []
    for name, (make, precision) in contestants(path, frame, batch).items():
        curves[name] = learn(make(), Examiner(unseen, rows // batch, batch), precision)
        auc, loss = curves[name].auc[-1][1], curves[name].loss[-1][1]
        gained = auc - next(iter(curves.values())).auc[-1][1]
        table.append(
            {"": name, "AUC": f"{auc:.5f}", "difference": f"{gained:+.5f}", "loss": f"{loss:.5f}"}
        )
    show(f"AUC on {len(unseen):,} unseen rows after {rows:,}, batch {batch:,}, Adam", table)
    if parsed.pictures is not None:
        draw(curves, parsed.pictures)


if __name__ == "__main__":
    main()
