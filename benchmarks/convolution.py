"""What per-record gradients of convolutions cost, beside the ordinary weight gradient.

    python benchmarks/convolution.py [records]

Milliseconds of CPU time, one thread, contenders interleaved, medians. With gradients: folded or
unfolded, then their sum.
Without: norms by ghost, then a streamed sum.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from discreet.training.rules.convolution.geometry import Convolution
from discreet.training.rules.convolution.norms import ghost_pays, ghost_squares

ROUNDS = 7
SHAPES: dict[str, tuple[Convolution, tuple[int, ...]]] = {
    "1->16 @28, 8x8, stride 2": (Convolution.of((16, 1, 8, 8), 2, 3), (28, 28)),
    "16->32 @13, 4x4, stride 2": (Convolution.of((32, 16, 4, 4), 2), (13, 13)),
    "3->32 @32": (Convolution.of((32, 3, 3, 3), 1, 1), (32, 32)),
    "32->32 @32": (Convolution.of((32, 32, 3, 3), 1, 1), (32, 32)),
    "32->64 @16": (Convolution.of((64, 32, 3, 3), 1, 1), (16, 16)),
    "64->128 @8": (Convolution.of((128, 64, 3, 3), 1, 1), (8, 8)),
    "128->128 @8": (Convolution.of((128, 128, 3, 3), 1, 1), (8, 8)),
    "256->256 @4": (Convolution.of((256, 256, 3, 3), 1, 1), (4, 4)),
    "64 depthwise @16": (Convolution.of((64, 1, 3, 3), 1, 1, 1, 64), (16, 16)),
    "64->64 @256 (1d)": (Convolution.of((64, 64, 3), 1, 1), (256,)),
    "64->32 @8 (transposed)": (Convolution.of_transposed((64, 32, 2, 2), 2), (16, 16)),
}


def contenders(
    how: Convolution, x: Tensor, g: Tensor, wide_sizes: tuple[int, ...]
) -> dict[str, Callable[[], object]]:
    """Every way that fits into a few hundred megabytes."""
    weights = torch.rand(len(x))
    dense = how.unfolded(x, g).flatten(1)
    ways: dict[str, Callable[[], object]] = {
        "plain": lambda: how._gradient(x, g, folds=1),  # noqa: SLF001  (the yardstick)
        "folded": lambda: how.folded(x, g),
        "unfolded": lambda: how.unfolded(x, g),
        "their sum": lambda: torch.mv(dense.t(), weights),
        "ghost": lambda: ghost_squares(how, x, g),
        "streamed": lambda: how.streamed(x, g, weights),
    }
    if not ghost_pays(how, wide_sizes) or how.groups > 1:
        del ways["ghost"]
    return ways


def main(records: int) -> None:
    """One line per shape."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name, (how, wide_sizes) in SHAPES.items():
        wide = torch.randn(records, how.weight_shape[1] * how.groups, *wide_sizes)
        narrow = torch.randn(records, how.weight_shape[0], *how.positions(wide_sizes))
        x, g = (narrow, wide) if how.transposed else (wide, narrow)
        ways = contenders(how, x, g, wide_sizes)
        taken: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(ROUNDS + 1):
            for way, run in ways.items():
                start = time.process_time()
                run()
                if turn:  # the first one warms up
                    taken[way].append((time.process_time() - start) * 1e3)
        print(
            f"{name:26} "
            + "  ".join(f"{way} {statistics.median(times):6.1f}" for way, times in taken.items()),
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 128)
