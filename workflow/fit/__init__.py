"""Fitting: operators learn in phases, each one pass over the data."""
