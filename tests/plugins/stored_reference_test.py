#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stored_reference_test.py BUILD: [reference] store, the log-probabilities of a reference model in a file.

Runs with a file have the bits of runs with the model: losses, terms, norms, weights; resumed ones too. The plan has no
second model. Files of other weights, models, lengths and data are refused, and so are damaged ones."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from random import Random

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1]).resolve()
SANITIZED = b"__asan_init" in (BUILD / "tools/engine").read_bytes()
MODEL = ROOT / "tests/models/hf/single"
CONFIG = f"""[model]
from = "{MODEL}"
[loss]
plugin = "preference"
[reference]
from = "start"
[data]
plugin = "pairs"
paths = ["pairs.jsonl"]
validation = 0.25
[train]
steps = 6
global_batch = 4
micro_batch = 2
sequence_length = 40
eval_every = 3
[optimizer]
plugin = "sgd"
learning_rate = 0.02
[checkpoint]
every = 3
"""
STORE = "reference.store=kept/reference.logprobs"
LORA = ['adapter.plugin="lora"', 'adapter.targets=["all-linear"]', "adapter.rank=4", "reference.from=base"]
KTO = ['data.paths=["single.jsonl"]', "data.unpaired=true", "loss.kind=kto"]


class Engine:
    def __init__(self, work):
        self.work = work

    def __call__(self, *args, expect=0):
        done = subprocess.run([str(BUILD / "tools/engine"), *args], cwd=self.work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        assert done.returncode == expect, done.stdout
        return done.stdout

    def run(self, name, *overrides):
        self("run", "config.toml", "--out", name, *overrides)
        return self.results(name)

    def results(self, name):
        lines = map(json.loads, (self.work / name / "metrics.jsonl").read_text().splitlines())
        return [[line.get(key) for key in ("step", "loss", "grad_norm", "terms", "eval_loss")] for line in lines if "grad_norm" in line]

    def weights(self, name):
        last = sorted((self.work / name / "checkpoints").iterdir())[-1]
        return [file.read_bytes() for file in sorted(last.glob("*.safetensors"))]


def check_bits(engine):
    cases = {"dpo": [], "ipo": ["loss.kind=ipo", "loss.average=true"], "threads": ["device.threads=2"], "kto": KTO, "lora": LORA,
             "lora-nf4": [*LORA, "precision.frozen=nf4"], "bf16": ["precision.plugin=bf16"], "path": [f"reference.from={MODEL}"],
             "initial": ["--unset", "model.from", "model.plugin=llama", "model.preset=tiny", "model.vocab_size=256"]}
    for name, keys in cases.items():
        said = engine("data", "reference", "config.toml", STORE, *keys)
        assert "sequences, of" in said, said
        live, stored = engine.run(f"{name}-live", *keys), engine.run(f"{name}-stored", STORE, *keys)
        assert live == stored and len(live) == 6, (name, live, stored)
        assert engine.weights(f"{name}-live") == engine.weights(f"{name}-stored"), name
    head, entries = (engine.work / "kept/reference.logprobs").read_bytes()[:8], os.path.getsize(engine.work / "kept/reference.logprobs") - 256
    assert head == b"ENGREFER" and entries % 16 == 0, (head, entries)


def check_resume(engine):
    """A run goes on, and may change between the file and the model."""
    engine("data", "reference", "config.toml", STORE)
    whole = engine.run("whole", STORE)
    engine.run("parts", STORE, "train.steps=3")
    engine("run", "parts", "train.steps=6")
    assert engine.results("parts") == whole
    engine.run("changed", STORE, "train.steps=3")
    engine("run", "changed", "train.steps=6", "--unset", "reference.store")
    assert engine.results("changed") == whole
    # Another share that is held out has the same sequences.
    shown = json.loads(engine("eval", "whole", "data.validation=1", "--json"))
    assert shown["tokens"] > 0, shown
    assert "there is no " in engine("eval", "whole", "reference.store=none", expect=4)


def check_memory(engine):
    """No second model: what is planned is what training with the cross-entropy takes, and 1 %."""
    wide = ["--unset", "model.from", "model.plugin=llama", "model.vocab_size=2048", "model.hidden_size=512", "model.intermediate_size=1536",
            "model.num_attention_heads=8", "model.num_hidden_layers=4", "train.steps=2", "train.sequence_length=128"]
    parameters = 4 * (4 * 512 * 512 + 3 * 512 * 1536 + 2 * 512) + 2 * 2048 * 512 + 512
    (engine.work / "text.txt").write_text("one two three " * 2000)
    ways = {"live": [], "stored": [STORE],
            "sft": ["--unset", "reference.from", "--unset", "loss.plugin", "data.plugin=text", 'data.paths=["text.txt"]']}
    peaks = {name: json.loads(engine("plan", "config.toml", *wide, *keys, "--json")) for name, keys in ways.items()}
    line = peaks["stored"]["reference"]
    assert line == "log-probabilities in kept/reference.logprobs, from start", line
    live, stored, sft = (peaks[name]["ranks"][0]["host_peak_bytes"] for name in ("live", "stored", "sft"))
    assert stored < 1.01 * sft and live > stored + 4 * parameters, (live, stored, sft)
    planned = {}
    for name in ("stored", "sft"):
        if name == "stored":
            engine("data", "reference", "config.toml", *wide, STORE)
        engine.run(f"wide-{name}", *wide, *ways[name])
        planned[name] = json.loads((engine.work / f"wide-{name}/run.json").read_text())["planned"]["host_peak_bytes"]
        line = (engine.work / f"wide-{name}/metrics.jsonl").read_text().splitlines()[-1]
        measured = json.loads(line)["host_peak_bytes"]
        assert SANITIZED or abs(measured - planned[name]) < max(0.02 * planned[name], 8 << 20), (name, measured, planned)


def check_refusals(engine):
    engine("data", "reference", "config.toml", STORE)
    file = engine.work / "kept/reference.logprobs"
    good = file.read_bytes()

    def told(*overrides, code=4):
        return engine("check", "config.toml", STORE, *overrides, expect=code)
    told(code=0)
    assert "there is no " in told("reference.store=none") and "engine data reference" in told("reference.store=none")
    assert "train.sequence_length = 40 instead of 48" in told("train.sequence_length=48")
    rows = (engine.work / "pairs.jsonl").read_text().splitlines()
    row = json.loads(rows[0])
    row["chosen"] += "!"
    (engine.work / "rows.jsonl").write_text("\n".join([*rows[1:], json.dumps(row)]) + "\n")
    assert "computed from other data: it does not have sample" in told('data.paths=["rows.jsonl"]')
    (engine.work / "fewer.jsonl").write_text("\n".join(rows[1:]) + "\n")
    told('data.paths=["fewer.jsonl"]', code=0)  # all of them are there
    assert "other options of [model] or [precision]" in told("precision.plugin=bf16")
    other = engine.work / "other"
    shutil.copytree(MODEL, other)
    weights = bytearray((other / "model.safetensors").read_bytes())
    weights[-3] ^= 1
    (other / "model.safetensors").write_bytes(weights)
    assert "with other weights than those of reference.from" in told("reference.from=other")
    assert "reference.from" in told("--unset", "reference.from", code=2)
    assert "[reference] store has no effect" in told("loss.kind=simpo", code=2)
    assert "reference.store" in engine("data", "reference", "config.toml", expect=2)
    for k in range(len(good)):
        if k % 7 and k > 40:
            continue
        damaged = bytearray(good)
        damaged[k] ^= 0x40
        file.write_bytes(damaged)
        assert "kept/reference.logprobs" in told(), k
    for size in (0, 100, 256, len(good) - 1, len(good) - 16):
        file.write_bytes(good[:size])
        assert "kept/reference.logprobs" in told(), size
    file.write_bytes(good)


def write_rows(work):
    """Pairs and single answers of all lengths, so that sequences lie at other places of a batch in training."""
    random, letters = Random(4), "abcdefgh "

    def text(most):
        return "".join(random.choice(letters) for _ in range(random.randint(1, most)))
    pairs = [{"prompt": text(12), "chosen": text(20) + "!", "rejected": text(20) + "?"} for _ in range(14)]
    single = [{"prompt": text(12), "completion": text(20), "label": k % 3 > 0} for k in range(14)]
    for name, rows in (("pairs", pairs), ("single", single)):
        (work / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def main():
    os.environ["OMP_WAIT_POLICY"] = "passive"  # other tests run at the same time
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(pathlib.Path(folder))
        write_rows(engine.work)
        (engine.work / "config.toml").write_text(CONFIG)
        check_bits(engine)
        check_resume(engine)
        check_memory(engine)
        check_refusals(engine)


main()
