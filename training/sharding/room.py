"""Memory that workers have for tables."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import keras
import tensorflow as tf

from loader.errors import LoaderError
from loader.opening import open_loader
from loader.tensorflow.memory import gpu_megabytes
from training.parallel.failures import together
from training.parallel.workers import Workers
from training.sharding.layout import layout_of
from training.sharding.plan import Sizes, check_room, check_state_room

# Bytes of state from which one worker alone asks its driver, which takes a tenth of a second.
_LARGE = 10**9
# For the file with a container's memory limit, the file beside it with the memory in use.
_USED = {"memory.max": "memory.current", "memory.limit_in_bytes": "memory.usage_in_bytes"}


def expect_room(workers: Workers, sizes: Sizes, held: Sequence[int]) -> None:
    """Raise TrainingError on all workers if one has no room for its tables.

    Args:
        workers: several workers, all of which call this.
        sizes: column -> (rows, width).
        held: bytes of each worker's tables.
    """
    if workers.collectives is not None:
        with together(workers):
            room = workers.collectives.texts(json.dumps(_room(workers)))
        check_room(sizes, held, [json.loads(text) for text in room])


def expect_room_for_state(workers: Workers, model: keras.Model, optimizer: keras.Optimizer) -> None:
    """Raise TrainingError on all workers if one has no room for the state of its optimizer.

    Args:
        workers: one worker alone, or several with divided tables, all of which call this.
        model: a model whose weights are made.
        optimizer: one whose state is not made yet.
    """
    copies, kind = copies_in(optimizer), type(optimizer).__name__
    on_gpu = bool(tf.config.list_logical_devices("GPU"))
    table_bytes, other_bytes = 0, 0
    for variable in model.trainable_variables:
        if on_gpu and "GPU" not in variable.value.device:
            continue  # its state is on the host as well
        size = math.prod(variable.shape) * variable.value.dtype.size
        if layout_of(variable) is None:
            other_bytes += size
        else:
            table_bytes += size
    if workers.collectives is None:
        if on_gpu and copies * other_bytes > _LARGE:
            with suppress(LoaderError):  # a container without the driver's tools
                check_state_room(kind, copies, [other_bytes], 0, [_left(workers)])
        return
    with together(workers):
        workers.collectives.texts("")  # now all have made their tables
        texts = workers.collectives.texts(json.dumps([table_bytes, _left(workers)]))
    tables, room = zip(*map(json.loads, texts), strict=True)
    check_state_room(kind, copies, tables, other_bytes, room)


def copies_in(optimizer: keras.Optimizer) -> int:
    """The number of values of state that an optimizer keeps for each weight; 0 if unknown.

    Example:
        >>> copies_in(keras.optimizers.Adam()), copies_in(keras.optimizers.SGD())
        (2, 0)
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    copies = int(bool(inner.use_ema))
    if isinstance(inner, keras.optimizers.Adam):
        return copies + 2 + int(inner.amsgrad)
    if isinstance(inner, keras.optimizers.SGD):
        return copies + int(inner.momentum != 0)
    return copies + int(isinstance(inner, keras.optimizers.Adagrad))


def free_memory() -> int:
    """Bytes that a process may take without swapping: of this host's memory, and of its container's limit."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError):  # macOS
        free = _numbers(Path("/proc/meminfo"))["MemAvailable:"] * 1024
    for limit in open_loader.MEMORY_LIMITS:
        with suppress(OSError, ValueError):  # no such file; "max" for no limit
            most, used = int(limit.read_text()), int(limit.with_name(_USED[limit.name]).read_text())
            statistics = _numbers(limit.with_name("memory.stat"))
            # What was read of files counts as used until others need the memory.
            free = min(free, most - used + statistics["active_file"] + statistics["inactive_file"])
    return max(free, 0)


def _numbers(path: Path) -> dict[str, int]:
    """The numbers of a file that has a name and a number in each line."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {name: int(number) for name, number, *_ in lines}


def _left(workers: Workers) -> int:
    """Bytes that this worker has left."""
    if tf.config.list_logical_devices("GPU"):
        return _room(workers) - int(tf.config.experimental.get_memory_info("GPU:0")["current"])
    return _room(workers)


def _room(workers: Workers) -> int:
    """Bytes for this worker's tables: of its GPU, or of its part of the host's free memory."""
    if tf.config.list_logical_devices("GPU"):
        return int(gpu_megabytes() * 1e6)
    hosts = [address.rpartition(":")[0] for address in workers.addresses]
    return free_memory() // hosts.count(hosts[workers.rank])
