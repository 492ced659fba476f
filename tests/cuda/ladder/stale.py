# SPDX-License-Identifier: Apache-2.0
"""The committed result of the ladder, and whether it is of these sources."""
import hashlib
import json

from units import ROOT, UNITS, tracked

RESULT = ROOT / "tests/cuda/ladder.json"
SOURCES = ("plugins/cuda", "plugins/common", "plugins/mamba/cuda", "abi/engine", "tests/cuda", "tests/kernels/kernel_harness.hpp",
           "tools/ladder")
NOT = {"tests/cuda/ladder.json"}


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def sources():
    return [n for n in tracked(*SOURCES) if n not in NOT]


def now():
    return digest("".join(f"{n} {digest((ROOT / n).read_bytes())}\n" for n in sources()).encode())


def kernels():
    """{.cu: a hash of it and of what it includes}."""
    from barriers import headers
    return {str(s.relative_to(ROOT)): digest(b"".join(f.read_bytes() for f in [s, *sorted(headers(s))]))
            for u in UNITS for s in u.sources()}


def recorded():
    return json.loads(RESULT.read_text()) if RESULT.exists() else {"sources": "", "kernels": {}, "rungs": {}}


def changed_kernels():
    """Those that are not as they were when the whole ladder ran."""
    had = recorded()["kernels"]
    return {n for n, h in kernels().items() if had.get(n) != h}


class Seen(dict):
    """What earlier runs found, of the same sources, kept in a file."""

    def __init__(self, path):
        super().__init__()
        self.path, self.of = path, now()
        if path.exists():
            kept = json.loads(path.read_text())
            if kept["of"] == self.of:
                self.update(kept["found"])

    def keep(self, key, value):
        self[key] = value
        self.path.write_text(json.dumps({"of": self.of, "found": self}))


def note(folder, passed, all_rungs):
    """Keeps what passed; writes the result when all of it has, for these sources."""
    folder.mkdir(parents=True, exist_ok=True)
    seen = Seen(folder / "rungs.json")
    for rung, result in passed.items():
        seen.keep(rung, result)
    if all(r in seen for r in all_rungs):
        RESULT.write_text(json.dumps({"what": "the whole ladder (tools/ladder); emulated: nothing here ran on a GPU",
                                      "sources": seen.of, "kernels": kernels(), "rungs": {r: seen[r] for r in all_rungs}},
                                     indent=1) + "\n")
        print(f"{RESULT.relative_to(ROOT)} is written")
    else:
        print("not yet passed for these sources: " + ", ".join(r for r in all_rungs if r not in seen))
