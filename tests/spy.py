"""``python`` for a graph's commands that notes what they read, or dies when told: see ``put_before``.

Called as: spy.py NOTES VICTIM -m module ..., or with a script in place of both; VICTIM is the name of a log
file without its ending, or nothing.
"""

import os
import re
import runpy
import signal
import sys
from pathlib import Path


def put_before(folder: Path, notes: Path, victim: str = "") -> dict[str, str]:
    """An environment in which ``python`` is this file, with its notes in ``notes``."""
    for made in (folder, notes):
        made.mkdir(parents=True, exist_ok=True)
    (folder / "python").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "{notes}" "{victim}" "$@"\n'
    )
    (folder / "python").chmod(0o755)
    return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}


def main() -> None:
    """Run it; die after the first file that it puts into place where the rule is the victim."""
    notes, victim = sys.argv[1:3]
    del sys.argv[:3]
    if of_a_module := sys.argv[0] == "-m":
        del sys.argv[0]
    log = os.readlink("/proc/self/fd/2")
    if "--log" in sys.argv:
        log = sys.argv[sys.argv.index("--log") + 1]
    lines = open(f"{notes}/{os.getpid()}", "a", buffering=1, encoding="utf-8")  # noqa: SIM115
    lines.write(log + "\n")
    renames, dies = 0, bool(victim and re.search(rf"/logs/{victim}[./]", log))

    def note(event: str, values: tuple[object, ...]) -> None:
        nonlocal renames
        if event == "open" and isinstance(values[0], str) and not set("wax+") & set(str(values[1] or "r")):
            lines.write(os.path.realpath(values[0]) + "\n")
        if event == "os.rename" and dies:
            renames += 1
            if renames == 2:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(note)
    try:
        if of_a_module:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        if dies:  # all is in its place, but the command has not ended
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
