"""TensorFlow without its messages, which would hide the output of a command."""

from __future__ import annotations

import importlib
import os
import sys


def import_tensorflow() -> None:
    """Import TensorFlow with the process's standard error redirected.

    Its C++ code logs processors and settings there at start, whatever the log level; failures are
    raised as errors, which are not lost.
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
