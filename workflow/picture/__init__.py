"""Pictures of small graphs: as text for a terminal, as SVG and HTML for a notebook.

Nothing here knows of workflows: what is to be drawn comes as a `Diagram`.
"""

from .diagram import Arrow, Box, Diagram, Item
from .drawn import Drawn

__all__ = ["Arrow", "Box", "Diagram", "Drawn", "Item"]
