"""The wire format: how columns travel to and from a server."""
