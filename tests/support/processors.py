"""Other processors than the present one, as far as environment variables make the libraries believe
in them.

Each library asks the processor by itself which instructions there are: NumPy, ATen, oneDNN, MKL,
OpenBLAS, the loops of discreet itself and the C library. All have to be told the same, or most of
the numbers stay what they were: ATEN_CPU_CAPABILITY alone changes neither the products of matrices
nor exp.
"""

import os
import platform
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np

AMX = "ONEDNN_MAX_CPU_ISA"
WITHOUT_AMX = "AVX512_CORE_FP16"  # everything below
PRODUCT = (
    "import torch\nx = torch.ones(64, 64, dtype=torch.bfloat16)\ntorch.nn.functional.linear(x, x)\n"
)
_SIMD = np.show_config(mode="dicts")["SIMD Extensions"]


def dispatched() -> tuple[str, ...]:
    """Beyond its baseline, what NumPy found here and could be told to do without, by the names that
    it takes.
    """
    return tuple(_SIMD.get("found", ()))


def has_avx2() -> bool:
    """Whether compilers and libraries may use AVX2 here."""
    return not {"AVX2", "X86_V3"}.isdisjoint([*_SIMD.get("baseline", ()), *dispatched()])


def settings() -> dict[str, dict[str, str]]:
    """Variables that stand for a processor and a number of threads, by name; older processors than
    this one only.
    """
    found = {
        f"as it is, {threads}": {"OMP_NUM_THREADS": threads[0]}
        for threads in ("1 thread", "2 threads")
    }
    plain = {"ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1"} | _without(dispatched())
    if platform.machine() not in {"x86_64", "AMD64"}:
        return found | {"baseline": plain}
    sse = {
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "OPENBLAS_CORETYPE": "Nehalem",
        "DISCREET_INSTRUCTIONS": "baseline",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4",
    }
    avx2 = {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "DISCREET_INSTRUCTIONS": "avx2",
        "OMP_NUM_THREADS": "2",
    }
    later = [name for name in dispatched() if name.startswith(("AVX512", "X86_V4"))]
    return found | {"SSE4.2": plain | sse} | ({"AVX2": avx2 | _without(later)} if later else {})


@cache
def announces_amx_in_vain() -> bool:
    """Whether products of matrices in bfloat16 end the process.

    Some virtual machines announce the instructions for tiles (AMX) of their host, and do not
    execute them. oneDNN relies on it.
    """
    try:
        announced = "amx_bf16" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not Linux
        return False
    if not announced or AMX in os.environ:
        return False
    return (
        subprocess.run([sys.executable, "-c", PRODUCT], capture_output=True, check=False).returncode
        == -signal.SIGILL
    )


def _without(names: list[str] | tuple[str, ...]) -> dict[str, str]:
    """NumPy warns about a name that means nothing here,
    and refuses to start without its baseline.
    """
    return {"NPY_DISABLE_CPU_FEATURES": " ".join(names)} if names else {}
