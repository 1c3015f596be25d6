"""A server that runs and has too much to do is not taken for one that is down."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from echo_model import served_echo

from serving import AsyncEnsembleClient, EnsembleClient, ServerUnavailableError

ROW = {"x": [0.5]}
# A request waits for others up to 0.2 s.
QUEUE = (
    "dynamic_batching {{ preferred_batch_size: [4] max_queue_delay_microseconds: 200000 "
    "default_queue_policy {{ {} }} }}"
)


def refusal_of(client):
    """The error of a request, or None."""
    try:
        client.predict(ROW)
    except ServerUnavailableError as error:
        return str(error)


def test_a_full_queue(server, repository, url):
    with (
        served_echo(server, repository, "full", QUEUE.format("max_queue_size: 1")),
        EnsembleClient(url, "full", retries=0) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        refused = [text for text in pool.map(refusal_of, [client] * 8) if text is not None]
    # One waits; others find the queue full.
    assert refused
    for text in refused:
        assert text.startswith("UNAVAILABLE: ")
        assert f"Exceeds maximum queue size. The server at {url} is busy" in text
        assert text.endswith("export with a larger `max_queue_size`.")


def test_a_request_that_waited_too_long(server, repository, url):
    policy = "timeout_action: REJECT default_timeout_microseconds: 1000"

    async def ask():
        async with AsyncEnsembleClient(url, "late", retries=0) as client:
            await client.predict(ROW)

    with served_echo(server, repository, "late", QUEUE.format(policy)):
        with EnsembleClient(url, "late", retries=0) as client:
            said = refusal_of(client)
        assert f"Request timeout expired. The server at {url} is busy" in said
        assert said.endswith("export with a larger `queue_timeout_us`.")
        with pytest.raises(ServerUnavailableError, match="is busy"):
            asyncio.run(ask())
