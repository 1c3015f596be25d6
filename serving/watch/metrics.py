"""Metrics in Prometheus' text format: read from a server, and written."""

from __future__ import annotations

import http.client
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from serving.errors import ClientError, ServerUnavailableError

_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: -?\d+)?")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)",?')
_ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
# The server is local, so a proxy in the environment does not apply.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric.

    Attributes:
        name: the metric.
        labels: its labels.
        value: the value.
    """

    name: str
    labels: Mapping[str, str]
    value: float


def model_of(labels: Mapping[str, str]) -> str:
    """The model that clients ask, with its version, and with the address if several were read.

    Example:
        >>> model_of({"model": "shop", "version": "1", "column": "price"})
        'shop 1'
    """
    return " ".join(labels[name] for name in ("model", "version", "instance") if name in labels)


@dataclass(frozen=True)
class Scrape:
    """All metrics at one time.

    Attributes:
        samples: the samples by the name of the metric.
        time: seconds of `time.monotonic`.
        silent: servers that did not answer, as `HOST:PORT`, whose samples are earlier ones.
    """

    samples: Mapping[str, list[Sample]]
    time: float = field(default_factory=time.monotonic)
    silent: Sequence[str] = ()

    def is_silent(self, labels: Mapping[str, str]) -> bool:
        """Whether samples with these labels are of a server that did not answer."""
        # A single address is not among the labels.
        return bool(self.silent) and labels.get("instance", self.silent[0]) in self.silent

    def by_labels(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """The values by name and all labels, since a model may have thousands of columns."""
        all_samples = (sample for samples in self.samples.values() for sample in samples)
        return {(s.name, frozenset(s.labels.items())): s.value for s in all_samples}

    def find(self, name: str, /, **labels: str) -> list[Sample]:
        """The samples of a metric with these labels, and others."""
        samples = self.samples.get(name, [])
        return [s for s in samples if labels.items() <= s.labels.items()]

    def value(self, name: str, /, **labels: str) -> float | None:
        """The sum over the samples of a metric with these labels; None without such a sample."""
        samples = self.find(name, **labels)
        return sum(sample.value for sample in samples) if samples else None


def scrape(urls: Iterable[str], timeout: float = 10.0, last: Scrape | None = None) -> Scrape:
    """Read the metrics of one or several addresses.

    Samples of several addresses have the label `instance`, as Prometheus gives it, since servers of one
    model name theirs alike.

    Args:
        urls: such as "http://127.0.0.1:8002/metrics"; without a path `/metrics` is added.
        timeout: seconds for each of them.
        last: earlier metrics of the same addresses, which stay those of a server that does not answer.

    Raises:
        ClientError: no address, or one that is not of http.
        ServerUnavailableError: an address does not answer with metrics, and `last` is None.

    Example:
        >>> scrape(["http://127.0.0.1:8002"]).value("nv_inference_count")  # doctest: +SKIP
        1840.0
    """
    addresses = [*dict.fromkeys(map(_with_path, urls))]
    if not addresses:
        raise ClientError("INVALID_INPUT", "Expected an address of metrics. Received: none.")
    samples: dict[str, list[Sample]] = {}
    silent = []
    for address in addresses:
        labels = {"instance": _instance(address)} if len(addresses) > 1 else {}
        try:
            answer = _read(address, timeout, labels)
        except ServerUnavailableError:
            if last is None:
                raise
            answer = {name: last.find(name, **labels) for name in last.samples}
            silent.append(_instance(address))
        for name, additions in answer.items():
            samples.setdefault(name, []).extend(additions)
    return Scrape(samples, silent=silent)


def _instance(address: str) -> str:
    return address.partition("://")[2].removesuffix("/metrics")


def _with_path(url: str) -> str:
    url = url if "://" in url else f"http://{url}"
    if not url.startswith(("http://", "https://")):
        raise ClientError(
            "INVALID_INPUT", f"Expected an address of metrics with http. Received: {url!r}."
        )
    return url if url.rstrip("/").count("/") > 2 else f"{url.rstrip('/')}/metrics"


def _read(url: str, timeout: float, labels: Mapping[str, str]) -> Mapping[str, list[Sample]]:
    try:
        with _OPENER.open(url, timeout=timeout) as answer:
            samples = parse(answer.read().decode(errors="replace"), **labels).samples
    except (OSError, http.client.HTTPException, ValueError) as error:
        received = f"{getattr(error, 'reason', error)}"
        if not received.isprintable():
            received = "no HTTP, as from a port of gRPC"
        raise _no_metrics(url, received) from error
    if not samples:  # Triton's port of metrics answers any other path with an empty page.
        raise _no_metrics(url, "a page without a metric")
    return samples


def _no_metrics(url: str, received: str) -> ServerUnavailableError:
    return ServerUnavailableError(
        "UNAVAILABLE",
        f"Expected metrics at {url}, such as `TritonServer.metrics_url`. "
        f"Received: {received}. By default metrics are on port 8002.",
    )


def parse(text: str, **labels: str) -> Scrape:
    """The samples of an exposition in Prometheus' text format.

    Args:
        text: the exposition.
        **labels: further labels of all samples.

    Example:
        >>> parse('rows_total{model="m"} 3').value("rows_total", model="m")
        3.0
    """
    samples: dict[str, list[Sample]] = {}
    for line in text.split("\n"):  # Other characters that end a line may be in a column's name.
        match = None if line.startswith("#") else _LINE.fullmatch(line.strip())
        if match:
            all_labels = _labels(match[2] or "", *labels.items())
            name = sys.intern(match[1])
            samples.setdefault(name, []).append(Sample(name, all_labels, float(match[3])))
    return Scrape(samples)


@lru_cache(2**17)  # All looks of an hour have the same ones, and would not fit into memory.
def _labels(text: str, *extras: tuple[str, str]) -> Mapping[str, str]:
    labels = {key: _unescaped(value) for key, value in _LABEL.findall(text)}
    return MappingProxyType({**labels, **dict(extras)})


def _unescaped(text: str) -> str:
    return re.sub(r"\\[\\\"n]", lambda match: _ESCAPED[match[0]], text)


def dump(kind: str, name: str, description: str, samples: Iterable[Sample]) -> str:
    """A metric in Prometheus' text format.

    Args:
        kind: "counter" or "gauge".
        name: the metric.
        description: its description.
        samples: its samples.

    Example:
        >>> print(dump("counter", "rows_total", "Rows", [Sample("rows_total", {"model": "m"}, 3)]))
        # HELP rows_total Rows
        # TYPE rows_total counter
        rows_total{model="m"} 3
    """
    lines = [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]
    for sample in samples:
        labels = ",".join(f'{k}="{v.translate(_ESCAPES)}"' for k, v in sample.labels.items())
        lines.append(f"{name}{{{labels}}} {sample.value!r}")
    return "\n".join(lines)
