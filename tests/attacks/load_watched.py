"""Run by test_workflow_folders: load folders under an audit hook, and report what each cost.

    python load_watched.py workflow|program GOOD FOLDER ...

A good folder is loaded first, so that what a first load imports is not held against a hostile one.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import memory_gb, peak_memory
from workflow import Workflow, WorkflowFormatError
from workflow.expressions.program.program_json import load_program
from workflow.expressions.program.safetensors_file import FormatError

ERRORS = (WorkflowFormatError, FormatError)
WATCHED = (
    "import",
    "exec",
    "compile",
    "os.",
    "subprocess.",
    "socket.",
    "pickle.",
    "ctypes.",
    "marshal.",
)

events: list[str] = []


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        events.append(f"open {arguments[0]}")
    elif event.startswith(WATCHED):
        events.append(f"{event} {arguments!r:.100}")


def report(load: Callable[[Path], Any], folder: Path) -> dict[str, Any]:
    before = memory_gb("VmRSS")
    with peak_memory() as peak:
        start = time.process_time()
        events.clear()
        try:
            outcome, message = f"loaded {load(folder)!r:.100}", ""
        except ERRORS as error:
            outcome, message = "refused", str(error)
        except BaseException as error:  # noqa: BLE001 - what else is raised is what the test looks for
            outcome, message = type(error).__name__, str(error)
        cost = {"events": events.copy(), "seconds": time.process_time() - start}
    megabytes = (peak[0] - before) * 1024
    return {"outcome": outcome, "message": message, **cost, "megabytes": megabytes}


if __name__ == "__main__":
    kind, good, *folders = sys.argv[1:]
    load = Workflow.load if kind == "workflow" else load_program
    load(Path(good))
    sys.addaudithook(watch)
    print(json.dumps([report(load, Path(folder)) for folder in folders]))  # noqa: T201
