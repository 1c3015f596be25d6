"""TensorFlow's share of a GPU's memory, beside the data loader."""

from __future__ import annotations

import math
import os
import subprocess
import warnings
from typing import Any

import tensorflow as tf

from loader.errors import LoaderError


class AlreadyClaimedError(LoaderError):
    """TensorFlow has already claimed the memory of its GPUs, which can no longer change."""


def configure_tensorflow(
    memory_allocation: float | str | None = None, device: int | str | None = None
) -> float | None:
    """Let TensorFlow take a part of a GPU's memory instead of all of it.

    Call it before any other use of TensorFlow. Without a GPU it does nothing.

    Args:
        memory_allocation: a fraction of the free memory below 1, MB from 1 on. Default: the
            environment variable `TF_MEMORY_ALLOCATION`, else 0.5. If the variable is set, the first
            loader of a process calls this function.
        device: the number of the GPU. Default: the environment variable `TF_VISIBLE_DEVICE`,
            else 0.

    Returns:
        The MB that TensorFlow may take; None without a GPU.

    Raises:
        LoaderError: TensorFlow has claimed the memory already, or an invalid value.

    Example:
        >>> configure_tensorflow(0.5)  # doctest: +SKIP
        71680.0
    """
    amount = _number("memory_allocation", "TF_MEMORY_ALLOCATION", memory_allocation, 0.5)
    number = int(_number("device", "TF_VISIBLE_DEVICE", device, 0))
    if amount <= 0:
        raise LoaderError(f"Expected memory_allocation above 0. Received: {amount}.")
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return None
    if not 0 <= number < len(gpus):
        raise LoaderError(f"Expected device among 0 to {len(gpus) - 1}. Received: {number}.")
    megabytes = amount if amount >= 1 else amount * _megabytes(number, "free")
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=megabytes)
    try:
        tf.config.set_visible_devices(gpus[number], "GPU")
        tf.config.set_logical_device_configuration(gpus[number], [limit])
    except RuntimeError as error:
        raise AlreadyClaimedError(
            "Expected to be called before TensorFlow uses the GPU. Received: a runtime that is "
            "already initialised and has claimed its memory. Call configure_tensorflow first."
        ) from error
    return megabytes


def configure_as_environment_asks() -> None:
    """Call `configure_tensorflow` if `TF_MEMORY_ALLOCATION` is set and it has not been called.

    NVTabular does this on import; this project when a loader is made.

    Raises:
        LoaderError: the variable is not a number.
    """
    if "TF_MEMORY_ALLOCATION" not in os.environ:
        return
    gpus = tf.config.list_physical_devices("GPU")
    if any(tf.config.get_logical_device_configuration(gpu) for gpu in gpus):
        return
    try:
        configure_tensorflow()
    except AlreadyClaimedError as error:
        warnings.warn(f"TF_MEMORY_ALLOCATION has no effect. {error}", stacklevel=2)


def _number(name: str, variable: str, value: Any, default: float) -> float:
    if value is None:
        value = os.environ.get(variable, default)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise LoaderError(
            f"Expected {name}, or the environment variable {variable}, as a number. "
            f"Received: {value!r}."
        )
    return number


def gpu_megabytes() -> float:
    """The memory of the first GPU, as much as TensorFlow may take.

    Raises:
        LoaderError: the driver does not say.
    """
    gpus = tf.config.list_physical_devices("GPU")
    limits = tf.config.get_logical_device_configuration(gpus[0]) or []
    allowed = [limit.memory_limit for limit in limits if limit.memory_limit is not None]
    return float(allowed[0]) if allowed else _megabytes(0, "total")


def gpu_uuid() -> str:
    """The driver's name of the first GPU, which no other GPU has; "" if the driver does not say."""
    try:
        return _ask(_name(0), "uuid").strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _megabytes(device: int, kind: str) -> float:
    """Memory of a GPU, from the driver: TensorFlow reports it only once it owns it."""
    name = _name(device)
    try:
        return float(_ask(name, f"memory.{kind}"))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise LoaderError(
            f"Expected nvidia-smi to report the {kind} memory of GPU {name}. Received: {error}. "
            "Pass memory_allocation in MB instead of a fraction."
        ) from error


def _name(device: int) -> str:
    """The driver's name for a GPU that this process sees."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[device] if visible else str(device)


def _ask(name: str, field: str) -> str:
    query = [f"--query-gpu={field}", "--format=csv,noheader,nounits", f"--id={name}"]
    return subprocess.run(  # noqa: S603 - fixed program, name from the environment
        ["nvidia-smi", *query],  # noqa: S607 - the driver installs it on PATH
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    ).stdout
