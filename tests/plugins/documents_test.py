#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""documents_test.py BUILD: examples/plugins/records, compiled with the headers alone, as a format of [data].

The same texts as JSON Lines give the same losses. Tokens are made anew when an option of the format, or its plugin's
file, changes. Errors name the file, the record and what to do."""
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from compiled import ROOT, compiled

BUILD = pathlib.Path(sys.argv[1]).resolve()
CONFIG = """[model]
plugin = "llama"
preset = "tiny"
num_hidden_layers = 1
hidden_size = 16
intermediate_size = 24
num_attention_heads = 2
num_key_value_heads = 2
vocab_size = 700
[data]
paths = ["%s"]
validation = 0
%s
[train]
steps = 3
micro_batch = 2
sequence_length = 16
[device]
threads = 1
[checkpoint]
last = false
every = 0
"""
TEXTS = [(k % 10, f"text {k}: the cat sat on the mat, caf\u00e9 \u4e2d " * (1 + k % 3 * 60)) for k in range(60)]
GPT2 = f'tokenizer = "{ROOT / "tests/data/golden/gpt2"}"\n'


def records(texts):
    return b"RECORDS1" + b"".join(score.to_bytes(4, "little") + len(text.encode()).to_bytes(4, "little") + text.encode()
                                  for score, text in texts)


def lines(texts):
    return "".join(json.dumps({"text": text}) + "\n" for _, text in texts).encode()


class Engine:
    def __init__(self, work):
        self.work, self.count = work, 0

    def __call__(self, *args, expect=0):
        done = subprocess.run([str(BUILD / "tools/engine"), "--plugin-path", str(self.work / "plugins"), *args], cwd=self.work,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == expect, f"{args}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout if args[0] == "data" and expect == 0 else done.stdout + done.stderr

    def config(self, name, data=""):
        self.count += 1
        path = self.work / f"c{self.count}.toml"
        path.write_text(CONFIG % (name, data))
        return str(path)

    def losses(self, name, data=""):
        path = self.config(name, data)
        out = path[:-5]
        self("run", path, "--out", out, "log.every=1")
        run = json.loads((pathlib.Path(out) / "run.json").read_text())
        text = (pathlib.Path(out) / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["loss"] for line in text], "org.example.records" in json.dumps(run)

    def built(self, name, data=""):
        return self("data", "build", self.config(name, data)).strip()


def same_as_lines(engine):
    """By its first bytes, whatever its name, compressed too; with an option; with a tokenizer."""
    for name, content in (("all.rec", records(TEXTS)), ("other", records(TEXTS)), ("all.rec.gz", gzip.compress(records(TEXTS))),
                          ("all.jsonl", lines(TEXTS)), ("best.jsonl", lines([t for t in TEXTS if t[0] >= 5]))):
        (engine.work / name).write_bytes(content)
    for tokenizer in ("", GPT2):
        plain, loaded = engine.losses("all.jsonl", tokenizer)
        assert len(plain) == 3 and not loaded, "a run without records loads their plugin"
        for name in ("all.rec", "other", "all.rec.gz"):
            assert engine.losses(name, tokenizer) == (plain, True), name
        best, _ = engine.losses("best.jsonl", tokenizer)
        assert best != plain
        assert engine.losses("all.rec", tokenizer + 'format = "records"\nleast_score = 5\n')[0] == best


def tokens_made_anew(engine):
    named = GPT2 + 'format = "records"\n'
    first = engine.built("all.rec", GPT2)
    assert engine.built("all.rec", named) == first, "named or recognised: the same tokens"
    assert engine.built("all.rec", named + "least_score = 5\n") != first
    before = engine.built("all.jsonl", GPT2)
    compiled(ROOT / "examples/plugins/records/records.c", engine.work / "plugins/records.eng.so", more=["-g"])
    assert engine.built("all.rec", GPT2) != first, "another plugin, and the tokens of before"
    assert engine.built("all.jsonl", GPT2) == before


def errors(engine):
    whole = records(TEXTS)
    (engine.work / "cut.rec").write_bytes(whole[:-5])
    said = engine("check", engine.config("cut.rec"), expect=4)
    assert f"{engine.work}/cut.rec, read by the format records: record 60 is cut short" in said, said
    (engine.work / "latin.rec").write_bytes(records(TEXTS[:2]) + bytes([1, 0, 0, 0, 4, 0, 0, 0]) + b"caf\xe9")
    said = engine("check", engine.config("latin.rec"), expect=4)
    assert "document 3 of the file is not text in UTF-8" in said, said
    said = engine("check", engine.config("all.rec", 'format = "record"'), expect=2)
    assert "did you mean `records`" in said, said
    said = engine("check", engine.config("all.rec", "least_score = 5"), expect=2)
    assert '`least_score` belongs to format `records`: set format = "records"' in said, said
    said = engine("check", engine.config("all.rec", 'format = "records"\nleast_score = -1'), expect=2)
    assert "must be at least 0" in said, said
    said = engine("check", engine.config("all.jsonl", 'format = "records"'), expect=4)
    assert "the file does not begin with RECORDS1" in said, said


def main():
    os.umask(0o022)  # plugin folders that others can write to are refused
    os.environ["OMP_WAIT_POLICY"] = "passive"  # other tests run at the same time
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder).resolve()
        (work / "plugins").mkdir()
        plugin = compiled(ROOT / "examples/plugins/records/records.c", work / "plugins/records.eng.so")
        engine = Engine(work)
        same_as_lines(engine)
        tokens_made_anew(engine)
        errors(engine)
        said = engine("plugins", "test", str(plugin), "file=" + str(work / "all.rec"))
        assert "60 documents" in said, said
    print("the format holds")


main()
