"""Files of compiled code: named for what they are made of, whole or not there, and without fused
operations.
"""

import ctypes
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from discreet.native import compiling
from discreet.native.compiling import SETS, SOURCES, compile_into, file_name

FUSED = r"\bv?fn?m(add|sub|la|ls)"
INTEL = pytest.mark.skipif(len(compiling.sets_of_instructions()) == 1, reason="names of registers")


def assembler(instructions: str) -> str:
    """What the compiler makes of the sources."""
    flags = [flag for flag in compiling._FLAGS if flag != "-shared"]
    command = ["cc", *flags, *compiling._MACROS[instructions], "-S", "-o", "-", "kernels.c"]
    return subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=True).stdout


@INTEL
@pytest.mark.parametrize(
    ("instructions", "register"), [("baseline", "xmm"), ("avx2", "ymm"), ("avx512", "zmm")]
)
def test_the_machine_code_is_vectorised_and_fuses_nothing(instructions: str, register: str) -> None:
    code = assembler(instructions)
    assert not re.search(FUSED, code)
    for operation in ("mulpd", "addpd", "mulps", "divps"):
        assert re.search(rf"{operation}\s.*%{register}", code), operation
    wider = {"baseline": r"%[yz]mm", "avx2": r"%zmm", "avx512": r"^$a"}[instructions]
    assert not re.search(wider, code)


def test_the_search_for_fused_instructions_finds_one() -> None:
    assert re.search(FUSED, "\tvfmadd213pd\t%ymm1, %ymm2, %ymm3")
    assert re.search(FUSED, "\tfmla\tv0.2d, v1.2d, v2.2d")


def test_a_file_is_named_for_its_sources_flags_and_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: an old kernel is loaded beside new sources."""
    names = {file_name(instructions) for instructions in SETS}
    assert len(names) == len(SETS)
    for name in compiling._FILES:
        (tmp_path / name).write_bytes((SOURCES / name).read_bytes())

    def renamed() -> str:
        file_name.cache_clear()
        return file_name("baseline")

    before = renamed()
    monkeypatch.setattr(compiling, "SOURCES", tmp_path)
    assert renamed() == before
    for name in compiling._FILES:
        text = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(text + b"\n")
        assert renamed() != before
        (tmp_path / name).write_bytes(text)
    monkeypatch.setattr(compiling, "_FLAGS", (*compiling._FLAGS, "-O1"))
    assert renamed() != before
    monkeypatch.undo()
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: "another")
    assert renamed() != before
    monkeypatch.undo()
    assert renamed() == before


def test_a_file_appears_whole_and_alone(tmp_path: Path) -> None:
    path = compile_into(tmp_path, "baseline")
    assert path is not None
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert ctypes.CDLL(str(path))["is_supported"]() == 1
    assert path.stat().st_mode & 0o022 == 0


@pytest.mark.parametrize("failure", ["no compiler", "a compiler that fails", "no folder"])
def test_what_does_not_compile_leaves_nothing(
    failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "nothing" if failure == "no folder" else tmp_path
    commands = {"no compiler": (), "a compiler that fails": ("false",), "no folder": ("cc",)}
    monkeypatch.setattr(compiling, "_COMPILERS", commands[failure])
    assert compile_into(folder, "baseline") is None
    assert list(tmp_path.iterdir()) == []


def test_a_processor_is_known_by_what_the_operating_system_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if len(compiling.sets_of_instructions()) == 1:
        assert compiling.likely_set() == "baseline"
        return
    wide = "avx2 avx512f avx512bw avx512dq avx512vl"
    for flags, expected in ((wide, "avx512"), ("avx2 avx512f", "avx2"), ("sse2", "baseline")):
        monkeypatch.setattr(Path, "read_text", lambda *_, flags=flags, **__: f"flags\t: {flags}\n")
        compiling.likely_set.cache_clear()
        assert compiling.likely_set() == expected
    compiling.likely_set.cache_clear()
