"""A package with a training."""
