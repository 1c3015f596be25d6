"""Lookup structures: positions of values among keys."""
