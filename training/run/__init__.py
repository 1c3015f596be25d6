"""What `train` puts around `model.fit`: checks before it, watching during it."""
