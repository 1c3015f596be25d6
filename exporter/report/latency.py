"""Response times of a served model, measured by one client or several, and drawn as bars."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from workflow.picture.markup import safe

if TYPE_CHECKING:
    from serving import EnsembleClient

SIZES = (1, 64, 1024)
PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Latency:
    """Response times of requests of one size.

    Attributes:
        clients: the number of clients that ask at once.
        rows: the rows of each request.
        milliseconds: the percentiles of `PERCENTILES`, from a frame of rows to a frame of answers.
        requests_per_second: of all clients together. A frame that the client sends in parts is one.
        response_cache: whether the model is exported with a cache of its answers, from which a server
            that has one answers all requests but the first, since they are equal.
    """

    clients: int
    rows: int
    milliseconds: tuple[float, ...]
    requests_per_second: float
    response_cache: bool = False


# What a reader has to know about times of a model with a cache.
FROM_CACHE = (
    "The model is exported with response_cache, and equal rows are sent again: a server with a cache "
    "answers from it. Start one without to measure computed answers."
)


def measure_latency(
    client: EnsembleClient, frame: pl.DataFrame, clients: int, rows: int, seconds: float
) -> Latency:
    """Send requests of the first rows of a frame, repeated if there are too few.

    Args:
        client: connected to the model.
        frame: raw rows, at least one.
        clients: the number of threads that ask at once.
        rows: the rows of each request.
        seconds: the duration; each thread sends at least one request.

    Raises:
        ClientError: a request failed.
    """
    request = pl.concat([frame] * -(-rows // frame.height)).head(rows)
    times, duration = _times(partial(client.predict, request), clients, seconds)
    milliseconds = np.percentile(times, PERCENTILES) * 1e3
    cached = client.config().response_cache.enable
    return Latency(clients, rows, tuple(map(float, milliseconds)), len(times) / duration, cached)


def _times(call: Callable[[], object], threads: int, seconds: float) -> tuple[list[float], float]:
    """The seconds of each call, and of all calls together."""
    call()

    def ask(_: int) -> list[float]:
        times: list[float] = []
        while time.perf_counter() < end or not times:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return times

    begin = time.perf_counter()
    end = begin + seconds
    with ThreadPoolExecutor(threads) as pool:
        times = [duration for part in pool.map(ask, range(threads)) for duration in part]
    return times, time.perf_counter() - begin


_STYLE = """<style>
.latency { display: grid; grid-template-columns: max-content minmax(6rem, 1fr) max-content;
  gap: .35rem .8rem; align-items: center }
.latency .track { position: relative; height: 1.1rem; background: #8882; border-radius: 3px }
.latency i { position: absolute; inset: 0 auto 0 0; background: #0072b2; opacity: .35;
  border-radius: 3px }
.latency i:last-child { opacity: 1 }
@media (max-width: 40rem) { .latency { grid-template-columns: 1fr } }
</style>"""


def latency_chart(measured: Sequence[Latency]) -> str:
    """Response times as bars of HTML, each from 0 to the 99th, the 90th and the 50th percentile.

    Example:
        >>> latency_chart([Latency(1, 64, (1.0, 2.0, 4.0), 800.0)]).count("<i ")
        3
    """
    most = max(max(latency.milliseconds) for latency in measured)
    lines = []
    for latency in measured:
        rows = f"{latency.rows:,} row{'s' * (latency.rows > 1)}"
        asking = f", {latency.clients:,} clients" if latency.clients > 1 else ""
        bars = "".join(
            f'<i style="width:{100 * value / most:.2f}%"></i>'
            for value in reversed(latency.milliseconds)
        )
        values = " / ".join(f"{value:.2f}" for value in latency.milliseconds)
        speed = f"{latency.requests_per_second * latency.rows:,.0f} rows/s"
        lines.append(
            f'<span>{safe(rows + asking)}</span><div class="track">{bars}</div>'
            f"<span>{values} ms, {speed}</span>"
        )
    percentiles = ", ".join(f"{number} %" for number in PERCENTILES)
    note = f" {FROM_CACHE}" if any(latency.response_cache for latency in measured) else ""
    return (
        f'{_STYLE}<div class="latency">{"".join(lines)}</div>'
        f"<p>Times within which {percentiles} of the requests were answered, from a frame of rows to a "
        f"frame of answers, on the machine of this report.{note}</p>"
    )
