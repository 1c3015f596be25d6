"""Several processes that train one model together, each on its share of the rows."""

from training.parallel.workers import Workers, join_workers

__all__ = ["Workers", "join_workers"]
