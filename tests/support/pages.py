"""Pages whose code runs: the Python and shell blocks of a Markdown file, one after the other, in a
process of its own.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

REFUSE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names}:
            raise ImportError(name + " is not installed here")
sys.meta_path.insert(0, Refuse())
"""


def blocks(text: str, *languages: str) -> list[tuple[str, str]]:
    """Language and content of the fenced blocks in these languages, in order."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [(language, content) for language, content in found if language in languages]


def script(text: str) -> str:
    """All blocks of a page as one program. A line of a shell block runs `discreet`; its comment may
    say how it exits.
    """
    lines = ["import shlex, subprocess, sys"]
    for language, content in blocks(text, "python", "sh"):
        if language == "python":
            lines.append(content)
        else:
            lines += [
                _shell(line) for line in content.splitlines() if line and not line.startswith("#")
            ]
    return "\n".join(lines)


def _shell(line: str) -> str:
    command, _, remark = line.partition("  #")
    program, _, arguments = command.strip().partition(" ")
    if program != "discreet":
        raise AssertionError(f"a shell block may run discreet only, not {line!r}")
    code = re.search(r"exits with (\d+)", remark)
    expected = int(code[1]) if code else 0
    return (
        f"_done = subprocess.run([sys.executable, '-m', 'discreet', *shlex.split({arguments!r})], "
        "check=False)\n"
        f"assert _done.returncode == {expected}, ({line!r}, _done.returncode)"
    )


def run(text: str, folder: Path, *, without: Sequence[str] = ()) -> str:
    """What a page prints, run in a folder where these modules are not installed. Warnings are
    errors.
    """
    (folder / "page.py").write_text(script(text))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MPLCONFIGDIR": str(folder / "matplotlib")}
    if without:
        hidden = folder / "hidden"
        hidden.mkdir()
        (hidden / "sitecustomize.py").write_text(REFUSE.format(names=set(without)))
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(hidden), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
    result = subprocess.run(
        [sys.executable, "-W", "error", "page.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout
