"""The devices of all workers, which must be of one kind."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import tensorflow as tf

from loader.errors import LoaderError
from loader.tensorflow.memory import gpu_megabytes, gpu_uuid
from training.errors import TrainingError
from training.parallel.failures import together

if TYPE_CHECKING:
    from training.parallel.workers import Workers

# A share of a GPU's memory by which drivers differ in what they keep for themselves.
_NEARLY = 0.05


@dataclass(frozen=True)
class Device:
    """The device on which a worker trains.

    Attributes:
        kind: "GPU" or "CPU".
        name: the GPU's model; "" of a CPU.
        gigabytes: the memory of a GPU that TensorFlow may take; 0 if it is unknown, and of a CPU.
        uuid: what no other GPU has; "" if it is unknown, and of a CPU.

    Example:
        >>> print(Device("GPU", "NVIDIA H100 80GB HBM3", 81.6), Device("CPU"), sep=", ")
        a GPU (NVIDIA H100 80GB HBM3, 81.6 GB), a CPU
    """

    kind: str
    name: str = ""
    gigabytes: float = 0.0
    uuid: str = ""

    def __str__(self) -> str:
        parts = [self.name, f"{self.gigabytes:.3g} GB" if self.gigabytes else ""]
        details = ", ".join(filter(None, parts))
        return f"a {self.kind}{details and f' ({details})'}"


def own_device() -> Device:
    """The device on which this process trains."""
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return Device("CPU")
    details = tf.config.experimental.get_device_details(gpus[0])
    try:
        gigabytes = gpu_megabytes() / 1e3
    except LoaderError:  # a container without the driver's tools
        gigabytes = 0.0
    return Device("GPU", details.get("device_name", ""), gigabytes, gpu_uuid())


def expect_alike(workers: Workers, own: Device) -> None:
    """Raise TrainingError on all workers unless their devices are of one kind, and each has its own GPU.

    A GPU exchanges through NCCL and a CPU through TensorFlow's ring, so that two kinds would wait for
    each other until their time limit; and NCCL refuses one GPU for two workers. GPUs that differ in
    model or memory only cause a warning, on the first worker.

    Args:
        workers: several workers, all of which call this.
        own: the device of this one.
    """
    if workers.collectives is None:
        return
    with together(workers):
        texts = workers.collectives.texts(json.dumps(asdict(own)))
    first, *other_devices = [Device(**json.loads(text)) for text in texts]
    gpus = [first.uuid, *(other.uuid for other in other_devices)]
    for rank, other in enumerate(other_devices, start=1):
        if other.kind != first.kind:
            raise TrainingError(
                f"Expected devices of one kind for all workers. Received: {first} on "
                f"{workers.name(0)}, {other} on {workers.name(rank)}. Give each worker a GPU "
                "(CUDA_VISIBLE_DEVICES, the driver, and a TensorFlow with CUDA), or none of them "
                "(CUDA_VISIBLE_DEVICES=-1)."
            )
        if other.uuid and other.uuid in gpus[:rank]:
            raise TrainingError(
                f"Expected a GPU of its own for each worker. Received: {other} for both "
                f"{workers.name(gpus.index(other.uuid))} and {workers.name(rank)}. Start each process "
                "with CUDA_VISIBLE_DEVICES=<number of its GPU>, and no more workers than GPUs."
            )
    unlike = [rank for rank, other in enumerate(other_devices, 1) if not _is_like(first, other)]
    if unlike and workers.rank == 0:
        warnings.warn(
            f"Workers train on unlike GPUs: {first} on {workers.name(0)}, {other_devices[unlike[0] - 1]} on "
            f"{workers.name(unlike[0])}. Every step takes as long as on the slowest, and shard=... "
            "gives each equal parts of the tables, for which the smallest must have room.",
            stacklevel=3,
        )


def _is_like(device: Device, other: Device) -> bool:
    difference = abs(device.gigabytes - other.gigabytes)
    return device.name == other.name and difference <= _NEARLY * device.gigabytes
