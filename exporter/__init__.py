"""A trained model and its workflow as a Triton model repository.

Example:
    >>> from exporter import export_tensorflow_ensemble, verify
"""

from typing import TYPE_CHECKING, Any

from exporter.errors import ExportError

if TYPE_CHECKING:
    from exporter.export import export_ensemble
    from exporter.plan.options import ServingOptions
    from exporter.report.report import ExportReport
    from exporter.repository.verify import verify
    from exporter.repository.versions import rollback
    from exporter.tensorflow_ensemble import export_tensorflow_ensemble

__all__ = [
    "ExportError",
    "ExportReport",
    "ServingOptions",
    "export_ensemble",
    "export_tensorflow_ensemble",
    "rollback",
    "verify",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    # TensorFlow and Polars take seconds to import. The command line's help needs neither, and
    # `verify` no TensorFlow.
    match name:
        case "ExportReport":
            from exporter.report.report import ExportReport  # noqa: PLC0415

            return ExportReport
        case "ServingOptions":
            from exporter.plan.options import ServingOptions  # noqa: PLC0415

            return ServingOptions
        case "export_ensemble":
            from exporter.export import export_ensemble  # noqa: PLC0415

            return export_ensemble
        case "export_tensorflow_ensemble":
            from exporter.tensorflow_ensemble import export_tensorflow_ensemble  # noqa: PLC0415

            return export_tensorflow_ensemble
        case "rollback":
            from exporter.repository.versions import rollback  # noqa: PLC0415

            return rollback
        case "verify":
            from exporter.repository.verify import verify  # noqa: PLC0415

            return verify
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
