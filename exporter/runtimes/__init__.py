"""Runtimes, the ways to serve a network: one file each, and the search for items that can follow one."""
