"""Serve an exported model with a real Triton server, and request predictions from it."""

from typing import TYPE_CHECKING

try:
    from workflow.first_use import at_first_use
except ModuleNotFoundError as error:  # here, since no module of ours can say it then
    import workflow

    raise ImportError(
        f"Expected the package 'workflow' of parquet-to-triton. Received: {workflow.__file__}, which has "
        "the same name and comes before it on Python's path. Rename it."
    ) from error

from serving.errors import (
    ClientError,
    ColumnError,
    DeadlineExceededError,
    DtypeError,
    InvalidRequestError,
    ServerError,
    ServerUnavailableError,
    UnknownModelError,
)

if TYPE_CHECKING:
    from serving.async_client import AsyncEnsembleClient
    from serving.client import EnsembleClient
    from serving.connection.address import Tls
    from serving.embedded.server import TritonServer
    from serving.perf_analyzer import write_perf_analyzer_input
    from serving.prove.parity import check_parity
    from serving.prove.report import ParityReport
    from serving.scoring import predict_to_parquet
    from serving.watch.skew import Skew
    from serving.watch.skew_history import SkewHistory
    from serving.watch.skew_monitor import SkewMonitor

__all__ = [
    "AsyncEnsembleClient",
    "ClientError",
    "ColumnError",
    "DeadlineExceededError",
    "DtypeError",
    "EnsembleClient",
    "InvalidRequestError",
    "ParityReport",
    "ServerError",
    "ServerUnavailableError",
    "Skew",
    "SkewHistory",
    "SkewMonitor",
    "Tls",
    "TritonServer",
    "UnknownModelError",
    "check_parity",
    "predict_to_parquet",
    "write_perf_analyzer_input",
]
# gRPC and Polars take half a second to import.
_MODULES = {
    "AsyncEnsembleClient": "serving.async_client",
    "EnsembleClient": "serving.client",
    "ParityReport": "serving.prove.report",
    "Skew": "serving.watch.skew",
    "SkewHistory": "serving.watch.skew_history",
    "SkewMonitor": "serving.watch.skew_monitor",
    "Tls": "serving.connection.address",
    "TritonServer": "serving.embedded.server",
    "check_parity": "serving.prove.parity",
    "predict_to_parquet": "serving.scoring",
    "write_perf_analyzer_input": "serving.perf_analyzer",
}


def __dir__() -> list[str]:
    return __all__


__getattr__ = at_first_use("serving", _MODULES)
