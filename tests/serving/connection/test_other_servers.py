"""A server of HTTP that is not Triton, such as a proxy with a page for a login, and answers with status 200."""

import asyncio
import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from inspect import isawaitable
from threading import Thread

import pytest

from serving import ClientError
from serving.connection.address import parse_address
from serving.connection.http_async import AsyncHttpConnection
from serving.connection.http_connection import HttpConnection
from serving.connection.http_messages import HEADER_LENGTH

OUTPUT = {"name": "y", "datatype": "INT64", "shape": [2, 1], "parameters": {"binary_data_size": 16}}
HEAD = json.dumps({"model_version": "1", "outputs": [OUTPUT]}).encode()
PAGES = {
    "a page": (b"<html>Log in", "0"),
    "nothing": (b"", "0"),
    "a list": (b"[1]", "3"),
    "other JSON": (b'{"status": "ok"}', "16"),
    "no number": (HEAD + bytes(16), "many"),
    "a header that was taken out": (HEAD + bytes(16), "0"),
    "an end that was cut off": (HEAD + bytes(8), f"{len(HEAD)}"),
}


@contextmanager
def answering(content, length):
    """The address of a server that answers everything with some content."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.send_header("Content-Length", f"{len(content)}")
            self.send_header(HEADER_LENGTH, length)
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self):
            self.do_GET()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("call", ["infer", "config"])
@pytest.mark.parametrize("connect", [HttpConnection, AsyncHttpConnection])
def test_another_answer_is_an_error_of_the_client(connect, call, page):
    arguments = ("movies", "", [], 10) if call == "infer" else ("movies", "", 10)

    async def ask(address):
        connection = connect(parse_address(address, None), {}, 0)
        try:
            answered = getattr(connection, call)(*arguments)
            return await answered if isawaitable(answered) else answered
        finally:
            if isawaitable(closed := connection.close()):
                await closed

    with (
        answering(*PAGES[page]) as address,
        pytest.raises(ClientError, match="Expected the answer of a Triton server") as error,
    ):
        asyncio.run(ask(address))
    assert error.value.code == "INTERNAL"
