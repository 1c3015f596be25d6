"""An export in a process of its own that is killed, or refused, at its n-th call to the file system."""

import errno
import os
import signal
import sys
import traceback
import warnings

from exporter import ExportError

# What Python reports before it does it: the n-th of these is where the fault strikes.
CHANGES = {"os.rename", "os.mkdir", "os.rmdir", "os.remove"}
DONE, REFUSED, CRASHED = 0, 3, 4


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def fail(code=errno.EIO):
    raise OSError(code, os.strerror(code))


def interrupt():
    raise KeyboardInterrupt


def strike_at(step, root, fault, *, reads=False, for_good=False, every=False):
    """Let a fault strike this process; it cannot be undone, so call it in a child.

    With `reads` every open file counts, and not only a new one; `for_good` lets the fault strike
    again whenever something is to be created, `every` whenever it is changed.
    """
    calls = 0

    def hook(event, arguments):
        nonlocal calls
        inside = event == "open" and str(arguments[0]).startswith(root)
        if event in CHANGES or (inside and (reads or creates(event, arguments))):
            calls += 1
            again = every or (for_good and creates(event, arguments))
            if calls == step or (calls > step and again):
                fault()

    sys.addaudithook(hook)


def creates(event, arguments):
    return event == "os.mkdir" or (event == "open" and arguments[2] & os.O_CREAT)


def in_child(action):
    """Run something in a fork; returns its exit status (negative for a signal) and its last words."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # The child touches files and no thread of TensorFlow.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = CRASHED
        try:
            action()
            status = DONE
        except ExportError as error:
            status = REFUSED
            os.write(writer, str(error).encode())
        except BaseException:  # noqa: BLE001 - nothing may leave the child
            os.write(writer, traceback.format_exc().encode())
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        words = pipe.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), words
