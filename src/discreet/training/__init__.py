"""Private training with PyTorch: the only folder that imports torch."""

__all__: list[str] = []
