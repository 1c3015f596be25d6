"""The cost of `EnsembleClient` over tritonclient's own client, in one run against one server.

    python -m benchmarks.client [--seconds 3] [--turn 20]

Two floors are tritonclient's own. One makes each request from the data, as whoever uses tritonclient
has to: an `InferInput` for each column of a table. The harder one sends tensors that were made
once, which no service can. Our ways take a table of any kind and give one back. All take turns of
some calls, in an order by chance, so that they meet the same load and the same neighbours; in turns
of one call a way finds its code gone from the processor's caches. What this process takes of the
processor, gRPC's threads included, says what a way costs on a busy machine too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from tritonclient import grpc as tritonclient
from tritonclient.utils import np_to_triton_dtype

from benchmarks.data import SERVED
from benchmarks.measure import in_child, in_turns, options, show
from serving import EnsembleClient, TritonServer
from serving.exchange import to_requests

# The rows of a request, and the most of the model.
ROWS, MOST = 1, 16384
FLOOR = "tritonclient, tensors made once"
BY_HAND = "tritonclient, from "


def make_inputs(tensors: Mapping[str, Any]) -> list[Any]:
    """Tensors as tritonclient takes them."""
    inputs = []
    for name, tensor in tensors.items():
        made = tritonclient.InferInput(name, tensor.shape, np_to_triton_dtype(tensor.dtype))
        inputs.append(made.set_data_from_numpy(tensor))
    return inputs


def ask(client: Any, model: str, inputs: list[Any]) -> list[Any]:
    """A call of tritonclient's, outputs read."""
    result = client.infer(model, inputs)
    return [result.as_numpy(output.name) for output in result.get_response().outputs]


def ask_by_hand(client: Any, model: str, names: Sequence[str], table: Any) -> list[Any]:
    """A request with a table as a user of tritonclient writes it, without any check of its values.

    Args:
        client: whom he asks.
        model: the model.
        names: the columns that the model takes, all scalars of the dtype that it takes.
        table: a mapping of names to arrays (N,), or a frame.
    """
    columns = {
        name: table[name] if isinstance(table, dict) else table[name].to_numpy() for name in names
    }
    return ask(client, model, make_inputs({n: c.reshape(-1, 1) for n, c in columns.items()}))


def measure(name: str, seconds: float, turn: int) -> list[dict[str, Any]]:
    """Every way of asking one pipeline."""
    pipeline = SERVED[name](MOST)
    with tempfile.TemporaryDirectory() as folder:
        pipeline.export(name, folder, "fused_onnx", MOST)
        with (
            TritonServer(folder, startup_timeout=300) as server,
            tritonclient.InferenceServerClient(server.grpc_url) as plain,
            EnsembleClient(server.grpc_url, name) as client,
            EnsembleClient(server.http_url, name) as over_http,
            EnsembleClient(
                server.grpc_url, name, headers=server.admin_headers, shared_memory=True
            ) as shared,
        ):
            frame = pipeline.rows.head(ROWS)
            (feed,) = to_requests(client.contract, frame)
            tables = {
                "arrays": {column: np.array(frame[column]) for column in frame.columns},
                "Polars": frame,
                "pandas": frame.to_pandas(),
            }
            hand = partial(ask_by_hand, plain, name, [*feed])
            calls: dict[str, Callable[[], Any]] = {
                FLOOR: partial(ask, plain, name, make_inputs(feed)),
                **{BY_HAND + kind: partial(hand, table) for kind, table in tables.items()},
                "tensors": partial(client.raw, feed),
                **{kind: partial(client.predict, table) for kind, table in tables.items()},
                "lists": partial(client.predict, frame.to_dict(as_series=False)),
                "Polars, shared memory": partial(shared.predict, frame),
                "Polars, HTTP": partial(over_http.predict, frame),
            }
            taken = in_turns(calls, seconds, turn)
    costs = {
        way: {"ms": median(each.seconds) * 1e3, "µs": median(each.processor) * 1e6}
        for way, each in taken.items()
    }
    rows = []
    for way, cost in costs.items():
        rows.append({"way": way, **cost})
        for over, floor in {"made once": FLOOR, "by hand": BY_HAND + way}.items():
            less = costs.get(floor)
            rows[-1] |= {f"{u} over {over}": c - less[u] if less else "" for u, c in cost.items()}
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, each pipeline in a process of its own."""
    parsed = options(__doc__, seconds=3.0, turn=20).parse_args(arguments)
    for name in ("movielens", "criteo"):
        title = "median ms and processor µs of a request of one row, and over the floors"
        show(f"{name}: {title}", in_child(measure, name, parsed.seconds, parsed.turn))


if __name__ == "__main__":
    main()
