"""One running tritonserver: its supervisor, its ports, its log."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from serving.embedded.administration import Administration
from serving.embedded.flags import ServerFlags, server_flags
from serving.embedded.installation import Installation, cache_directory, prepare
from serving.embedded.supervisor import Job
from serving.errors import LOST_PROCESS, ServerError
from workflow.errors import cannot_write

HOST = "127.0.0.1"
STOP_TIMEOUT = 15.0
_LAST_PORT = 65_535
LAST_LINES = 30
# Seconds in which a server that crashes has written its trace and ended.
_ENDS_WITHIN = 5.0
# What the log says of a start that may succeed at once: another process took a free port before the
# server bound it; Triton gave a Python model's process up while it loaded, as decision 42 describes.
_RACES = ("already in use", "boost::interprocess::lock_exception")
_PLAIN = re.compile(r"[A-Za-z0-9/._+=@%:,~-]+")
# Log messages of the server when it begins to load a model, and when it has loaded it.
_BEGUN, _DONE = re.compile(r'"loading: (\S+):\d+"'), re.compile(r"successfully loaded '(\S+)'")


class ServerProcess:
    """A server under a supervisor, started without a wait until it is ready.

    Args:
        installation: the server's program.
        repository: the model repository.
        models: the models to load.
        ports: the ports of HTTP, gRPC and the metrics; None for a free one.
        http: whether there is HTTP at all.
        log_file: the file for the log; None for a new temporary file.
        admin_key: the key for administration.
        cache_bytes: the memory for cached answers; 0 for none.
        load_threads: how many models load at once; by default as many as there are processors.
        replaced: the process whose log this one continues.

    Raises:
        ServerError: a port is taken, the interpreter is not suitable, the server has no cache, or
            the log cannot be written.
    """

    def __init__(
        self,
        installation: Installation,
        *,
        repository: Path,
        models: tuple[str, ...],
        ports: tuple[int | None, int | None, int | None],
        http: bool,
        log_file: Path | None,
        admin_key: str,
        cache_bytes: int = 0,
        load_threads: int | None = None,
        replaced: ServerProcess | None = None,
    ) -> None:
        caches = cache_directory(installation) if cache_bytes else None
        http_port, grpc_port, metrics_port = free_ports(ports)
        identity = f"tritonserver-{secrets.token_hex(6)}-"
        work = _make_folder(_plain_folder())
        self.log_path = log_file or work / "server.log"
        self._own_log = log_file is None and replaced is None
        is_continued = replaced is not None and self.log_path.exists()
        self._log_begin = self.log_path.stat().st_size if is_continued else 0
        parts = work / "parts"
        backends, link = parts / "backends", parts / "repository"
        self.flags: ServerFlags = ServerFlags(
            model_repository=str(repository if _is_plain(repository) else link),
            models=models,
            admin_key=admin_key,
            http_port=http_port if http else None,
            grpc_port=grpc_port,
            metrics_port=metrics_port,
            backend_directory=str(backends),
            shm_prefix=identity,
            server_id=f"triton-{secrets.token_hex(6)}",
            client_shm=installation.knows("allow-client-shm"),
            cache_bytes=cache_bytes,
            cache_directory=None if caches is None else str(caches),
            load_threads=load_threads or _load_threads(),
        )
        try:
            with _write_errors(work):
                backends.mkdir(parents=True)
                link.symlink_to(repository)
                if replaced is not None:  # as in `remove_log`
                    self.log_path.parent.mkdir(parents=True, exist_ok=True)
                environment = prepare(installation, backends)
            job = Job(
                command=[str(installation.binary), *server_flags(self.flags)],
                environment=environment,
                directory=str(work),
                remove=str(parts if log_file is None else work),
                shm_prefix=identity,
                owner=os.getpid(),
                grace=STOP_TIMEOUT,
                all_python=installation.wheel is not None,
            )
            self._supervisor = _start(job, self.log_path, "ab" if replaced else "wb")
        except BaseException:
            shutil.rmtree(work)
            raise

    @property
    def grpc_url(self) -> str:
        """The address of gRPC."""
        return f"{HOST}:{self.flags.grpc_port}"

    @property
    def http_url(self) -> str:
        """The address of HTTP.

        Raises:
            ServerError: it is off.
        """
        if self.flags.http_port is None:
            raise ServerError("Expected a server with HTTP. Received: one with http=False.")
        return f"http://{HOST}:{self.flags.http_port}"

    @property
    def metrics_url(self) -> str:
        """The address of the metrics."""
        return f"http://{HOST}:{self.flags.metrics_port}/metrics"

    @property
    def administration(self) -> Administration:
        """Requests that only the server's owner may make."""
        return Administration(self.grpc_url, self.flags.admin_key)

    def is_running(self) -> bool:
        """Whether the server's process exists."""
        return self._supervisor.poll() is None

    def stop(self) -> None:
        """Stop the server and all processes that it started; running requests may finish first."""
        self._supervisor.terminate()
        try:
            self._supervisor.wait(STOP_TIMEOUT + 10)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()

    def remove_log(self) -> None:
        """Remove the log with its temporary folder, unless the user chose its place."""
        if self._own_log:  # Some systems remove temporary files of some days' age.
            shutil.rmtree(self.log_path.parent, ignore_errors=True)

    def kill(self) -> None:
        """End the server and all processes that it started, without waiting for requests."""
        self._supervisor.send_signal(signal.SIGINT)
        self._supervisor.wait()

    def listens(self) -> bool:
        """Whether something listens at every port, which the server opens when models are loaded.

        Triton opens that of gRPC first: a client of HTTP could come too early otherwise.
        """
        flags = self.flags
        ports = (flags.grpc_port, flags.http_port, flags.metrics_port)
        return all(_answers(port) for port in ports if port is not None)

    def lost_a_race(self, error: str = "") -> bool:
        """Whether another start avoids what the log reports, or the error of a start: see `_RACES`."""
        log = self._log()
        return any(race in log for race in _RACES) or LOST_PROCESS.search(error) is not None

    def _log(self) -> str:
        """This process's part of the log; nothing if somebody removed it."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(self._log_begin)
            return log.read().decode(errors="replace")

    def ended_in_a_race(self) -> bool:
        """Whether it has ended, or ends within some seconds, for such a reason."""
        if not self.lost_a_race():
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._supervisor.wait(_ENDS_WITHIN)
        return not self.is_running()

    def too_slow(self, seconds: float, reason: str) -> ServerError:
        """The error for a start that took longer than `startup_timeout`."""
        loaded, loading = loading_models(self._log())
        return self.failure(
            f"tritonserver did not answer within {seconds:g} seconds (startup_timeout): {reason}. "
            f"Loaded: {', '.join(loaded) or 'nothing'}. "
            f"Still loading: {', '.join(loading) or 'nothing yet'}. Each model in Python starts a "
            "process of its own; give a larger startup_timeout to a slow machine"
        )

    def failure(self, text: str) -> ServerError:
        """An error with the log's last lines, without Triton's tables; without them if it was removed."""
        if not self.log_path.exists():
            return ServerError(f"{text}.")
        lines = [line for line in self._log().splitlines() if line.strip() and line[0] not in "+|"]
        last = "\n".join(lines[-LAST_LINES:])
        return ServerError(f"{text}.\nThe last lines of {self.log_path}:\n{last}")


def loading_models(log: str) -> tuple[list[str], list[str]]:
    """The models that a server has loaded, and those that it is loading, according to its log.

    Example:
        >>> loading_models('I 7 "loading: network:1"')
        ([], ['network'])
    """
    loaded = dict.fromkeys(_DONE.findall(log))
    return [*loaded], [name for name in dict.fromkeys(_BEGUN.findall(log)) if name not in loaded]


def _start(job: Job, log_path: Path, mode: str) -> subprocess.Popen[bytes]:
    try:
        log: IO[bytes] = log_path.open(mode)
    except OSError as error:
        raise ServerError(
            f"Expected a log_file that can be written. Received: {log_path}: {error.strerror}."
        ) from error
    with log:
        try:
            return job.start(log)
        except OSError as error:
            raise ServerError(f"The server's supervisor could not be started: {error}.") from error


def _load_threads() -> int:
    """The number of models to load at once: the processors of this process, or the default if more.

    A model in Python loads in a process of its own, which imports its libraries on one processor.
    """
    return max(4, len(os.sched_getaffinity(0)))


def _is_plain(path: Path) -> bool:
    """Whether the embedded server can use a path.

    Triton divides the command line of a Python model's process at spaces, and reads paths as ASCII.

    Example:
        >>> _is_plain(Path("/srv/models")), _is_plain(Path("/srv/my models")), _is_plain(Path("/srv/é"))
        (True, False, False)
    """
    return _PLAIN.fullmatch(str(path)) is not None


def _plain_folder() -> Path:
    """A folder for temporary files that the server can use."""
    usual = Path(tempfile.gettempdir())
    for folder in (usual, Path("/tmp"), Path("/var/tmp")):  # noqa: S108 - only where a folder is made
        if _is_plain(folder) and os.access(folder, os.W_OK | os.X_OK):
            return folder
    raise ServerError(
        "Expected a folder for temporary files in a path of ASCII letters, digits and ._-+=@%:, that "
        f"can be written to. Received: {str(usual)!r}. Set TMPDIR to one."
    )


def _make_folder(parent: Path) -> Path:
    with _write_errors(parent):
        return Path(tempfile.mkdtemp(prefix="tritonserver-", dir=parent))


@contextlib.contextmanager
def _write_errors(folder: Path) -> Iterator[None]:
    """Turn errors of writing temporary files into one that says where others can be."""
    try:
        yield
    except OSError as error:
        # One of a copied folder has the errors of all of its files.
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error
        raise ServerError(
            f"{cannot_write(f'temporary files to {folder}', reason)} Or set TMPDIR to another folder."
        ) from error


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0


def free_ports(wanted: Sequence[int | None]) -> list[int]:
    """The wanted ports, if they are free, and free ones for the others, no port twice.

    Each is held until all are found: the system may give one that was let go a second time.

    Args:
        wanted: ports, none twice; 0 or None for a free one.

    Raises:
        ServerError: no port, or one that is taken.
    """
    order = sorted(range(len(wanted)), key=lambda place: not wanted[place])  # the wanted ones first
    with contextlib.ExitStack() as stack:
        ports = {place: _hold(wanted[place], stack) for place in order}
    return [ports[place] for place in range(len(wanted))]


def _hold(port: int | None, stack: contextlib.ExitStack) -> int:
    if port is not None and (type(port) is not int or not 0 <= port <= _LAST_PORT):
        raise ServerError(
            f"Expected a port from 0, a free one, to {_LAST_PORT}. Received: {port!r}."
        )
    candidate = stack.enter_context(socket.socket())
    if port:  # of a server that has just ended
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        candidate.bind((HOST, port or 0))
    except OSError as error:
        raise ServerError(
            f"Expected a free port. Received: {port}: {str(error).rstrip('.')}."
        ) from None
    return int(candidate.getsockname()[1])
