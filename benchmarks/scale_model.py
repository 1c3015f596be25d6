"""Machines, dollars and limits of a large deployment, computed from the figures of docs/benchmarks.md.

    python -m benchmarks.scale_model [--bytes-a-day 10e12] [--rows-of-history 10e9] [--table-bytes 1e12]
        [--requests 100000] [--p99-ms 10] [--cpu-usd 0.81] [--gpu-usd 63.3] [--memory-usd 10] [--check]

Each stage takes the longer of its computation and its transfers, which overlap. Collectives cost
alpha + bytes / beta. A request waits as in a queue of many servers (Erlang C), with service times of an
exponential distribution. docs/scale.md names all assumptions. `--check` prints the model beside runs.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import options, show

PAGES = Path(__file__).parents[1] / "docs"
_NUMBER = r"\**([\d.,]+)\**"
# Each figure by a pattern of its place on the page; the first group is the figure.
_PLACES = {
    "etl rows": r"benchmarks\.workflow --device gpu --rows (\d+)",
    "cpu fit s": rf"\| Criteo-like \| cpu \| {_NUMBER} \|",
    "cpu transform s": rf"\| Criteo-like \| cpu \| [\d.]+ \| {_NUMBER} \|",
    "million samples/s": rf"split step, bfloat16, 32 steps a call \| {_NUMBER} \| \*\*90",
    "bytes a row": rf"\| parquet, our loader, shuffled; [^|]*\|[^|]*\|[^|]*\| {_NUMBER} \|",
    "split step, 1": rf"from files, a host of four\**? \| 1 \| {_NUMBER} \|",
    "split step, 2": rf"from files, a host of four\**? \| 2 \| {_NUMBER} \|",
    "split step, 4": rf"from files, a host of four\**? \| 4 \| {_NUMBER} \|",
    "one request ms": rf"Criteo-like: 13 counts and 26 ids.*?\| fused_onnx \| {_NUMBER} \|",
    "server us": rf"Criteo-like: 13 counts and 26 ids.*?\| fused_onnx \|(?:[^|]*\|){{7}} {_NUMBER} \|",
}


@dataclass(frozen=True)
class Machine:
    """A kind of machine, for rent.

    Attributes:
        usd: dollars an hour, an assumption of docs/scale.md.
        cores: virtual processors.
        memory: bytes.
        link: bytes a second to the object store and to other machines.
        gpus: its GPUs.
    """

    usd: float
    cores: int
    memory: float
    link: float
    gpus: int = 0


MACHINES = {
    "cpu": Machine(0.81, 16, 64e9, 1.5e9),
    "gpu": Machine(63.30, 192, 2e12, 400e9, gpus=8),
    "memory": Machine(10.00, 96, 1.5e12, 9e9),
}
# Work of a further Dask worker, of that of one for 400,000 rows: fitted to two workers. Each makes its
# own lookup tables; with a hundred times the rows it is a hundredth, so `plan` leaves it out.
FURTHER_WORKER = 0.374
GPU_MEMORY = 141e9
# Of a GPU's memory, for tables; the rest is for the step and the loader.
FOR_TABLES = 0.8
MOST_HOSTS = 10_000
# Criteo's MLP: rows of a batch on each GPU, ids of a row, numbers of a vector, bytes of dense gradients.
BATCH, IDS, WIDTH, DENSE = 65_536, 26, 16, 14.4e6
# Float32 Adagrad has one accumulator for each weight.
STATES = 2


@dataclass(frozen=True)
class Collective:
    """The time of a collective operation: alpha seconds, and bytes / beta."""

    alpha: float
    beta: float

    def seconds(self, size: float) -> float:
        """Seconds for a buffer of so many bytes on each GPU."""
        return self.alpha + size / self.beta


def fitted(times: Mapping[float, float]) -> Collective:
    """Alpha and beta by least squares of relative errors, from measured seconds by the bytes of the buffer.

    Example:
        >>> made = fitted({1e6: 2e-3, 3e6: 4e-3})
        >>> round(made.alpha, 6), round(made.beta)
        (0.001, 1000000000)
    """
    rows = [(1 / seconds, size / seconds) for size, seconds in times.items()]
    alpha, per_byte = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)[0].tolist()
    return Collective(alpha, 1 / per_byte)


# Seconds by bytes on two H200s of one host, as docs/scale.md has them.
ALL_TO_ALL = {1e6: 117e-6, 14e6: 224e-6, 54e6: 319e-6}
# Between hosts: eight adapters of 400 Gbit/s, one a GPU; latency of a switched network.
BETWEEN_HOSTS = Collective(50e-6, 50e9)


@dataclass(frozen=True)
class Work:
    """A day of a large deployment.

    Attributes:
        bytes_a_day: parquet of clicks.
        history_rows: rows to fit to.
        table_bytes: embedding tables, float32, without optimizer state.
        requests: a second, of one row.
        p99_ms: the longest time of 99 of 100 requests.
        hours: within which each of fit, transform and training has to end.
    """

    bytes_a_day: float = 10e12
    history_rows: float = 10e9
    table_bytes: float = 1e12
    requests: float = 100_000
    p99_ms: float = 10
    hours: float = 4


@dataclass(frozen=True)
class Need:
    """The machines of a stage, and what ends first when it grows; no hours: all day."""

    stage: str
    machine: str
    count: int
    usd: float
    hours: float | None
    limit: str

    def row(self) -> dict[str, Any]:
        """A line of the table."""
        return {
            "": self.stage,
            "machines": f"{self.count} {self.machine}",
            "USD/h": f"{self.usd:.2f}",
            "hours": "all" if self.hours is None else f"{self.hours:.1f}",
            "USD/day": f"{self.usd * (self.hours or 24):,.0f}",
            "grows first against": self.limit,
        }


def read_figures(page: str) -> dict[str, float]:
    """The figures of docs/benchmarks.md that the model needs.

    Raises:
        SystemExit: one is no longer where it was.
    """
    found = {}
    for name, place in _PLACES.items():
        match = re.search(place, page, re.DOTALL)
        if match is None:
            raise SystemExit(
                f"Expected the figure {name!r} in docs/benchmarks.md. Received: no place like "
                f"{place!r}. Change the pattern in benchmarks/scale_model.py."
            )
        found[name] = float(match[1].replace(",", ""))
    return found


def step_seconds(alone: float, gpus: int, distinct: float = 0.25) -> float:
    """Seconds of a step of Criteo's MLP with tables divided among GPUs, eight a host, nothing overlapped.

    Ids go to the owners of their rows, vectors come back, and gradients go the same way; dense
    gradients are reduced. Between hosts each collective also passes the network.

    Args:
        alone: seconds of the step on one GPU.
        gpus: the number of GPUs.
        distinct: the part of the ids that differ from all others of the batch.
    """
    if gpus == 1:
        return alone
    rows, hosts, near = IDS * BATCH * distinct, -(-gpus // 8), min(gpus, 8)
    # (bytes to GPUs of the host, bytes to other hosts) that a GPU sends.
    vectors = rows * WIDTH * 4
    sent = [
        (size * (near - 1) / gpus, size * (1 - near / gpus))
        for size in (rows * 8, vectors, vectors)
    ]
    # A ring in each host, and eight rings between hosts, each with an eighth of the gradients.
    sent.append((2 * DENSE * (near - 1) / near, 2 * DENSE / 8 * (hosts - 1) / hosts))
    # The measured buffers are twice what each of two GPUs sends.
    inside = sum(fitted(ALL_TO_ALL).seconds(2 * own) for own, _ in sent)
    between = sum(BETWEEN_HOSTS.seconds(other) for _, other in sent) if hosts > 1 else 0
    return alone + inside + between


def waits(servers: int, load: float) -> float:
    """The probability that a request waits (Erlang C).

    Args:
        servers: processors that answer.
        load: requests a second times seconds of a processor for each; below `servers`.

    Source: A. K. Erlang, "Solution of some Problems in the Theory of Probabilities of Significance
    in Automatic Telephone Exchanges", 1917, by the recursion of Erlang B.

    Example:
        >>> round(waits(2, 1.0), 4)
        0.3333
    """
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = load * blocked / (number + load * blocked)
    return blocked / (1 - load / servers * (1 - blocked))


def p99_ms(servers: int, requests: float, service_ms: float, alone_ms: float) -> float:
    """The 99th percentile of a request's time: that of one alone, and the wait; infinite if overloaded."""
    load = requests * service_ms / 1e3
    if load >= servers:
        return math.inf
    wait = waits(servers, load)
    late = math.log(wait / 0.01) * service_ms / (servers - load) if wait > 0.01 else 0.0
    return alone_ms + late


def plan(work: Work, figures: Mapping[str, float], machines: Mapping[str, Machine]) -> list[Need]:
    """The machines for each stage.

    Raises:
        SystemExit: a stage cannot run on any number of its machines.
    """
    size = figures["bytes a row"]
    rows = work.bytes_a_day / size

    def etl(stage: str, rows: float, transferred: float, cost: str) -> Need:
        machine = machines["cpu"]
        computing = rows * figures[cost] / figures["etl rows"]
        transferring = rows * transferred / machine.link
        seconds = max(computing, transferring)
        count = math.ceil(seconds / (work.hours * 3600))
        limit = "processors" if computing >= transferring else "the link to the store"
        return Need(stage, "cpu", count, count * machine.usd, seconds / count / 3600, limit)

    return [
        etl("fit of the history", work.history_rows, size, "cpu fit s"),
        etl("transform of a day", rows, 2 * size, "cpu transform s"),
        _training(work, rows, figures, machines["gpu"]),
        _serving(work, figures, machines),
    ]


def _training(work: Work, rows: float, figures: Mapping[str, float], machine: Machine) -> Need:
    for_tables = math.ceil(work.table_bytes * STATES / (GPU_MEMORY * FOR_TABLES * machine.gpus))
    alone = BATCH / figures["million samples/s"] / 1e6
    first = max(for_tables, 1)
    for count in range(first, MOST_HOSTS + 1):
        gpus = count * machine.gpus
        hours = rows / (gpus * BATCH) * step_seconds(alone, gpus) / 3600
        if hours <= work.hours:
            memory = "memory of the GPUs, for tables and optimizer state"
            limit = memory if count == first else "time of a step, of which the network is a part"
            return Need("training on a day", "gpu", count, count * machine.usd, hours, limit)
    raise SystemExit(
        f"Expected a day that {MOST_HOSTS:,} hosts can train on in {work.hours} hours. "
        f"Received: {rows:.3g} rows, which take longer. Set --hours."
    )


def _serving(work: Work, figures: Mapping[str, float], machines: Mapping[str, Machine]) -> Need:
    kind, limit = "cpu", "processors"
    if work.table_bytes > machines[kind].memory / 1.2:
        kind, limit = "memory", "memory of a server, which holds the tables whole"
    machine = machines[kind]
    if work.table_bytes > machine.memory / 1.2:
        raise SystemExit(
            f"Expected tables of at most {machine.memory / 1.2:.3g} bytes, since each server holds "
            f"them whole. Received: {work.table_bytes:.3g}. Hash or prune the tables for serving."
        )
    service, alone = figures["server us"] / 1e3, figures["one request ms"]
    if alone > work.p99_ms:
        raise SystemExit(
            f"Expected a p99 from {alone} ms, the time of one request alone. "
            f"Received: {work.p99_ms} ms."
        )
    # Half of the processors, so that a burst of twice the requests is answered.
    count = max(1, math.ceil(work.requests * service / 1e3 * 2 / machine.cores))
    while p99_ms(count * machine.cores, work.requests, service, alone) > work.p99_ms:
        count += 1
    count += 1  # one may fail
    return Need("serving", kind, count, count * machine.usd, None, limit)


def checks(figures: Mapping[str, float], runs: Mapping[str, float]) -> list[dict[str, Any]]:
    """The model beside measured runs.

    Args:
        figures: a result of `read_figures`.
        runs: measured ratios of docs/scale.md by their names; see `read_runs`.
    """
    alone = BATCH / figures["split step, 1"] / 1e6
    rows = [
        (f"{count} H200s, split step, speed of one", gpus * alone / step_seconds(alone, gpus),
         figures[f"split step, {gpus}"] / figures["split step, 1"])
        for gpus, count in ((2, "two"), (4, "four"))
    ]  # fmt: skip
    rows += [
        (f"all-to-all of {size / 1e6:.0f} MB, ms", fitted(ALL_TO_ALL).seconds(size) * 1e3, s * 1e3)
        for size, s in ALL_TO_ALL.items()
    ]
    for name, measured in runs.items():  # such as "work of 4 servers", as a multiple of that of one
        further = int(name.split()[2]) - 1
        rows.append((name, 1 + further * FURTHER_WORKER if "Dask" in name else 1.0, measured))
    return [
        {"": name, "model": model, "measured": measured, "model / measured": model / measured}
        for name, model, measured in rows
    ]


def read_runs(page: str) -> dict[str, float]:
    """The measured ratios of docs/scale.md: rows of its table that begin with "work of".

    Raises:
        SystemExit: there is none.
    """
    found = re.findall(rf"^\| (work of [^|]+) \| [\d.]+ \| {_NUMBER} \|", page, re.MULTILINE)
    if not found:
        raise SystemExit("Expected measured runs in docs/scale.md. Received: no row 'work of'.")
    return {name: float(value) for name, value in found}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of machines, or the checks."""
    parser = options(__doc__, check=False)
    names = vars(Work())
    for name, default in names.items():
        option = "rows-of-history" if name == "history_rows" else name.replace("_", "-")
        parser.add_argument(f"--{option}", dest=name, type=_positive, default=default)
    for kind, machine in MACHINES.items():
        parser.add_argument(f"--{kind}-usd", type=_positive, default=machine.usd, help="an hour")
    parsed = parser.parse_args(arguments)
    figures = read_figures((PAGES / "benchmarks.md").read_text())
    if parsed.check:
        show("model and runs", checks(figures, read_runs((PAGES / "scale.md").read_text())))
        return
    work = Work(**{name: getattr(parsed, name) for name in names})
    machines = {
        kind: replace(machine, usd=getattr(parsed, f"{kind}_usd"))
        for kind, machine in MACHINES.items()
    }
    show("machines", [need.row() for need in plan(work, figures, machines)])


def _positive(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (value := float(text)) < math.inf:
            return value
    raise argparse.ArgumentTypeError(f"expected a positive number. Received: {text}.")


if __name__ == "__main__":
    main()
