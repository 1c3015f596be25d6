"""Servers of Google Cloud Storage and of Azure in memory, as far as folders of small objects need them.

They answer as fake-gcs-server and Azurite do; PyPI has none that speaks all that the library sends.
"""

import hashlib
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "shop"
_DAY = "Mon, 30 Nov 2026 00:00:00 GMT"
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'


class _Store(BaseHTTPRequestHandler):
    """A server of one bucket; `objects` are the bytes by key, `lists` the requests for a list."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urlsplit(self.path)
        self.query = {k: v[0] for k, v in parse_qs(url.query, keep_blank_values=True).items()}
        bucket, _, self.key = unquote(url.path).removeprefix(self.account).partition("/")
        self.sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if bucket != BUCKET:
            self.answer(404, f"{_XML}<Error>\n<Code>{self.no_bucket}</Code>\n</Error>")
        elif not self.key:
            self.of_bucket()
        elif self.command == "PUT":
            self.write()
        elif self.key not in self.objects:
            self.answer(404)
        elif self.command == "DELETE":
            del self.objects[self.key]
            self.answer(204)
        else:
            self.read()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - names of the library

    def write(self):
        if self.is_new() and self.key in self.objects:
            self.answer(self.taken)
        else:
            self.objects[self.key] = self.sent
            self.answer(201, ETag=_tag(self.sent))

    def read(self):
        content = self.objects[self.key]
        tag, status, headers = _tag(content), 200, {}
        if asked := self.headers.get("x-ms-range") or self.headers.get("Range"):
            first, last = asked.removeprefix("bytes=").split("-")
            # "-8" is the last eight.
            start = int(first) if first else max(0, len(content) - int(last))
            end = int(last) if first else len(content) - 1
            headers = {"Content-Range": f"bytes {start}-{end}/{len(content)}"}
            status, content = 206, content[start : end + 1]
        if self.headers.get("If-Match", tag) != tag:
            self.answer(412)
        else:
            self.answer(status, content, ETag=tag, **headers)

    def of_bucket(self):
        self.lists.append(self.path)
        prefix, found = self.query.get("prefix", ""), {}
        for key in sorted(key for key in self.objects if key.startswith(prefix)):
            folder, slash, _ = key.removeprefix(prefix).partition("/")
            if slash and "delimiter" in self.query:
                found[self.folder.format(escape(f"{prefix}{folder}/"))] = None
            else:
                content = self.objects[key]
                found[self.object.format(escape(key), len(content), _tag(content).strip('"'))] = (
                    None
                )
        self.answer(200, _XML + self.listed.format("".join(found)))

    def answer(self, status, body=b"", **headers):
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in {"Last-Modified": _DAY, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        """Print nothing."""


class _Google(_Store):
    account, no_bucket, taken = "/", "NoSuchBucket", 412
    listed = "<ListBucketResult>{}</ListBucketResult>"
    folder = "<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>"
    object = (
        '<Contents><Key>{}</Key><Size>{}</Size><ETag>"{}"</ETag>'
        "<LastModified>2026-11-30T00:00:00Z</LastModified></Contents>"
    )

    def is_new(self):
        return self.headers.get("x-goog-if-generation-match") == "0"


class _Azure(_Store):
    account, no_bucket, taken = "/account/", "ContainerNotFound", 409
    listed = "<EnumerationResults><Blobs>{}</Blobs><NextMarker/></EnumerationResults>"
    folder = "<BlobPrefix><Name>{}</Name></BlobPrefix>"
    # The ETag has no quotes in lists, other than in headers.
    object = (
        "<Blob><Name>{}</Name><Properties><Content-Length>{}</Content-Length><Etag>{}</Etag>"
        f"<Content-Type>a/b</Content-Type><Last-Modified>{_DAY}</Last-Modified></Properties></Blob>"
    )

    def is_new(self):
        return self.headers.get("If-None-Match") == "*"

    def of_bucket(self):
        if self.query["comp"] == "batch":
            self.remove()
        else:
            super().of_bucket()

    def remove(self):
        body = ""
        for number, path in enumerate(re.findall(r"DELETE /account/(\S+)", self.sent.decode())):
            key = unquote(path).partition("/")[2]
            status = "404 Not Found" if self.objects.pop(key, None) is None else "202 Accepted"
            body += f"--of\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
            body += f"HTTP/1.1 {status}\r\nx-ms-version: 2023-11-03\r\n\r\n"
        self.answer(202, f"{body}--of--\r\n", **{"Content-Type": "multipart/mixed; boundary=of"})


def _tag(content):
    return f'"0x{hashlib.sha256(content).hexdigest()[:15]}"'


@contextmanager
def memory_store(scheme):
    """Run a server of a bucket; yields it with `objects`, `lists`, and the `options` to connect."""
    kind = type("Store", (_Google if scheme == "gs" else _Azure,), {"objects": {}, "lists": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    url = f"http://127.0.0.1:{server.server_port}"
    kind.options = {"google_base_url": url, "google_bearer_token": "token"}
    if scheme != "gs":
        kind.options = {
            "azure_storage_endpoint": f"{url}/account",
            "azure_storage_account_name": "account",
            "azure_storage_account_key": "a2V5",
        }
    kind.options["allow_http"] = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield kind
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
