# SPDX-License-Identifier: Apache-2.0
"""Mistakes that are planted in tiny kernels: each must be named by the build that is there to name it."""
import re

from host import ENVIRONMENT, SANITIZERS, Failed, Host, call, together
from units import EMULATOR, ROOT

SOURCE = "tests/cuda/ladder/mistakes.cpp"


def program(host):
    kernels = host.kernel(ROOT / SOURCE, out=host.folder / "mistakes.o")
    out = host.folder / "mistakes"
    call(["clang++-14", "-o", out] + SANITIZERS[host.kind] + [kernels] + host.emulator() + ["-ldl"])
    return out


def check(folder, build):
    """(name, kind, what is wrong or "") of each."""
    programs = {kind: program(Host(folder, kind, build)) for kind in SANITIZERS}
    cases = [line.split("\t") for line in call([programs["plain"], "list"]).splitlines()]

    def one(name, kind, says):
        text = call([programs[kind], name], ENVIRONMENT, 60, ok=range(-64, 256))
        return name, kind, "" if re.search(says, text) else f"it says nothing of `{says}`:\n{text}"

    def right(name, kind):
        try:
            call([programs[kind], name], ENVIRONMENT, 60)
            return name, kind, ""
        except Failed as said:
            return name, kind, f"it is right, and yet:\n{said}"

    jobs = []
    for name, kind, says in cases:
        if kind == "none":
            jobs += [lambda name=name, k=k: right(name, k) for k in SANITIZERS]
        else:
            jobs.append(lambda name=name, kind=kind, says=says: one(name, kind, says))
    return together(jobs)
