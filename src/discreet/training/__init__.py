"""The PyTorch engine: the only folder that imports torch."""

__all__: list[str] = []
