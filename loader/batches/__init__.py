"""Blocks of rows cut into batches, and the thread that prepares them ahead of their consumer."""
