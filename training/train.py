"""One call that fits a model and reports what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from loader import KerasSequenceLoader, LoaderCheckpoint
from training.errors import TrainingError
from training.gpu import has_gpu
from training.report import TrainingReport
from training.run.class_weight import check_class_weight, weighted
from training.run.data_check import check_data
from training.run.debug_ids import checked_ids, uncast
from training.run.event_log import EventLog
from training.run.failures import explained
from training.run.names import check_count, check_names, check_objects
from training.run.progress import EpochLines
from training.run.steps import default_steps, steps_a_call
from training.run.watch import Watch
from training.split import compile_model, is_splittable


def train(
    model: keras.Model,
    train_data: Any,
    validation_data: Any = None,
    *,
    epochs: int = 1,
    optimizer: Any = "adam",
    loss: Any = "binary_crossentropy",
    metrics: Sequence[Any] | None = None,
    class_weight: Mapping[int, float] | None = None,
    split: bool | None = None,
    precision: str = "float32",
    steps_per_execution: int | None = None,
    patience: int | None = None,
    checkpoint: str | Path | LoaderCheckpoint | None = None,
    tensorboard: str | Path | None = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    stop_on_nan: bool = True,
    validate_ids: bool = False,
    verbose: bool = False,
) -> TrainingReport:
    """Compiles and fits a model; `compile_model` and `model.fit` do as well without it.

    The data is held to the model's inputs first: columns, dtypes, shapes and a label.

    Args:
        model: a Keras model. For several outputs the data has a label for each, by name or in the
            same order.
        train_data: a `KerasSequenceLoader`, a `tf.data.Dataset` or a distributed one, a
            `keras.utils.PyDataset`, or a tuple `(x, y)` of arrays, which Keras then shuffles.
        validation_data: the same kinds, or None.
        epochs: how often to go through the data.
        optimizer: a Keras optimizer or a name, as in `compile_model`. Its learning rate may be
            one of `keras.optimizers.schedules`.
        loss: a Keras loss or its name; for rare positives also "binary_focal_crossentropy".
        metrics: Keras metrics or their names, such as "auc" and "accuracy"; the area under the
            ROC curve when None. Each of several outputs has all of them.
        class_weight: label -> what its rows count for in the loss, in training alone; such as
            `{0: 1.0, 1: 20.0}` for rare positives. Predictions are then those of rows in which
            positives are as many times more frequent.
        split: whether to train with the split step of `compile_model`; None for where the model can
            be split: a functional or sequential one with dense layers behind its tables, which no
            regularizer reads, of one output, and of no `tf.distribute` strategy.
        precision: what the dense layers compute in: "float32", or with the split step, which it
            then asks for, "bfloat16" or "float16".
        steps_per_execution: how many steps to take for each call from Python, after which
            callbacks are called, a bar moves, and NaN is noticed. None for 32 with the split step
            on a GPU, which waits after each call, and else for 1: also if one of `callbacks`, not
            counting Keras' own, does something for each batch. `compile_model` and Keras have it
            for `predict` as well, here it is for training and validation alone.
        patience: ends the run when that many epochs have not bettered the loss on the validation
            data, and gives the model the weights of the best. A run that goes on from a
            checkpoint counts anew.
        checkpoint: a folder for model, optimizer and loader's position after each epoch; or a
            `loader.LoaderCheckpoint`, for positions within epochs and for a loader that was
            mapped. If there is a checkpoint, training goes on from there, to the same weights as
            without the interruption; if it is of the last epoch, nothing is left to train.
        tensorboard: a folder for curves that TensorBoard draws; see `EventLog`.
        callbacks: further Keras callbacks.
        stop_on_nan: whether to end a run whose loss or weights are no longer numbers.
        validate_ids: whether to check ids and row lengths in every step, which is slow on a GPU.
            Otherwise an id out of range counts as unknown: see `layers.EmbeddingCollection`.
        verbose: prints a line for each epoch, and in a terminal a bar until then.

    Returns:
        Speed, loss curve and metrics.

    Raises:
        TrainingError: no data, data that is not what the model takes, arguments that make no
            sense, an id out of range, no memory, or a loss or a weight that is not a number; the
            model then keeps the weights it had at that moment, and the checkpoint those before.
        LoaderError: the data cannot be read, or the checkpoint is of other data.

    Example:
        >>> print(train(model, train_data, valid_data, optimizer=keras.optimizers.Adam(0.01)))
        1,800,000 samples in 31.0 s, 58,064 samples/s
        auc       0.7412
        loss      0.5840
        val_auc   0.7731
        val_loss  0.5633
    """
    check_objects(model, callbacks)
    check_count("epochs", epochs)
    if steps_per_execution is not None:
        check_count("steps_per_execution", steps_per_execution)
    outputs = len(getattr(model, "outputs", None) or [0])
    metrics = check_names(optimizer, loss, metrics, outputs)
    check_data(model, train_data, "train_data")
    if validation_data is not None:
        check_data(model, validation_data, "validation_data")
    if split is None:
        split = outputs == 1 and (precision != "float32" or is_splittable(model))
    if split and outputs > 1:
        raise TrainingError(
            "Expected a model with one output to split the step and count metrics. "
            f"Received: {outputs}. Use split=False, or compile_model and model.fit without metrics."
        )
    steps = steps_per_execution or default_steps(callbacks, on_gpu=split and has_gpu())
    saver = _saver(checkpoint, train_data)
    watch = Watch(train_data, stop_on_nan=stop_on_nan, saved=saver is not None)
    followers = [
        watch,
        *([] if saver is None else [saver]),
        *_early_stopping(patience, validation_data),
        *callbacks,
        *([EpochLines(watch)] if verbose else []),
        *([] if tensorboard is None else [EventLog(tensorboard, watch)]),
    ]
    with explained(model), checked_ids(model) if validate_ids else nullcontext():
        compile_model(model, optimizer, loss, metrics, split=split, precision=precision)
        if model.built and not model.optimizer.built:
            # Once a step is traced it is too late: it would keep the loss scale of the beginning.
            model.optimizer.build(model.trainable_variables)
        first = 0 if saver is None else saver.restore(model)
        if first >= epochs:
            return TrainingReport(0, 0.0, (), _evaluated(model, validation_data))
        data, weights = _weighted(train_data, class_weight)
        data = uncast(model, data) if validate_ids else data
        with watch.rows.counting(model), steps_a_call(model, steps):
            history = _fit(model, data, validation_data, weights, epochs, first, followers)
    return _report(history, watch)


def _early_stopping(
    patience: int | None, validation_data: Any
) -> list[keras.callbacks.EarlyStopping]:
    if patience is None:
        return []
    if validation_data is None or not isinstance(patience, int) or patience < 1:
        raise TrainingError(
            "Expected validation_data and a patience of at least one epoch, to stop early. "
            f"Received: patience={patience}, validation_data={validation_data!r}."
        )
    return [keras.callbacks.EarlyStopping("val_loss", patience=patience, restore_best_weights=True)]


def _saver(
    checkpoint: str | Path | LoaderCheckpoint | None, train_data: Any
) -> LoaderCheckpoint | None:
    if checkpoint is None or isinstance(checkpoint, LoaderCheckpoint):
        return checkpoint
    if Path(checkpoint).exists() and not Path(checkpoint).is_dir():
        raise TrainingError(f"Expected checkpoint as a folder. Received: {checkpoint}, a file.")
    if isinstance(train_data, KerasSequenceLoader):
        return LoaderCheckpoint(train_data, checkpoint)
    raise TrainingError(
        "Expected a KerasSequenceLoader as train_data, whose position a checkpoint holds. "
        f"Received: {type(train_data).__name__}. For a mapped loader give "
        "checkpoint=LoaderCheckpoint(loader, folder); for other data put "
        "keras.callbacks.BackupAndRestore(folder) among the callbacks."
    )


def _weighted(data: Any, class_weight: Mapping[int, float] | None) -> tuple[Any, Any]:
    """The data, and what of class_weight is left for Keras to do."""
    if class_weight is None:
        return data, None
    check_class_weight(class_weight)
    if isinstance(data, tf.distribute.DistributedDataset):
        raise TrainingError(
            "Expected data that is not distributed yet, to weigh rows by class_weight. Received: "
            f"{type(data).__name__}. Weigh them before, as triples (x, y, weights): "
            "strategy.distribute_datasets_from_function(lambda _: train_data.map(weigh))."
        )
    if isinstance(data, tf.data.Dataset):
        return weighted(data, class_weight), None
    return data, dict(class_weight)


def _fit(
    model: keras.Model,
    data: Any,
    validation_data: Any,
    class_weight: Any,
    epochs: int,
    first: int,
    callbacks: Sequence[keras.callbacks.Callback],
) -> Mapping[str, Sequence[float]]:
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    return model.fit(
        x,
        y,
        sample_weight=sample_weight,
        class_weight=class_weight,
        validation_data=validation_data,
        epochs=epochs,
        initial_epoch=first,
        callbacks=list(callbacks),
        verbose=0,
        shuffle=isinstance(data, (tuple, list)),  # other data comes in its own order
    ).history


def _evaluated(model: keras.Model, validation_data: Any) -> dict[str, tuple[float, ...]]:
    """The metrics on the validation data, if any, of a model that is trained already."""
    if validation_data is None:
        return {}
    x, y, weights = keras.utils.unpack_x_y_sample_weight(validation_data)
    found = model.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)
    return {f"val_{name}": (float(found[name]),) for name in sorted(found)}


def _report(history: Mapping[str, Sequence[float]], watch: Watch) -> TrainingReport:
    if not watch.samples:
        raise TrainingError("Expected training data with at least one row. Received: none.")
    kept = {name: tuple(map(float, history[name])) for name in sorted(history)}
    return TrainingReport(watch.samples, watch.seconds, watch.loss_curve(), kept)
