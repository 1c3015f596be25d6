"""Reading from an object store over a link of limited speed, in turns with the link alone.

    python -m benchmarks.store [--rows 400000] [--megabytes 10 40] [--rounds 3]

A local server of S3 (moto) behind a proxy that passes so many megabytes a second in all, whatever the number
of connections. The floor is the bytes that passed, divided by the speed of the link: `fit` reads the
columns of a workflow, the loader an epoch of all columns. A ratio of 1 means that the link never waits.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import statistics
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.request import Request, urlopen

import numpy as np

from benchmarks import data
from benchmarks.feeds import open_loader
from benchmarks.measure import options, show, timed
from workflow import Workflow, ops

KEYS = {"aws_access_key_id": "user", "aws_secret_access_key": "secret", "aws_region": "us-east-1"}
FILES = 8
URL = "s3://clicks/day"


class Link:
    """A proxy on a port of its own, through which answers pass with a limited speed.

    Args:
        port: port of the server on this machine.

    Attributes:
        speed: bytes a second; infinite at first.
        passed: bytes of answers so far.
    """

    def __init__(self, port: int) -> None:
        self.speed, self.passed = float("inf"), 0
        self._server_port, self._free = port, 0.0
        loop = asyncio.new_event_loop()
        starting = asyncio.start_server(self._connect, "127.0.0.1", 0)
        self._server: Any = loop.run_until_complete(starting)
        self.port = self._server.sockets[0].getsockname()[1]
        threading.Thread(target=loop.run_forever, daemon=True).start()

    async def _connect(self, reader: Any, writer: Any) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        await asyncio.gather(
            self._pass(reader, far_writer, limited=False),
            self._pass(far_reader, writer, limited=True),
            return_exceptions=True,
        )

    async def _pass(self, reader: Any, writer: Any, *, limited: bool) -> None:
        try:
            while some := await reader.read(16_384):
                if limited:
                    self.passed += len(some)
                    # All connections share the time of the link.
                    self._free = max(self._free, time.perf_counter()) + len(some) / self.speed
                    await asyncio.sleep(self._free - time.perf_counter())
                writer.write(some)
                await writer.drain()
        finally:
            writer.close()


def serve(port: Any) -> None:
    """Be a server of S3, and tell its port."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - in a child alone

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    port.send(server.get_host_and_port()[1])
    signal.pause()


def fill(reached: dict[str, str], rows: int) -> None:
    """Put files of prepared clicks into the bucket `clicks`."""
    address = f"{reached['aws_endpoint_url']}/clicks"
    urlopen(Request(address, method="PUT")).close()  # noqa: S310 - of this machine
    for number in range(FILES):
        frame = data.prepared_clicks(rows // FILES, np.random.default_rng(number))
        frame.write_parquet(
            f"{URL}/{number}.parquet",
            row_group_size=max(1, rows // FILES // 4),
            storage_options=reached,
        )


def measure(
    link: Link, works: dict[str, Callable[[], object]], given: Namespace
) -> Iterator[dict[str, Any]]:
    """A line for each work and speed: seconds over the link, and of its bytes alone."""
    for name, work in works.items():
        link.speed = float("inf")
        work()  # imports, and the server's first answers
        for megabytes in given.megabytes:
            link.speed = megabytes * 1e6
            runs = []
            for _ in range(given.rounds):
                before = link.passed
                seconds = timed(work, 1).seconds
                runs.append((seconds, (link.passed - before) / link.speed))
            seconds, floor = (statistics.median(each) for each in zip(*runs, strict=True))
            ratio = statistics.median(a / b for a, b in runs)
            yield {"": name, "MB/s": megabytes, "s": seconds, "link s": floor, "ratio": ratio}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each way of reading at each speed."""
    parser = options(__doc__, rows=400_000, rounds=3, megabytes=(10.0, 40.0))
    parsed = parser.parse_args(arguments)
    here, there = multiprocessing.Pipe()
    # Of its own, that its Python does not take this one's time; it ends with this one.
    multiprocessing.get_context("spawn").Process(target=serve, args=[there], daemon=True).start()
    link = Link(here.recv())
    reached = KEYS | {"aws_endpoint_url": f"http://127.0.0.1:{link.port}", "allow_http": "true"}
    fill(reached, parsed.rows)

    def fit() -> object:
        return Workflow(data.CATS >> ops.Categorify()).fit(URL, storage_options=reached)

    def epoch() -> object:
        return [None for _ in open_loader([URL], 16_384, device="cpu", storage_options=reached)]

    works = {"fit": fit, "loader, an epoch": epoch}
    show("reading over a link", measure(link, works, parsed))


if __name__ == "__main__":
    main()
