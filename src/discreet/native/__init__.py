"""Which loops are compiled, and where is the compiled code found?"""

from discreet.native.library import Kernels, kernels

__all__ = ["Kernels", "kernels"]
