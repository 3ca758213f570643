"""From the sources in C to one shared library for each set of instructions.

A file's name holds a digest of all sources, of the flags and of the platform: other sources look
for another file, so that an old kernel is never loaded beside new code. Each set of instructions is
a file of its own, and says itself whether this processor has them: a cache that several machines
share cannot hand one of them what it does not execute.

Standard library only, and no import of this package: the build of a wheel loads this file by its
path (`hatch_build.py`).
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["SETS", "SOURCES", "compile_into", "file_name", "likely_set", "sets_of_instructions"]

SETS = ("avx512", "avx2", "baseline")
"""Widest first; each has all instructions of those after it."""

SOURCES = Path(__file__).parent
"""The folder of the sources, which is where an installer puts what it compiled."""

_FILES = ("kernels.c", "noise.h", "sums.h", "lstm.h")
_COMPILERS = ("cc", "gcc", "clang")

# No fused multiply-add, and nothing of -ffast-math. The last two say that nobody reads errno or the
# flags of floating-point exceptions, which change no number.
_FLAGS = (
    "-std=c11",
    "-O3",
    "-shared",
    "-fPIC",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
)
_MACROS = {"avx512": ("-DAVX512",), "avx2": ("-DAVX2",), "baseline": ()}

# Instructions of `is_supported` in kernels.c, as Linux names them.
_AVX512 = {"avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl"}

# Seconds; it takes one or two.
_LONGEST = 300.0


def sets_of_instructions() -> tuple[str, ...]:
    """Which sets of instructions there is a file for on this architecture, widest first."""
    is_intel = platform.machine() in {"x86_64", "AMD64"} and sys.maxsize > 2**32
    return SETS if is_intel else SETS[-1:]


@cache
def likely_set() -> str:
    """The widest set that the operating system names; the file itself decides."""
    if len(sets_of_instructions()) == 1:
        return SETS[-1]

    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return SETS[-1]

    flags = next((set(line.split()) for line in text.splitlines() if line[:5] == "flags"), set())
    if flags >= _AVX512:
        return "avx512"

    return "avx2" if "avx2" in flags else "baseline"


@cache
def file_name(instructions: str) -> str:
    """The name of the file that is compiled from these sources, on this platform.

    It does not end in what Python takes for a module of its own.
    """
    digest = hashlib.sha256()
    platform_name = sysconfig.get_config_var("MULTIARCH") or sysconfig.get_platform()
    for part in (*_FLAGS, *_MACROS[instructions], str(platform_name)):
        digest.update(part.encode() + b"\0")

    for name in _FILES:
        digest.update((SOURCES / name).read_bytes() + b"\0")

    return f"kernels-{instructions}-{digest.hexdigest()[:24]}.shared"


def compile_into(folder: Path, instructions: str) -> Path | None:
    """Compile one file into a folder that exists; None where that does not work.

    It appears whole or not at all, also when several processes do the same at once.
    """
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if os.name != "posix" or compiler is None:
        return None

    target = folder / file_name(instructions)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".compiling-") as scratch:
            compiled = Path(scratch) / target.name
            command = [compiler, *_FLAGS, *_MACROS[instructions], "-o", str(compiled)]
            subprocess.run(  # noqa: S603  (a fixed command, on the package's own sources)
                [*command, str(SOURCES / "kernels.c"), "-lm"],
                check=True,
                capture_output=True,
                timeout=_LONGEST,
                stdin=subprocess.DEVNULL,
            )
            compiled.chmod(0o755)
            compiled.replace(target)
    except (OSError, subprocess.SubprocessError):
        return None

    return target
