"""Per-record gradients, one small file per kind of layer."""

__all__: list[str] = []
