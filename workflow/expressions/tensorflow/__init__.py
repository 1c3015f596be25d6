"""The TensorFlow interpreter: a program inside a SavedModel, its tables with it.

The only part of `workflow` that imports TensorFlow; import it where TensorFlow is the subject.
"""

from .column import TensorColumn
from .interpreter import TensorFlowInterpreter
from .wire import WireInterpreter

__all__ = ["TensorColumn", "TensorFlowInterpreter", "WireInterpreter"]
