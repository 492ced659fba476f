#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""new_test.py BUILD: what `engine plugins new` refuses; then its projects, built and trained from an installed tree alone.
`new_test.py BUILD KIND/LANGUAGE ...` does only these; `--without KIND` leaves out one kind."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1]).resolve()


def new(work, *words, expect=0):
    done = subprocess.run([BUILD / "tools/engine", "plugins", "new", *words], cwd=work, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    text = done.stdout.decode(errors="replace")
    assert done.returncode == expect, f"plugins new {words}: exit code {done.returncode}\n{text}"
    return text


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def refusals(work):
    def refused(what, *words):
        before = files(work)
        said = new(work, *words, expect=2)
        assert what in said, f"{words}: {said}"
        assert files(work) == before, f"{words} wrote something"

    optimizer = ("--kind", "optimizer")
    refused("there is no template of kind `optimiser`", "--kind", "optimiser", "a")
    refused("did you mean optimizer?", "--kind", "optimiser", "a")
    refused("available: cpp, c, rust", *optimizer, "--lang", "fortran", "a")
    refused("there is no template of a ZeRO strategy in Rust", "--kind", "zero", "--lang", "rust", "a")
    for name in ("9lives", "a b", "ä", "a.b", "a" * 41, "_a"):
        refused("cannot be the name of a plugin", *optimizer, name)
    for name in ("test", "core", "my_thing", "Self"):
        refused("is a name of the tools that build the plugin", *optimizer, name)
    for name in ("eng.mine", "mine", "org..x", "org.X", ".org.x", "org.x.", "org.x'y"):
        refused("cannot be the id of a plugin", *optimizer, "--id", name, "a")
    refused("eng.optimizer/1 `adamw` is there already", *optimizer, "adamw")
    (work / "full").mkdir()
    (work / "full" / "kept").write_text("mine")
    refused("full already exists", *optimizer, "full")
    refused("full/kept already exists", *optimizer, "full/kept")
    (work / "link").symlink_to("nowhere")
    refused("link already exists", *optimizer, "link")

    (work / "empty").mkdir()
    new(work, *optimizer, "empty")  # an empty folder is taken
    said = new(work, "--kind", "data", "--lang", "rust", "--id", "org.example.deep.one", "some/Deep-One/")
    assert "wrote some/Deep-One/: a data source, in Rust" in said, said
    made = files(work / "some" / "Deep-One")
    assert set(made) == {"Cargo.toml", "README.md", "build.sh", "check", "example.toml", "src/lib.rs"}, set(made)
    assert b"id = 'org.example.deep.one'" in made["src/lib.rs"] and b"name = 'deep_one'" in made["src/lib.rs"]
    assert os.access(work / "some" / "Deep-One" / "check", os.X_OK)


def all_templates():
    """The projects in tools/templates/, and those that tools/check-templates tries."""
    there = {f"{path.parts[-2]}/{path.parts[-1]}" for path in (ROOT / "tools/templates").glob("*/*")
             if path.is_dir() and path.parts[-1] in ("c", "cpp", "rust")}
    text = (ROOT / "tools/check-templates").read_text()
    tried = set(re.findall(r'"(\w+/\w+)"', text[:text.index("def ")]))
    assert there == tried, there ^ tried


def main():
    os.umask(0o022)
    all_templates()
    with tempfile.TemporaryDirectory() as folder:
        refusals(pathlib.Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", folder, "--tags", "devel,runtime"],
                       check=True, stdout=subprocess.DEVNULL)
        (pc,) = pathlib.Path(folder).rglob("engine-abi.pc")
        (engine,) = pathlib.Path(folder).rglob("bin/engine")
        command = [sys.executable, ROOT / "tools/check-templates", "--engine", engine, "--pkg-config", pc.parent, *sys.argv[2:]]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout)
        assert done.returncode == 0
        # The three languages of one kind do the same: equal data, equal losses.
        fell = dict(re.findall(r"^passed +(data/\w+) .* s  (.*)$", done.stdout, re.M))
        assert len(set(fell.values())) <= 1, fell


main()
