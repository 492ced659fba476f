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

    def later(self):
        """Makes the headers those of the next minor version."""
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

    def test_frozen_struct_never_changes_in_the_middle(self):
        for later in (False, True):
            if later:
                self.later()
            else:
                self.edit("schedule.h", "  double peak; ", "  double inserted;\n  double peak; ")
            words = "struct eng_schedule_run of frozen 1.0: '16 8 peak: double' became '16 8 inserted: double'"
            self.refused(words)
            code, text = self.golden("--write")
            self.assertEqual((code, words in text), (2, True), text)

    def test_frozen_struct_grows_at_its_end_in_a_later_version(self):
        self.edit("data.h", "} eng_data;", "  void (*appended)(void);\n} eng_data;")
        self.refused("struct eng_data of frozen 1.0 grew in the same version: raise ENG_ABI_MINOR")
        self.assertEqual(self.golden("--write")[0], 2)
        self.later()
        self.assertEqual(self.golden("--write")[0], 0)
        self.assertEqual(self.golden("--check"), (0, "the ABI is that of the goldens\n"))
        self.edit("data.h", "  void (*appended)(void);\n", "")  # the later version is frozen as well
        self.refused("struct eng_data of frozen 1.1: '64 8 appended: void (*)(void)' became 'nothing'")

    def test_frozen_struct_of_arrays_never_grows(self):
        self.later()
        self.edit("tensor.h", "  double f;\n", "  double f;\n  double appended;\n")
        self.refused("struct eng_attr of frozen 1.0 never grows")

    def test_frozen_declarations_stay(self):
        self.later()
        self.edit("tokenizer.h", "#define ENG_ENCODE_SPECIAL 1u", "#define ENG_ENCODE_SPECIAL 2u")
        self.refused("constant ENG_ENCODE_SPECIAL of frozen 1.0")
        self.edit("tokenizer.h", "#define ENG_ENCODE_SPECIAL 2u", "#define ENG_ENCODE_BOTH 1u")
        self.refused("constant ENG_ENCODE_SPECIAL of frozen 1.0 is gone")

    def test_frozen_header_stays_frozen(self):
        self.edit("tokenizer.h", " * Frozen as 1.0 since 2026-11-28 (docs/abi-policy.md).\n", "")
        self.edit("tokenizer.h", '#define ENG_TOKENIZER_KIND "eng.tokenizer/1"\n',
                  '#define ENG_TOKENIZER_KIND "eng.tokenizer/1"\n#define ENG_TOKENIZER_DRAFT "tokenizer-2"\n')
        self.refused("frozen tokenizer.h 1.0 2026-11-28 of frozen 1.0 is gone")

    def test_new_constant_of_a_frozen_header_needs_a_version(self):
        self.edit("base.h", "#define ENG_U8 7\n", "#define ENG_U8 7\n#define ENG_U4 8\n")
        self.refused("needs another ENG_ABI_MINOR")
        self.later()
        self.assertEqual(self.golden("--write")[0], 0)
        self.assertEqual(self.golden("--check")[0], 0)

    def test_field_in_the_middle_of_a_draft(self):
        self.edit("policy.h", "  uint64_t count; /* elements, padding", "  uint64_t inserted;\n  uint64_t count; /* elements, padding")
        self.refused("eng.precision/1 differs but its draft is still 'eng.precision/1-draft", "struct eng_unit", "became '16 8 inserted: uint64_t'")

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
        self.edit("op.h", "} eng_op;", "  uint64_t appended;\n} eng_op;")
        code, text = self.golden("--write")
        self.assertNotEqual(code, 0)
        self.assertIn("set another draft id first", text)
        self.assertIn("eng.ops/1 differs but its draft is still", text)
        for kind in ("data", "device", "tokenizer"):  # do not know op.h
            self.assertNotIn("%s/1 differs" % kind, text)
        for path in (self.abi / "engine").glob("*.h"):
            path.write_text(re.sub(r'(#define ENG_(?!ABI_)\w+_DRAFT ")', r"\1x", path.read_text()))
        self.refused("was written for other headers")
        self.assertEqual(self.golden("--write")[0], 0)
        self.assertEqual(self.golden("--check")[0], 0)

    def test_only_the_kind_that_changed_needs_another_draft(self):
        self.edit("tier.h", "typedef struct eng_tier_info {\n", "typedef struct eng_tier_info {\n  uint64_t first;\n")
        code, text = self.golden("--write")
        self.assertNotEqual(code, 0)
        self.assertIn("eng.tier/1 differs but its draft is still", text)
        self.assertEqual(text.count(" differs but "), 1)
        self.edit("tier.h", '#define ENG_TIER_DRAFT "', '#define ENG_TIER_DRAFT "x')
        self.assertEqual(self.golden("--write")[0], 0)
        self.assertEqual(self.golden("--check")[0], 0)

    def test_missing_golden(self):
        for name in ("headers.txt", "frozen/1.0.txt"):
            (self.abi / "golden" / name).unlink()
            self.refused("%s is missing" % name)
            self.assertEqual(self.golden("--write")[0], 0)


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
