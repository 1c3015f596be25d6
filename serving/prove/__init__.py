"""Parity: a server's answers compared with those of the workflow and the network offline."""
