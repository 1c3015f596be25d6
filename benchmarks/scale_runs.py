"""Work of one to four workers and servers of this machine, for `benchmarks.scale_model --check`.

    python -m benchmarks.scale_runs [--rows 2000000] [--seconds 6] [--steps 20]

The processor time for the same rows, requests or steps, with one, two and four processes of a kind: Dask
workers of one thread that fit and transform Criteo-like rows, servers that answer requests of one row,
and (one and two) workers that train together. On machines of their own the speed grows as the number,
divided by this work. Two shared cores cannot show the speed itself.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.data import raw_clicks, write_files
from benchmarks.measure import options, run_program, show
from benchmarks.pipelines import SERVED, click_workflow
from benchmarks.serving_load import answers, children_seconds
from serving import EnsembleClient, TritonServer

COUNTS = (1, 2, 4)
CLIENTS = 32
FILES = 8


def dask_seconds(folder: Path, rows: int, workers: int) -> float:
    """Processor seconds of workers that fit and transform files of clicks."""
    from distributed import LocalCluster  # noqa: PLC0415 - an extra

    files = write_files(folder / "raw", "raw_clicks", rows, raw_clicks, files=FILES)
    cluster: Any = LocalCluster
    settings: dict[str, Any] = {
        "n_workers": workers,
        "threads_per_worker": 1,
        "dashboard_address": ":0",
    }
    settings |= {"local_directory": str(folder), "env": {"POLARS_MAX_THREADS": "1"}}
    with cluster(**settings) as running, running.get_client() as client:
        # Once on one file, so that all workers have loaded what they use.
        client.run(click_workflow().fit, files[0])
        before = children_seconds()
        workflow = click_workflow().fit([*files], client=client)
        workflow.transform_to_parquet(
            [*files], folder / f"made{workers}", rows_per_file=rows // FILES, client=client
        )
        return children_seconds() - before


def request_seconds(repository: Path, request: bytes, count: int, seconds: float) -> float:
    """Processor seconds of servers for a request, of 32 clients together."""
    with ExitStack() as stack:
        urls = [
            stack.enter_context(TritonServer(repository, startup_timeout=300)).grpc_url
            for _ in range(count)
        ]

        async def ask(duration: float) -> int:
            made = (answers(url, request, CLIENTS // count, duration) for url in urls)
            return sum(answered for answered, _ in await asyncio.gather(*made))

        asyncio.run(ask(seconds / 4))
        before = children_seconds()
        answered = asyncio.run(ask(seconds))
        return (children_seconds() - before) / answered


def step_seconds(workers: int, steps: int) -> float:
    """Processor seconds of a worker for a step, without its start."""
    return (_training(workers, 2 * steps) - _training(workers, steps)) / steps / workers


def _training(workers: int, steps: int) -> float:
    command = ["-m", "benchmarks.workers", "--batch", "4096", "--shrink", "10"]
    return run_program([*command, "--workers", f"{workers}", "--steps", f"{steps}"]).processor


def served(folder: Path) -> bytes:
    """Export the Criteo-like ensemble as a fused graph; a request of one row."""
    # With TensorFlow, which Dask's workers would import from here as well.
    from benchmarks.serving import request_of  # noqa: PLC0415
    from benchmarks.serving_graphs import tensors_of  # noqa: PLC0415
    from exporter import ServingOptions, export_tensorflow_ensemble  # noqa: PLC0415

    pipeline = SERVED["criteo"](1)
    serving = ServingOptions(runtime="fused_onnx", max_batch_size=64)
    export_tensorflow_ensemble(
        pipeline.model, pipeline.workflow, "clicks", folder, pipeline.labels, serving=serving
    )
    with (
        TritonServer(folder, startup_timeout=300) as server,
        EnsembleClient(server.grpc_url, "clicks") as client,
    ):
        return request_of("clicks", tensors_of(client.contract.inputs, pipeline.rows.head(1)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each kind, and print the work as a multiple of that of one process."""
    parser = options(__doc__, rows=2_000_000, seconds=6.0, steps=20)
    parser.add_argument("--only", choices=("dask", "servers", "training"), help="one kind")
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if parsed.only in (None, "dask"):
            _show("Dask workers", COUNTS, lambda n: dask_seconds(folder, parsed.rows, n))
        if parsed.only in (None, "servers"):
            request = served(folder / "models")
            ask = partial(request_seconds, folder / "models", request, seconds=parsed.seconds)
            _show("servers", COUNTS, ask)
        if parsed.only in (None, "training"):
            _show("training workers", COUNTS[:2], lambda n: step_seconds(n, parsed.steps))


def _show(kind: str, counts: Sequence[int], measure: Callable[[int], float]) -> None:
    """Print the processor seconds of each number of processes, as soon as they are known."""
    work: dict[int, float] = {}
    for count in counts:
        work[count] = measure(count)
        load = f"{kind}, processor seconds at a load of {os.getloadavg()[0]:.0f}"
        row = {"": f"work of {count} {kind}", "s": work[count], "of one": work[count] / work[1]}
        show(load, [row])


if __name__ == "__main__":
    main()
