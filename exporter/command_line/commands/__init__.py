"""The subcommands, one a file: each is a thin layer over the public functions."""
