"""`model.compile` with a faster training step."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import keras
import tensorflow as tf

from training import optimizers
from training.errors import TrainingError, expect_tensorflow
from training.gpu import has_gpu
from training.optimizers.rows import SparseRows
from training.parallel import Workers
from training.parallel.workers import expect_workers
from training.private import forget_metrics, mask_of
from training.sharding.layout import layout_of
from training.sharding.room import expect_room_for_state
from training.split import loop, replicas
from training.split.exchange import Exchange
from training.split.precision import policy_of
from training.split.refusals import expect_one_loss, expect_scalable, expect_state
from training.split.step import SplitStep, cut_for_training
from workflow.schema.python_number import python_number, whole_number

_SPARSE = {"sgd": optimizers.SGD, "adagrad": optimizers.Adagrad, "adam": optimizers.Adam}


def is_splittable(model: keras.Model) -> bool:
    """Whether the step of a model can be split."""
    try:
        cut_for_training(model)
    except TrainingError:
        return False
    return True


def compile_model(
    model: keras.Model,
    optimizer: Any = "adam",
    loss: Any = "binary_crossentropy",
    metrics: Any = None,
    *,
    split: bool = True,
    precision: str = "float32",
    xla: bool | None = None,
    workers: Workers | None = None,
    **options: Any,
) -> None:
    """Compile a Keras model so that `model.fit` trains it with the split step.

    XLA compiles the dense part, which can compute in 16 bits; tables are written outside of it: see
    `training.split.step.SplitStep`. The rest of Keras is unchanged: `fit`, `evaluate`, callbacks,
    metrics and saving. The model itself stays float32 when it is evaluated and served.

    Without the split step too, columns of the data that the model does not take are left out, where
    Keras would assign them to its inputs by position, and losses are means over rows, where Keras
    would take the number of values of a model's first list for the number of rows.

    A model that is loaded from disk trains with Keras' own step until this function compiles it.

    Args:
        model: a functional or sequential model.
        optimizer: a Keras optimizer, or a name. "sgd", "adagrad" and "adam" mean the optimizers of
            `training.optimizers`, which update the batch's rows alone.
        loss: as in `model.compile`. Several losses for one output are refused; Keras would take only the
            first.
        metrics: as in `model.compile`.
        split: False for Keras' own step, which a later `model.compile` restores as well.
        precision: the dtype of the dense layers' computation in training: "float32", "bfloat16" or
            "float16", for which the loss is scaled. Variables, the last layers, the tables and
            layers such as Normalization stay float32. The other layers are rebuilt from their
            configs, except for layers with attributes that a config does not have.
        xla: whether XLA compiles the dense part; None to do so only if there is a GPU.
        workers: the workers, from `join_workers`, if several processes train the model, each on its own
            batches of equal size. Their first `fit` starts with the weights of the first worker; set
            weights later on all of them. Losses, which are means over rows, and metrics of training are
            those of all rows, so a metric's state has to be a sum over batches. `evaluate` is each
            worker's own: use `train` if callbacks decide by it. With Keras' own optimizers, other than
            SGD without clipping, the weights differ from those of one process for tables whose rows
            repeat in a batch; a warning says so.
        **options: further arguments of `model.compile`: loss_weights, ..., and steps_per_execution,
            the number of steps between two calls of callbacks, at which Keras waits for the GPU. With
            32 instead of 1, an H200 takes steps of 3.5 ms one and a half times as fast. The default is
            1, since Keras also uses it for `predict`, and makes one graph of that many batches.
            `train` uses 32 on a GPU, in training only.

    Raises:
        TrainingError: the model cannot be split; an output has several losses; the precision is unknown;
            `precision` or several `workers` without `split`; several workers with a loss that is not a
            mean over all entries, because of its `reduction`, its `ignore_class` or a mask of the
            output; not an optimizer, or one that was built for other weights; an option that the step
            lacks, jit_compile or run_eagerly. The optimizer's state does not fit in memory beside the
            tables: those of a single worker on a GPU, or those that are divided among workers, all of
            which then have to make this call. In `fit`: a worker is lost, has no rows, or differs in
            its share, seed or data, its model, optimizer, batch size or number of steps.

    Example:
        >>> model = models.mlp({"userId": (1000, 16)}, ["age"])
        >>> compile_model(model, "adagrad", metrics=["auc"], precision="bfloat16")
    """
    expect_tensorflow(keras.backend.backend())
    policy = policy_of(precision)
    if policy is not None and not split:
        raise TrainingError(
            "Expected split=True for a precision of the training step alone. "
            f"Received: precision={precision!r}, split=False."
        )
    options = {name: python_number(value) for name, value in options.items()}
    _expect_own_options(options, split=split)
    workers = expect_workers(workers)
    if workers.size > 1:
        _expect_divisible(workers, model, loss, split=split)
    expect_one_loss(model, loss)
    optimizer = _optimizer(optimizer)
    if model.built:
        expect_state(optimizer, model.trainable_variables)
    expect_scalable(model, optimizer)
    if policy == "mixed_float16" and not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizers.LossScaleOptimizer(optimizer)
    is_divided = any(layout_of(variable) is not None for variable in model.variables)
    if is_divided:
        _expect_rows_alone(workers, optimizer, precision)
    if model.built and not optimizer.built and (is_divided or workers.size == 1):
        expect_room_for_state(workers, model, optimizer)
    forget_metrics(model)
    model.compile(optimizer, loss, metrics=metrics, jit_compile=False, **options)
    _reset([metrics, options.get("weighted_metrics")])
    replicas.install(model)
    loop.install_compile(model)
    if split:
        # The lookups' vectors have that dtype where the layers take them, and so have their gradients.
        kind = tf.bfloat16 if policy == "mixed_bfloat16" else tf.float32
        exchange = Exchange(workers, model, kind) if workers.size > 1 else None
        model.train_step = step = SplitStep(
            model, policy, has_gpu() if xla is None else xla, exchange
        )
        if exchange is not None and step.parts.lookup.trainable_variables:
            warn_of_repeated_rows(optimizer)
        loop.install(model, exchange)
    loop.install_rows(model)
    if split and exchange is not None and is_divided:
        loop.install_lookups(model, exchange)


def _reset(metrics: Any) -> None:
    """Let metrics count from zero, which Keras does as an epoch begins, but not before its first step."""
    for metric in keras.tree.flatten(metrics):
        if isinstance(metric, keras.metrics.Metric) and metric.variables:
            metric.reset_state()


def _optimizer(optimizer: Any) -> keras.Optimizer:
    """The optimizer of a name, of a config, or itself."""
    if isinstance(optimizer, str):
        with suppress(ValueError):  # a name that Keras does not know
            return _SPARSE.get(optimizer.lower(), lambda: keras.optimizers.get(optimizer))()
    if isinstance(optimizer, dict):
        return keras.optimizers.get(optimizer)
    if not isinstance(optimizer, keras.Optimizer):
        hint = f" Make one: {optimizer.__name__}()." if isinstance(optimizer, type) else ""
        raise TrainingError(
            "Expected an optimizer of Keras or of training.optimizers, or its name, such as "
            f'"adam". Received: {optimizer!r}.{hint}'
        )
    return optimizer


def warn_of_repeated_rows(optimizer: keras.Optimizer) -> None:
    """Warn of an optimizer whose update of a repeated row depends on how many workers there are."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # of one that scales the loss
    clips = any((inner.clipnorm, inner.clipvalue, inner.global_clipnorm))
    if isinstance(inner, SparseRows) or (isinstance(inner, keras.optimizers.SGD) and not clips):
        return
    warnings.warn(
        "Expected an optimizer of training.optimizers for several workers, so that the weights are those of "
        f"one process: SGD, Adagrad or Adam. Received: {type(inner).__name__} of Keras, which squares or clips "
        "the gradients of a repeated row of a table one by one in one process, and here their sum.",
        stacklevel=3,
    )


def _expect_own_options(options: Mapping[str, Any], *, split: bool) -> None:
    """Raise TrainingError for options of `model.compile` that the split step does not have."""
    if "jit_compile" in options:
        raise TrainingError(
            "Expected xla, which says whether XLA compiles the dense part. Received: "
            f"jit_compile={options['jit_compile']!r}. Use xla, or model.compile."
        )
    if options.get("run_eagerly") and split:
        raise TrainingError(
            "Expected a step that runs as a graph, to split it. Received: run_eagerly=True. Use "
            "split=False to debug a layer or a loss."
        )
    steps = options.get("steps_per_execution", 1)
    whole_number("steps_per_execution", steps, 1, TrainingError)


def _expect_rows_alone(workers: Workers, optimizer: keras.Optimizer, precision: str) -> None:
    """Raise TrainingError if tables that are divided among workers cannot be trained so."""
    if workers.size == 1:
        raise TrainingError(
            "Expected workers=join_workers() for a model whose tables are divided among them "
            "(shard=...). Received: none, or one alone."
        )
    if not isinstance(optimizer, SparseRows):
        raise TrainingError(
            "Expected an optimizer of training.optimizers for tables that are divided among workers "
            f'(shard=...): "sgd", "adagrad" or "adam". Received: {type(optimizer).__name__}.'
            + (' With precision="float16" use "bfloat16".' if precision == "float16" else "")
        )
    clips = {name: getattr(optimizer, name) for name in ("clipnorm", "global_clipnorm")}
    if any(clips.values()):
        raise TrainingError(
            "Expected no norm to clip by for tables that are divided among workers (shard=...), of "
            f"whose gradient each knows a part. Received: {clips}. Use clipvalue."
        )


def _expect_divisible(workers: Workers, model: keras.Model, loss: Any, *, split: bool) -> None:
    """Raise TrainingError if the rows of a step cannot be divided among workers."""
    if not split:
        raise TrainingError(
            "Expected split=True for several workers. Received: split=False, with "
            f"{workers.size} workers. Keras' own step trains on the GPUs of one process: "
            "tf.distribute.MirroredStrategy."
        )
    for part in keras.tree.flatten(loss):
        reduction = getattr(part, "reduction", "mean")
        if reduction not in {"mean", "sum_over_batch_size"}:
            raise TrainingError(
                "Expected a loss that is the mean over rows, since the workers' gradients are "
                f'averaged. Received: {type(part).__name__}(reduction="{reduction}"). Use '
                'reduction="sum_over_batch_size".'
            )
        if (ignored := getattr(part, "ignore_class", None)) is not None:
            raise _counted_apart(f"{type(part).__name__}(ignore_class={ignored})")
    if any(mask_of(output) is not None for output in getattr(model, "outputs", ())):
        raise _counted_apart("a mask on an output, as of mask_zero=True")


def _counted_apart(received: str) -> TrainingError:
    """The error about a loss that leaves out entries, since workers leave out different numbers of them."""
    return TrainingError(
        "Expected a loss that is the mean over all entries, since the workers' gradients are averaged. "
        f"Received: {received}, which leaves some out, more on one worker than on another. Give these a "
        "sample weight of 0 instead, by data of (x, y, weights); keras.layers.Reshape drops a mask, with a warning."
    )
