"""Something between a client and a server: a network that fails, or one that is secured."""

import socket
import ssl
import threading


class Forwarder:
    """Forwards connections to a port, after it has closed the first few of them at once."""

    def __init__(self, port, *, failures=0, tls=None):
        self._port, self._failures, self._tls = port, failures, tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._open = [self._listener]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        for one in self._open:
            one.close()

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
                threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def _join(self, client):
        try:
            if self._tls:
                client = self._tls.wrap_socket(client, server_side=True)
        except (ssl.SSLError, OSError):  # A client that does not trust us.
            client.close()
            return
        server = socket.create_connection(("127.0.0.1", self._port))
        self._open += [client, server]
        threading.Thread(target=_copy, args=(client, server), daemon=True).start()
        _copy(server, client)


def _copy(source, target):
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:  # One of the two has gone.
        pass
    finally:
        source.close()
        target.close()
