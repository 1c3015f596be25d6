"""Errors of TensorFlow's collectives, turned into errors that name a worker."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from training.errors import TrainingError
from training.private import abort_collectives, expect_peer, wait_for_all

if TYPE_CHECKING:
    from training.parallel.workers import Workers

_UNHEALTHY = "The following tasks are unhealthy"
_CRASHED = "The tasks have crashed"
_ABORTED = "Collective ops is aborted by"
_SERVICE = "RPC: /tensorflow.CoordinationService/"
_SILENT = "heartbeat"
_LATE = "no answer of all workers in time"
# Seconds; within them the service, once it has noticed a lost worker, tells all others.
GRACE = 5.0
# Seconds between two looks at the other workers while the GPU works.
_LOOK = 5.0
_TASK = re.compile(r"/job:(\w+)(?:/replica:\d+)?/task:(\d+)")


def longest_silence(timeout: float) -> float:
    """Seconds without a heartbeat after which a worker counts as lost.

    TensorFlow's own ten end a run of days when a machine is paused, as to move it to another host.
    By default a worker that dies still ends the others within half a minute.

    Args:
        timeout: that of `join_workers`.
    """
    return max(timeout / 30, 20.0)


@contextmanager
def together(workers: Workers) -> Iterator[None]:
    """Limits the time of operations between workers, and raises their errors as TrainingError.

    TensorFlow's coordination service notices a worker that ends, by its heartbeat, and then ends
    the operations of all others. A worker that hangs still has its heartbeat.

    Raises:
        TrainingError: a worker died, ended early or does not answer.
    """
    if workers.collectives is None:
        yield
        return
    timeout = workers.collectives.timeout
    limit = threading.Timer(timeout, abort_collectives, [_LATE])
    limit.daemon = True
    limit.start()
    try:
        yield
    except tf.errors.OpError as error:
        reason = _reason(workers, error, timeout)
        if reason is None:
            raise
        # This process must not end, and be taken for the one that was lost, before all have heard.
        time.sleep(GRACE)
        raise TrainingError(reason) from error
    finally:
        limit.cancel()


def end_with_others() -> None:
    """Let this process, when it ends, wait some seconds for the others to end.

    Its part of the last operation is complete while others may still receive it: without this process
    their operation would fail, and name it as lost.
    """
    # At the end of processes of `multiprocessing` too, where atexit calls nothing.
    Finalize(None, _wait_for_others, exitpriority=0)


def _wait_for_others() -> None:
    with suppress(tf.errors.OpError):  # others are lost, or have more to do alone
        wait_for_all("the end", GRACE)


def wait_for_gpu(workers: Workers, tensors: Any) -> None:
    """Wait until a GPU has computed tensors, or another worker is lost.

    An exchange inside a function of XLA waits on the GPU, where nothing ends it if a worker dies.
    So a thread waits for the GPU, and this one looks whether the others live. The thread, and the
    work on the GPU, last until the process ends.

    Raises:
        TrainingError: a worker died.
        tf.errors.DeadlineExceededError: nothing was computed within the time for an answer.
    """
    if workers.collectives is None or not workers.collectives.on_gpu:
        return
    waiting = threading.Thread(target=_read, args=[tf.nest.flatten(tensors)], daemon=True)
    waiting.start()
    until = time.monotonic() + workers.collectives.timeout
    waiting.join(_LOOK)
    while waiting.is_alive():
        for rank in range(workers.size):
            if rank != workers.rank:
                _expect_alive(workers, rank, longest_silence(workers.collectives.timeout))
        if time.monotonic() > until:
            raise tf.errors.DeadlineExceededError(None, None, _LATE)
        waiting.join(_LOOK)


def _read(tensors: list[tf.Tensor]) -> None:
    for tensor in tensors:
        tensor.numpy()


def _expect_alive(workers: Workers, rank: int, silence: float) -> None:
    is_chief = rank < workers.chiefs
    job, index = ("chief", rank) if is_chief else ("worker", rank - workers.chiefs)
    try:
        expect_peer(job, index, silence)
    except tf.errors.OpError as error:
        raise TrainingError(_message_of_lost(workers, workers.name(rank))) from error


def _reason(workers: Workers, error: tf.errors.OpError, timeout: float) -> str | None:
    """The message about other workers; None if the error is about something else."""
    if _LATE in str(error):
        return (
            f"Expected an answer of all {workers.size} workers within {timeout:g} seconds, the "
            "timeout of join_workers. Received: none of at least one. The worker that does not "
            "raise this error hangs, waits for its data, or has taken all its steps; or, if tables "
            "are divided among workers, one alone called evaluate, predict or whole_tables. Look at "
            "its output, its files and its network (on GPUs with NCCL_DEBUG=INFO), then start all "
            "workers again; train(checkpoint=...) resumes. If it was only slow, as when it saves a "
            "large model, give join_workers a longer timeout."
        )
    is_lost = _ABORTED in str(error) or isinstance(
        error, (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
    )
    if not is_lost:
        return None
    if _SILENT in str(error) and _ranks(workers, str(error)) == {workers.rank}:
        return (
            f"Expected this worker, {workers.name(workers.rank)}, to be heard by the others at least "
            f"every {longest_silence(timeout):g} seconds. Received: a silence longer than that, as of a "
            "process or machine that was paused, so that it counts as lost. Start all workers "
            "again: train(checkpoint=...) resumes. A longer timeout of join_workers allows a silence "
            "of a thirtieth of it."
        )
    lost = lost_workers(workers, str(error))
    return None if lost is None else _message_of_lost(workers, lost)


def _message_of_lost(workers: Workers, lost: str) -> str:
    return (
        f"Expected all {workers.size} workers to train until the end. Received: {lost} died, "
        "ended before the others, or cannot be reached. See its output. Then start all of them "
        "again, as many as there are: train(checkpoint=...) resumes."
    )


def lost_workers(workers: Workers, message: str) -> str | None:
    """The names of the workers that an error names; None if it is about something else."""
    tasks = _TASK.findall(message.partition(_UNHEALTHY)[2].partition(_CRASHED)[0])
    # Other errors name the worker at fault first, and then those that passed it on.
    tasks = tasks or _TASK.findall(message)
    ranks = [rank for task in tasks if (rank := _rank(workers, *task)) != workers.rank]
    ranks = sorted(set(ranks)) if _UNHEALTHY in message else ranks[:1]
    if not tasks and _SERVICE in message and workers.rank:
        ranks = [0]  # the service runs in the first worker
    return ", ".join(workers.name(rank) for rank in ranks) or None


def _ranks(workers: Workers, message: str) -> set[int]:
    return {_rank(workers, *task) for task in _TASK.findall(message)}


def _rank(workers: Workers, job: str, task: str) -> int:
    return int(task) + (workers.chiefs if job == "worker" else 0)
