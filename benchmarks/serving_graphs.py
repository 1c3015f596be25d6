"""The fused graph beside one that is written by hand, in onnxruntime without a server.

The graphs by hand are those of an engineer who knows the data and ONNX: one LabelEncoder for each id, whose keys
include the null code; one gather for all embeddings of a width; the counts side by side, filled,
clipped, logged and normalised in float32; the genres of all movies in one padded table. They check
nothing but what the operators themselves refuse.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import polars as pl

from benchmarks.data import CATS, CONTS, SERVED, ServedPipeline
from benchmarks.measure import Ratio, in_turns, least, ratio
from exporter.write.onnx.model import FILE as MODEL
from workflow import Workflow
from workflow.expressions.onnx.graph import Graph
from workflow.expressions.polars.series import to_column
from workflow.schema.column import Array
from workflow.wire.format import encode

SIZES = (1, 64, 1024)
_NULL = np.iinfo(np.int64).min


class _Graph(Graph):
    """Nodes that are chosen by hand."""

    def add(self, operator: str, *inputs: str | Array, **attributes: Any) -> str:
        """Apply an operator; arrays become constants."""
        names = [i if isinstance(i, str) else self.table(i) for i in inputs]
        return super().add(operator, *names, **attributes)

    def encode(self, name: str, vocabulary: tuple[Array, Array, int], first: int = 0) -> str:
        """The id of each key, or `missing`, counted from `first`."""
        keys, ids, missing = vocabulary
        return self.look_up(name, keys, ids + first, missing + first)

    def end(self, x: str, model: Any) -> onnx.ModelProto:
        """The model, with the dense layers last."""
        layers = [layer for layer in model.layers if hasattr(layer, "kernel")]
        for layer in layers:
            x = self.add("Gemm", x, *(np.asarray(weight) for weight in layer.weights))
            x = self.add("Sigmoid" if layer is layers[-1] else "Relu", x)
        self.give("output", x, "float32", "rows", 1)
        return self.model("hand")


def vocabulary(workflow: Workflow, column: str) -> tuple[Array, Array, int]:
    """The keys of an integer column and their ids, null's code and 1 among them, and any other's id."""
    known = workflow.reverse_mapping(column).filter(pl.col("kind") == "value")
    return np.append(known["value"], _NULL), np.append(known["id"], 1), 2


def movielens(pipeline: ServedPipeline) -> onnx.ModelProto:
    """See `benchmarks.data.serve_ratings`."""
    graph, workflow = _Graph(), pipeline.workflow
    for name in ("userId", "movieId"):
        graph.take(name, "int64", "rows", 1)
    tables = pipeline.model.get_layer("features").embedding_tables
    users, movies, genres = (np.asarray(tables[n]) for n in ("userId", "movieId", "genres"))
    user = graph.encode("userId", vocabulary(workflow, "userId"))
    known = vocabulary(workflow, "movieId")
    movie = graph.encode("movieId", known, len(users))
    ids = graph.add("Concat", user, movie, axis=1)
    vectors = graph.add("Gather", np.concatenate([users, movies]), ids)
    vectors = graph.add("Reshape", vectors, np.array([-1, 2 * users.shape[1]]))

    rows = pl.DataFrame({"userId": 1, "movieId": known[0][:-1], "rating": 1.0})
    lists = workflow.transform(rows).select("genres").collect()["genres"].to_list()
    padded = np.full((len(lists) + 1, max(map(len, lists))), len(genres))
    for number, each in enumerate(lists):
        padded[number, : len(each)] = each
    place = graph.encode("movieId", (known[0][:-1], np.arange(len(lists)), len(lists)))
    bags = np.append(genres, np.zeros((1, genres.shape[1]), np.float32), axis=0)
    bag = graph.add("Gather", bags, graph.add("Gather", padded, place))
    bag = graph.add("ReduceSum", bag, np.array([1, 2]), keepdims=0)
    counts = np.array([max(len(each), 1) for each in [*lists, []]], np.float32)
    mean = graph.add("Div", bag, graph.add("Gather", counts, place))
    return graph.end(graph.add("Concat", vectors, mean, axis=1), pipeline.model)


def criteo(pipeline: ServedPipeline) -> onnx.ModelProto:
    """See `benchmarks.data.serve_clicks`."""
    graph, workflow = _Graph(), pipeline.workflow
    for name in [*CATS, *CONTS]:
        graph.take(name, "int64" if name in CATS else "float32", "rows", 1)
    ends = {name: [0.0, math.e - 1] for name in CONTS} | {name: [0, 0] for name in CATS}
    rows = pl.DataFrame(ends, schema_overrides=dict.fromkeys(CONTS, pl.Float64))
    rows = rows.with_columns(
        pl.col(CONTS).cast(pl.Float32), label=pl.Series([0, 0], dtype=pl.Int32)
    )
    logged = workflow.transform(rows).select(CONTS).collect().to_numpy()
    least, most = logged.astype(np.float64)  # of the logarithms 0 and 1
    scale = (most - least).astype(np.float32)[np.newaxis]

    numbers = graph.add("Concat", *CONTS, axis=1)
    zero, one = np.zeros((1, 1), np.float32), np.ones((1, 1), np.float32)
    numbers = graph.add("Where", graph.add("IsNaN", numbers), zero, numbers)
    numbers = graph.add("Log", graph.add("Add", graph.add("Max", numbers, zero), one))
    numbers = graph.add("Mul", numbers, scale)
    numbers = graph.add("Add", numbers, least.astype(np.float32)[np.newaxis])

    tables = [np.asarray(t) for t in pipeline.model.get_layer("features").embedding_tables.values()]
    firsts = np.cumsum([0, *map(len, tables)])
    ids = [
        graph.encode(name, vocabulary(workflow, name), first)
        for name, first in zip(CATS, firsts, strict=False)
    ]
    vectors = graph.add("Gather", np.concatenate(tables), graph.add("Concat", *ids, axis=1))
    vectors = graph.add("Reshape", vectors, np.array([-1, len(CATS) * tables[0].shape[1]]))
    return graph.end(graph.add("Concat", vectors, numbers, axis=1), pipeline.model)


BY_HAND = {"movielens": movielens, "criteo": criteo}


def measure_graphs(name: str, seconds: float) -> list[dict[Any, Any]]:
    """Nodes as onnxruntime runs them, and processor time of a request, after comparing the answers.

    The network's biases are made nonzero, since a converter leaves out additions of zero.
    """
    pipeline = SERVED[name](max(SIZES))
    random = np.random.default_rng(0)
    for layer in pipeline.model.layers:
        if hasattr(layer, "kernel"):
            layer.bias.assign(random.normal(0, 0.1, layer.bias.shape))
    with tempfile.TemporaryDirectory() as folder:
        paths = {"by hand": Path(folder) / "by_hand.onnx"}
        onnx.save(BY_HAND[name](pipeline), paths["by hand"])
        feeds: dict[int, Any] = {}
        for batch in (0, max(SIZES)):
            report = pipeline.export(f"{name}_{batch}", folder, "fused_onnx", batch)
            paths[f"fused_onnx, max_batch_size={batch}"] = report.paths[f"{name}_{batch}"] / MODEL
            inputs = report.plan.features.inputs
            feeds = {n: _tensors(inputs, pipeline.rows.head(n)) for n in SIZES}
        sessions = {what: session_of(path) for what, path in paths.items()}
        table = {w: {"": w, "nodes": _nodes(path, folder)} for w, path in paths.items()}
    for rows, feed in feeds.items():
        answers = {what: session.run(None, feed)[0] for what, session in sessions.items()}
        calls = {what: partial(session.run, None, feed) for what, session in sessions.items()}
        for what, taken in _microseconds(calls, seconds / len(SIZES) / len(calls)).items():
            np.testing.assert_allclose(answers[what], answers["by hand"], rtol=0, atol=1e-5)
            table[what] |= {f"{rows} rows, µs": taken[0], f"{rows} rows, ratio": str(taken[1])}
    return list(table.values())


def _microseconds(
    calls: Mapping[str, Callable[[], Any]], seconds: float
) -> dict[str, tuple[float, Ratio]]:
    """The least processor time of each call, and its ratio to the first's by rounds."""
    repeats = max(1, round(0.002 / min(least(*calls.values(), repeats=3, seconds=seconds))))
    times = {w: each.processor for w, each in in_turns(calls, seconds, repeats).items()}
    first = next(iter(times.values()))
    return {w: (min(taken) * 1e6, ratio(taken, first)) for w, taken in times.items()}


def _tensors(columns: Iterable[Any], rows: pl.DataFrame) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for column in columns:
        tensors |= encode(column, to_column(rows[column.name]))
    return tensors


def session_of(path: Path, **options: str) -> Any:
    """A graph in onnxruntime, with one thread."""
    import onnxruntime  # noqa: PLC0415 - not needed by the parent

    own = onnxruntime.SessionOptions()
    own.intra_op_num_threads = 1
    own.log_severity_level = 3
    for name, value in options.items():
        setattr(own, name, value)
    return onnxruntime.InferenceSession(str(path), own, providers=["CPUExecutionProvider"])


def _nodes(path: Path, folder: str) -> int:
    """The nodes that are left when onnxruntime has optimised a graph."""
    optimised = Path(folder) / "optimised.onnx"
    session_of(path, optimized_model_filepath=str(optimised))
    return len(onnx.load(optimised, load_external_data=False).graph.node)
