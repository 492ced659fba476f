#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/abi-diff: abidiff and the golden name the same structs, for every kind of change; a golden that overlooks one is
noticed. Without abidiff the test is skipped (exit code 77); tools/dev setup installs it."""
import importlib.machinery
import importlib.util
import pathlib
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("abi_diff", str(ROOT / "tools" / "abi-diff"))
diff = importlib.util.module_from_spec(importlib.util.spec_from_loader("abi_diff", loader))
loader.exec_module(diff)

# Header, text, other text, the struct that changes.
CHANGES = [("tensor.h", "  double f;\n", "  double f;\n  double appended;\n", {"eng_attr"}),
           ("tensor.h", "  int64_t i;\n", "  int64_t inserted;\n  int64_t i;\n", {"eng_attr"}),
           ("op.h", "  uint32_t must;\n", "  int32_t must;\n", {"eng_in_place"}),
           ("plugin.h", "  void (*stop)(void);\n", "  int32_t (*stop)(void);\n", {"eng_plugin"}),
           ("plugin.h", "(*start)(const eng_host *, eng_error *)", "(*start)(const eng_host *)", {"eng_plugin"}),
           ("base.h", "typedef uint32_t eng_id;", "typedef uint64_t eng_id;", None)]


def main():
    if not shutil.which("abidiff"):
        print("there is no abidiff (Debian: apt-get install abigail-tools)")
        return 77
    assert diff.compare(ROOT / "abi", ROOT / "abi")[:2] == (set(), set())
    for header, old, new, expected in CHANGES:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "abi" / "engine", pathlib.Path(folder) / "engine")
            path = pathlib.Path(folder) / "engine" / header
            text = path.read_text()
            assert text.count(old) == 1, old
            path.write_text(text.replace(old, new))
            ours, theirs, report = diff.compare(ROOT / "abi", folder)
            print(f"{header}: {new.strip()!r}: {', '.join(sorted(ours))}")
            # A type that many structs use is one change for abidiff, and none of a struct's text.
            assert expected is None or ours == theirs == expected, (ours, theirs, report)
            assert expected is not None or theirs - ours, (ours, theirs)
    return 0


sys.exit(main())
