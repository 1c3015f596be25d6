"""The plan by which tables are divided among workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from training.errors import TrainingError

SHARDS = ("auto", "table", "row", "column")
_BYTES = 4
# A table of at most this part of a worker's share stays whole: the last one to be placed makes the
# fullest worker at most so much fuller than the others.
_WHOLE = 1 / 4

Sizes = Mapping[str, tuple[int, int]]
Places = Mapping[str, int | None]


def check_shard(shard: str | None) -> str | None:
    """The way of dividing tables, if it is known.

    Raises:
        TrainingError: an unknown one.
    """
    if shard is not None and shard not in SHARDS:
        raise TrainingError(
            f"Expected shard as None or one of {', '.join(SHARDS)}. Received: {shard!r}."
        )
    return shard


def plan(sizes: Sizes, workers: int, shard: str) -> dict[str, int | None]:
    """The worker that holds each column's table; None for a table of which each holds a part.

    Whole tables are placed one by one, the largest first, on the worker with the least work so far,
    which is its part of all bytes and its part of all looked-up columns. "auto" divides tables by
    row that are larger than a quarter of a worker's share of all bytes.

    Source: R. Graham, Bounds on Multiprocessing Timing Anomalies, SIAM J. Appl. Math. 17 (1969).

    Args:
        sizes: column -> (rows, width).
        workers: number of workers.
        shard: "auto", "table" (all whole), "row" or "column" (none whole).

    Example:
        >>> plan({"user": (900, 16), "item": (50, 16), "city": (40, 16)}, 2, "auto")
        {'user': None, 'item': 0, 'city': 1}
    """
    total = _bytes(sizes, sizes)
    limit = {"auto": total / workers * _WHOLE, "table": total}.get(shard, -1.0)
    whole = [name for name in sizes if _bytes(sizes, [name]) <= limit]
    places: dict[str, int | None] = dict.fromkeys(sizes)
    work = [0.0] * workers
    for name in sorted(whole, key=lambda name: -_bytes(sizes, [name])):
        place = work.index(min(work))
        places[name] = place
        work[place] += _bytes(sizes, [name]) / total + 1 / len(sizes)
    return places


def check_widths(widths: Mapping[str, int], workers: int) -> None:
    """Raise TrainingError if vectors cannot be divided into as many equal parts as workers."""
    odd = {name: width for name, width in widths.items() if width % workers}
    if odd:
        name, width = next(iter(odd.items()))
        raise TrainingError(
            f'Expected widths that {workers} workers divide, for shard="column". Received: {width} '
            f'for {name!r}. Use shard="auto" or "row", or another width.'
        )


def bytes_of_workers(sizes: Sizes, places: Places, workers: int) -> list[int]:
    """Bytes of the tables that each worker holds, in float32."""
    totals = [0] * workers
    for name, (rows, width) in sizes.items():
        for rank in range(workers):
            if places[name] is None:
                totals[rank] += -(-rows // workers) * width * _BYTES
            elif places[name] == rank:
                totals[rank] += rows * width * _BYTES
    return totals


def check_room(sizes: Sizes, held: Sequence[int], room: Sequence[int]) -> None:
    """Raise TrainingError if a worker has no room for its tables.

    Args:
        sizes: column -> (rows, width).
        held: bytes of each worker's tables.
        room: bytes that each worker has.
    """
    if all(bytes_ <= most for bytes_, most in zip(held, room, strict=True)):
        return
    total = _bytes(sizes, sizes)
    least = min(room)
    rank = max(range(len(held)), key=lambda rank: held[rank] - room[rank])
    needed = f"at least {-(-total // least)} such workers" if least > 0 else "workers with memory"
    raise TrainingError(
        f"Expected room on {len(held)} workers for tables of {_gigabytes(total)}. Received: "
        f"{_gigabytes(held[rank])} for worker {rank}, which has {_gigabytes(room[rank])}. "
        f'Start {needed}, with shard="auto" or "row", narrow the vectors (max_embedding_dim), or '
        "bound the ids (ops.Categorify(max_size=...) or ops.HashBucket). Adagrad needs as much "
        "again, and Adam twice as much."
    )


def check_state_room(
    kind: str, copies: int, tables: Sequence[int], others: int, left: Sequence[int]
) -> None:
    """Raise TrainingError if a worker has no room for the state of its optimizer.

    Args:
        kind: name of the optimizer.
        copies: how many values of state it keeps for each weight.
        tables: bytes of each worker's tables, which it holds already.
        others: bytes of the other weights, of which each worker has all.
        left: bytes that each worker has left.
    """
    needed = [copies * (size + others) for size in tables]
    rank = max(range(len(left)), key=lambda rank: needed[rank] - left[rank])
    if needed[rank] <= left[rank]:
        return
    total = sum(tables)
    least = min(a + b for a, b in zip(left, tables, strict=True)) - copies * others
    count = -(-(1 + copies) * total // least) if least > 0 else 0
    workers = f"at least {count} such workers" if count else "workers with more memory"
    raise TrainingError(
        f"Expected room on {_workers(len(left))} for the state of {kind}, {copies} times the weights, of "
        f"which the tables have {_gigabytes(total)}. Received: {_gigabytes(needed[rank])} of state "
        f"for worker {rank}, which has {_gigabytes(left[rank])} left beside its tables. Start "
        f'{workers}, with shard="auto" or "row", use an optimizer with less state (SGD without '
        "momentum has none, Adagrad as much as the weights, Adam twice), narrow the vectors "
        "(max_embedding_dim), or bound the ids (ops.Categorify(max_size=...) or ops.HashBucket)."
    )


def _workers(count: int) -> str:
    return "one worker" if count == 1 else f"{count} workers"


def _bytes(sizes: Sizes, names: Sequence[str] | Mapping[str, object]) -> int:
    return sum(sizes[name][0] * sizes[name][1] * _BYTES for name in names)


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:,.3g} GB"
