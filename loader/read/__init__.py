"""Reading row groups, and what happens to damaged ones."""
