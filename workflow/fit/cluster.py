"""A cluster of Dask's workers: what it must be able to read, and work that survives lost workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from os import environ
from typing import Any, TypeVar

from workflow.data.parquet import ParquetTable
from workflow.data.sources import Source
from workflow.engine.engine import is_gpu
from workflow.errors import WorkflowError

# Parts for each thread of a worker: enough that all end at about the same time.
PARTS_OF_A_THREAD = 4
# Dask computes lost results again, but not what was sent to workers that have all ended since.
TRIES = 5
# Seconds to wait for the first worker.
WAIT_FOR_WORKERS = 60
# The variable that chooses the GPUs of a process.
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"

Item = TypeVar("Item")
Result = TypeVar("Result")


def expect_shared(source: Source, client: Any) -> ParquetTable:
    """The files of a source, which a cluster's workers have to be able to read.

    Raises:
        WorkflowError: the data is not in files, the client is invalid, or no worker is connected.
    """
    if not hasattr(client, "scatter"):
        raise WorkflowError(
            "Expected the client of a cluster, as of dask.distributed.Client(address). "
            f"Received: {client!r:.200}."
        )
    if source.files is None:
        raise WorkflowError(
            "Expected paths of parquet that the cluster's workers can read. Received: a frame in "
            "this process. Write it with write_parquet, or leave the client out."
        )
    try:
        client.wait_for_workers(1, timeout=WAIT_FOR_WORKERS)
    except TimeoutError:
        raise WorkflowError(
            f"Expected a cluster with workers. Received: {client!r:.200}, to which none connected "
            f"within {WAIT_FOR_WORKERS} seconds. Start some: dask worker ADDRESS."
        ) from None
    return source.files.absolute()


def expect_own_gpus(engine: str, client: Any) -> None:
    """Refuse workers of one host that would use one GPU, if the engine is a GPU.

    A process uses the first GPU of `CUDA_VISIBLE_DEVICES`, or of the host without it.

    Raises:
        WorkflowError: names the workers that would share a GPU.
    """
    if is_gpu(engine):
        _expect_distinct(client.run(environ.get, VISIBLE_GPUS, ""))


def _expect_distinct(visible: dict[str, str]) -> None:
    """Refuse two workers of one host whose first visible GPU is the same.

    Args:
        visible: the value of `VISIBLE_GPUS` of each worker, by its address.

    Example:
        >>> _expect_distinct({"tcp://10.0.0.1:4000": "0,1", "tcp://10.0.0.1:4001": "1,0"})
    """
    users: dict[tuple[str, str], list[str]] = defaultdict(list)
    for address, devices in visible.items():
        users[address.rpartition(":")[0], devices.split(",")[0] or "0"].append(address)
    for (_, device), addresses in users.items():
        if len(addresses) > 1:
            raise WorkflowError(
                f'Expected workers with a GPU each for engine="gpu". Received: '
                f"{' and '.join(sorted(addresses)[:2])}, which both use GPU {device}. Start each "
                f"worker with its own: {VISIBLE_GPUS}=1 dask worker ADDRESS --nthreads 1."
            )


def shared_out(items: Sequence[Item], client: Any, least: int = 1) -> list[Sequence[Item]]:
    """Consecutive items in groups, a few for each thread of the cluster, and at least `least`."""
    threads = max(1, sum(client.nthreads().values()))
    count = min(len(items), max(least, threads * PARTS_OF_A_THREAD))
    return [items[len(items) * n // count : len(items) * (n + 1) // count] for n in range(count)]


def despite_lost_workers(work: Callable[[], Result]) -> Result:
    """The result of work on a cluster, which is repeated if workers ended with its inputs.

    Dask itself repeats the tasks of a worker that ends. It cannot restore inputs that this process
    has sent to workers, if all of these have ended.

    Args:
        work: sends its inputs and submits its tasks.

    Raises:
        WorkflowError: the workers end again and again.
    """
    from distributed import KilledWorker  # noqa: PLC0415 - an extra

    last: Exception | None = None
    for _ in range(TRIES):
        try:
            return work()
        except CancelledError as lost:
            last = lost
        except KilledWorker as killed:
            last = killed
            break
    raise WorkflowError(
        "Expected workers that survive their tasks. Received: workers that ended in one after "
        f"another ({last!s:.300}). The usual reason is memory: give each worker more of it or fewer "
        "threads, or write the data in smaller files."
    ) from last
