"""The TensorFlow interpreter: a program inside a SavedModel, with its tables.

The only part of `workflow` that imports TensorFlow; import it only where TensorFlow is needed.
"""

from .column import TensorColumn
from .interpreter import TensorFlowInterpreter
from .wire import WireInterpreter

__all__ = ["TensorColumn", "TensorFlowInterpreter", "WireInterpreter"]
