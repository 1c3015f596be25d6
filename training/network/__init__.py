"""Trained networks of every kind, read for an export or for parity."""
