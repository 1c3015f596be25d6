"""The command line of tritonserver, in one place for the embedded server and docker-compose.yml."""

from __future__ import annotations

from dataclasses import dataclass

# Closed to clients: shared memory has been a way to attack Triton, and whoever may load a model may
# run code.
RESTRICTED = "shared-memory,model-repository,trace,logging"
ADMIN_HEADER = "admin-key"
# gRPC's name for the same header.
GRPC_ADMIN_HEADER = f"triton-grpc-protocol-{ADMIN_HEADER}"


def admin_headers(key: str) -> dict[str, str]:
    """Headers of a client that has a server's admin key, over HTTP or gRPC."""
    return dict.fromkeys((ADMIN_HEADER, GRPC_ADMIN_HEADER), key)


@dataclass(frozen=True)
class ServerFlags:
    """The models that a server serves, and the addresses on which it listens.

    Attributes:
        model_repository: the folder with the models.
        http_port: port of HTTP; None for no HTTP.
        grpc_port: port of gRPC, for clients, health and administration.
        metrics_port: port of the metrics in Prometheus' format.
        address: the address to listen on; in a container "0.0.0.0", with the ports published on
            loopback.
        models: the names of the models to load; an ensemble brings its steps.
        admin_key: the value of the header `admin-key` that a request needs to load and unload
            models, use shared memory, trace or change the log.
        backend_directory: the folder with the backends; None for the server's own.
        shm_prefix: prefix of the names of the server's shared memory; None for Triton's default.
        server_id: the name that the server reports at `/v2`.
        client_shm: whether clients may send tensors through shared memory; needed by, and known to,
            versions from 2.68 on (image 26.04), while older ones always allow it.
        cache_bytes: the memory for cached answers of models whose config enables the response
            cache; 0 for none.
        cache_directory: the folder with the caches; None for the server's own.
        exit_timeout: seconds that running requests have to finish when the server is stopped.
        load_threads: how many models load at once; None for Triton's four.
    """

    model_repository: str
    models: tuple[str, ...]
    admin_key: str
    http_port: int | None = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    address: str = "127.0.0.1"
    backend_directory: str | None = None
    shm_prefix: str | None = None
    server_id: str = "triton"
    client_shm: bool = False
    cache_bytes: int = 0
    cache_directory: str | None = None
    exit_timeout: int = 10
    load_threads: int | None = None


def server_flags(flags: ServerFlags) -> list[str]:
    """The arguments of `tritonserver`, of any version from 2.51 on.

    Only the named models are loaded, each with its complete config; a model that fails to load
    stops the server. The metrics, with quantiles of the latencies, have a port of their own.

    Example:
        >>> server_flags(ServerFlags("/models", ("movielens",), "secret"))[:3]
        ['--model-repository=/models', '--model-control-mode=explicit', '--load-model=movielens']
    """
    arguments = [
        f"--model-repository={flags.model_repository}",
        "--model-control-mode=explicit",
        *(f"--load-model={model}" for model in flags.models),
        "--disable-auto-complete-config",
        "--strict-readiness=true",
        "--exit-on-error=true",
        f"--exit-timeout-secs={flags.exit_timeout}",
        *_http(flags),
        f"--grpc-address={flags.address}",
        f"--grpc-port={flags.grpc_port}",
        f"--grpc-restricted-protocol={RESTRICTED}:{ADMIN_HEADER}={flags.admin_key}",
        # Requests kept for reuse would keep the memory of the largest ones.
        "--grpc-infer-allocation-pool-size=0",
        f"--id={flags.server_id}",
        f"--metrics-address={flags.address}",
        f"--metrics-port={flags.metrics_port}",
        "--metrics-config=summary_latencies=true",
        "--log-format=ISO8601",
        "--log-verbose=0",
    ]
    if flags.backend_directory is not None:
        arguments.append(f"--backend-directory={flags.backend_directory}")
    if flags.load_threads is not None:
        arguments.append(f"--model-load-thread-count={flags.load_threads}")
    if flags.client_shm:
        arguments.append("--allow-client-shm=true")
    if flags.cache_bytes:
        arguments.append(f"--cache-config=local,size={flags.cache_bytes}")
    if flags.cache_directory is not None:
        arguments.append(f"--cache-directory={flags.cache_directory}")
    if flags.shm_prefix is not None:
        arguments.append(f"--backend-config=python,shm-region-prefix-name={flags.shm_prefix}")
    return arguments


def _http(flags: ServerFlags) -> list[str]:
    if flags.http_port is None:
        return ["--allow-http=false"]
    return [
        f"--http-address={flags.address}",
        f"--http-port={flags.http_port}",
        f"--http-restricted-api={RESTRICTED}:{ADMIN_HEADER}={flags.admin_key}",
    ]
