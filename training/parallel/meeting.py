"""The wait for all workers to start, before TensorFlow connects them."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import suppress

from training.errors import TrainingError

_PAUSE = 0.1


def meet(addresses: Sequence[str], rank: int, timeout: float) -> None:
    """Wait until all workers have started.

    TensorFlow would wait for an hour and name none. So each worker first listens at its own address
    and connects to those of the others, until it has reached each one once: either its listener, or
    TensorFlow's server, which it starts after that.

    Args:
        addresses: `host:port` of each worker.
        rank: number of this worker.
        timeout: seconds to wait.

    Raises:
        TrainingError: a worker has not started in time, or this one's port is taken.
    """
    missing = [other for other in range(len(addresses)) if other != rank]
    end = time.monotonic() + timeout
    with _listening(addresses[rank]):
        while missing := [other for other in missing if not is_there(addresses[other])]:
            if time.monotonic() > end:
                names = ", ".join(f"worker {other} ({addresses[other]})" for other in missing)
                raise TrainingError(
                    f"Expected all {len(addresses)} workers to start within {timeout:g} seconds, the "
                    f"timeout of join_workers. Received: no connection to {names}. See whether it "
                    "runs, has the same addresses in TF_CONFIG, and can be reached from here."
                )
            time.sleep(_PAUSE)


def _listening(address: str) -> socket.socket:
    try:
        port = _port(address)
        if socket.has_dualstack_ipv6():
            with suppress(OSError):  # a host without addresses of IPv6, or a port that is taken
                return socket.create_server(
                    ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024
                )
        return socket.create_server(("", port), backlog=1024)
    except (OSError, ValueError) as error:
        raise TrainingError(
            "Expected a free port at this worker's address in TF_CONFIG, and the other workers "
            f"within reach. Received: {error}, for {address}."
        ) from error


def is_there(address: str) -> bool:
    """Whether a process listens at a worker's address, `host:port`."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        socket.create_connection((host, _port(address)), timeout=1).close()
    except (OSError, ValueError):
        return False
    return True


def _port(address: str) -> int:
    port = int(address.rpartition(":")[2])
    if not 0 < port < 1 << 16:
        raise ValueError(f"port {port}")
    return port
