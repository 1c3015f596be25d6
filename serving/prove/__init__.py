"""Parity of what a server answers with what the workflow and the network answer offline."""
