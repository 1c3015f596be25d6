"""The division of a layer's tables among the workers that have joined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training.parallel.workers import joined_workers
from training.sharding.plan import Sizes, bytes_of_workers, check_widths, plan
from training.sharding.room import expect_room


def division(sizes: Sizes, shard: str | None) -> Mapping[str, Any]:
    """Arguments of `SharedTable` that divide tables among the workers; none for one worker alone.

    Several workers call this together, with equal arguments.

    Args:
        sizes: column -> (rows, width), of the columns that have rows of their own.
        shard: as `check_shard` admits it.

    Raises:
        TrainingError: a width that "column" cannot divide, or tables too large for all workers.

    Example:
        >>> division({"user": (1001, 16)}, "row")  # before join_workers()
        {}
    """
    workers = joined_workers()
    if shard is None or workers.size == 1:
        return {}
    if shard == "column":
        check_widths({name: width for name, (_, width) in sizes.items()}, workers.size)
        totals = [bytes_of_workers(sizes, dict.fromkeys(sizes), workers.size)[0]] * workers.size
        expect_room(workers, sizes, totals)
        return {"workers": workers}
    places = plan(sizes, workers.size, shard)
    expect_room(workers, sizes, bytes_of_workers(sizes, places, workers.size))
    return {"workers": workers, "places": places}
