"""How many steps to take for each call from Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras

# On an H200 a call costs 1.9 ms beside its steps, which take 3.5 ms each. 32 steps make that 2 %,
# and are over in a tenth of a second: soon enough for a bar, and for Ctrl-C.
_ON_GPU = 32
_HOOKS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")


def default_steps(callbacks: Sequence[keras.callbacks.Callback], *, on_gpu: bool) -> int:
    """1; but 32 on a GPU, if no callback of the user's is called for each batch.

    Keras waits for the GPU after each call, to tell callbacks the metrics. It does not call them
    for the steps before the last one of a call.

    Args:
        callbacks: the user's. Those of Keras and of the loader know of several steps a call.
        on_gpu: whether the split step trains on a GPU.

    Example:
        >>> default_steps([keras.callbacks.CSVLogger("log.csv")], on_gpu=True)
        32
        >>> each = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None)
        >>> default_steps([each], on_gpu=True)
        1
    """
    return _ON_GPU if on_gpu and not any(map(_is_called_for_batches, callbacks)) else 1


def _is_called_for_batches(callback: keras.callbacks.Callback) -> bool:
    return any(not _is_ours(getattr(callback, hook)) for hook in _HOOKS)


def _is_ours(method: Any) -> bool:
    # Of a method this is where it was written, even if a subclass has it.
    return str(getattr(method, "__module__", "")).split(".")[0] in {"keras", "loader"}


@contextmanager
def steps_a_call(model: keras.Model, steps: int) -> Iterator[None]:
    """Takes so many steps a call while the block runs; the model is as before when it ends.

    `model.compile` would have it for `predict` as well, for which Keras makes one graph of as
    many batches, and for a model that is loaded again.
    """
    before = model.steps_per_execution
    model.steps_per_execution = steps
    try:
        yield
    finally:
        model.steps_per_execution = before
