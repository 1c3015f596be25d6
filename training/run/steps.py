"""The number of steps for each call from Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras

# On an H200 a call costs 1.9 ms beside its steps, which take 3.5 ms each. With 32 steps that is 2
# %, and a call takes a tenth of a second: short enough for a progress bar, and for Ctrl-C.
_ON_GPU = 32
_HOOKS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")


def default_steps(callbacks: Sequence[keras.callbacks.Callback], *, on_gpu: bool) -> int:
    """1; but 32 on a GPU, unless a callback of the user's runs after each batch.

    Keras waits for the GPU after each call, to pass the metrics to callbacks. It skips the
    callbacks for all but the last step of a call.

    Args:
        callbacks: the user's. Those of Keras and of the loader support several steps a call.
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
    # `__module__` of a method is the module that defines it, even in a subclass.
    return str(getattr(method, "__module__", "")).split(".")[0] in {"keras", "loader"}


@contextmanager
def steps_a_call(model: keras.Model, steps: int) -> Iterator[None]:
    """Take `steps` steps a call while the block runs; the model is restored when it ends.

    With `model.compile` the setting would also apply to `predict`, for which Keras makes one graph
    of that many batches, and to the model when it is loaded again.
    """
    before = model.steps_per_execution
    model.steps_per_execution = steps
    try:
        yield
    finally:
        model.steps_per_execution = before
