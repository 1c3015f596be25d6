"""Response times of a model whose answers a server keeps are shown as such."""

import json

import pytest
from small_export import rows
from typer.testing import CliRunner

from exporter import ServingOptions, parity_page
from exporter.command_line.app import make_app
from exporter.report.latency import FROM_CACHE
from serving import EnsembleClient, ParityReport, TritonServer


def bench(url, *options):
    words = ("bench", "movies", "rows.parquet", "--url", url, "--seconds", "0.1", *options)
    result = CliRunner().invoke(make_app(), words)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("cached", [True, False])
def test_times_from_a_cache_are_shown_as_such(export, tmp_path, monkeypatch, cached):
    made = export(serving=ServingOptions(runtime="onnx", response_cache=cached))
    monkeypatch.chdir(tmp_path)
    rows().write_parquet("rows.parquet")
    with (
        TritonServer(made.repository, ["movies"], response_cache_bytes=2**20) as server,
        EnsembleClient(server.grpc_url, "movies") as client,
    ):
        words = " ".join(bench(server.grpc_url).split())
        result = json.loads(bench(server.grpc_url, "--json"))
        page = parity_page(client, ParityReport("movies", "", 0, 1e-5, ()), rows())
    assert result["response_cache"] is cached
    assert (FROM_CACHE in words) is cached
    assert (FROM_CACHE in page) is cached
