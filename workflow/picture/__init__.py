"""Pictures of small graphs: as text for a terminal, as SVG and HTML for a notebook.

Nothing here depends on workflows: input is a `Diagram`.
"""

from .diagram import Arrow, Box, Diagram, Item
from .drawn import Drawn

__all__ = ["Arrow", "Box", "Diagram", "Drawn", "Item"]
