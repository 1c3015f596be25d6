"""TensorFlow without its chatter, in which the lines of a command are lost."""

from __future__ import annotations

import importlib
import os
import sys


def import_tensorflow() -> None:
    """Import TensorFlow with the process's standard error closed to it.

    Its C++ reports there on processors and settings while it starts, whatever the log level; what
    goes wrong is raised as an error, which is not lost.
    """
    if "tensorflow" in sys.modules:
        return
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with open(os.devnull, "wb") as nothing:  # noqa: PTH123 - of a device, by its number
            os.dup2(nothing.fileno(), 2)
        importlib.import_module("tensorflow")
    finally:
        os.dup2(saved, 2)
        os.close(saved)
