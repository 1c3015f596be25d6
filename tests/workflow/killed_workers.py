"""Workers of a cluster that are killed as they begin a step, as by the kernel when memory ends."""

import importlib
import os
import signal
from pathlib import Path


def kill_in(client, module, name, marker=None, before=None):
    """Let workers be killed as they call a function.

    Args:
        client: the client of the cluster; workers that replace the killed ones are unharmed.
        module: module of the function.
        name: its name, with the class of a method before it.
        marker: a file that the first worker makes, so that it alone is killed; else all are.
        before: a function that is called with the arguments just before the kill.
    """
    client.run(_kill_in, module, name, marker, before)


def kill_receiver(client, marker):
    """Let the first worker be killed that asks another one for a value.

    Args:
        client: the client of the cluster.
        marker: a file that is made then.
    """
    client.run(_kill_receiver, client.run(os.getpid), marker)


def _kill_receiver(pids, marker, dask_worker):
    send = dask_worker.handlers["get_data"]

    def killing(comm, who=None, **settings):
        if who in pids and _is_first(marker):
            os.kill(pids[who], signal.SIGKILL)
        return send(comm, who=who, **settings)

    dask_worker.handlers["get_data"] = killing


def _kill_in(module, name, marker, before):
    owner, _, function = name.rpartition(".")
    place = importlib.import_module(module)
    place = getattr(place, owner) if owner else place
    real = getattr(place, function)

    def killing(*arguments):
        if marker is None or _is_first(marker):
            if before is not None:
                before(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments)

    setattr(place, function, killing)


def _is_first(marker):
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
