"""One call that fits a model and reports the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import keras

from loader import KerasSequenceLoader, LoaderCheckpoint
from loader.frameworks.run_settings import setting
from loader.tensorflow.sized_dataset import SizedDataset, epochs_read_by
from training.errors import TrainingError
from training.gather_tables import whole_tables
from training.gpu import has_gpu
from training.keras_signature import warn_if_not_servable
from training.layers.records_fits import record_fits
from training.parallel import Workers
from training.parallel.agreement import agree
from training.parallel.validation import FirstValidation
from training.parallel.workers import expect_workers
from training.report import TrainingReport
from training.retrieval.softmax_check import check_softmax
from training.run.class_check import check_classes
from training.run.class_weight import weighted
from training.run.data_check import check_data, check_end, no_rows
from training.run.debug_ids import checked_ids, uncast
from training.run.event_log import EventLog
from training.run.failures import explained
from training.run.label_check import output_names, output_widths
from training.run.label_values import LabelValues
from training.run.names import check_objects, compile_settings
from training.run.progress import EpochLines
from training.run.single_numbers import single_numbers
from training.run.steps import default_steps, steps_a_call
from training.run.table_check import check_fits, check_tables
from training.run.watch import Watch
from training.split import compile_model, is_splittable
from training.split.refusals import expect_one_loss
from workflow.schema.python_number import python_number, whole_number


def train(
    model: keras.Model,
    train_data: Any,
    validation_data: Any = None,
    *,
    epochs: int = 1,
    optimizer: Any = "adam",
    loss: Any = "binary_crossentropy",
    metrics: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    weighted_metrics: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    loss_weights: Mapping[str, Any] | Sequence[Any] | None = None,
    class_weight: Mapping[int, float] | Mapping[str, Mapping[int, float]] | None = None,
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
    workers: Workers | None = None,
) -> TrainingReport:
    """Compile and fit a model; `compile_model` and `model.fit` can be used directly instead.

    It first validates the data against the model's inputs: columns, dtypes, shapes and labels. It warns
    if the model cannot be exported, for example because of the name of an input.

    Args:
        model: a Keras model. If it has several outputs, the data has a label for each: by name, or in
            the same order if the outputs are a list. To train only some of them, pass a model that
            shares the weights: `keras.Model(model.input, {"click": model.output["click"]})`.
        train_data: a `KerasSequenceLoader`, a `tf.data.Dataset` or a distributed one, a
            `keras.utils.PyDataset`, or a tuple `(x, y)` of arrays, which Keras then shuffles.
        validation_data: the same kinds, or None. With `use_ema` of the optimizer it measures the weights as
            they are, where the model has their average in the end; to measure that, pass
            `callbacks=[keras.callbacks.SwapEMAWeights()]`.
        epochs: how many passes over the data.
        optimizer: a Keras optimizer or a name, as in `compile_model`. Its learning rate may be one
            of `keras.optimizers.schedules`.
        loss: a Keras loss or its name, such as "binary_focal_crossentropy" for rare positives. With
            several outputs, one loss for all, or a mapping output -> loss; an output without a loss is
            not trained. Several losses of one output are added up, as in
            `{"click": ["binary_crossentropy", "mse"], "qty": "mae"}`; the report's `click_loss` is the
            last of them, as in Keras.
        metrics: Keras metrics or their names, such as "auc" and "accuracy". With several outputs, the
            metrics of each output, a mapping output -> metrics, or lists of metrics in the outputs'
            order. None for the area under the ROC curve of each output that the loss shows to be
            probabilities or logits. That is Keras' estimate from 200 thresholds; where predictions lie
            close together, pass `keras.metrics.AUC(num_thresholds=10_000)`. A metric with a number for
            each class, such as `keras.metrics.F1Score()`, is reported as `f1_score[0]`, `f1_score[1]`, ...
        weighted_metrics: metrics in the same form that count each row by its weight, from a loader's
            `sample_weight`, data of `(x, y, weights)` or `class_weight`; `metrics` count all rows alike. One
            of the same name as in `metrics` is reported as `weighted_auc`.
        loss_weights: with several outputs, a mapping output -> weight of its loss in the sum; 1 by
            default. An output with several losses has one weight for all of them, or a list.
        class_weight: a mapping label -> weight of its rows in the loss, in training only, such as
            `{0: 1.0, 1: 20.0}` for rare positives. Where a label has a value for each class, the keys
            are the classes' numbers. With several outputs, a mapping output -> such weights. Predictions
            are then those for data in which positives are that many times more frequent. It is an error for
            data with weights of rows, as in Keras.
        split: whether to train with the split step of `compile_model`; None to use it if the model
            can be split: a functional or sequential model with one output and dense layers behind
            its tables, without regularizers on tables, spectral normalization, stateful RNNs, a
            `train_step`, `call` or `compute_loss` of its own, or a `tf.distribute` strategy. Several workers
            require it.
        precision: the dtype of the dense layers' computation: "float32", or with the split step,
            which it then requires, "bfloat16" or "float16".
        steps_per_execution: how many steps to take in each call from Python. After each call callbacks
            run, the progress bar moves, and NaN is detected. None for 32 with the split step on a GPU,
            where each call ends with a wait, and for 1 otherwise, or if one of `callbacks` other than
            Keras' own runs after each batch. In `compile_model` and Keras the setting applies to
            `predict` as well; here only to training and validation.
        patience: ends the run after that many epochs without a lower loss on the validation data,
            and restores the best weights.
        checkpoint: a folder for model, optimizer and loader's position after each epoch; or a
            `loader.LoaderCheckpoint`, for positions within epochs and for mapped loaders. If there
            is a checkpoint, training resumes from it, to the same weights as without the
            interruption, also with `patience`, `EarlyStopping` and `ReduceLROnPlateau`; other callbacks
            that count epochs begin anew. It is an error if the model, label, loss, loss_weights,
            class_weight, sample_weight or the optimizer's class has changed; within an epoch also if the
            metrics have. The optimizer's options, precision, steps_per_execution and the validation data are those
            given now. The learning rate is that of the checkpoint, unless the optimizer's initial one has
            changed. If the checkpoint is from the last epoch, or the run has ended early, nothing is
            left to train.
        tensorboard: a folder for TensorBoard's curves; see `EventLog`.
        callbacks: further Keras callbacks.
        stop_on_nan: whether to end a run whose loss, in training or validation, or weights are not numbers.
        validate_ids: whether to check ids and row lengths in every step, which is slow on a GPU.
            Otherwise an id out of range counts as unknown: see `layers.EmbeddingCollection`.
        verbose: prints a line for each epoch, and in a terminal a progress bar until then.
        workers: the workers, from `join_workers`, if several processes call `train` together, each with
            its share of the rows. Training metrics are those of all rows, so their state has to be a
            sum over batches, not a maximum. Validation metrics are those of the first worker, so that
            callbacks end all workers after the same epoch. A shuffled share of the validation data has
            other rows in each epoch. The first worker writes checkpoints, into a folder that all can
            read; only the first should save the model and have `tensorboard`. The report counts a
            worker's own rows.

    Returns:
        Speed, loss curve and metrics.

    Raises:
        TrainingError: no data, data without end where no callback may end the run, data that does
            not fit the model, an embedding with fewer rows than a loader's schema has ids for its
            column, data of another fit than the model was trained on, invalid arguments, an id out
            of range, no memory, or a loss or a weight that is not a number; the model then keeps its
            weights at that moment, and the checkpoint the earlier ones. A worker is lost, or has
            other settings, data of another length or fit, no rows, another order of the rows, or
            another model.
        LoaderError: the data cannot be read, or the checkpoint is of other data or of another run.

    Example:
        >>> print(train(model, train_data, valid_data, optimizer=keras.optimizers.Adam(0.01)))
        1,800,000 samples in 31.0 s, 58,064 samples/s
        A batch draws from 8 row groups.
        auc       0.7412
        loss      0.5840
        val_auc   0.7731
        val_loss  0.5633
    """
    check_objects(model, callbacks)
    epochs = whole_number("epochs", epochs, 1, TrainingError)
    if steps_per_execution is not None:
        steps_per_execution = whole_number(
            "steps_per_execution", steps_per_execution, 1, TrainingError
        )
    warn_if_not_servable(model)
    expect_one_loss(model, loss)
    metrics = check_softmax(model, loss, metrics)
    names = output_names(model, loss)
    settings = compile_settings(optimizer, loss, metrics, loss_weights, names, weighted_metrics)
    check_classes(settings, output_widths(model))
    losses = settings["loss"] if len(names) > 1 else {"": settings["loss"]}
    check_data(model, train_data, "train_data", losses)
    if not callbacks:  # one of them may end the run
        check_end(train_data, "train_data")
    if validation_data is not None:
        check_data(model, validation_data, "validation_data", losses)
        check_end(validation_data, "validation_data")
    # The fits first: ids of another fit need another model, not larger tables.
    fits = check_fits(model, train_data, validation_data)
    check_tables(model, train_data)
    check_tables(model, validation_data)
    workers = expect_workers(workers)
    if split is None:
        required = workers.size > 1 or precision != "float32"
        split = required or (len(names) <= 1 and is_splittable(model))
    steps = steps_per_execution or default_steps(callbacks, on_gpu=split and has_gpu())
    _expect_position_saved(train_data, callbacks)
    deciding = _deciding(_early_stopping(patience, validation_data), callbacks)
    options = {
        "callbacks": deciding,
        "settings": setting(
            {"class_weight": class_weight, "loss_weights": settings["loss_weights"]}
        ),
        "validation": validation_data,
    }
    saver = _saver(checkpoint, train_data, options, writes=workers.rank == 0)
    labels = LabelValues(losses, output_widths(model))
    watch = Watch(train_data, validation_data, labels, stop_on_nan=stop_on_nan, saver=saver)
    lines = EpochLines(watch)
    followers = [
        *([] if workers.size == 1 else [FirstValidation(workers)]),
        watch,
        *deciding,
        *([] if saver is None else [saver]),
        *([lines] if verbose else []),
        *([] if tensorboard is None else [EventLog(tensorboard, watch)]),
    ]
    with explained(model), checked_ids(model) if validate_ids else nullcontext():
        compile_model(
            model, optimizer, **settings, split=split, precision=precision, workers=workers
        )
        if model.built and not model.optimizer.built:
            # Before a step is traced, which would keep the initial loss scale.
            model.optimizer.build(model.trainable_variables)
        first = 0 if saver is None else saver.restore(model)
        # Its weights belong to them from here on, whatever ends the run.
        record_fits(model, fits)
        common = {
            "number of epochs": epochs,
            "first epoch, from the checkpoint": first,
            "checkpoint, by the checksum of its weights": saver.restored_sum if saver else "",
            "precision": precision,
            "steps_per_execution": steps,
            "fit of the features": fits,
            "class_weight": setting(class_weight),
        }
        agree(workers, common)
        if first >= epochs:
            # As `fit` ends: with use_ema the model then has the average of its weights.
            model.optimizer.finalize_variable_values(model.trainable_variables)
            _end_early_stopping(model, deciding)
            return TrainingReport(0, 0.0, (), _evaluated(model, validation_data))
        data = weighted(train_data, class_weight, losses, output_widths(model))
        data, validation_data = (
            uncast(model, each) if validate_ids else each for each in (data, validation_data)
        )
        # Keras ends no callback of a run that Ctrl-C or an error has ended.
        with closing(lines), watch.rows.counting(model, labels.look), steps_a_call(model, steps):
            history = _fit(model, data, validation_data, epochs, first, followers)
    loaded = epochs_read_by(train_data)
    return _report(history, watch, None if loaded is None else loaded.mixing())


def _early_stopping(
    patience: int | None, validation_data: Any
) -> list[keras.callbacks.EarlyStopping]:
    if patience is None:
        return []
    if validation_data is None or not isinstance(python_number(patience), int) or patience < 1:
        raise TrainingError(
            "Expected validation_data and a patience of at least one epoch, to stop early. "
            f"Received: patience={patience}, validation_data={validation_data!r}."
        )
    return [keras.callbacks.EarlyStopping("val_loss", patience=patience, restore_best_weights=True)]


def _deciding(
    early: Sequence[keras.callbacks.Callback], callbacks: Sequence[keras.callbacks.Callback]
) -> list[keras.callbacks.Callback]:
    """The callbacks that may end the run, which restore the weights that were validated."""
    deciding = [*early, *callbacks]
    swaps = any(isinstance(one, keras.callbacks.SwapEMAWeights) for one in deciding)
    stopping = [one for one in deciding if isinstance(one, keras.callbacks.EarlyStopping)]
    if swaps and any(one.restore_best_weights for one in stopping):
        raise TrainingError(
            "Expected no SwapEMAWeights beside patience or EarlyStopping(restore_best_weights=True), which restores "
            "the weights of an epoch, where their average was validated. Received: both. Leave one of them out."
        )
    return deciding


def _end_early_stopping(model: keras.Model, callbacks: Sequence[keras.callbacks.Callback]) -> None:
    """Restore the best weights, as Keras does at the end of a run."""
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.EarlyStopping):
            callback.set_model(model)
            callback.on_train_end()


def _expect_position_saved(data: Any, callbacks: Sequence[keras.callbacks.Callback]) -> None:
    if isinstance(data, SizedDataset) and any(  # a loader, mapped or not
        isinstance(callback, keras.callbacks.BackupAndRestore) for callback in callbacks
    ):
        raise TrainingError(
            "Expected train(checkpoint=folder) to resume with a KerasSequenceLoader, or with a mapped one "
            "checkpoint=LoaderCheckpoint(loader, folder). Received: "
            "keras.callbacks.BackupAndRestore, which does not save the loader's position: after an "
            "interruption the rows would come in the order of the first epoch again."
        )


def _saver(
    checkpoint: str | Path | LoaderCheckpoint | None,
    train_data: Any,
    options: Mapping[str, Any],
    *,
    writes: bool,
) -> LoaderCheckpoint | None:
    if isinstance(checkpoint, LoaderCheckpoint) and checkpoint.writes and not writes:
        raise TrainingError(
            "Expected the first of several workers alone to write checkpoints. Received: a "
            "LoaderCheckpoint on another. Give it writes=workers.rank == 0."
        )
    if checkpoint is None:
        return None
    options = {**options, "saving": whole_tables}
    if isinstance(checkpoint, LoaderCheckpoint):
        for name, value in options.items():
            setattr(checkpoint, name, value)
        return checkpoint
    if Path(checkpoint).exists() and not Path(checkpoint).is_dir():
        raise TrainingError(f"Expected checkpoint as a folder. Received: {checkpoint}, a file.")
    if isinstance(train_data, KerasSequenceLoader):
        return LoaderCheckpoint(train_data, checkpoint, writes=writes, **options)
    raise TrainingError(
        "Expected a KerasSequenceLoader as train_data, whose position a checkpoint holds. "
        f"Received: {type(train_data).__name__}. For a mapped loader give "
        "checkpoint=LoaderCheckpoint(loader, folder); for other data put "
        "keras.callbacks.BackupAndRestore(folder) among the callbacks."
    )


def _fit(
    model: keras.Model,
    data: Any,
    validation_data: Any,
    epochs: int,
    first: int,
    callbacks: Sequence[keras.callbacks.Callback],
) -> Mapping[str, Sequence[Any]]:
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    return model.fit(
        x,
        y,
        sample_weight=sample_weight,
        validation_data=validation_data,
        epochs=epochs,
        initial_epoch=first,
        callbacks=list(callbacks),
        verbose=0,
        shuffle=isinstance(data, (tuple, list)),  # other data comes in its own order
    ).history


def _evaluated(model: keras.Model, validation_data: Any) -> dict[str, tuple[float, ...]]:
    """The metrics on the validation data, if any, of a model that is already trained."""
    if validation_data is None:
        return {}
    x, y, weights = keras.utils.unpack_x_y_sample_weight(validation_data)
    results = model.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)
    if not results:
        raise no_rows("validation_data")
    numbers = single_numbers({f"val_{name}": results[name] for name in sorted(results)})
    return {name: (number,) for name, number in numbers.items()}


def _report(
    history: Mapping[str, Sequence[Any]], watch: Watch, mixing: int | None
) -> TrainingReport:
    if not watch.samples:
        raise no_rows("train_data")
    metrics: dict[str, tuple[float, ...]] = {}
    for name in sorted(history):
        epochs = [single_numbers({name: value}) for value in history[name]]
        metrics |= {metric: tuple(epoch[metric] for epoch in epochs) for metric in epochs[0]}
    return TrainingReport(watch.samples, watch.seconds, watch.loss_curve(), metrics, mixing)
