"""The order in which rows are read, and positions in it."""
