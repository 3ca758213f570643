"""Differential privacy for iterative training."""
