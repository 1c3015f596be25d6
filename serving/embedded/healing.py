"""Repair of a running server: its models are asked for an answer, and replaced if they do not give one."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving.embedded.process import ServerProcess
from triton_models.healthcheck import ProbeError, steps_of

# Seconds between two checks, and for each of the up to two waits of a check: in 9 seconds a model
# that does not answer is found.
INTERVAL, TIMEOUT = 1.0, 4.0
# A load that takes longer is given up, and the server started again.
LOAD_TIMEOUT = 30.0
# The longest pause after a repair that failed.
LONGEST_PAUSE = 30.0
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patient:
    """A server that can be repaired.

    Attributes:
        process: returns its process, which `restart` replaces.
        models: returns the models that have to answer.
        restart: starts the server again on the same ports.
        changes: held while models are loaded or unloaded.
    """

    process: Callable[[], ServerProcess]
    models: Callable[[], Sequence[str]]
    restart: Callable[[], None]
    changes: threading.RLock


class Healer:
    """A thread that repairs a server until it is told to end.

    A model that does not answer is loaded again with new processes, step by step of an ensemble. If
    that does not help, or if the server itself has ended or is stopped, it is started again. A model
    that answers others, though not the check, is left alone: see `expect_answer`.
    """

    def __init__(self, patient: Patient) -> None:
        self._patient = patient
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="heal-tritonserver", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Tell the thread to end."""
        self._ended.set()

    def join(self) -> None:
        """Wait for the thread's end: of the request that it waits for."""
        self._thread.join()

    def _watch(self) -> None:
        pause = INTERVAL
        while not self._ended.wait(pause):
            # Somebody who loads models looks after them.
            if not self._patient.changes.acquire(blocking=False):
                continue
            try:
                self._heal()
                pause = INTERVAL
            except Exception as error:  # noqa: BLE001 - such as no free file descriptor: it is tried again
                if not self._ended.is_set():
                    _LOG.error("The server could not be repaired yet: %s", error)
                pause = min(2 * pause, LONGEST_PAUSE)
            finally:
                self._patient.changes.release()

    def _heal(self) -> None:
        process, models = self._patient.process(), self._patient.models()
        if process.is_running():
            silent = self._silent(process, models)
            if not silent:
                return
            with contextlib.suppress(ProbeError):
                self._load_again(process, silent)
                if not self._silent(process, silent):
                    return
        if not self._ended.is_set():
            _LOG.warning("The server has ended or does not answer: it is started again.")
            self._patient.restart()

    def _silent(self, process: ServerProcess, models: Iterable[str]) -> list[str]:
        """The models that do not answer."""
        return [model for model in models if not self._answers(process, model)]

    def _answers(self, process: ServerProcess, model: str) -> bool:
        try:
            process.administration.probe(model, TIMEOUT)
        except ProbeError as error:
            if not self._ended.is_set():
                _LOG.warning("The model %s does not answer: %s", model, error)
            return False
        return True

    def _load_again(self, process: ServerProcess, models: Iterable[str]) -> None:
        """Load those models and steps that do not answer, in the versions that the server has.

        Raises:
            ProbeError: the server refused, such as a version that a rollback removed, or did not answer.
        """
        process.administration.server_name(TIMEOUT)  # A stopped server has to be started again.
        loaded = [name for model in models for name in _processes_of(process, model)]
        for model in self._silent(process, dict.fromkeys(loaded)):
            # That of the repository may be of a version that was not published into this server.
            config = json.dumps(process.administration.config(model, TIMEOUT))
            kill_instances(str(process.flags.shm_prefix), model)
            process.administration.unload(model, LOAD_TIMEOUT)
            process.administration.load(model, LOAD_TIMEOUT, config)


def _processes_of(process: ServerProcess, model: str) -> list[str]:
    """The steps of an ensemble, as the server has them, since others may publish; else the model."""
    return [*steps_of(process.administration.config(model, TIMEOUT))] or [model]


def kill_instances(prefix: str, model: str) -> None:
    """Kill the processes of a Python model, which may be stopped, so that none of them stays.

    Args:
        prefix: the text in the command line of the server's processes alone.
        model: the model's name.
    """
    # The name of an instance is that of its group in the config, but its file is always the model's.
    file = re.compile(rf".*/{re.escape(model)}/\d+/[^/]+")
    for process, words in _command_lines():
        of_server = any(word.startswith(prefix) for word in words)
        if of_server and any(file.fullmatch(word) for word in words):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def _command_lines() -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # It has ended.
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            yield int(folder.name), words
