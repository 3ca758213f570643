"""Compiled code of this process: found, compiled once, and of the widest set that is allowed."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from discreet.errors import ParameterError
from discreet.native import compiling, kernels, library
from discreet.native.compiling import SETS, file_name
from support.source import ROOT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for compiled code, and no other."""
    monkeypatch.setattr(library, "places", lambda: (tmp_path,))
    monkeypatch.setattr(library, "writable_place", lambda: tmp_path)
    _forget()
    yield tmp_path
    _forget()


def _forget() -> None:
    library._ready.cache_clear()
    library._compiled.cache_clear()


def test_it_is_compiled_when_it_is_worth_it_and_then_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kernels(may_compile=False) is None
    made = kernels(may_compile=True)
    assert made is not None
    assert [path.name for path in folder.iterdir()] == [file_name(made.instructions)]
    _forget()
    monkeypatch.setattr(library, "compile_into", None)
    again = kernels(may_compile=True)
    assert again is not None
    assert again.instructions == made.instructions


def test_a_file_that_others_can_write_to_is_not_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = kernels(may_compile=True)
    assert made is not None
    (folder / file_name(made.instructions)).chmod(0o777)
    _forget()
    assert kernels(may_compile=False) is None


@pytest.mark.parametrize("content", [b"", b"\x7fELF and then nothing"])
def test_a_broken_file_is_not_loaded_and_made_again(folder: Path, content: bytes) -> None:
    path = folder / file_name(library._allowed()[0])
    path.write_bytes(content)
    assert kernels(may_compile=False) is None
    assert kernels(may_compile=True) is not None
    assert path.stat().st_size > 1_000


def test_what_this_processor_cannot_execute_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: a cache that several machines share hands one of them another's instructions."""
    lacking = "#include <stdint.h>\nint is_supported(void) { return 0; }\n"
    for name in compiling.sets_of_instructions()[:-1]:
        (folder / "lacking.c").write_text(lacking)
        target = str(folder / file_name(name))
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", target, "lacking.c"], cwd=folder, check=True
        )
    monkeypatch.setattr(library, "likely_set", lambda: SETS[0])
    assert kernels(may_compile=False) is None
    compiling.compile_into(folder, SETS[-1])
    _forget()
    ready = kernels(may_compile=False)
    assert ready is not None
    assert ready.instructions == SETS[-1]


@pytest.mark.parametrize("asked", compiling.sets_of_instructions())
def test_no_more_than_what_is_allowed_is_used(
    asked: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiling.compile_into(folder, compiling.likely_set())
    monkeypatch.setenv("DISCREET_INSTRUCTIONS", asked)
    made = kernels(may_compile=True)
    assert made is not None
    assert SETS.index(made.instructions) >= SETS.index(asked)


def test_another_name_of_instructions_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISCREET_INSTRUCTIONS", "haswell")
    with pytest.raises(ParameterError, match="DISCREET_INSTRUCTIONS"):
        kernels(may_compile=False)


def test_who_may_write_nowhere_compiles_for_one_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "writable_place", lambda: None)
    assert kernels(may_compile=True) is not None
    assert list(folder.iterdir()) == []


def test_without_a_compiler_there_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "compile_into", lambda *_: None)
    assert kernels(may_compile=True) is None


def test_processes_that_compile_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        made = pool.starmap(compiling.compile_into, [(tmp_path, "baseline")] * 3)
    assert made == [tmp_path / file_name("baseline")] * 3
    assert list(tmp_path.iterdir()) == made[:1]
    assert library._load(tmp_path / file_name("baseline"), "baseline") is not None


def test_all_sets_give_the_same_bits(tmp_path: Path) -> None:
    """Noise, norms and LSTM, in one process for each set."""
    script = (
        "import hashlib, numpy as np\n"
        "from discreet.numerics import _compiled as sums\n"
        "from discreet.randomness import _compiled as noise\n"
        "from discreet.training.rules.recurrent import kernels\n"
        "rng = np.random.default_rng(0)\n"
        "words = rng.integers(0, 2**64, 5_000, dtype=np.uint64)\n"
        "parts = []\n"
        "for kind in ('f', 'd'):\n"
        "    values, out = rng.standard_normal(5_000).astype(kind), np.empty(5_000, kind)\n"
        "    parts += [*noise.compiled_release(words, 9e6, values, 2.0**-20, out), out]\n"
        "    norms, add = sums._kernels(np.dtype(kind))\n"
        "    rows, total, squares = values.reshape(5, 1000), np.zeros(1000), np.zeros(5)\n"
        "    norms(rows, squares)\n"
        "    parts.append(squares.copy())\n"
        "    add(rows, np.full(5, 1e3), np.arange(5), total, squares)\n"
        "    parts += [total, squares]\n"
        "row = np.linspace(-90, 90, 4_001, dtype='f')\n"
        "for name in ('sigmoid_row', 'tanh_row'):\n"
        "    kernels._function(name, 'pn')(row.ctypes.data, row.size)\n"
        "    parts.append(row.copy())\n"
        "data = b''.join(part.tobytes() for part in parts)\n"
        "print(hashlib.sha256(data).hexdigest())\n"
    )
    digests = set()
    for name in compiling.sets_of_instructions():
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "DISCREET_INSTRUCTIONS": name},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout)
    assert len(digests) == 1
