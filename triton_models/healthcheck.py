"""Request one real answer from a Triton server, since "ready" does not mean that a model answers.

A Python model whose process has died is still reported as ready; only an inference detects it. This
file needs only the standard library, so that it runs inside a stock Triton image:

    python3 healthcheck.py --url http://127.0.0.1:8000 movielens
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import signal
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

VALUES, NNZS = "__values", "__nnzs"
# The server is local, so a proxy in the environment does not apply.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ProbeError(Exception):
    """The model did not answer; the text is one line with the reason."""


def probe(url: str, model: str, timeout: float = 10.0) -> None:
    """Send one row of zeros and empty strings to a model, and check its answer.

    Args:
        url: the server's HTTP address, for example "http://127.0.0.1:8000".
        model: the model's name.
        timeout: seconds for each of the two HTTP requests.

    Raises:
        ProbeError: no connection, an error of the server, or an answer without its outputs.

    Example:
        >>> probe("http://127.0.0.1:8000", "movielens")  # doctest: +SKIP
    """
    base = f"{url.rstrip('/')}/v2/models/{model}"
    config = fetch(f"{base}/config", timeout=timeout)
    answer = fetch(f"{base}/infer", {"inputs": one_row(config)}, timeout=timeout)
    received = {
        output["name"]: len(output.get("data", ())) == math.prod(output["shape"])
        for output in answer.get("outputs", ())
    }
    for output in config["output"]:
        if not received.get(output["name"], False):
            raise ProbeError(
                f"{model}: expected the output {output['name']!r}. Received: {sorted(received)}."
            )


def one_row(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The inputs of a request with one row, for Triton's HTTP protocol.

    Numbers are 0, strings are empty, and a list column (`x__values` and `x__nnzs`) is an empty
    list. Dynamic dimensions are 1.

    Args:
        config: the model's config, from the server's JSON.
    """
    names = {tensor["name"] for tensor in config["input"]}
    batch = [1] if int(config.get("max_batch_size", 0)) > 0 else []
    inputs = []
    for tensor in config["input"]:
        name, datatype = tensor["name"], tensor["data_type"].removeprefix("TYPE_")
        shape = batch + [max(int(dim), 1) for dim in tensor["dims"]]
        if name.endswith(VALUES) and name.removesuffix(VALUES) + NNZS in names:
            shape[0] = 0
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


def fetch(
    url: str,
    body: Mapping[str, Any] | None = None,
    *,
    timeout: float,
    headers: Mapping[str, str] | None = None,
) -> Any:
    """Fetch JSON from a server; an empty answer is `{}`.

    Args:
        url: the address.
        body: the body of a POST; None for a GET.
        timeout: seconds.
        headers: additional HTTP headers.

    Raises:
        ProbeError: no connection, an HTTP error, or an answer that is not JSON.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, dict(headers or {}))  # noqa: S310 - an operator's URL
    try:
        with _OPENER.open(request, timeout=timeout) as response:
            return json.loads(response.read() or b"{}")
    except urllib.error.HTTPError as error:
        text = error.read(2000).decode(errors="replace")
        raise ProbeError(f"{url} answered {error.code}: {' '.join(text.split())}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ProbeError(f"{url} did not answer: {error}") from error


def end_after(failures: int, *, healthy: bool, state: Path, process: int = 1) -> None:
    """End a process after a number of failed checks in a row that follow a successful one.

    A container's first process is the server; when it ends, a restart policy starts it again. A
    server that is still starting is left alone.

    Args:
        failures: the number of failures in a row.
        healthy: the result of this check.
        state: a file that keeps the count between checks.
        process: the process to end.
    """
    if not healthy and not state.exists():
        return
    count = 0 if healthy else int(state.read_text() or 0) + 1
    state.write_text(str(count))
    if count >= failures:
        state.unlink()
        os.kill(process, signal.SIGTERM)


def main(arguments: Sequence[str] | None = None) -> int:
    """Probe the named models. Returns 0 if all of them answer, else 1 with the reason printed."""
    parser = argparse.ArgumentParser(description="Check a Triton server by a one-row inference.")
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--timeout", type=float, default=4.0, help="seconds for each request")
    parser.add_argument(
        "--restart-after", type=int, metavar="N", help="end process 1 after N failures in a row"
    )
    options = parser.parse_args(arguments)
    try:
        for model in options.models:
            probe(options.url, model, options.timeout)
    except ProbeError as error:
        sys.stderr.write(f"unhealthy: {error}\n")
        healthy = False
    else:
        healthy = True
    if options.restart_after is not None:
        state = Path(tempfile.gettempdir()) / "healthcheck-failures"
        end_after(options.restart_after, healthy=healthy, state=state)
    return 0 if healthy else 1


if __name__ == "__main__":
    sys.exit(main())
