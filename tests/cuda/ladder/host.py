# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels for the host by clang or g++, plain or with a sanitizer, and runs their tests."""
import concurrent.futures
import os
import pathlib
import resource
import shutil
import subprocess
import time

from units import COMPARED, EMULATOR, ROOT, UNITS

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
# No object names the folder of the clone, so that clones share a compiler cache.
COMMON = ["-std=c++20", "-gline-tables-only", "-fno-omit-frame-pointer", "-ffp-contract=off", "-fPIC",
          f"-fmacro-prefix-map={ROOT}/="]
SANITIZERS = {
    "plain": [],
    "asan": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "tsan": ["-fsanitize=thread"],
}
DEFINES = {"plain": [], "asan": ["-DEMU_ASAN"], "tsan": ["-DEMU_TSAN"]}
ENVIRONMENT = {
    # A kernel's own leaks are none: it never allocates. What the emulator keeps until the end is not counted.
    "ASAN_OPTIONS": "detect_leaks=0:strict_string_checks=1:exitcode=66",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1:exitcode=66",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=66:report_signal_unsafe=0:history_size=4",
}


class Failed(Exception):
    """A compiler or a program said no; the text is what it said."""


def cpu_seconds():
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def call(command, env=None, limit=600, ok=(0,)):
    """The whole output; Failed if the exit status is none of `ok`."""
    try:
        done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit,
                              env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise Failed(f"{command[0]}: not done after {limit} s")
    text = done.stdout.decode(errors="replace")
    if done.returncode not in ok:
        raise Failed(f"{' '.join(str(c) for c in command)}\nexit status {done.returncode}\n{text}")
    return text


def together(jobs, width=2):
    """Runs functions, two at a time; their results in order."""
    with concurrent.futures.ThreadPoolExecutor(width) as pool:
        return [f.result() for f in [pool.submit(j) for j in jobs]]


def cached(compiler):
    return (["ccache"] if shutil.which("ccache") else []) + [compiler]


class Host:
    """One kind of build in one folder."""

    def __init__(self, folder, kind, build, compiler="clang++-14"):
        self.folder, self.kind, self.build = pathlib.Path(folder) / kind, kind, pathlib.Path(build)
        self.compiler = cached(compiler)
        self.folder.mkdir(parents=True, exist_ok=True)

    def include(self, root=ROOT):
        return [f"-I{root}/abi", f"-I{root}", f"-I{ROOT}/abi", f"-I{ROOT}", f"-I{ROOT}/tests/cuda/emulator"]

    def kernel(self, source, root=ROOT, out=None):
        """Compiles one .cu, which may lie in a changed copy of the tree; the object."""
        out = out or self.folder / (source.parent.relative_to(root).as_posix().replace("/", "_") + "_" + source.stem + ".o")
        call(self.compiler + COMMON + WARNINGS + ["-O1", "-fvisibility=hidden", "-DENG_EMULATED"] + DEFINES[self.kind] +
             SANITIZERS[self.kind] + [f"-I{source.parent}"] + self.include(root) + ["-x", "c++", "-c", source, "-o", out])
        return out

    def plain(self, source, extra=(), sanitized=False):
        """Compiles a source that is not a kernel: ThreadSanitizer must not see into the emulator."""
        out = self.folder / (str(source).replace("/", "_") + ".o")
        flags = SANITIZERS[self.kind] if sanitized and self.kind != "tsan" else []
        call(self.compiler + COMMON + ["-O1", "-DENG_EMULATED"] + DEFINES[self.kind] + flags + list(extra) +
             self.include() + ["-c", ROOT / source, "-o", out])
        return out

    def emulator(self):
        return [self.plain(s) for s in EMULATOR]

    def link_plugin(self, out, objects):
        """Without the runtime of the sanitizer: the program brings it."""
        out.parent.mkdir(parents=True, exist_ok=True)
        out.unlink(missing_ok=True)  # it may be a link to another
        call(["clang++-14", "-shared", "-o", out] + SANITIZERS[self.kind] + list(objects) + ["-ldl"])
        return out

    def plugin_file(self, unit, place=None):
        return (place or self.folder / "place") / unit.plugin

    def plugin(self, unit):
        jobs = [lambda s=s: self.kernel(s) for s in unit.sources()]
        jobs += [lambda s=s: self.plain(s, ["-fvisibility=hidden", f"-I{ROOT / unit.kernels}"]) for s in unit.glue + EMULATOR]
        objects = together(jobs)
        self.objects = dict(zip([s.stem for s in unit.sources()], objects))
        self.glue = objects[len(unit.sources()):]
        return self.link_plugin(self.plugin_file(unit), objects)

    def tests(self, unit):
        """The Catch2 program. The folder of plugins is given by the environment, so that it serves changed kernels too."""
        extra = ["-include", "tests/paths.hpp", "-DTESTS_SANITIZED"]
        sources = unit.tests + ("tests/main.cpp", "tests/cuda/ladder/paths.cpp")
        jobs = [lambda s=s: self.plain(s, extra, sanitized=True) for s in sources]
        out = self.folder / f"tests-{unit.name}"
        call(["clang++-14", "-o", out, "-rdynamic"] + SANITIZERS[self.kind] + together(jobs) + ["-ldl"])
        self.place(self.folder / "place")
        return out

    def place(self, place):
        """A folder that looks like a build's to the tests: what they compare with, and the other plugins, are there."""
        others = {name: self.build / name for name in COMPARED}
        others |= {u.plugin: self.plugin_file(u) for u in UNITS if place != self.folder / "place"}
        for name, file in others.items():
            link = place / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(file.resolve())
        return place

    def run(self, program, place=None, words=(), limit=900):
        """Output and seconds; Failed if a test or a sanitizer said no."""
        begin = time.monotonic()
        env = {**ENVIRONMENT, "LADDER_PLUGINS": f"{place or self.folder / 'place'}/plugins"}
        text = call([program, "--durations", "no", *words], env, limit)
        return text, time.monotonic() - begin
