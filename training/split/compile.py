"""`model.compile` with a faster training step."""

from __future__ import annotations

from typing import Any

import keras

from training import optimizers
from training.errors import TrainingError
from training.gpu import has_gpu
from training.split import loop, replicas
from training.split.precision import policy_of
from training.split.step import SplitStep, cut_for_training

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
    **options: Any,
) -> None:
    """Compiles a Keras model so that `model.fit` trains it with the split step.

    XLA compiles what it is good at, the dense layers above all, which compute in 16 bits if wanted;
    tables are written outside of it: see `training.split.step.SplitStep`. Everything else of Keras stays as it is:
    `fit`, `evaluate`, callbacks, metrics, saving. The model itself stays float32, when it is
    evaluated and when it is served.

    A model that is loaded again trains with Keras' own step until it is given to this function.

    Args:
        model: a functional or sequential model.
        optimizer: a Keras optimizer; or a name, for which "sgd", "adagrad" and "adam" mean those
            of `training.optimizers`, whose updates touch the batch's rows alone.
        loss: as in `model.compile`.
        metrics: as in `model.compile`.
        split: False gives the model Keras' own step back.
        precision: what the dense layers compute in while training: "float32", "bfloat16" or
            "float16", for which the loss is scaled. Variables, the last layers and the tables
            stay float32.
        xla: whether XLA compiles the dense part; None for where there is a GPU.
        **options: further ones of `model.compile`: loss_weights, ..., and steps_per_execution,
            after as many of which Keras calls callbacks, and waits for the GPU: with 32 instead of
            1 an H200 takes steps of 3.5 ms half as fast again. It is 1 by default, since Keras
            has it for `predict`, too, and makes one graph of as many batches. `train` takes 32 on
            a GPU, for its own time.

    Raises:
        TrainingError: the model cannot be split, or no such precision; `precision` needs `split`.

    Example:
        >>> model = models.mlp({"userId": (1000, 16)}, ["age"])
        >>> compile_model(model, "adagrad", metrics=["auc"], precision="bfloat16")
    """
    policy = policy_of(precision)
    if policy is not None and not split:
        raise TrainingError(
            "Expected split=True for a precision of the training step alone. "
            f"Received: precision={precision!r}, split=False."
        )
    if isinstance(optimizer, str):
        optimizer = _SPARSE.get(optimizer.lower(), lambda: keras.optimizers.get(optimizer))()
    if policy == "mixed_float16" and not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, loss, metrics=metrics, jit_compile=False, **options)
    # Keras calls the attribute; without one of its own the model has its class's.
    vars(model).pop("train_step", None)
    loop.uninstall(model)
    replicas.install(model)
    if split:
        model.train_step = SplitStep(model, policy, has_gpu() if xla is None else xla)
        loop.install(model)
