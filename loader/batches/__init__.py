"""Batches made of rows, ahead of their consumer."""
