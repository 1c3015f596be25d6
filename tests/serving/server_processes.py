"""A running server as the machine's list of processes shows it."""

import re
from pathlib import Path


def command_of(server):
    """The words with which the tritonserver was started that listens at a server's port of gRPC."""
    port = "--grpc-port=" + server.grpc_url.rpartition(":")[2]
    (command,) = {tuple(words) for words in commands().values() if port in words}
    return command


def identity_of(server):
    """A word that each process of a running server has in its command, and its shared memory in its name."""
    return re.search(r"shm-region-prefix-name=(\S+)", " ".join(command_of(server)))[1]


def processes(identity):
    """The processes of a server, pid to name."""
    return {
        pid: Path(words[0]).name
        for pid, words in commands().items()
        if any(identity in word for word in words)
    }


def commands():
    """The command of each process, pid to words."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found[int(folder.name)] = (folder / "cmdline").read_text().split("\0")
        except OSError:  # It has ended since.
            continue
    return found


def running_in(folder):
    """The processes that run in a folder, as a tritonserver does in that of its log, unless it has another."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            place = (process / "cwd").readlink()
        except OSError:  # It has ended since, or is another user's.
            continue
        if str(place).startswith(str(folder)):
            found.append(int(process.name))
    return found
