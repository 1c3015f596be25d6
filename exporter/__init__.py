"""A trained model and its workflow as a Triton model repository.

Example:
    >>> from exporter import export_tensorflow_ensemble, verify
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from exporter.errors import ExportError

if TYPE_CHECKING:
    from exporter.export import export_ensemble
    from exporter.network.nearest_items import NearestItems
    from exporter.plan.options import ServingOptions
    from exporter.report.report import ExportReport
    from exporter.repository.verify import verify
    from exporter.repository.versions import rollback
    from exporter.tensorflow_ensemble import export_tensorflow_ensemble

__all__ = [
    "ExportError",
    "ExportReport",
    "NearestItems",
    "ServingOptions",
    "export_ensemble",
    "export_tensorflow_ensemble",
    "rollback",
    "verify",
]


# TensorFlow and Polars take seconds to import. The command line's help needs neither, and `verify` no
# TensorFlow.
_MODULES = {
    "ExportReport": "report.report",
    "NearestItems": "network.nearest_items",
    "ServingOptions": "plan.options",
    "export_ensemble": "export",
    "export_tensorflow_ensemble": "tensorflow_ensemble",
    "rollback": "repository.versions",
    "verify": "repository.verify",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"exporter.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
