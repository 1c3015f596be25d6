"""A real Triton server as a context manager, for demos, tests and parity checks."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from serving.embedded.administration import Administration
from serving.embedded.flags import admin_headers
from serving.embedded.healing import Healer, Patient
from serving.embedded.installation import find_tritonserver
from serving.embedded.process import ServerProcess
from serving.embedded.publication import LiveServer
from serving.embedded.repository import models_to_load
from serving.errors import LOST_PROCESS, ServerError
from serving.seconds import expect_seconds
from triton_models.healthcheck import ProbeError
from workflow.picture.markup import table
from workflow.progress.stage import at_work, counted, restart, showing

# How often a start or a load that fails by one of Triton's own races is tried before it is an error.
_ATTEMPTS = 5


class TritonServer:
    """A tritonserver on loopback, which ends with all processes that it started.

    The server uses free ports, loads only the named models, and is ready when each of them has
    answered a real one-row request. It never outlives this process, even if that is killed.

    Args:
        model_repository: the folder with the models.
        models: names to load; None loads every ensemble with its steps and every fused model, or,
            if there are none of these, every model.
        tritonserver: the program; by default the environment variable TRITONSERVER, PATH, and the
            server in the package nvidia-pytriton are tried in this order.
        python: the interpreter for Python models, of another environment than this one, such as one with
            the extras `[cpu,serve]` beside one with `[gpu]`; by default the environment variable
            TRITONSERVER_PYTHON, then this one. The package nvidia-pytriton may be there alone.
        startup_timeout: seconds until every model must have answered.
        log_file: file for the server's log, which is kept, and overwritten at each start; by default a
            new temporary file, which is removed at a stop unless there was an error.
        grpc_port: port of gRPC; by default a free one.
        http_port: port of HTTP; by default a free one.
        http: whether the server listens for HTTP. Triton's HTTP has fatal defects before 25.07, also in
            the embedded server's 2.51. Clients, health checks and the loading of models use gRPC.
        metrics_port: port of the metrics; by default a free one.
        response_cache_bytes: the memory for cached answers of models that were exported with
            `ServingOptions(response_cache=True)`; 0 for none.
        heal: whether a thread repairs the server while it runs. It notices within 10 seconds that a
            model does not answer, and reloads it; it restarts a server that has ended or is suspended, on the
            same ports. Repairs are logged as warnings by `logging`. By default nothing is repaired,
            so that a fault stays visible.
        admin_key: the key in `admin_headers`; by default a random one.
        progress: whether to show a start's progress on standard error, as `Workflow.fit` does.

    Raises:
        ServerError: an invalid number of bytes or of seconds, or one port twice.

    Example:
        >>> with TritonServer("models") as server:  # doctest: +SKIP
        ...     client = EnsembleClient(server.grpc_url, "movielens")
    """

    def __init__(
        self,
        model_repository: str | os.PathLike[str],
        models: Sequence[str] | None = None,
        *,
        tritonserver: str | os.PathLike[str] | None = None,
        python: str | os.PathLike[str] | None = None,
        startup_timeout: float = 120.0,
        log_file: str | os.PathLike[str] | None = None,
        grpc_port: int | None = None,
        http_port: int | None = None,
        http: bool = True,
        metrics_port: int | None = None,
        response_cache_bytes: int = 0,
        heal: bool = False,
        admin_key: str | None = None,
        progress: bool = True,
    ) -> None:
        if type(response_cache_bytes) is not int or response_cache_bytes < 0:
            raise ServerError(
                "Expected response_cache_bytes as a number of bytes, for example 64 * 2**20. "
                f"Received: {response_cache_bytes!r}."
            )
        self._ports = (http_port if http else None, grpc_port, metrics_port)
        ports = [port for port in self._ports if port]
        if len({*ports}) < len(ports):
            raise ServerError(
                "Expected different ports for HTTP, gRPC and metrics. "
                f"Received: {', '.join(map(repr, ports))}."
            )
        if admin_key is not None and not (admin_key.isascii() and admin_key.isprintable()):
            raise ServerError(
                "Expected admin_key as printable ASCII, since a header carries it. "
                f"Received: {admin_key!r}."
            )
        self.model_repository = Path(model_repository).absolute()
        self._wanted = models
        self._tritonserver = tritonserver
        self._python = python
        self._startup_timeout = expect_seconds("startup_timeout", startup_timeout, ServerError)
        self._log_file = None if log_file is None else Path(log_file).absolute()
        self._http = http
        self._cache_bytes = response_cache_bytes
        self._progress = progress
        self._admin_key = admin_key or secrets.token_hex(16)
        # The most recent process, kept after a stop so that its log can be found.
        self._process: ServerProcess | None = None
        self._stopped = True
        self._heal = heal
        self._healer: Healer | None = None
        # Held to load and unload models, and to replace or stop the process.
        self._changes, self._replacement = threading.RLock(), threading.Lock()
        self._models: list[str] = []

    @property
    def grpc_url(self) -> str:
        """Address to which the client connects, for example "127.0.0.1:8001"."""
        return self._started().grpc_url

    @property
    def http_url(self) -> str:
        """The address of HTTP, for example "http://127.0.0.1:8000".

        Raises:
            ServerError: the server was made with `http=False`.
        """
        return self._started().http_url

    @property
    def metrics_url(self) -> str:
        """The address of the metrics, for example "http://127.0.0.1:8002/metrics"."""
        return self._started().metrics_url

    @property
    def admin_headers(self) -> dict[str, str]:
        """Headers with which a client may use shared memory, load models and change the log. Secret."""
        return admin_headers(self._started().flags.admin_key)

    @property
    def log_path(self) -> Path:
        """The server's log. It is kept if the server failed, if the block of `with` did, or in `log_file`."""
        return self._started().log_path

    @property
    def models(self) -> tuple[str, ...]:
        """The requested models that are loaded, without the steps of ensembles."""
        return tuple(self._models)

    def start(self) -> None:
        """Start the server, and return when every model has answered.

        A server that was stopped can be started again.

        Raises:
            ServerError: it is running already, there is no tritonserver, a port is taken, a model
                cannot be loaded or does not answer in time. The text ends with the log.
        """
        if not self._stopped:
            raise ServerError(f"This server was started, at {self.grpc_url}. Stop it first.")
        models = models_to_load(self.model_repository, self._wanted)
        with showing("server", len(models), unit="models", progress=self._progress):
            self._start(models)
        if self._heal:
            self._healer = Healer(
                Patient(self._started, lambda: self.models, self._restart, self._changes)
            )

    def _start(self, models: tuple[str, ...]) -> None:
        deadline = time.monotonic() + self._startup_timeout
        for attempt in range(_ATTEMPTS):
            self._stopped = False
            try:
                # One model at a time after a race, which busy processors make likely.
                threads = 1 if attempt else None
                process = self._launch(models, self._ports, self._log_file, load_threads=threads)
                self._await_ready(process, deadline)
                break
            except BaseException as error:
                self._stop()
                is_last, failed = attempt == _ATTEMPTS - 1, self._process
                if is_last or failed is None or not failed.lost_a_race(str(error)):
                    raise
                failed.remove_log()

    def _restart(self, load_threads: int | None = None) -> None:
        """Replace the process, with its ports, models, key and log.

        Args:
            load_threads: how many models load at once.

        Raises:
            ServerError: as `start`, or the server was stopped meanwhile.
        """
        old = self._started()
        deadline = time.monotonic() + self._startup_timeout
        old.kill()
        ports = old.flags.http_port, old.flags.grpc_port, old.flags.metrics_port
        process = self._launch(self.models, ports, old.log_path, old, load_threads)
        self._await_ready(process, deadline)

    def _launch(
        self,
        models: tuple[str, ...],
        ports: tuple[int | None, int | None, int | None],
        log_file: Path | None,
        replaced: ServerProcess | None = None,
        load_threads: int | None = None,
    ) -> ServerProcess:
        installation = find_tritonserver(self._tritonserver, self._python)
        with self._replacement:
            if self._stopped:
                raise ServerError("Expected a running server. Received: one that was stopped.")
            self._process = ServerProcess(
                installation,
                repository=self.model_repository,
                models=models,
                ports=ports,
                http=self._http,
                log_file=log_file,
                admin_key=self._admin_key,
                cache_bytes=self._cache_bytes,
                load_threads=load_threads,
                replaced=replaced,
            )
            self._models = list(models)
            return self._process

    def _await_ready(self, process: ServerProcess, deadline: float) -> None:
        administration = self.administration
        restart("the models are loaded")
        reason = "its port is closed"
        while reason != process.flags.server_id:
            if not process.is_running():
                raise process.failure("tritonserver ended during its start")
            if time.monotonic() > deadline:
                raise process.too_slow(self._startup_timeout, reason)
            time.sleep(0.02)
            # Asking takes a hundred times as long as looking, on a processor that models load on.
            if not process.listens():
                continue
            try:
                # Its name distinguishes it from another server.
                reason = administration.server_name(timeout=5)
            except ProbeError as error:
                reason = str(error)
        for model in counted(self._models):
            at_work(model)
            try:
                administration.probe(model, max(deadline - time.monotonic(), 1))
            except ProbeError as error:
                if time.monotonic() > deadline:
                    raise process.too_slow(self._startup_timeout, str(error)) from error
                raise process.failure(f"The model {model} does not answer: {error}") from error

    def stop(self) -> None:
        """Stop the server: running requests are answered, then all its processes end.

        Does nothing if the server is not running. Its temporary log is removed with it; that of a server
        that ended on its own is kept.
        """
        ended_here = not self._stopped and self.is_running()
        self._stop()
        if ended_here and self._process is not None:
            self._process.remove_log()

    def _stop(self) -> None:
        self._stopped = True
        if self._healer is not None:
            self._healer.end()
        with self._replacement:
            if self._process is not None:
                self._process.stop()
        if self._healer is not None:
            self._healer.join()
            self._healer = None

    def __repr__(self) -> str:
        state = f"running at {self.grpc_url}" if self.is_running() else "not running"
        return f"TritonServer({str(self.model_repository)!r}, {state})"

    def _repr_html_(self) -> str:
        rows = [("repository", str(self.model_repository)), ("running", str(self.is_running()))]
        if self.is_running():
            rows += [("models", ", ".join(self.models)), ("gRPC", self.grpc_url)]
            rows += [("metrics", self.metrics_url), ("log", str(self.log_path))]
        return table(rows)

    def is_running(self) -> bool:
        """Whether the server's process exists."""
        return self._process is not None and self._process.is_running()

    def is_ready(self, timeout: float = 5.0) -> bool:
        """Whether every loaded model answers a one-row request, each within `timeout` seconds.

        Raises:
            ServerError: the timeout is not above 0 and up to 1e9.
        """
        expect_seconds("timeout", timeout, ServerError)
        if not self.is_running():
            return False
        administration = self.administration
        try:
            for model in self._models:
                administration.probe(model, timeout)
        except ProbeError:
            return False
        return True

    def load(self, model: str) -> None:
        """Load any model, and wait until it answers; `publish` is for versions of an export.

        The steps of an ensemble are loaded first: the server would unload an ensemble with a step
        that it cannot load. Steps that the ensemble no longer needs are unloaded last. A server that
        ends by a race of Triton's own is started again, as at a start.

        Raises:
            ServerError: the model or a step cannot be loaded; an earlier version continues to serve.
        """
        with self._changes:
            for attempt in range(_ATTEMPTS):
                process = self._running()
                live = self._live(process)
                try:
                    live.load(model)
                    break
                except ProbeError as error:
                    lost = LOST_PROCESS.search(str(error)) or process.ended_in_a_race()
                    if attempt == _ATTEMPTS - 1 or not lost:
                        text = f"The model {model} could not be loaded: {error}"
                        raise process.failure(text) from error
                self._restart(load_threads=1)
            self._add(model)

    def publish(self, model: str, *, tolerance: float = 0.0) -> int:
        """Answer with the version that an export or a rollback published, if it answers right.

        All files are compared with the manifest, the steps are loaded, and the new version answers
        its golden rows under another name. Only then do clients get its answers, without a failed
        request. Otherwise the old version continues to serve, with unchanged answers.

        Args:
            model: the name of an exported ensemble or fused model.
            tolerance: the least allowed difference of a float from the export's answer, relative to
                the answer or to 1 if that is larger; by default the export's own, mostly 1e-5.

        Returns:
            The version.

        Raises:
            ServerError: the version is damaged, cannot be loaded, or answers a golden row
                differently; the text says which version serves. The server has ended meanwhile.

        Example:
            >>> server.publish("movielens")  # doctest: +SKIP
            2
        """
        with self._changes:
            process = self._running()
            try:
                version = self._live(process).publish(model, tolerance=tolerance)
            except ServerError as error:
                if process.ended_in_a_race():
                    raise ServerError(
                        f"{error} The server has ended by a race of Triton's own while a model was "
                        "loaded: start it again, which heal=True does by itself."
                    ) from error
                raise
            self._add(model)
        return version

    def unload(self, model: str) -> None:
        """Unload a model; for an ensemble, also the steps that no other model needs.

        Raises:
            ServerError: the server refused.
        """
        with self._changes:
            process = self._running()
            try:
                self.administration.unload(model, self._startup_timeout)
            except ProbeError as error:
                raise process.failure(
                    f"The model {model} could not be unloaded: {error}"
                ) from error
            self._models = [name for name in self._models if name != model]

    def _add(self, model: str) -> None:
        if model not in self._models:
            self._models.append(model)

    def _live(self, process: ServerProcess) -> LiveServer:
        return LiveServer(
            self.model_repository, process.grpc_url, self._admin_key, self._startup_timeout
        )

    @property
    def administration(self) -> Administration:
        """Requests of the server's owner: health, and loading and unloading of models."""
        return self._started().administration

    def _started(self) -> ServerProcess:
        if self._process is None:
            raise ServerError("Expected a started server. Received: one that was never started.")
        return self._process

    def _running(self) -> ServerProcess:
        process = self._started()
        if not process.is_running():
            raise process.failure("Expected a running server. Received: one that has ended")
        return process

    def __enter__(self) -> Self:
        """Start the server."""
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Stop the server. After an error its log is kept."""
        if kind is None:
            self.stop()
        else:
            self._stop()
