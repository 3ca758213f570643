"""Building a wheel: the loops in C are compiled where there is a compiler, and shipped.

Without one the wheel is plain Python: then the loops are compiled once by whoever uses them
(`discreet.native`), or NumPy does their work.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledLoops(BuildHookInterface):  # type: ignore[misc,type-arg,unused-ignore]  (untyped)
    """One shared library for each set of instructions."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Compile beside the sources, and say that the wheel is one for this platform."""
        folder = Path(self.root) / "src" / "discreet" / "native"
        spec = importlib.util.spec_from_file_location("compiling", folder / "compiling.py")
        if spec is None or spec.loader is None:
            raise SystemExit(f"{folder} has no compiling.py.")

        compiling = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(compiling)
        made = [compiling.compile_into(folder, name) for name in compiling.sets_of_instructions()]
        paths = [path for path in made if path is not None]
        build_data["artifacts"] += [os.fspath(path.relative_to(self.root)) for path in paths]
        if paths:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
