"""Memory that workers have for tables."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from loader.tensorflow.memory import gpu_megabytes
from training.parallel.failures import together
from training.parallel.workers import Workers
from training.sharding.plan import Sizes, check_room


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
        check_room(sizes, held, [json.loads(each) for each in room])


def free_memory() -> int:
    """Bytes of this host's memory that a process may take without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _room(workers: Workers) -> int:
    """Bytes for this worker's tables: of its GPU, or of its part of the host's free memory."""
    if tf.config.list_logical_devices("GPU"):
        return int(gpu_megabytes() * 1e6)
    hosts = [address.rpartition(":")[0] for address in workers.addresses]
    return free_memory() // hosts.count(hosts[workers.rank])
