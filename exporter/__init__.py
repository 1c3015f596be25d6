"""A trained model and its workflow as a Triton model repository.

Example:
    >>> from exporter import export_tensorflow_ensemble, verify
"""

from exporter.ensemble import export_tensorflow_ensemble
from exporter.errors import ExportError
from exporter.options import ServingOptions
from exporter.report import ExportReport
from exporter.verify import verify

__all__ = ["ExportError", "ExportReport", "ServingOptions", "export_tensorflow_ensemble", "verify"]
