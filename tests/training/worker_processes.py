"""Processes that are the workers of a test, each with TF_CONFIG, on this machine's CPU."""

import json
import multiprocessing
import os
import socket
import traceback
from contextlib import ExitStack
from pathlib import Path

# Forks of one process that has imported TensorFlow, which takes 5 s, but not used it.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tensorflow", "keras"])


# The timeout of workers, none of which is to be lost: machines were seen to stand still for half a minute.
PATIENCE = 3_000


def tf_configs(size, *, chief=False):
    """The TF_CONFIG of each of so many workers, at free ports of this machine."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(size)]
        for one in sockets:
            one.bind(("localhost", 0))
        addresses = [f"localhost:{one.getsockname()[1]}" for one in sockets]
    cluster = {"worker": addresses[chief:]} | ({"chief": addresses[:1]} if chief else {})
    tasks = [
        {"type": kind, "index": i} for kind in sorted(cluster) for i in range(len(cluster[kind]))
    ]
    return [{"cluster": cluster, "task": task} for task in tasks]


def start(size, folder, program, *arguments, chief=False):
    """Processes with TF_CONFIG that run a function and write its result to the folder."""
    processes = []
    for rank, config in enumerate(tf_configs(size, chief=chief)):
        given = (config, program, f"{folder}/{rank}", *map(str, arguments))
        processes.append(_processes.Process(target=work, args=given))
        processes[-1].start()
    return processes


def found_by(processes, folder, timeout=600):
    """The results of all processes, by rank."""
    for process in processes:
        process.join(timeout)
    late = [process for process in processes if process.exitcode is None]
    for process in late:
        process.kill()
    assert not late
    results = [json.loads((folder / str(rank)).read_text()) for rank in range(len(processes))]
    for result in results:
        assert "found" in result, result["failed"]
    return [result["found"] for result in results]


def work(config, program, result, *arguments):
    """Run a function as a worker of TF_CONFIG."""
    os.environ["TF_CONFIG"] = json.dumps(config)
    try:
        found = {"found": program(*arguments)}
    except Exception:  # noqa: BLE001 - the test shows it
        found = {"failed": traceback.format_exc()}
    Path(result).write_text(json.dumps(found))
