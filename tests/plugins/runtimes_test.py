#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""runtimes_test.py BUILD: plugins of other compilers and runtimes in one process. Each trains a few steps beside the shipped
plugins, which gcc built, and leaves the bits of a run without it; or it is refused.

  libc++     tests/plugins/tap.cpp by clang with libc++: its own strings, streams and exceptions
  twins      the same source twice, so that all internal symbols clash; where they are exported, the file is refused
  Rust       the observer of `engine plugins new --lang rust`
  OpenMP     tap.cpp by gcc with libgomp, the engine's own; by clang with libomp, a second runtime, which `plugins test`
             refuses

Without clang++-14, libc++ or rustc their part is left out; tools/dev setup installs them."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from compiled import ROOT, compiled, compiled_rust

BUILD = pathlib.Path(sys.argv[1]).resolve()
ENGINE = str(BUILD / "tools/engine")
TAP = ROOT / "tests/plugins/tap.cpp"
CONFIG = """[model]
plugin = "llama"
preset = "tiny"
num_hidden_layers = 1
hidden_size = 32
intermediate_size = 48
[data]
paths = ["%s"]
[train]
steps = 4
micro_batch = 4
sequence_length = 32
[optimizer]
plugin = "adamw"
[log]
every = 1
"""


def ask(*words, expect=0):
    done = subprocess.run([ENGINE, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    text = done.stdout.decode(errors="replace")
    assert done.returncode == expect, f"{words}: exit code {done.returncode}\n{text}"
    return text


class Runs:
    def __init__(self, work):
        self.work, self.plugins = work, work / "plugins"
        self.plugins.mkdir()
        self.config = work / "run.toml"
        self.config.write_text(CONFIG % (ROOT / "README.md"))
        self.plain, _ = self.train("plain")
        assert len(self.plain) > 5

    def train(self, name, *observers):
        """(losses, norms and the bytes of the last checkpoint, what was observed)."""
        config = self.work / (name + ".toml")
        config.write_text(self.config.read_text() + "".join(f'[[observers]]\nplugin = "{one}"\n' for one in observers))
        out = self.work / name
        ask("--plugin-path", self.plugins, "run", config, "--out", out)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        steps = [line for line in lines if "loss" in line]
        assert len(steps) == 4, steps
        left = {f"{key} of step {k}": line[key] for k, line in enumerate(steps, 1) for key in ("loss", "grad_norm")}
        for path in sorted(out.rglob("*.safetensors")):
            left[str(path.relative_to(out))] = path.read_bytes()
        return left, [line["observed"] for line in steps if "observed" in line]

    def same(self, name, *observers):
        """Trains with them, compares with the run without, and returns what they observed."""
        left, observed = self.train(name, *observers)
        differ = [key for key in self.plain if left.get(key) != self.plain[key]]
        assert not differ and len(left) == len(self.plain), f"{name}: other {differ}"
        assert len(observed) == 4
        for one in observers:
            assert any(key.startswith(one + ".") for key in observed[0]), (one, observed[0])
        print(f"{name}: {len(left)} numbers and files as without it; it observed {len(observed[0])} values of each step")
        return observed

    def compiled(self, name, *more, compiler="", exported=False):
        return compiled(TAP, self.plugins / (name + ".eng.so"), compiler, ("-DTAP=" + name, *more), exported)


def needed(path):
    said = subprocess.run(["readelf", "-d", str(path)], check=True, stdout=subprocess.PIPE, text=True).stdout
    return [line.split("[")[1].rstrip("]") for line in said.splitlines() if "(NEEDED)" in line]


def values(observed, name):
    """The results of one observer, without its name."""
    return [{key.replace(name, ""): value for key, value in step.items() if key.startswith(name + ".")} for step in observed]


def twins(runs):
    runs.compiled("tap_one"), runs.compiled("tap_two")
    seen = runs.same("twins", "tap_one", "tap_two")
    assert values(seen, "tap_one") == values(seen, "tap_two") != [{}] * 4, seen
    # Exported, the inline variable would be one of both: the file is not loaded at all.
    loud = runs.compiled("tap_loud", exported=True)
    for words in (("plugins", "test", loud), ("--plugin-path", loud, "plugins", "ls", "--why")):
        said = ask(*words, expect=3 if words[0] == "plugins" else 0)
        assert "besides eng_plugin_query_1" in said and "tap" in said, said
    loud.unlink()
    print("twins: exported symbols are refused")
    return seen


def libcxx(runs, clang, seen):
    made = runs.compiled("tap_clang", "-stdlib=libc++", compiler=clang)
    assert "libc++.so.1" in needed(made) and "libstdc++.so.6" not in needed(made), needed(made)
    ask("plugins", "test", made)
    mixed = runs.same("libc++", "tap_clang", "tap_one")
    assert values(mixed, "tap_clang") == values(mixed, "tap_one") == values(seen, "tap_one")
    # An exception of the other runtime that leaves the plugin is an error, not the end of the process.
    thrower = runs.work / "throwing.eng.so"
    compiled(ROOT / "tests/registry/throwing.cpp", thrower, clang, ("-stdlib=libc++",))
    said = ask("--plugin-path", thrower, "run", runs.config, "optimizer.plugin=throwing", "--out", runs.work / "thrown", expect=3)
    assert "threw through the C ABI" in said, said
    print("libc++: an exception that leaves it is told")


def openmp(runs, clang):
    made = runs.compiled("tap_gomp", "-fopenmp", compiler="g++")
    assert "libgomp.so.1" in needed(made), needed(made)
    said = ask("plugins", "test", made)
    assert "second OpenMP runtime" not in said, said
    runs.same("libgomp", "tap_gomp")
    if clang:
        made = runs.compiled("tap_omp", "-fopenmp", compiler=clang)
        other = [name for name in needed(made) if name.startswith("libomp")]
        assert other, needed(made)
        said = ask("plugins", "test", made, expect=3)
        assert f"it needs {other[0]}: a second OpenMP runtime beside libgomp" in said, said
        runs.same("libomp", "tap_omp")
        print("libomp: `plugins test` refuses it")


def rust(runs):
    made = runs.work / "made" / "tap_rust"
    made.parent.mkdir()
    ask("plugins", "new", "--kind", "observer", "--lang", "rust", made)
    compiled_rust(made / "src/lib.rs", "tap_rust", runs.plugins / "tap_rust.eng.so", runs.work)
    runs.same("Rust", "tap_rust", "tap_one")


def main():
    os.umask(0o022)
    os.environ["OMP_WAIT_POLICY"] = "passive"  # other tests run at the same time
    clang = shutil.which("clang++-14") or ""
    have_rust = shutil.which(os.environ.get("RUSTC", "rustc"))
    assert (clang and have_rust) or not os.environ.get("CI"), "there is no clang++-14 or no rustc"
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(pathlib.Path(folder))
        seen = twins(runs)
        everyone = ["tap_one", "tap_two", "tap_gomp"]
        if clang:
            libcxx(runs, clang, seen)
            everyone.append("tap_clang")
        openmp(runs, clang)
        if have_rust:
            rust(runs)
            everyone.append("tap_rust")
        runs.same("all of them", *everyone)


main()
