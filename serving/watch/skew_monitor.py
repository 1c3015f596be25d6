"""The metrics of a model's inputs from a client, for runtimes without a step in Python."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from serving.contract import Contract
from serving.exchange import to_requests
from serving.watch.metrics import Sample, dump
from triton_models.preprocess.input_metrics import COUNTERS, GAUGES
from workflow.expressions.numpy.input_counts import InputCounts, vocabulary_lookups
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.program.count_by_table_row import part
from workflow.expressions.program.program import Program
from workflow.schema.column import Array, Column
from workflow.schema.schema import ColumnSchema
from workflow.schema.training_data import TrainingData
from workflow.wire.format import decode_request


class Fitted(Protocol):
    """The part of a fitted workflow that a monitor needs."""

    @property
    def training_data(self) -> TrainingData:
        """Facts about the columns that it was fitted to."""

    @property
    def steps(self) -> Program:
        """The program of the workflow."""


class Client(Protocol):
    """The part of a client that a monitor needs."""

    model_name: str

    @property
    def contract(self) -> Contract:
        """The inputs of the model."""


class SkewMonitor:
    """A counter of rows, with the metrics that the Python step of the runtime `tensorflow` has.

    For all other runtimes, whose models count nothing. Give it the rows that clients send, or a
    sample of them. Thread-safe.

    Args:
        workflow: the fitted workflow of the export.
        client: a client of the model.

    Example:
        >>> monitor = SkewMonitor(Workflow.load("workflow"), client)  # doctest: +SKIP
        >>> predictions = client.predict(rows)  # doctest: +SKIP
        >>> monitor.add(rows)  # doctest: +SKIP
        >>> print(monitor.exposition())  # doctest: +SKIP
    """

    def __init__(self, workflow: Fitted, client: Client) -> None:
        self._contract = client.contract
        self._inputs = {column.name: column for column in self._contract.inputs}
        training = workflow.training_data
        program = _watched_part(workflow.steps, training, self._inputs)
        dtypes = {column.name: column.dtype for column in self._contract.inputs}
        self._dtypes = {column.name: column.info.numpy for column in program.inputs.columns}
        self._run = NumpyInterpreter(program)
        self._counts = InputCounts(program, training, dtypes=dtypes)
        self._totals: dict[tuple[str, str], float] = dict(self._counts.kinds())
        self._expected = training.expectations(
            {column.name: column.is_whole_list for column in self._contract.inputs}
        )
        self._labels = {"model": client.model_name, "version": "client"}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"SkewMonitor({self._labels['model']!r}: {', '.join(self._counts.columns)})"

    def add(self, data: Any) -> None:
        """Count the rows of a table.

        Args:
            data: a table as `EnsembleClient.predict` takes it.

        Raises:
            ClientError: the table does not fit the model.
        """
        for tensors in to_requests(self._contract, data):
            columns = {name: self._column(name, tensors) for name in self._dtypes}
            self._counts.add(self._run.results(columns))

    def _column(self, name: str, tensors: dict[str, Array]) -> Column:
        data = decode_request(self._inputs[name], tensors)
        return Column(data.array.astype(self._dtypes[name], copy=False), data.valid, data.lengths)

    def exposition(self) -> str:
        """All metrics in Prometheus' text format."""
        with self._lock:
            for key, count in self._counts.take().items():
                self._totals[key] += count
            totals = dict(self._totals)
        parts = []
        kinds = (("counter", COUNTERS, totals), ("gauge", GAUGES, self._expected))
        for kind, names, values in kinds:
            for metric, (name, description) in names.items():
                samples = [
                    Sample(name, {**self._labels, **({"column": column} if column else {})}, value)
                    for (key, column), value in values.items()
                    if key == metric
                ]
                parts += [dump(kind, name, description, samples)] if samples else []
        return "\n".join(parts) + "\n"

    @contextmanager
    def serving(self, port: int = 0) -> Iterator[str]:
        """Answer Prometheus on loopback; gives the address.

        Args:
            port: the port; 0 for a free one.

        Raises:
            OSError: the port is taken.
        """
        server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/metrics"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def _watched_part(program: Program, training: TrainingData, names: Iterable[str]) -> Program:
    """The part of a program that `InputCounts` needs, for some of the inputs."""
    lookups = vocabulary_lookups(program, training)
    input_names = set(names)
    outputs = []
    for number, step in enumerate(program.steps):
        if step.verb == "source" and step.parameters["name"] in input_names:
            kind = program.steps[lookups.get(number, number)].type
            column = ColumnSchema(step.parameters["name"], kind.dtype, kind.is_list, kind.nullable)
            outputs.append((column, lookups.get(number, number)))
    return part(program, outputs, {})


def _handler(monitor: SkewMonitor) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = monitor.exposition().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Write nothing: each scrape would be a line."""

    return Handler
