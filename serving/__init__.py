"""Serve an exported model with a real Triton server, and request predictions from it."""

from serving.async_client import AsyncEnsembleClient
from serving.client import EnsembleClient
from serving.connection.address import Tls
from serving.embedded.server import TritonServer
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
