"""How the network is served: one file for each runtime."""
