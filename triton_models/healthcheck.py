"""Request one real answer from a Triton server, since "ready" does not mean that a model answers.

A Python model whose process has died is still reported as ready; only an inference detects it. This
file needs only the standard library, so that it runs inside a stock Triton image:

    python3 healthcheck.py --url http://127.0.0.1:8000 movielens
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import math
import os
import signal
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

VALUES, NNZS = "__values", "__nnzs"
# The id of its requests, by which a step leaves them out of its metrics.
REQUEST_ID = "health check"
# Refusals by a server that is too busy, or whose model no longer answers.
BUSY = ("Exceeds maximum queue size", "Request timeout expired")
# The server is local, so a proxy in the environment does not apply.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ProbeError(Exception):
    """The model did not answer; the text is one line with the reason.

    Attributes:
        is_silent: whether the answer is missing, or the server was too busy to give one.
    """

    def __init__(self, text: str, *, is_silent: bool = False) -> None:
        super().__init__(text)
        self.is_silent = is_silent


class ProbeConnection(Protocol):
    """Three requests to a server, over any protocol; each raises ProbeError.

    Without a version they concern the one that the server answers with: the latest, if there are several.
    """

    def config(self, model: str, timeout: float, version: str = "") -> Mapping[str, Any]:
        """The model's config, as in the server's JSON."""

    def infer(
        self, model: str, inputs: Sequence[Mapping[str, Any]], timeout: float, version: str = ""
    ) -> Mapping[str, bool]:
        """The names of the outputs, and whether each has as many values as its shape says."""

    def answered(self, model: str, timeout: float, version: str = "") -> int:
        """The number of requests that the model has answered since it was loaded."""


def probe(url: str, model: str, timeout: float = 10.0) -> None:
    """Send one row of zeros and empty strings to a model over HTTP, and check its answer.

    Args:
        url: the server's HTTP address, for example "http://127.0.0.1:8000".
        model: the model's name.
        timeout: seconds for each request.

    Raises:
        ProbeError: as `expect_answer`.

    Example:
        >>> probe("http://127.0.0.1:8000", "movielens")  # doctest: +SKIP
    """
    expect_answer(HttpServer(url), model, timeout)


def expect_answer(
    connection: ProbeConnection, model: str, timeout: float, version: str = ""
) -> None:
    """Check that a model answers one row, or at least other clients.

    A server that has too much to do refuses this row, or leaves it in the queue. Then the model
    works if it answers other requests meanwhile: a queue is also full in front of a dead model. A
    refused row is sent again, since there may be no others.
    An ensemble with a response cache has kept its answer, so each of its steps is checked as well.

    Args:
        connection: a connection to the server.
        model: the model's name.
        timeout: seconds for each request, and for the wait for an answer to another client.
        version: the version to ask; by default the one that the server answers with.

    Raises:
        ProbeError: no connection, an error of the server, an answer without its outputs, or a busy
            server that answers nobody.
    """
    config = connection.config(model, timeout, version)
    if config.get("response_cache", {}).get("enable", False):
        for step, own in steps_of(config).items():
            expect_answer(connection, step, timeout, own)

    received = _answer(
        lambda left: connection.infer(model, one_row(config), left, version),
        lambda: connection.answered(model, timeout, version),
        timeout,
    )
    if received is None:
        return
    for output in config["output"]:
        if not received.get(output["name"], False):
            raise ProbeError(
                f"{model}: expected the output {output['name']!r}. Received: {sorted(received)}."
            )


def _answer(
    ask: Callable[[float], Mapping[str, bool]], answered: Callable[[], int], timeout: float
) -> Mapping[str, bool] | None:
    """The answer to a request, sent again while it is refused; None if others had one meanwhile."""
    before, deadline = answered(), time.monotonic() + timeout
    while True:
        try:
            return ask(max(deadline - time.monotonic(), 0.05))
        except ProbeError as error:
            if not error.is_silent:
                raise
            is_refused = any(reason in str(error) for reason in BUSY)
            if not is_refused or time.monotonic() > deadline:
                _expect_progress(answered, before, 0 if is_refused else timeout, error)
                return None
        if answered() > before:
            return None
        time.sleep(0.05)


def _expect_progress(
    answered: Callable[[], int], before: int, timeout: float, error: ProbeError
) -> None:
    deadline = time.monotonic() + timeout
    while answered() <= before:
        if time.monotonic() > deadline:
            raise error
        time.sleep(0.05)


def steps_of(config: Mapping[str, Any]) -> dict[str, str]:
    """The models inside an ensemble and their versions, by its config from the server's JSON.

    None for another model. The version is "" where the ensemble takes the latest.

    Example:
        >>> step = {"model_name": "shop_nvt", "model_version": 3}
        >>> steps_of({"ensemble_scheduling": {"step": [step]}})
        {'shop_nvt': '3'}
    """
    steps = config.get("ensemble_scheduling", {}).get("step", ())
    return {
        step["model_name"]: str(step.get("model_version", -1)).removeprefix("-1") for step in steps
    }


def one_row(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The inputs of a request with one row, for Triton's HTTP protocol.

    Numbers are 0, strings are empty, and a list column (`x__values` and `x__nnzs`) is an empty
    list. Dynamic dimensions are 1, unless the parameter `row_shapes` has a tensor's shape.

    Args:
        config: the model's config, from the server's JSON.
    """
    names = {tensor["name"] for tensor in config["input"]}
    batch = [1] if int(config.get("max_batch_size", 0)) > 0 else []
    described = config.get("parameters", {}).get("row_shapes", {}).get("string_value", "{}")
    shapes = json.loads(described)
    inputs = []
    for tensor in config["input"]:
        name, datatype = tensor["name"], tensor["data_type"].removeprefix("TYPE_")
        shape = batch + [max(int(dim), 1) for dim in tensor["dims"]]
        if name.endswith(VALUES) and name.removesuffix(VALUES) + NNZS in names:
            shape[0] = 0
        shape = shapes.get(name, shape)
        zero: Any = "" if datatype == "STRING" else datatype != "BOOL" and 0
        inputs.append(
            {
                "name": name,
                "datatype": "BYTES" if datatype == "STRING" else datatype,
                "shape": shape,
                "data": [zero] * math.prod(shape),
            }
        )
    return inputs


class HttpServer:
    """The three requests over HTTP.

    Args:
        url: the server's HTTP address.
    """

    def __init__(self, url: str) -> None:
        self._root = f"{url.rstrip('/')}/v2/models"

    def config(self, model: str, timeout: float, version: str = "") -> Mapping[str, Any]:
        """See `ProbeConnection`."""
        config: Mapping[str, Any] = fetch(self._at(model, version, "config"), timeout=timeout)
        return config

    def infer(
        self, model: str, inputs: Sequence[Mapping[str, Any]], timeout: float, version: str = ""
    ) -> Mapping[str, bool]:
        """See `ProbeConnection`."""
        body = {"id": REQUEST_ID, "inputs": inputs}
        answer = fetch(self._at(model, version, "infer"), body, timeout=timeout)
        return {
            output["name"]: len(output.get("data", ())) == math.prod(output["shape"])
            for output in answer.get("outputs", ())
        }

    def answered(self, model: str, timeout: float, version: str = "") -> int:
        """See `ProbeConnection`."""
        versions = fetch(self._at(model, version, "stats"), timeout=timeout)["model_stats"]
        return sum(int(one["inference_stats"]["success"]["count"]) for one in versions)

    def _at(self, model: str, version: str, what: str) -> str:
        return f"{self._root}/{model}{version and f'/versions/{version}'}/{what}"


def fetch(url: str, body: Mapping[str, Any] | None = None, *, timeout: float) -> Any:
    """Fetch JSON from a server; an empty answer is `{}`.

    Args:
        url: the address.
        body: the body of a POST; None for a GET.
        timeout: seconds.

    Raises:
        ProbeError: no connection, an HTTP error, or an answer that is not JSON.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data)  # noqa: S310 - an operator's URL
    try:
        with _OPENER.open(request, timeout=timeout) as response:
            return json.loads(response.read() or b"{}")
    except urllib.error.HTTPError as error:
        text = " ".join(error.read(2000).decode(errors="replace").split())
        is_silent = any(reason in text for reason in BUSY)
        raise ProbeError(f"{url} answered {error.code}: {text}", is_silent=is_silent) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        is_silent = isinstance(error, TimeoutError)
        raise ProbeError(f"{url} did not answer: {error}", is_silent=is_silent) from error


@contextlib.contextmanager
def limited(seconds: float, url: str) -> Iterator[None]:
    """Limit the checks of all models, by an alarm, for the main thread.

    A container's runtime kills a check that takes too long, which then counts no failure.

    Args:
        seconds: the limit; 0 for none.
        url: the server's address, for the error.

    Raises:
        ProbeError: the time is over.
    """

    def end(*_: object) -> None:
        raise ProbeError(f"{url} did not answer for all models within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def end_after(failures: int, *, healthy: bool, state: Path, process: int = 1) -> None:
    """End a process after a number of failed checks in a row that follow a successful one.

    A container's first process is the server, or an init that ends with it; when it ends, a restart
    policy starts it again. A server that is still starting is left alone. Children are continued, since
    a stopped server could not end.

    Args:
        failures: the number of failures in a row; 0 for never.
        healthy: the result of this check.
        state: a file that keeps the count between checks.
        process: the process to end.
    """
    if failures < 1 or (not healthy and not state.exists()):
        return
    count = 0 if healthy else int(state.read_text() or 0) + 1
    state.write_text(str(count))
    if count >= failures:
        state.unlink()
        for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
            os.kill(int(child), signal.SIGCONT)
        os.kill(process, signal.SIGTERM)


def main(arguments: Sequence[str] | None = None) -> int:
    """Probe the named models. Returns 0 if all of them answer, else 1 with the reason printed."""
    parser = argparse.ArgumentParser(description="Check a Triton server by a one-row inference.")
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--timeout", type=float, default=4.0, help="seconds for each request")
    parser.add_argument(
        "--within", type=float, default=0, help="seconds for all models together; 0 for no limit"
    )
    parser.add_argument(
        "--restart-after",
        type=int,
        default=0,
        metavar="N",
        help="end process 1 after N failures in a row; 0 for never",
    )
    options = parser.parse_args(arguments)
    try:
        with limited(options.within, options.url):
            for model in options.models:
                probe(options.url, model, options.timeout)
    except ProbeError as error:
        sys.stderr.write(f"unhealthy: {error}\n")
        healthy = False
    else:
        healthy = True
    if options.restart_after:  # else no folder needs to be there that can be written
        state = Path(tempfile.gettempdir()) / "healthcheck-failures"
        end_after(options.restart_after, healthy=healthy, state=state)
    return 0 if healthy else 1


if __name__ == "__main__":
    sys.exit(main())
