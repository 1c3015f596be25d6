"""Several processes that train one model, each on rows of its own."""

from training.parallel.workers import Workers, join_workers

__all__ = ["Workers", "join_workers"]
