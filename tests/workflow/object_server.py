"""A server of S3 in a process of its own, and a link to it that counts, fails and cuts."""

import io
import re
import secrets
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BUCKET = "ratings"
_KEYS = {"aws_access_key_id": "user", "aws_secret_access_key": "secret", "aws_region": "us-east-1"}
_HOP = ("connection", "content-length", "transfer-encoding")


@contextmanager
def object_server():
    """Run moto's server; yields its port on 127.0.0.1. It has the bucket `BUCKET`."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = next(line for line in process.stderr if "Running on" in line)
            port = int(re.search(r"http://127\.0\.0\.1:(\d+)", line)[1])
            # It must not wait for room in the pipe.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            _request(port, "PUT", f"/{BUCKET}")
            yield port
        finally:
            process.kill()


def _request(port, method, path, headers=None, body=None):
    """The answer of a server to a request: status, headers and body."""
    connection = HTTPConnection("127.0.0.1", port)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


class _Server(ThreadingHTTPServer):
    """A server whose threads end with it, though its clients keep their connections."""

    daemon_threads = False

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._connections = []

    def get_request(self):
        """Accept a connection."""
        connection, address = super().get_request()
        self._connections.append(connection)
        return connection, address

    def end_connections(self):
        """End all connections, so that their threads end."""
        for connection in self._connections:
            with suppress(OSError):  # one that has ended
                connection.shutdown(socket.SHUT_RDWR)


class Link:
    """A proxy before the server, and a folder of objects there.

    Attributes:
        url: URL of the folder.
        requests: the requests as "METHOD path", in order.
        moved: bytes of the bodies of all answers.
        fault: called with each request; returns "fail" for an answer with the status 503, "cut" for
            one that ends in the middle, and None for the server's.
    """

    def __init__(self, port):
        self.requests, self.moved, self.fault = [], 0, lambda _: None
        self._folder = secrets.token_hex(4)
        self.url = f"s3://{BUCKET}/{self._folder}"
        self._server = _Server(("127.0.0.1", 0), _handler(self, port))
        self._direct = _options(port)
        self.options = _options(self._server.server_port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def put(self, key, content):
        """Write an object: bytes, or a frame as parquet. Its URL."""
        if not isinstance(content, bytes):
            buffer = io.BytesIO()
            content.write_parquet(buffer)
            content = buffer.getvalue()
        self._store().put(f"{self._folder}/{key}", content)
        return f"{self.url}/{key}"

    def put_folder(self, folder, key):
        """Copy a local folder; the URL of the copy."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(f"{key}/{path.relative_to(folder)}", path.read_bytes())
        return f"{self.url}/{key}"

    def get_folder(self, key, folder):
        """Copy a folder of objects into a local one, which is returned."""
        import obstore

        prefix = f"{self._folder}/{key}"
        for each in obstore.list(self._store(), prefix).collect():
            path = folder / each["path"].removeprefix(f"{prefix}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(self._store().get(each["path"]).bytes()))
        return folder

    def remove(self, key):
        """Remove an object."""
        self._store().delete(f"{self._folder}/{key}")

    def exists(self, key):
        """Whether there is an object."""
        import obstore

        prefix = f"{self._folder}/{key}"
        return any(
            each["path"] == prefix
            for each in obstore.list(self._store(), prefix.rpartition("/")[0]).collect()
        )

    def _store(self):
        from obstore.store import S3Store

        own = {key: value for key, value in self._direct.items() if key != "allow_http"}
        return S3Store(BUCKET, config=own, client_options={"allow_http": True})

    def count(self, part):
        """The number of requests that contain a text."""
        return sum(part in text for text in self.requests)

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.end_connections()
        self._server.server_close()


def first_times(fault):
    """A `fault` for the first request to read each object."""
    seen = set()

    def of(text):
        new = text.startswith("GET") and ".parquet" in text and text not in seen
        seen.add(text)
        return fault if new else None

    return of


def always(fault):
    """A `fault` for each request to read an object."""
    return lambda text: fault if text.startswith("GET") and ".parquet" in text else None


def _options(port):
    return {**_KEYS, "aws_endpoint_url": f"http://127.0.0.1:{port}", "allow_http": "true"}


def _handler(link, port):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            text = f"{self.command} {self.path}"
            link.requests.append(text)
            fault = link.fault(text)
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, body = _request(port, self.command, self.path, self.headers, sent)
            if fault == "fail":
                status, headers, body = 503, [], b""
            link.moved += len(body)
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            size = dict(headers).get("Content-Length", "0")
            self.send_header("Content-Length", size if self.command == "HEAD" else str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if fault == "cut" else body)
            self.close_connection = fault == "cut"

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - names of the library

        def log_message(self, *_):
            """Print nothing."""

    return Handler
