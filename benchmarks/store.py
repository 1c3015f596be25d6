"""Reading from an object store over a link of limited speed, in turns with the link alone.

    python -m benchmarks.store [--rows 400000] [--megabytes 10 40] [--rounds 3]

A local server of S3 (moto) behind a proxy that passes so many megabytes a second in all, whatever the number
of connections. The floor is the bytes that passed, divided by the speed of the link: `fit` reads the
columns of a workflow, the loader an epoch of all columns. A ratio of 1 means that the link never waits.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import obstore.store

from benchmarks import data
from benchmarks.measure import options, show
from loader import KerasSequenceLoader
from workflow import Workflow, ops

_KEYS = {"aws_access_key_id": "user", "aws_secret_access_key": "secret", "aws_region": "us-east-1"}
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
        self._loop = asyncio.new_event_loop()
        self._server: Any = self._loop.run_until_complete(
            asyncio.start_server(self._connect, "127.0.0.1", 0)
        )
        self.port = self._server.sockets[0].getsockname()[1]
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

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


@contextmanager
def server() -> Iterator[int]:
    """A server of S3; its port."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = iter(process.stderr.readline, "") if process.stderr else iter(())
            line = next(line for line in lines if "Running on" in line)
            threading.Thread(target=lambda: [*lines], daemon=True).start()
            found = re.search(r":(\d+)", line.partition("//")[2])
            yield int(found[1]) if found else 0
        finally:
            process.kill()


def fill(url_options: dict[str, str], rows: int) -> None:
    """Put files of prepared clicks into the bucket `clicks`."""
    import http.client  # noqa: PLC0415 - for one request

    port = int(url_options["aws_endpoint_url"].rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("PUT", "/clicks")
    connection.getresponse().read()
    config: Any = {k: v for k, v in url_options.items() if k != "allow_http"}
    store: Any = obstore.store.S3Store("clicks", config=config, client_options={"allow_http": True})
    with tempfile.TemporaryDirectory() as folder:
        for number in range(FILES):
            path = Path(folder) / f"{number}.parquet"
            frame = data.prepared_clicks(rows // FILES, np.random.default_rng(number))
            frame.write_parquet(path, row_group_size=max(1, rows // FILES // 4))
            obstore.put(store, f"day/{path.name}", path)


def measure(link: Link, work: Callable[[], object], speed: float) -> tuple[float, float]:
    """Seconds of some work over a link of a speed, and of its bytes alone."""
    link.speed, before, start = speed, link.passed, time.perf_counter()
    work()
    return time.perf_counter() - start, (link.passed - before) / speed


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each way of reading at each speed."""
    parser = options(__doc__, rows=400_000, rounds=3)
    parser.add_argument("--megabytes", type=float, nargs="+", default=[10.0, 40.0])
    parsed = parser.parse_args(arguments)
    with server() as port:
        link = Link(port)
        reached = {
            **_KEYS,
            "aws_endpoint_url": f"http://127.0.0.1:{link.port}",
            "allow_http": "true",
        }
        fill(reached, parsed.rows)

        def fit() -> object:
            return Workflow(data.CATS >> ops.Categorify()).fit(URL, storage_options=reached)

        def epoch() -> int:
            loader = KerasSequenceLoader(
                URL, 16_384, ["label"], cat_names=data.CATS, cont_names=data.CONTS,
                storage_options=reached,
            )  # fmt: skip
            return sum(1 for _ in loader)

        rows = []
        for name, work in {"fit": fit, "loader, an epoch": epoch}.items():
            work()  # imports, and the server's first answers
            for megabytes in parsed.megabytes:
                runs = [measure(link, work, megabytes * 1e6) for _ in range(parsed.rounds)]
                seconds, floor = (statistics.median(each) for each in zip(*runs, strict=True))
                ratio = statistics.median(a / b for a, b in runs)
                rows.append(
                    {"": name, "MB/s": megabytes, "s": seconds, "link s": floor, "ratio": ratio}
                )
            link.speed = float("inf")
    show("reading over a link", rows)


if __name__ == "__main__":
    main()
