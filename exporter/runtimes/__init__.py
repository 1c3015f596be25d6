"""Runtimes that serve the network: one file each."""
