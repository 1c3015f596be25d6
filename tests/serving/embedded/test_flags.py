"""Flags that depend on the version of tritonserver."""

from server_processes import command_of

from serving.embedded.flags import ServerFlags, server_flags
from serving.embedded.installation import Installation

SHARED_MEMORY = "--allow-client-shm=true"


def test_clients_may_use_shared_memory_of_a_server_that_has_to_be_told(tmp_path, server):
    """Flags since 2.68; an older server, such as the embedded one, ends at a flag that it does not know."""
    newer = tmp_path / "tritonserver"
    newer.write_bytes(b"\x7fELF...allow-client-metrics\0allow-client-shm\0")
    assert Installation(newer).knows("allow-client-shm")
    assert SHARED_MEMORY in server_flags(ServerFlags("/models", ("a",), "key", client_shm=True))
    assert SHARED_MEMORY not in command_of(server)
