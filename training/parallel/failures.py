"""Errors of TensorFlow's collectives, turned into errors that name a worker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from training.errors import TrainingError
from training.parallel.workers import Workers

_UNHEALTHY = "The following tasks are unhealthy"
_CRASHED = "The tasks have crashed"
_TASK = re.compile(r"/job:(\w+)(?:/replica:\d+)?/task:(\d+)")


@contextmanager
def named(workers: Workers) -> Iterator[None]:
    """Raises errors of operations between workers as TrainingError.

    TensorFlow's coordination service notices a worker that ends, by its heartbeat, and then ends
    the operations of all others.

    Raises:
        TrainingError: a worker died, ended early or does not answer.
    """
    try:
        yield
    except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError) as error:
        lost = _lost(workers, str(error))
        if lost is None:
            raise
        raise TrainingError(
            f"Expected all {workers.size} workers to train until the end. Received: {lost} died, "
            "ended before the others, or cannot be reached. See its output. Then start all of them "
            "again, as many as there are: train(checkpoint=...) resumes."
        ) from error
    except tf.errors.DeadlineExceededError as error:
        raise TrainingError(
            f"Expected an answer of all {workers.size} workers. Received: none within the timeout "
            "of join_workers. Look for a worker that hangs, waits for data, or has taken all its "
            "steps: steps and epochs have to be the same on all of them."
        ) from error


def _lost(workers: Workers, message: str) -> str | None:
    """The names of the workers that an error names; None if it is about something else."""
    tasks = _TASK.findall(message.partition(_UNHEALTHY)[2].partition(_CRASHED)[0])
    # Other errors name the worker at fault first, and then those that passed it on.
    tasks = tasks or _TASK.findall(message)
    ranks = [rank for task in tasks if (rank := _rank(workers, *task)) != workers.rank]
    ranks = sorted(set(ranks)) if _UNHEALTHY in message else ranks[:1]
    return ", ".join(workers.name(rank) for rank in ranks) or None


def _rank(workers: Workers, job: str, task: str) -> int:
    return int(task) + (workers.chiefs if job == "worker" else 0)
