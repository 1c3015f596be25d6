"""A cluster of Dask's workers: what it must be able to read, and work that survives lost workers."""

from __future__ import annotations

import socket
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from os import environ
from pathlib import Path
from typing import Any, TypeVar

from workflow.data.delimited import text_paths
from workflow.data.parquet import ParquetTable
from workflow.data.sources import Source, comes_once, paths_of
from workflow.engine.engine import is_gpu
from workflow.errors import WorkflowError

# Parts for each thread of a worker: enough that all end at about the same time.
PARTS_OF_A_THREAD = 4
# Rows of a task on a GPU at the least, unless GPUs would be idle: within a task one query is computed while
# the result of another is written, and each task begins by sorting the vocabularies for the GPU.
ROWS_OF_A_GPU_TASK = 64_000_000
# Dask computes lost results again, but not what was sent to workers that have all ended since.
TRIES = 5
# Seconds to wait for the first worker.
WAIT_FOR_WORKERS = 60
# Seconds to wait for a connection that asks nothing.
WAIT_FOR_CONNECTION = 1
# The variable that chooses the GPUs of a process.
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"

Item = TypeVar("Item")
Result = TypeVar("Result")


def expect_client(client: Any, data: Any) -> None:
    """Refuse a client without a cluster, and data that a cluster cannot share, before it is read.

    Args:
        client: the client of a cluster; None if there is none.
        data: the user's data.

    Raises:
        WorkflowError: the client is invalid or closed, or the data is not in files of parquet.
    """
    if client is None:
        return
    if not hasattr(client, "scatter"):
        raise WorkflowError(
            "Expected the client of a cluster, as of dask.distributed.Client(address). "
            f"Received: {client!r:.200}."
        )
    if client.asynchronous:
        raise WorkflowError(
            "Expected a client that waits for results. Received: one with asynchronous=True. Make "
            "another: dask.distributed.Client(address)."
        )
    if client.status in ("closing", "closed"):
        raise WorkflowError(
            f"Expected a client that is connected to a cluster. Received: a {client.status} one. Make "
            "another: dask.distributed.Client(address)."
        )
    if comes_once(data):
        return  # it can be read once; `expect_shared` refuses what is not parquet
    paths = paths_of(data)
    text = None if paths is None else text_paths(paths)
    if paths is None or text is not None:
        raise _not_parquet(text)


def _not_parquet(text: Sequence[Path] | None) -> WorkflowError:
    received = "a frame in this process" if text is None else str(text[0])
    return WorkflowError(
        "Expected paths of parquet that the cluster's workers can read. "
        f"Received: {received}. Write it as parquet, as polars.scan_csv(csv).sink_parquet(parquet) and "
        "frame.write_parquet(path) do, or leave the client out."
    )


def expect_shared(source: Source, client: Any) -> ParquetTable:
    """The files of a source, for a cluster's workers.

    Raises:
        WorkflowError: the data is not in files of parquet, or no worker is connected.
    """
    if source.files is None:
        raise _not_parquet(
            None if source.text is None else [file.path for file in source.text.files]
        )
    try:
        client.wait_for_workers(1, timeout=WAIT_FOR_WORKERS)
    except TimeoutError:
        raise WorkflowError(
            f"Expected a cluster with workers. Received: {client!r:.200}, to which none connected "
            f"within {WAIT_FOR_WORKERS} seconds. Start some: dask worker ADDRESS."
        ) from None
    return source.files.absolute()


def expect_readable(files: ParquetTable, client: Any) -> None:
    """Refuse files that a worker cannot read.

    Raises:
        WorkflowError: names the file and the worker.
    """
    paths = [file.path for file in files.files if isinstance(file.path, Path)]
    for worker, fault in client.run(_unreadable, paths, on_error="ignore").items():
        if fault is not None:
            raise WorkflowError(
                "Expected files that all workers can read by the same path. Received: "
                f"{fault[0]}, which worker {worker} cannot read: {fault[1]}. Give every worker read "
                "access to this path, as by a shared mount, or put the files into an object store."
            )


def _unreadable(paths: Iterable[Path]) -> tuple[Path, str] | None:
    """The first file that this process cannot read, and the reason."""
    for path in paths:
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            return path, error.strerror or str(error)
    return None


def expect_writable(folder: Path, scratch: Path, client: Any) -> None:
    """Refuse an output folder that a worker cannot write.

    Args:
        folder: the folder that the user has named.
        scratch: a folder in it, for the workers.
        client: client of the cluster.

    Raises:
        WorkflowError: names the folder and the worker.
    """
    for worker, fault in client.run(_unwritable, scratch, on_error="ignore").items():
        if fault is not None:
            raise WorkflowError(
                "Expected a folder that all workers can write by the same path. Received: "
                f"{folder}, which worker {worker} cannot write: {fault}. Give every worker write access "
                "to this path, as by a shared mount, or leave the client out."
            )


def _unwritable(folder: Path) -> str | None:
    """The reason why this process cannot write a file in a folder."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)


def expect_own_gpus(engine: str, client: Any) -> None:
    """Refuse workers of one host that would use one GPU, if the engine is a GPU.

    A process uses the first GPU of `CUDA_VISIBLE_DEVICES`, or of the host without it.

    Raises:
        WorkflowError: names the workers that would share a GPU.
    """
    if is_gpu(engine):
        _expect_distinct(client.run(_visible_gpus))


def _visible_gpus() -> str:
    """The variable of this process: a function, as a method of `environ` would carry the client's along."""
    return environ.get(VISIBLE_GPUS, "")


def _expect_distinct(visible: dict[str, str]) -> None:
    """Refuse two workers of one host whose first visible GPU is the same.

    Args:
        visible: the value of `VISIBLE_GPUS` of each worker, by its address.

    Example:
        >>> own = {"tcp://10.0.0.1:4000": "0,1", "tcp://10.0.0.1:4001": "1,0", "tcp://10.0.0.2:4000": ""}
        >>> _expect_distinct(own)
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


def rows_of_a_task(engine: str) -> int:
    """The least number of rows for which a task is worth its overhead on an engine."""
    return ROWS_OF_A_GPU_TASK if is_gpu(engine) else 1


def shared_out(
    items: Sequence[Item], client: Any, least: int = 1, fewest: int = 1
) -> list[Sequence[Item]]:
    """Consecutive items in groups, a few for each thread of the cluster.

    Args:
        items: at least one.
        client: a client of the cluster.
        least: the least number of groups.
        fewest: the least number of items in a group, unless threads would have none.
    """
    threads = max(1, sum(client.nthreads().values()))
    groups = max(threads, min(threads * PARTS_OF_A_THREAD, len(items) // fewest))
    count = min(len(items), max(least, groups))
    return [items[len(items) * n // count : len(items) * (n + 1) // count] for n in range(count)]


def reaches_workers(client: Any) -> bool:
    """Whether this process can connect to all workers of a cluster.

    Results then need not come through the scheduler, where they take three times as long: 79 MB in 0.12
    seconds in place of 0.37, two shared cores, 2026-11-26.
    """
    from distributed.comm.addressing import get_address_host_port  # noqa: PLC0415 - an extra

    try:
        for address in client.nthreads():
            place = get_address_host_port(address)
            socket.create_connection(place, WAIT_FOR_CONNECTION).close()
    except (OSError, ValueError):  # no way there, or a worker in this process
        return False
    return True


def sent_to_workers(client: Any, value: Any) -> Any:
    """A future of a value that every worker holds, since Dask sends a task where its inputs are.

    Dask's own `scatter(broadcast=True)` never returns if a worker ends meanwhile. Tasks that bring the copies
    are begun again elsewhere.

    Raises:
        CancelledError: the worker that received the value first has ended.
    """
    try:
        sent = client.scatter([value], hash=False)[0]
    except TimeoutError:  # no worker takes tasks
        raise
    except (OSError, KeyError) as lost:
        raise CancelledError(str(lost)) from lost
    copies = [
        client.submit(type, sent, workers=[worker], allow_other_workers=True, pure=False)
        for worker in client.nthreads()
    ]
    for copy in copies:
        copy.exception()  # waits; an error is raised where the value is used
    return sent


@contextmanager
def connected(client: Any) -> Iterator[None]:
    """Raise WorkflowError where the block loses the connection to a cluster's scheduler."""
    from distributed.comm.core import CommClosedError  # noqa: PLC0415 - an extra

    try:
        yield
    except (OSError, CancelledError) as lost:
        if client.status == "running" and not isinstance(lost, CommClosedError):
            raise
        raise WorkflowError(
            "Expected a scheduler that runs until the call has ended. Received: a lost connection to "
            f"{client!r:.200} ({lost!s:.200}). Start it and its workers again, then repeat the call "
            "with a new client."
        ) from lost


def despite_lost_workers(work: Callable[[], Result], client: Any) -> Result:
    """The result of work on a cluster, which is repeated if workers ended with its inputs.

    Dask itself repeats the tasks of a worker that ends. It cannot restore inputs that this process
    has sent to workers, if all of these have ended.

    Args:
        work: sends its inputs and submits its tasks.
        client: a client of the cluster.

    Raises:
        WorkflowError: the workers end again and again, or none takes tasks, or the scheduler ends.
    """
    from distributed import KilledWorker  # noqa: PLC0415 - an extra

    last: Exception | None = None
    for _ in range(TRIES):
        try:
            with connected(client):
                return work()
        except CancelledError as lost:
            last = lost
        except TimeoutError as none:
            raise WorkflowError(
                "Expected a cluster with workers that take tasks. Received: one whose workers are "
                f"closing or paused ({none}). Start some: dask worker ADDRESS."
            ) from none
        except KilledWorker as killed:
            last = killed
            break
    raise WorkflowError(
        "Expected workers that survive their tasks. Received: workers that ended in one after "
        f"another ({last!s:.300}). The usual reason is memory: give each worker more of it or fewer "
        "threads, or write the data in smaller files."
    ) from last
