"""Something between a client and a server: a network that fails, or one that is secured."""

import contextlib
import select
import shutil
import socket
import ssl
import subprocess
import threading

import pytest


class Forwarder:
    """Forwards connections to a port, after it has closed the first few of them at once.

    What clients sent is in `sent`.
    """

    def __init__(self, port, *, failures=0, tls=None):
        self._port, self._failures, self._tls = port, failures, tls
        self.sent = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._open = []

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self.disconnect()
        self._listener.close()

    def disconnect(self):
        """End all connections; new ones are accepted."""
        for one in self._open:
            with contextlib.suppress(OSError):  # It has gone already.
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # It was closed.
                return
            self.connections += 1
            if self.connections <= self._failures:
                client.close()
            else:
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client, contextlib.suppress(OSError):  # A client that does not trust us, or has gone.
            if self._tls:
                client = self._tls.wrap_socket(client, server_side=True)
            with client, socket.create_connection(("127.0.0.1", self._port)) as server:
                self._open += [client, server]
                while self._pass_on(client, server):
                    pass

    def _pass_on(self, client, server):
        """Pass on what comes next from either side; False when one of them has ended."""
        has_more = isinstance(client, ssl.SSLSocket) and client.pending()
        ready = [client] if has_more else select.select([client, server], [], [])[0]
        for source in ready:
            data = source.recv(1 << 16)
            if not data:
                return False
            if source is client:
                self.sent += data
            (server if source is client else client).sendall(data)
        return True


def certify(folder):
    """Key and certificate of 127.0.0.1, which vouches for itself, and a context that asks for it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not installed")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-keyout", key, "-out"),
            *(certificate, "-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate)
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2", "http/1.1"])
    return key, certificate, context


def port_of(url):
    """The port of a server's address."""
    return int(url.rsplit(":", 1)[1])
