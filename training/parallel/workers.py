"""The processes that train one model together."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from loader.tensorflow.workers import current_worker
from training.errors import TrainingError
from training.parallel.collectives import Collectives
from training.parallel.devices import expect_alike, own_device
from training.parallel.failures import end_with_others, longest_silence
from training.parallel.meeting import meet
from training.private import is_tensorflow_in_use, limit_waiting
from workflow.schema.own_names import OwnNames
from workflow.schema.python_number import python_number

# Seconds; TensorFlow counts milliseconds, and has no number for infinity.
_LONGEST = 1e9

# The workers of this process: TensorFlow joins others once.
_JOINED: dict[str, Workers] = {}
_ALONE: ContextVar[bool] = ContextVar("alone", default=False)


@dataclass(frozen=True, eq=False)
class Workers(metaclass=OwnNames):
    """The processes that train one model together, one for each GPU; made by `join_workers`.

    Attributes:
        size: number of workers.
        rank: number of this worker, from 0.
        addresses: `host:port` of each worker.
        chiefs: how many of them, the first ones, TF_CONFIG calls "chief".
        collectives: exchanges tensors between them; None for one worker alone.
    """

    size: int = 1
    rank: int = 0
    addresses: tuple[str, ...] = ()
    chiefs: int = 0
    collectives: Collectives | None = field(default=None, repr=False)

    def name(self, rank: int) -> str:
        """A worker's number and address, for messages.

        Example:
            >>> Workers(2, 0, ("a:1234", "b:1234")).name(1)
            'worker 1 (b:1234)'
        """
        return f"worker {rank} ({self.addresses[rank]})"


def join_workers(timeout: float = 600.0) -> Workers:
    """Connect this process with the others that the variable TF_CONFIG of its environment names.

    Call it before anything else uses TensorFlow. It returns as soon as all workers have called it.
    Give the result to `train` or `compile_model`, and its numbers to the loader.

    Args:
        timeout: seconds to wait for workers that have not started yet, and that a call of the
            training step may take, after which another worker counts as hanging. XLA compiles, and
            the first worker saves, within this time. A worker that dies, or whose machine is
            paused, counts as lost after a thirtieth of it, at least 20 seconds. But if another program
            has a worker's port, that worker raises an error and the others wait without a limit, in
            TensorFlow: end them.

    Returns:
        The workers; without TF_CONFIG this process alone.

    Raises:
        TrainingError: TF_CONFIG is not valid, TensorFlow is in use already, the port is taken, the
            process has more than one GPU, a worker does not start in time, or some have a GPU and
            others none.

    Example:
        >>> workers = join_workers()
        >>> workers.size, workers.rank
        (1, 0)
    """
    timeout = python_number(timeout)
    if type(timeout) not in (int, float) or not 0 < timeout <= _LONGEST:
        raise TrainingError(
            f"Expected timeout as seconds above 0 and up to {_LONGEST:g}. Received: {timeout!r}."
        )
    chiefs, non_chiefs = _addresses(os.environ.get("TF_CONFIG"))
    _expect_distinct([*chiefs, *non_chiefs])
    addresses = (*chiefs, *non_chiefs)
    if len(addresses) <= 1:
        return Workers()
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) > 1:
        raise TrainingError(
            f"Expected one GPU for each worker. Received: {len(gpus)}. Start each process with "
            "CUDA_VISIBLE_DEVICES=<number of its GPU>."
        )
    if is_tensorflow_in_use():
        raise TrainingError(
            "Expected join_workers() before TensorFlow is used. Received: a program that has used "
            "it, to make a model or tensors. Make the call the first one of the program."
        )
    meet(addresses, _own_rank(chiefs), timeout)
    sizes = {"chief": len(chiefs), "worker": len(non_chiefs)}
    limit_waiting(
        {job: size for job, size in sizes.items() if size}, timeout, longest_silence(timeout)
    )
    strategy = _connected(timeout)
    with strategy.scope():
        size, rank = current_worker() or (1, 0)
    device = strategy.extended.worker_devices[0]
    collectives = Collectives(size, rank, device, timeout)
    workers = Workers(size, rank, addresses, len(chiefs), collectives)
    end_with_others()
    expect_alike(workers, own_device())
    _JOINED["all"] = workers
    return workers


def joined_workers() -> Workers:
    """The workers that `join_workers` has connected; before that, or `alone`, this process."""
    return Workers() if _ALONE.get() else _JOINED.get("all", Workers())


@contextmanager
def alone() -> Iterator[None]:
    """Let layers made inside the block have whole tables, as without other workers."""
    before = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(before)


def expect_workers(workers: Any) -> Workers:
    """An argument `workers`, None for this process alone.

    Raises:
        TrainingError: something else.
    """
    if workers is None:
        return Workers()
    if not isinstance(workers, Workers):
        raise TrainingError(
            f"Expected workers as join_workers() returns it. Received: {workers!r}."
        )
    return workers


def _connected(timeout: float) -> tf.distribute.Strategy:
    try:
        # It starts the server and the collectives; the model is made outside of its scope.
        return tf.distribute.MultiWorkerMirroredStrategy()
    except tf.errors.OpError as error:
        reason = str(error.message).splitlines()[0]
        raise TrainingError(
            "Expected a free port at this worker's address in TF_CONFIG, and the other workers "
            f"within reach, started with this one and within {timeout:g} seconds. Received: {reason}. If "
            "others still run from before, end all of them, and start them together."
        ) from error


def _addresses(text: str | None) -> tuple[list[str], list[str]]:
    """The addresses of the chief and of the workers in TF_CONFIG."""
    try:
        config = json.loads(text or "{}")
        cluster, task = config.get("cluster") or {}, config.get("task")
        if not cluster or _is_task(task, cluster):
            return cluster.get("chief", []), cluster.get("worker", [])
    except (ValueError, AttributeError, TypeError, KeyError):
        pass
    raise TrainingError(
        'Expected TF_CONFIG as {"cluster": {"worker": ["host:port", ...]}, "task": {"type": '
        f'"worker", "index": 0}}}}, with an index below the number of workers. Received: {text}'
    )


def _expect_distinct(addresses: Sequence[str]) -> None:
    """Refuse an address of two workers: TensorFlow would wait for the second one without a limit."""
    if twice := sorted({address for address in addresses if addresses.count(address) > 1}):
        raise TrainingError(
            "Expected an address of its own for each worker in TF_CONFIG. Received more than once: "
            f"{', '.join(twice)}. On one host give each another port."
        )


def _own_rank(chiefs: Sequence[str]) -> int:
    """This process among the chief and the workers of TF_CONFIG."""
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    return int(task["index"]) + (len(chiefs) if task["type"] == "worker" else 0)


def _is_task(task: Any, cluster: Mapping[str, Any]) -> bool:
    is_cluster = cluster.keys() <= {"chief", "worker"} and all(
        isinstance(tasks, list) and all(isinstance(address, str) for address in tasks)
        for tasks in cluster.values()
    )
    return (
        is_cluster
        and isinstance(task["index"], int)
        and (0 <= task["index"] < len(cluster.get(task["type"], [])))
    )
