"""Models built from a workflow's description of its columns."""

from training.models.bst import bst
from training.models.dcn import dcn
from training.models.dlrm import dlrm
from training.models.mlp import mlp
from training.models.two_tower import two_tower
from training.models.wide_and_deep import wide_and_deep

__all__ = ["bst", "dcn", "dlrm", "mlp", "two_tower", "wide_and_deep"]
