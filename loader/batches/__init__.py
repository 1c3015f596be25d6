"""Batches of rows, prepared ahead of their consumer."""
