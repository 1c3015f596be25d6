"""One call that fits a model and reports what came of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from loader import KerasSequenceLoader, LoaderCheckpoint
from training.errors import TrainingError
from training.layers import EmbeddingBag, EmbeddingCollection
from training.report import TrainingReport
from training.split import compile_model
from training.watch import SampleCount, Watch

_SAMPLES = "samples"


def train(
    model: keras.Model,
    train_data: Any,
    validation_data: Any = None,
    *,
    epochs: int = 1,
    optimizer: Any = "adam",
    loss: Any = "binary_crossentropy",
    metrics: Sequence[Any] | None = None,
    split: bool | None = None,
    precision: str = "float32",
    steps_per_execution: int = 1,
    patience: int | None = None,
    checkpoint: str | Path | None = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    stop_on_nan: bool = True,
    validate_ids: bool = False,
    verbose: int | str = 0,
) -> TrainingReport:
    """Compiles and fits a model; `compile_model` and `model.fit` do as well without it.

    Args:
        model: a Keras model with one output.
        train_data: a `KerasSequenceLoader`, a `tf.data.Dataset`, a `keras.utils.PyDataset`, or
            a tuple `(x, y)` of arrays, which Keras then shuffles.
        validation_data: the same kinds, or None.
        epochs: how often to go through the data.
        optimizer: a Keras optimizer or a name, as in `compile_model`.
        loss: a Keras loss or its name.
        metrics: Keras metrics; the area under the ROC curve when None.
        split: whether to train with the split step of `compile_model`; None for where there is a
            GPU and the model is a functional or sequential one.
        precision: what the dense layers compute in: "float32", or with the split step, which it
            then asks for, "bfloat16" or "float16".
        steps_per_execution: how many steps to take for each call from Python.
        patience: ends the run when that many epochs have not bettered the loss on the validation
            data, and gives the model the weights of the best.
        checkpoint: a folder for model, optimizer and loader's position after each epoch. If there
            is a checkpoint, training goes on from there. For more, make a
            `loader.LoaderCheckpoint` and put it first among the callbacks.
        callbacks: further Keras callbacks, such as `keras.callbacks.TensorBoard("logs")`.
        stop_on_nan: whether to end a run whose loss is no longer a number.
        validate_ids: whether to check ids and row lengths in every step, which is slow on a GPU.
            Otherwise an id out of range counts as unknown: see `layers.EmbeddingCollection`.
        verbose: as in `model.fit`; 1 shows progress.

    Returns:
        Speed, loss curve and metrics.

    Raises:
        TrainingError: no data, arguments that make no sense, an id out of range, or a loss that is
            not a number; the model then keeps the weights it had at that moment.

    Example:
        >>> print(train(model, train_data, valid_data, optimizer=keras.optimizers.Adam(0.01)))
        1,800,000 samples in 31.0 s, 58,064 samples/s
        auc       0.7412
        loss      0.5840
        val_auc   0.7731
        val_loss  0.5633
    """
    if epochs < 1:
        raise TrainingError(f"Expected at least one epoch. Received: epochs={epochs}.")
    watch = Watch(stop_on_nan)
    chosen = [*_early_stopping(patience, validation_data), *callbacks, watch]
    metrics = [keras.metrics.AUC(name="auc")] if metrics is None else list(metrics)
    compile_model(
        model,
        optimizer,
        loss,
        [*metrics, SampleCount(name=_SAMPLES)],
        split=precision != "float32" or _is_splittable(model) if split is None else split,
        precision=precision,
        steps_per_execution=steps_per_execution,
    )
    first = 0
    if checkpoint is not None:
        saver = LoaderCheckpoint(_loader(train_data), checkpoint)
        first = saver.restore(model)
        if first >= epochs:
            raise TrainingError(
                f"Expected more epochs than the checkpoint in {checkpoint} has: {first}. "
                f"Received: epochs={epochs}. Raise epochs to go on, or remove the folder."
            )
        chosen.insert(0, saver)
    x, y, weights = keras.utils.unpack_x_y_sample_weight(train_data)
    with _validated(model, validate_ids):
        history = model.fit(
            x,
            y,
            sample_weight=weights,
            validation_data=validation_data,
            epochs=epochs,
            initial_epoch=first,
            callbacks=chosen,
            verbose=verbose,
            shuffle=isinstance(train_data, (tuple, list)),  # other data comes in its own order
        ).history
    if stop_on_nan:
        watch.check()
    return _report(history, watch)


def _is_splittable(model: keras.Model) -> bool:
    return bool(tf.config.list_physical_devices("GPU")) and bool(getattr(model, "inputs", None))


def _early_stopping(
    patience: int | None, validation_data: Any
) -> list[keras.callbacks.EarlyStopping]:
    if patience is None:
        return []
    if validation_data is None or patience < 1:
        raise TrainingError(
            "Expected validation_data and a patience of at least one epoch, to stop early. "
            f"Received: patience={patience}, validation_data={validation_data!r}."
        )
    return [keras.callbacks.EarlyStopping("val_loss", patience=patience, restore_best_weights=True)]


def _loader(train_data: Any) -> KerasSequenceLoader:
    if isinstance(train_data, KerasSequenceLoader):
        return train_data
    raise TrainingError(
        "Expected a KerasSequenceLoader as train_data, whose position a checkpoint holds. "
        f"Received: {type(train_data).__name__}. For a mapped loader put "
        "LoaderCheckpoint(loader, folder) among the callbacks; for other data "
        "keras.callbacks.BackupAndRestore(folder)."
    )


@contextmanager
def _validated(model: keras.Model, validate: bool) -> Iterator[None]:
    """Checks ids while the block runs, and tells what a check found as a user's mistake."""
    if not validate:
        yield
        return
    lookups = [
        layer
        for layer in model._flatten_layers()  # noqa: SLF001 - layers inside of layers, too
        if isinstance(layer, (EmbeddingBag, EmbeddingCollection))
    ]
    before = [layer.validate_ids for layer in lookups]
    for layer in lookups:
        layer.validate_ids = True
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        found = re.search(r"assertion failed: \[(Expected .*?)\] \[(.*?)\] \[(.*?)\]", str(error))
        if found is None:
            raise
        raise TrainingError(f"{found[1]} {found[2]} .. {found[3]}") from error
    finally:
        for layer, value in zip(lookups, before, strict=True):
            layer.validate_ids = value
        # They were traced with the checks.
        model.train_function = model.test_function = None


def _report(history: Mapping[str, Sequence[float]], watch: Watch) -> TrainingReport:
    samples = round(sum(history.get(_SAMPLES, ())))
    if not samples:
        raise TrainingError("Expected training data with at least one row. Received: none.")
    kept = {
        name: tuple(map(float, values))
        for name, values in sorted(history.items())
        if not name.endswith(_SAMPLES)
    }
    return TrainingReport(samples, watch.seconds, watch.loss_curve(), kept)
