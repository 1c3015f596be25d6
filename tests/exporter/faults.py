"""An export in a process of its own that is killed, or refused, at its n-th call to the file system."""

import errno
import os
import re
import signal
import sys
import traceback
import warnings

from exporter import ExportError
from exporter.plan.config_pbtxt import parse_config

# What Python reports before it does it: the n-th of these is where the fault strikes.
CHANGES = {"os.rename", "os.mkdir", "os.rmdir", "os.remove"}
DONE, REFUSED, CRASHED = 0, 3, 4
MODELS = {"movies_nvt", "movies_tf", "movies"}
MODEL = re.compile("movies|movies_(nvt|tf)(_[0-9a-f]{16})?")


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def fail(code=errno.EIO):
    raise OSError(code, os.strerror(code))


def interrupt():
    raise KeyboardInterrupt


def strike_at(step, root, fault, *, reads=False, for_good=False, times=1):
    """Let a fault strike this process; it cannot be undone, so call it in a child.

    With `reads` every open file counts, and not only a new one; `for_good` lets the fault strike
    again whenever something is to be created, `times` at the steps that follow.
    """
    calls = 0

    def hook(event, arguments):
        nonlocal calls
        inside = event == "open" and str(arguments[0]).startswith(root)
        if event in CHANGES or (inside and (reads or creates(event, arguments))):
            calls += 1
            again = for_good and calls > step and creates(event, arguments)
            if step <= calls < step + times or again:
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


def pinned(repository):
    """The version that the ensemble serves, with all that it needs; None where there is none."""
    path = repository / "movies" / "config.pbtxt"
    if not path.exists():
        return None
    versions = {}
    for step in parse_config(path.read_text()).ensemble_scheduling.step:
        versions[step.model_name] = step.model_version
        own = parse_config((repository / step.model_name / "config.pbtxt").read_text())
        assert own.version_policy.HasField("all")
        assert (repository / step.model_name / str(step.model_version)).is_dir()
    (version,) = set(versions.values())
    return version


def strangers(repository):
    """The folders that belong to no model, beside the repository and inside."""
    beside = {path.name for path in repository.parent.iterdir()} - {"models"}
    inside = {path.name for path in repository.iterdir()} if repository.exists() else set()
    return beside | {name for name in inside if not MODEL.fullmatch(name)}
