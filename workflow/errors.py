"""The errors of the workflow."""

from __future__ import annotations


class WorkflowError(ValueError):
    """A workflow was built or used in a way that cannot work; the text says how to mend it."""


class WorkflowFormatError(WorkflowError):
    """A saved workflow is damaged, or says something that no workflow can."""
