# SPDX-License-Identifier: Apache-2.0
"""Each barrier of each kernel is removed in turn, in a copy of the sources: ThreadSanitizer, an order of threads or a
value must tell. A barrier of a header is removed for each .cu that calls its function."""
import dataclasses
import hashlib
import pathlib
import queue
import re
import shutil

from host import Failed, together
from units import ROOT, UNITS

BARRIER = re.compile(r"\b(__syncthreads|__syncwarp)\s*\([^;()]*\)\s*;")
# (file, function, which of its barriers) -> why its removal need not be caught.
EXCEPTIONS = {}


@dataclasses.dataclass(frozen=True)
class Barrier:
    unit: str
    source: str  # the .cu that is compiled
    file: str  # where the barrier is
    function: str
    number: int  # in the function
    begin: int  # in the text of the file
    end: int

    @property
    def name(self):
        via = "" if self.file == self.source else " in " + pathlib.Path(self.source).name
        return f"{self.file}: {self.function} #{self.number}{via}"


def without_comments(text):
    """The text with spaces in the place of comments: positions stay."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)


def in_file(path):
    """(function, number, begin, end) of each barrier."""
    text, found, counts = without_comments(path.read_text()), [], {}
    for barrier in BARRIER.finditer(text):
        # The function is named by the last line that begins at the margin, and opens a brace, before the barrier.
        heads = [m for m in re.finditer(r"^(?![#}\s])[^\n]*(?:\n[ \t]+[^\n{]*)*?\{[ \t]*$", text[:barrier.start()], re.M)]
        name = re.search(r"(\w+)\s*\(", re.sub(r"__launch_bounds__\s*\([^)]*\)", "", heads[-1][0])) if heads else None
        name = name[1] if name else "?"
        counts[name] = counts.get(name, 0) + 1
        found.append((name, counts[name], barrier.start(), barrier.end()))
    return found


def headers(source, seen=None):
    """The headers for kernels (.cuh) that a file includes."""
    seen = set() if seen is None else seen
    for name in re.findall(r'#include "([^"]+)"', source.read_text()):
        path = (source.parent / name).resolve()
        if path.exists() and path not in seen and path.suffix in (".cuh", ".hpp") and "plugins" in path.parts:
            seen.add(path)
            headers(path, seen)
    return seen


def barriers():
    out = []
    for unit in UNITS:
        for source in unit.sources():
            included = sorted(headers(source))
            own = [source] + [h for h in included if h.parent == source.parent]
            text = "".join(without_comments(f.read_text()) for f in own)
            files = [(source, None)] + [(h, text) for h in included if h.suffix == ".cuh"]
            for path, caller in files:
                for function, number, begin, end in in_file(path):
                    # A shared function counts if the source or a header beside it names it; one of such a header always does.
                    if caller is None or path.parent == source.parent or re.search(rf"\b{function}\b", caller):
                        out.append(Barrier(unit.name, str(source.relative_to(ROOT)), str(path.relative_to(ROOT)), function,
                                           number, begin, end))
    return out


def sample(all_barriers, seed, count):
    return sorted(all_barriers, key=lambda b: hashlib.sha256(f"{seed} {b.name}".encode()).digest())[:count]


def without(host, unit, barrier, scratch):
    """The check that notices the missing barrier: tsan, value or emulator; "" if none does."""
    tree = scratch / "tree"
    if tree.exists():
        shutil.rmtree(tree)
    for name in {"/".join(pathlib.Path(barrier.source).parts[:2]), "plugins/common"}:
        shutil.copytree(ROOT / name, tree / name)
    changed = tree / barrier.file
    text = changed.read_text()
    changed.write_text(text[:barrier.begin] + "{}" + text[barrier.end:])
    source = tree / barrier.source
    changed_object = host.kernel(source, tree, scratch / "changed.o")
    objects = [changed_object if stem == source.stem else o for stem, o in host.objects.items()]
    place = host.place(scratch / "place")
    host.link_plugin(host.plugin_file(unit, place), objects + host.glue)
    words = ["--abort"] + ([unit.cases[source.stem]] if source.stem in unit.cases else [])
    try:
        host.run(host.folder / f"tests-{unit.name}", place, words, 300)
    except Failed as said:
        text = str(said)
        for kind, pattern in (("tsan", r"WARNING: ThreadSanitizer: data race"), ("emulator", r"kernel .*: block "),
                              ("value", r"FAILED:")):
            if re.search(pattern, text):
                return kind
        raise
    return ""


def excused(barrier):
    return EXCEPTIONS.get((barrier.file, barrier.function, barrier.number))


def check(host_of, chosen, scratch, seen, say):
    """{name: how it was caught} of the chosen barriers, unless `seen` has it; `say` hears of each. Those of EXCEPTIONS have
    their reason."""
    left = [b for b in chosen if b.name not in seen]
    hosts = {name: host_of(next(u for u in UNITS if u.name == name)) for name in {b.unit for b in left}}
    folders = queue.Queue()
    for k in range(2):
        folders.put(scratch / str(k))

    def one(barrier):
        folder = folders.get()
        try:
            how = without(hosts[barrier.unit], next(u for u in UNITS if u.name == barrier.unit), barrier, folder)
        finally:
            folders.put(folder)
        if not how and excused(barrier):
            how = "needless here: " + excused(barrier)
        seen.keep(barrier.name, how or "NOT CAUGHT")
        say(f"  {barrier.name:70} {how or 'NOT CAUGHT'}")

    together([lambda b=b: one(b) for b in left])
    return {b.name: seen[b.name] for b in chosen}


def missed(found, chosen):
    """(name, what is wrong or "") of each. A barrier of what all plugins share is needed if one kernel needs it, so
    only where all of its users ran can it be called needless."""
    users = {}
    for barrier in barriers():
        users.setdefault((barrier.file, barrier.function, barrier.number), []).append(barrier.name)
    for barrier in chosen:
        names = users[barrier.file, barrier.function, barrier.number]
        ran = [found[n] for n in names if n in found]
        caught = any(how != "NOT CAUGHT" for how in ran)
        wrong = not caught and (barrier.file == barrier.source or len(ran) == len(names))
        yield barrier.name, "nothing tells when it is removed: it is needless, or a test is missing" if wrong else ""
