"""Something between a client and a server: a network that fails, or one that is secured."""

import contextlib
import select
import socket
import ssl
import threading


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
        self._open = [self._listener]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        for one in self._open:
            with contextlib.suppress(OSError):  # It has gone already.
                one.shutdown(socket.SHUT_RDWR)
        self._listener.close()

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


def port_of(url):
    """The port of a server's address."""
    return int(url.rsplit(":", 1)[1])
