#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""chat_test.py ENGINE: runs the commands of docs/chat-from-zero.md in their order, in a folder with a copy of examples/chat,
and compares what they print with what the page shows; `...` stands for any lines. Downloads are left out."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "chat-from-zero.md"
# The memory of this machine, as check-docs leaves it out of plans, and the last digits of the peak: a build with sanitizers
# has larger libraries.
MACHINE = re.compile(r"  of \S+ \w+: (fits|DOES NOT FIT)$|^  would fit: .*\n|(?<=^  process peak) +\d+ bytes", re.MULTILINE)


def commands(page):
    """The commands in the blocks without a language, each with the text that it is shown to print, or None."""
    for block in re.findall(r"^```\n(.*?)^```$", page, re.M | re.S):
        if block.startswith("$ "):
            for sample in re.split(r"^\$ ", block, flags=re.M)[1:]:
                head = re.match(r"(?:[^\n]*\\\n)*[^\n]*\n", sample)[0]
                yield head.replace("\\\n", " ").strip(), sample[len(head):]
        else:
            for line in block.splitlines():
                if not line.startswith(("hf ", "{")):
                    yield line, None


def difference(shown, printed):
    """None, or the first line of `shown` that was not printed."""
    lines, at, jump = MACHINE.sub("", printed).splitlines(), 0, False
    for line in MACHINE.sub("", shown).splitlines():
        if line == "...":
            jump = True
            continue
        while jump and at < len(lines) and lines[at] != line:
            at += 1
        if at == len(lines) or lines[at] != line:
            return line
        at, jump = at + 1, False
    return None if jump or at == len(lines) else "the end"


def main():
    engine = str(pathlib.Path(sys.argv[1]).resolve())
    assert difference("a\n...\nd\n", "a\nb\nc\nd\n") is None and difference("a\n...\nd\n", "a\nb\n") == "d"
    os.environ["OMP_WAIT_POLICY"] = "passive"  # other tests run at the same time
    found = list(commands(PAGE.read_text()))
    assert len(found) > 15 and all(words.startswith("engine ") for words, _ in found), found
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        shutil.copytree(ROOT / "examples/chat", work / "examples/chat")  # tokens are built beside the copy
        for words, shown in found:
            threads = " device.threads=2" if words.startswith("engine plan") else ""
            done = subprocess.run(f"'{engine}' {words.removeprefix('engine ')}{threads}", cwd=work, shell=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            text = done.stdout.decode(errors="replace")
            assert done.returncode == 0, f"{words}: exit code {done.returncode}\n{text}"
            wrong = difference(shown, text) if shown is not None else None
            assert wrong is None, f"{words}: not printed: {wrong}\n{text}"
        # The answers are learnt, as far as so small a model can: the loss falls.
        steps = [json.loads(line) for line in (work / "runs/chat/metrics.jsonl").read_text().splitlines()]
        losses = [step["loss"] for step in steps if "loss" in step]
        assert sum(losses[-5:]) < sum(losses[:5]), losses
        for made in ("models/chat/config.json", "models/chat.gguf", "models/adapter/adapter_config.json",
                     "models/merged/model.safetensors", "models/mamba/model.safetensors"):
            assert (work / made).is_file(), made
        assert "chat_template" in (work / "models/chat/tokenizer_config.json").read_text()


main()
