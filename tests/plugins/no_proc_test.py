#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""no_proc_test.py BUILD: the engine where /proc is not mounted, as in some chroots and build sandboxes. It must find its
plugins, or say why it cannot."""
import os
import pathlib
import subprocess
import sys

TOOLS = pathlib.Path(sys.argv[1]).resolve() / "tools"
ENGINE = str(TOOLS / "engine")
HIDE = "mount -t tmpfs -o mode=755 none /proc && "


def hidden(command, *words, cwd="/"):
    """(exit status, output) of a shell command in a mount namespace of its own, in which /proc is empty."""
    own = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
    done = subprocess.run([*own, "sh", "-c", HIDE + command, "sh", *words], cwd=cwd, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def says(text, command, *words, expect=0, cwd="/"):
    status, said = hidden(command, *words, cwd=cwd)
    assert status == expect and text in said, f"{command}: exit code {status}, not {expect}, or no `{text}`:\n{said}"


status, said = hidden("test ! -e /proc/self")
if status:
    print(f"skipped: no mount namespace for this user: {said}")
    sys.exit(77)

# By its path, by the search path, and by a path relative to the working directory.
says("cpu.eng.so: used", '"$1" plugins ls --why', ENGINE)
says("cpu.eng.so: used", 'PATH="$1:$PATH" engine plugins ls --why', str(TOOLS))
says("cpu.eng.so: used", "tools/engine plugins ls --why", cwd=TOOLS.parent)

# Started by a descriptor, it has no name: it says so, and starts nothing from the working directory.
by_descriptor = "import os, sys; os.execve(os.open(sys.argv[1], os.O_RDONLY), sys.argv[1:], {})"
says("/proc/self/exe: refused: it cannot be read", '"$1" -c "$2" "$3" plugins ls --why', sys.executable, by_descriptor, ENGINE)
print("it works without /proc")
