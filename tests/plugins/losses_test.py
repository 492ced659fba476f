#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""losses_test.py BUILD: examples/plugins/preference, compiled with the headers alone, as [loss].

Its gradients agree with differences (`engine plugins test`), and a planted fault is noticed. A loss that is a mean over
pairs does not depend on how a batch is divided. Mistakes are told by name."""
import json
import math
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
vocab_size = 300
[loss]
plugin = "pairs"
[data]
plugin = "my_thing"
[train]
steps = 4
global_batch = 4
micro_batch = 4
sequence_length = 16
eval_every = 4
eval_batches = 2
[device]
threads = 1
[checkpoint]
every = 0
"""


class Engine:
    def __init__(self, work):
        self.work = work

    def __call__(self, *args, expect=0):
        done = subprocess.run([str(BUILD / "tools/engine"), "--plugin-path", str(self.work / "plugins"), *args], cwd=self.work,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == expect, done.stdout
        return done.stdout

    def steps(self, name, *overrides):
        self("run", "config.toml", "--out", name, *overrides)
        lines = map(json.loads, (self.work / name / "metrics.jsonl").read_text().splitlines())
        return [line for line in lines if "terms" in line and "grad_norm" in line]


def tested(source, work):
    """Runs `engine plugins test`: (True if it passes, its output)."""
    folder = work / source.stem
    folder.mkdir()
    made = compiled(source, folder / "preference.eng.so", more=["-lm"])
    done = subprocess.run([str(BUILD / "tools/engine"), "plugins", "test", str(made)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode == 0, done.stdout


def main():
    os.umask(0o022)
    os.environ["OMP_WAIT_POLICY"] = "passive"  # other tests run at the same time
    source = ROOT / "examples/plugins/preference/preference.c"
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        passed, text = tested(source, work)
        assert passed and "against central differences in f64" in text, text
        wrong = source.read_text().replace("(1.0 + exp(z)) * u->beta", "(1.0 + exp(z)) * u->beta * 1.01")
        assert wrong != source.read_text(), "the fault cannot be planted"
        (work / "planted.c").write_text(wrong)
        passed, text = tested(work / "planted.c", work)
        assert not passed and "gradient" in text, text

        (work / "plugins").mkdir()
        compiled(source, work / "plugins/preference.eng.so", more=["-lm"])
        compiled(ROOT / "tools/templates/data/c/my_thing.c", work / "plugins/my_thing.eng.so")
        (work / "config.toml").write_text(CONFIG)
        engine = Engine(work)
        whole, halves = engine.steps("whole"), engine.steps("halves", "train.micro_batch=2")
        assert len(whole) == len(halves) == 4, whole
        for one, two in zip(whole, halves):
            terms = one["terms"]
            assert one["loss"] == terms["preference"] and terms["accuracy"] in (0, 0.5, 1), one
            assert abs(one["loss"] - math.log(2)) < 0.3, one
            for key in ("loss", "grad_norm"):
                assert abs(one[key] - two[key]) < 1e-4 * abs(one[key]), (key, one, two)
        shown = json.loads(engine("eval", "whole", "--json"))
        assert abs(shown["loss"] - shown["terms"]["preference"]) < 1e-12 and shown["loss"] < 2, shown
        assert engine("generate", "whole", "ab", "--tokenizer", "bytes", "--tokens", "2", "--ids")
        assert "train.micro_batch must be even" in engine("plan", "config.toml", "train.micro_batch=1", expect=2)
        text = engine("plan", "config.toml", "loss.reference=true", expect=2)
        assert "the batch has no `reference_logprobs`" in text and "loss pairs" in text, text
        assert "belongs to plugin" in engine("plan", "config.toml", "loss.plugin=cross_entropy", "loss.beta=1", expect=2)


main()
