"""This process's worker number under `tf.distribute`, and its replicas."""

from __future__ import annotations

import tensorflow as tf


def current_worker() -> tuple[int, int] | None:
    """The number of workers and this one's number, inside the scope of a multi-worker strategy.

    Example:
        >>> current_worker() is None
        True
    """
    strategy = tf.distribute.get_strategy()
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return None
    resolver = strategy.cluster_resolver
    tasks = resolver.cluster_spec().as_dict()
    chiefs, workers = len(tasks.get("chief", ())), len(tasks.get("worker", ()))
    rank = resolver.task_id + (chiefs if resolver.task_type == "worker" else 0)
    return max(chiefs + workers, 1), rank or 0


def replicas_of_worker(strategy: tf.distribute.Strategy, workers: int) -> int:
    """The number of replicas of a strategy that each of `workers` workers has.

    Example:
        >>> replicas_of_worker(tf.distribute.get_strategy(), workers=1)
        1
    """
    return max(int(strategy.num_replicas_in_sync) // workers, 1)
