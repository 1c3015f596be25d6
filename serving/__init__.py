"""Serve an exported model with a real Triton server, and request predictions from it."""

from serving.async_client import AsyncEnsembleClient
from serving.client import EnsembleClient
from serving.connection.address import Tls
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
from serving.parity import check_parity
from serving.parity_report import ParityReport
from serving.perf_analyzer import write_perf_analyzer_input
from serving.server import TritonServer

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
    "Tls",
    "TritonServer",
    "UnknownModelError",
    "check_parity",
    "write_perf_analyzer_input",
]
