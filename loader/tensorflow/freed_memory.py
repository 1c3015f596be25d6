"""Memory that TensorFlow frees on a CPU, and takes again in the next step."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Callable

# Parameters of glibc's `mallopt`, the variables of the environment that set them, and the values that
# glibc reaches by itself in a process that frees large blocks.
_PARAMETERS = {
    -3: ("MALLOC_MMAP_THRESHOLD_", 32 << 20),
    -1: ("MALLOC_TRIM_THRESHOLD_", 64 << 20),
}


@functools.cache
def keep_freed_memory() -> None:
    """Let the process keep the memory that it frees, as without a generator dataset.

    The first generator dataset of a process, ours or that of TensorFlow, Keras or the user, makes
    TensorFlow set `M_MMAP_THRESHOLD` to 128 kB, as a remedy for a growth of memory under Python 3.11
    (its issue 65675). From then on the system gives every tensor of that size anew, page by page, which
    took half of a training step's processor time. Call it after a dataset was made: TensorFlow does
    so once.

    Without glibc it does nothing.
    """
    mallopt: Callable[[int, int], int] | None = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, (variable, value) in _PARAMETERS.items():
            with contextlib.suppress(ValueError):  # what glibc has ignored too
                mallopt(parameter, int(os.environ.get(variable, value)))
