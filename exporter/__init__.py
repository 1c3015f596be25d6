"""A trained model and its workflow as a Triton model repository.

Example:
    >>> from exporter import export_tensorflow_ensemble, verify
"""

from typing import TYPE_CHECKING

try:
    from workflow.first_use import at_first_use
except ModuleNotFoundError as error:  # here, since no module of ours can say it then
    import workflow

    raise ImportError(
        f"Expected the package 'workflow' of parquet-to-triton. Received: {workflow.__file__}, which has "
        "the same name and comes before it on Python's path. Rename it."
    ) from error

from exporter.errors import ExportError

if TYPE_CHECKING:
    from exporter.export import export_ensemble, export_tensorflow_ensemble
    from exporter.plan.options import ServingOptions
    from exporter.report.parity_page import parity_page
    from exporter.report.report import ExportReport
    from exporter.repository.verify import verify
    from exporter.repository.versions import rollback
    from training.network.nearest_items import NearestItems

__all__ = [
    "ExportError",
    "ExportReport",
    "NearestItems",
    "ServingOptions",
    "export_ensemble",
    "export_tensorflow_ensemble",
    "parity_page",
    "rollback",
    "verify",
]


# TensorFlow and Polars take seconds to import. The command line's help needs neither, and `verify` no
# TensorFlow.
_MODULES = {
    "ExportReport": "exporter.report.report",
    "NearestItems": "training.network.nearest_items",
    "ServingOptions": "exporter.plan.options",
    "export_ensemble": "exporter.export",
    "export_tensorflow_ensemble": "exporter.export",
    "parity_page": "exporter.report.parity_page",
    "rollback": "exporter.repository.versions",
    "verify": "exporter.repository.verify",
}


def __dir__() -> list[str]:
    return __all__


__getattr__ = at_first_use("exporter", _MODULES)
