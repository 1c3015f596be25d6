"""Faults at the n-th call of a process that changes a file, by the library that calls.c makes.

`make faults` preloads it; the processes that tests start are without it, unless they say so.
"""

import ctypes
import os

LIBRARY = os.environ.pop("LD_PRELOAD", "")
# A test at every call takes minutes: with FAULTS_EVERY=5 it is every fifth.
EVERY = int(os.environ.get("FAULTS_EVERY", "1"))
# More than any action of the tests makes.
MOST = 5000


def each():
    """The numbers of the calls at which a fault strikes; a test ends where there are no more."""
    assert LIBRARY, "Expected the library of tests/faults/calls.c. Run `make faults`."
    return range(1, MOST, EVERY)


def arm(call, error=0):
    """Strike this process at a call: kill it, or let the call fail with an errno."""
    ctypes.CDLL(None).arm(ctypes.c_long(call), error)


def struck(call):
    """Whether the process has come to the call for which it is armed."""
    library = ctypes.CDLL(None)
    library.calls.restype = ctypes.c_long
    return library.calls() >= call
