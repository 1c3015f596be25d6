"""Serve an exported model with a real Triton server, and ask it for predictions."""

from serving.client import EnsembleClient
from serving.errors import ClientError, ServerError
from serving.parity import ParityReport, check_parity
from serving.server import TritonServer

__all__ = [
    "ClientError",
    "EnsembleClient",
    "ParityReport",
    "ServerError",
    "TritonServer",
    "check_parity",
]
