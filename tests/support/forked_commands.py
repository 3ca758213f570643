"""Reads command lines as JSON from stdin, runs each in a forked process, writes what came of them
as JSON to stdout.
"""

import io
import json
import os
import pty
import sys
import tempfile
from contextlib import redirect_stderr, suppress
from importlib import import_module
from typing import BinaryIO, NoReturn

from discreet.cli import main


def child(arguments: list[str]) -> NoReturn:
    try:
        main(arguments)
    except SystemExit as end:
        sys.stdout.flush()
        os._exit(end.code if isinstance(end.code, int) else 99)
    finally:
        os._exit(98)


def piped(arguments: list[str]) -> dict[str, object]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = os.fork()
        if not process:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            child(arguments)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        return {"code": code, "out": whole(out), "err": whole(err)}


def whole(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode()


def in_terminal(arguments: list[str]) -> dict[str, object]:
    process, terminal = pty.fork()
    if not process:
        os.environ |= {"COLUMNS": "100", "LINES": "40"}
        child(arguments)
    read = b""
    while True:
        try:
            some = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not some:
            break
        read += some
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os.close(terminal)
    return {"code": code, "out": read.decode(), "err": ""}


def warm_up() -> None:
    """Import what commands import when they run."""
    for name in (
        "jinja2",
        "scipy.fft",
        "scipy.optimize",
        "scipy.special",
        "discreet.recipes",
        "discreet.verdict",
    ):
        import_module(name)

    with redirect_stderr(io.StringIO()), suppress(SystemExit):
        main(["plan", "--epsilon", "words"])


if __name__ == "__main__":
    request = json.load(sys.stdin)
    warm_up()
    run = in_terminal if request["terminal"] else piped
    json.dump([run(case) for case in request["cases"]], sys.stdout)
