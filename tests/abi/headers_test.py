# SPDX-License-Identifier: Apache-2.0
"""The ABI equals its goldens, each rule of tools/abi-golden catches the fault it is there for, and
engine/dlpack.h refuses foreign DLPack headers."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.abi = pathlib.Path(self.folder.name)
        shutil.copytree(ROOT / "abi" / "engine", self.abi / "engine")
        (self.abi / "golden").mkdir()

    def golden(self, *options):
        command = [sys.executable, str(ROOT / "tools" / "abi-golden"), "--headers", str(self.abi), "--goldens",
                   str(self.abi / "golden"), *options]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def edit(self, header, old, new):
        path = self.abi / "engine" / header
        text = path.read_text()
        self.assertEqual(text.count(old), 1, old)
        path.write_text(text.replace(old, new))


class Golden(Case):
    def setUp(self):
        super().setUp()
        self.assertEqual(self.golden("--write")[0], 0)
        self.assertEqual(self.golden("--check")[0], 0)

    def older(self):
        """Makes the headers those of the next minor version: 1.0.txt is then an older golden."""
        self.edit("base.h", "#define ENG_ABI_MINOR 0", "#define ENG_ABI_MINOR 1")

    def refused(self, *words):
        code, text = self.golden("--check")
        self.assertEqual(code, 1, text)
        for word in words:
            self.assertIn(word, text)

    def test_committed_golden_is_current(self):
        done = subprocess.run([sys.executable, str(ROOT / "tools" / "abi-golden"), "--check"], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_field_in_the_middle(self):
        self.edit("tensor.h", "  int64_t i;\n", "  int64_t inserted;\n  int64_t i;\n")
        self.refused("eng.model/1 differs but its draft is still 'model-", "struct eng_attr", "'8 8 i: int64_t' became '8 8 inserted: int64_t'")

    def test_field_in_the_middle_of_an_older_version(self):
        self.older()
        self.edit("tensor.h", "  int64_t i;\n", "  int64_t inserted;\n  int64_t i;\n")
        self.assertEqual(self.golden("--write")[0], 0)
        self.refused("struct eng_attr of 1.0.txt: '8 8 i: int64_t' became")

    def test_field_at_the_end(self):
        self.older()
        self.edit("tensor.h", "  double f;\n", "  double f;\n  double appended;\n")
        self.assertEqual(self.golden("--write")[0], 0)
        self.assertEqual(self.golden("--check"), (0, "the ABI is that of the goldens\n"))

    def test_same_layout_other_parameter(self):
        self.edit("plugin.h", "(*start)(const eng_host *, eng_error *)", "(*start)(eng_host *, eng_error *)")
        self.refused("struct eng_plugin", "start: eng_status (*)(const eng_host *, eng_error *)")

    def test_reordered_removed_renumbered(self):
        self.edit("base.h", "#define ENG_BF16 3", "#define ENG_BF16 4")
        self.refused("constant ENG_BF16")
        self.edit("base.h", "#define ENG_BF16 4", "#define ENG_BF16 3")
        self.edit("base.h", "typedef uint32_t eng_id;", "typedef int32_t eng_id;")
        self.refused("typedef eng_id")

    def test_overwriting_needs_another_draft(self):
        self.edit("tensor.h", "  double f;\n", "  double f;\n  double appended;\n")
        code, text = self.golden("--write")
        self.assertNotEqual(code, 0)
        self.assertIn("set another draft id first", text)
        for kind in ("model", "optimizer", "precision", "zero", "ops", "kernels", "comm"):
            self.assertIn("eng.%s/1 differs but its draft is still" % kind, text)
        for kind in ("data", "device", "tokenizer", "frame"):  # do not know tensor.h
            self.assertNotIn("%s/1 differs" % kind, text)
        for path in (self.abi / "engine").glob("*.h"):
            path.write_text(re.sub(r'(#define ENG_\w+_DRAFT ")', r"\1x", path.read_text()))
        self.refused("was written for other drafts")
        self.assertEqual(self.golden("--write")[0], 0)
        self.assertEqual(self.golden("--check")[0], 0)

    def test_only_the_kind_that_changed_needs_another_draft(self):
        self.edit("schedule.h", "typedef struct eng_schedule {\n", "typedef struct eng_schedule {\n  uint64_t first;\n")
        code, text = self.golden("--write")
        self.assertNotEqual(code, 0)
        self.assertIn("eng.schedule/1 differs but its draft is still", text)
        self.assertEqual(text.count(" differs but "), 1)
        path = self.abi / "engine" / "schedule.h"
        path.write_text(path.read_text().replace('ENG_SCHEDULE_DRAFT "', 'ENG_SCHEDULE_DRAFT "x'))
        self.assertEqual(self.golden("--write")[0], 0)
        self.assertEqual(self.golden("--check")[0], 0)

    def test_the_frame_has_a_draft_of_its_own(self):
        self.edit("plugin.h", "  void (*stop)(void);\n", "  void (*stop)(void);\n  void (*more)(void);\n")
        code, text = self.golden("--write")
        self.assertIn("frame differs but its draft is still", text)
        self.assertEqual(text.count(" differs but "), 1)
        self.edit("base.h", 'ENG_ABI_DRAFT_ID "', 'ENG_ABI_DRAFT_ID "x')
        self.assertEqual(self.golden("--write")[0], 0)

    def test_missing_golden(self):
        (self.abi / "golden" / "1.0.txt").unlink()
        self.refused("is missing")


class DLPack(Case):
    OURS = "#include <engine/dlpack.h>\nDLTensor t;\n"

    def compile(self, text):
        source = self.abi / "probe.c"
        source.write_text(text)
        command = shlex.split(os.environ.get("CC", "cc")) + ["-std=c99", "-fsyntax-only", "-I", str(self.abi), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stderr

    def test_alone(self):
        self.assertEqual(self.compile(self.OURS), (0, ""))

    def test_old_header_is_refused(self):
        code, text = self.compile("#define DLPACK_DLPACK_H_\n#define DLPACK_VERSION 60\n" + self.OURS)
        self.assertNotEqual(code, 0)
        self.assertIn("an old dlpack.h (0.x) was included before", text)

    def test_other_major_is_refused(self):
        code, text = self.compile("#define DLPACK_DLPACK_H_\n#define DLPACK_MAJOR_VERSION 2\n" + self.OURS)
        self.assertNotEqual(code, 0)
        self.assertIn("speaks DLPack 1.x", text)

    def test_newer_header_is_used(self):
        newer = "#define DLPACK_DLPACK_H_\n#define DLPACK_MAJOR_VERSION 1\ntypedef struct { int theirs; } DLTensor;\n"
        self.assertEqual(self.compile(newer + self.OURS + "int check(void) { return t.theirs; }\n"), (0, ""))


if __name__ == "__main__":
    unittest.main()
