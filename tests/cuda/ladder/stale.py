# SPDX-License-Identifier: Apache-2.0
"""The committed result of the ladder, and whether it is of these sources."""
import hashlib
import json
import os
import pathlib
import re
import threading

from units import ROOT, UNITS, tracked

RESULT = ROOT / "tests/cuda/ladder.json"
KERNELS = ("plugins/*.cu", "plugins/*.cuh", "plugins/cuda/kernels", "tools/ladder", "tests/cuda/ladder", "tests/cuda/emulator")
TESTS = ("tests/cuda/emulated", "tests/cuda/kernels", "tests/kernels/kernel_harness.hpp", ":!*/meson.build")  # built by host.py
# The files that each rung depends on, beside the headers of abi/engine and plugins/common that these include.
SOURCES = {
    "compile": KERNELS, "sass": KERNELS, "mistakes": KERNELS,
    "sanitizers": KERNELS + TESTS, "barriers": KERNELS + TESTS,
    "runtime": KERNELS + ("plugins/cuda", "tests/cuda/runtime", "tests/cuda/device", "tests/cuda/shipped"),
}
RUNGS = tuple(SOURCES)
SASS = {"tests/cuda/ladder/sass.py", "tests/cuda/ladder/planted.cu"}  # for this rung alone
# They decide nothing that a rung says of a unit, but for what units.py says of the unit itself.
OWN = {"tests/cuda/ladder/stale.py", "tests/cuda/ladder/units.py"}
SHARED = ("abi/engine", "plugins/common")


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def shared_headers(names):
    """The headers of SHARED that the sources include, and those that these include."""
    found, left = set(), list(names)
    while left:
        name = pathlib.Path(left.pop())
        for included in re.findall(r'#include "([^"]+)"', (ROOT / name).read_text(errors="ignore")):
            for path in (os.path.normpath(name.parent / included), f"abi/{included}", f"abi/engine/{included}"):
                if path not in found and os.path.dirname(path).startswith(SHARED) and (ROOT / path).is_file():
                    found.add(path)
                    left.append(path)
    return found


def content(name):
    """A file without what changes no result: the comments of sources, and how they are laid out."""
    data = (ROOT / name).read_bytes()
    if not name.endswith((".cu", ".cuh", ".hpp", ".h", ".cpp", ".c")):
        return data
    text = re.sub(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', lambda m: m[1] or " ", data.decode(), flags=re.S)
    return " ".join(text.split()).encode()


def of_others(unit):
    """The beginnings of names that the results of a unit do not depend on: kernels and tests of other units."""
    kept = (unit.name, unit.device)
    return tuple(n for u in UNITS for n in ((u.kernels + "/",) if u.name not in kept else ()) + (u.tests if u != unit else ()))


def own_headers(unit):
    """The headers of plugins that its kernels, and those of its device, include."""
    from barriers import headers
    units = [u for u in UNITS if u.name in (unit.name, unit.device)]
    return {str(h.relative_to(ROOT)) for u in units for s in u.sources() for h in headers(s)}


def now(rung):
    """{unit: a hash of what its result in this rung depends on}."""
    all_names = [n for n in tracked(*SOURCES[rung]) if (rung == "sass" or n not in SASS) and n not in OWN]
    out = {}
    for unit in UNITS:
        names = {n for n in all_names if not n.startswith(of_others(unit))} | own_headers(unit)
        names = sorted({*names, *shared_headers(names)})
        about = [str(u) for u in UNITS if u.name in (unit.name, unit.device)]
        out[unit.name] = digest("".join(about + [f"{n} {digest(content(n))}\n" for n in names]).encode())
    return out


def old_units(rung, result=None):
    """The units whose recorded result in this rung is of other sources."""
    had = (result or recorded())["sources"].get(rung, {})
    return {name for name, h in now(rung).items() if had.get(name) != h}


def old_rungs(result=None):
    return [r for r in RUNGS if old_units(r, result)]


def kernels():
    """{.cu: a hash of it and of what it includes}."""
    from barriers import headers
    return {str(s.relative_to(ROOT)): digest(b"".join(content(str(f.relative_to(ROOT))) for f in [s, *sorted(headers(s))]))
            for u in UNITS for s in u.sources()}


def recorded():
    return json.loads(RESULT.read_text()) if RESULT.exists() else {"sources": {}, "kernels": {}, "rungs": {}}


def changed_kernels():
    """The kernels that changed since the whole ladder ran."""
    had = recorded()["kernels"]
    return {n for n, h in kernels().items() if had.get(n) != h}


class Seen(dict):
    """Results of earlier runs of a rung, kept in a file; only those of the same sources. `of`: a hash of them by key."""

    def __init__(self, path, of):
        super().__init__()
        self.path, self.of, self.lock = path, of, threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self.kept = json.loads(path.read_text()) if path.exists() else {}
        self.update({key: found for key, (sources, found) in self.kept.items() if of.get(key) == sources})

    def keep(self, key, value):
        with self.lock:
            self[key], self.kept[key] = value, (self.of[key], value)
            self.path.write_text(json.dumps(self.kept))


def note(passed):
    """Writes what passed into the result, beside what it has of the other rungs."""
    result = recorded()
    result["what"] = "the whole ladder (tools/ladder); emulated: nothing here ran on a GPU"
    for rung, found in passed.items():
        result["sources"][rung], result["rungs"][rung] = now(rung), found
    if not old_rungs(result):
        result["kernels"] = kernels()
    result = {"what": result["what"], **{k: result[k] for k in ("sources", "kernels", "rungs")}}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    if old := old_rungs():
        print("not yet passed for these sources: " + ", ".join(old))

