"""Embedding tables that are divided among the workers."""
