# SPDX-License-Identifier: Apache-2.0
"""Plugins compiled as their authors would: with the headers of this tree and no build system."""
import os
import pathlib
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def compiled(source, out, compiler="", more=(), exported=False):
    """`compiler`: $CC or $CXX if empty. `exported`: without what keeps its symbols to itself."""
    cpp = source.suffix == ".cpp"
    words = shlex.split(compiler or os.environ.get("CXX" if cpp else "CC", "c++" if cpp else "cc"))
    alone = ["-fvisibility=hidden", "-Wl,--version-script=" + str(ROOT / "abi" / "plugin.map")]
    command = words + ["-std=c++17" if cpp else "-std=c99", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Wpedantic",
                       "-Werror", "-fPIC", "-I", str(ROOT / "abi"), str(source), "-shared", "-Wl,-z,now", "-o", str(out)]
    subprocess.run(command + ([] if exported else alone) + list(more), check=True)
    return out


def bindings(work):
    """The headers in Rust, as a library."""
    out = work / "libengine_abi.rlib"
    subprocess.run(rustc() + ["--crate-type", "rlib", "--crate-name", "engine_abi", str(ROOT / "abi/rust/src/lib.rs"), "-o",
                              str(out)], check=True)
    return out


def rustc():
    return [os.environ.get("RUSTC", "rustc"), "--edition", "2021", "-O", "-C", "panic=abort", "-D", "warnings"]


def compiled_rust(source, name, out, work):
    """Runs the commands of the templates' build.sh."""
    subprocess.run(rustc() + ["--crate-type", "cdylib", "--crate-name", name, str(source), "--extern",
                              f"engine_abi={bindings(work)}", "-o", str(out)], check=True)
    return out
