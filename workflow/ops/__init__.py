"""The operators: one file each."""

from .categorify import Categorify
from .fill_missing import FillMissing
from .join_external import JoinExternal
from .lambda_op import LambdaOp
from .normalize import Normalize

__all__ = ["Categorify", "FillMissing", "JoinExternal", "LambdaOp", "Normalize"]
