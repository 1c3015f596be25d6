"""A trained model and its workflow as a Triton model repository.

Example:
    >>> from exporter import export_tensorflow_ensemble, verify
"""

from typing import TYPE_CHECKING, Any

from exporter.errors import ExportError
from exporter.plan.options import ServingOptions
from exporter.repository.verify import verify
from exporter.repository.versions import rollback

if TYPE_CHECKING:
    from exporter.export import export_tensorflow_ensemble
    from exporter.report.report import ExportReport

__all__ = [
    "ExportError",
    "ExportReport",
    "ServingOptions",
    "export_tensorflow_ensemble",
    "rollback",
    "verify",
]


def __getattr__(name: str) -> Any:
    # TensorFlow takes seconds to import, which other functions such as `verify` do not need.
    if name == "export_tensorflow_ensemble":
        from exporter.export import export_tensorflow_ensemble  # noqa: PLC0415

        return export_tensorflow_ensemble
    if name == "ExportReport":
        from exporter.report.report import ExportReport  # noqa: PLC0415

        return ExportReport
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
