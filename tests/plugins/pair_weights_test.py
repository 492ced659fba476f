#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pair_weights_test.py BUILD: weights of pairs, and of single answers, in the losses of preferences.

The loss of a step and of an evaluation is the weighted mean of the losses of the pairs, each in a step of its own. It and the
norm of the gradient are the same for every division into micro-batches and ranks, and those of pairs that are repeated as
often as their weights say. Rewards count each pair once. Weights that make no sense are refused by line."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1]).resolve()
MODEL = ROOT / "tests/models/hf/single"
CONFIG = f"""[model]
from = "{MODEL}"
[loss]
plugin = "preference"
[reference]
from = "other"
[data]
plugin = "pairs"
paths = ["rows.jsonl"]
validation = 0.0
weights = true
[train]
steps = 1
global_batch = 8
micro_batch = 8
sequence_length = 40
grad_clip = 0.0
[optimizer]
plugin = "sgd"
learning_rate = 1e-30
[device]
threads = 1
"""
PAIRS = [("How are you?", " I am well.", " Go away, please!", 2), ("2 + 2 is", " four", " twenty-two", 0),
         ("The sky is", " blue", " a lie", 1), ("Say no:", " no", " yes yes", 4)]
KINDS = ["dpo", "ipo", "simpo", "orpo"]


class Engine:
    def __init__(self, work):
        self.work = work

    def __call__(self, *args, expect=0):
        done = subprocess.run([str(BUILD / "tools/engine"), *args], cwd=self.work, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False)
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + done.stderr

    def step(self, name, *overrides):
        """The first step of a run."""
        self("run", "config.toml", "--out", name, *overrides)
        lines = map(json.loads, (self.work / name / "metrics.jsonl").read_text().splitlines())
        return next(line for line in lines if "grad_norm" in line)

    def evaluate(self, name):
        done = subprocess.run([str(BUILD / "tools/engine"), "eval", name, "--json", "data.validation=1"], cwd=self.work,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def write(self, name, rows):
        (self.work / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def pairs(weighted=True):
    return [{"prompt": p, "chosen": c, "rejected": r, **({"weight": w} if weighted else {})} for p, c, r, w in PAIRS]


def singles():
    return [{"prompt": p, "completion": c if k % 2 == 0 else r, "label": k % 2 == 0, "loss_weight": w + 0.5}
            for k, (p, c, r, w) in enumerate(PAIRS)]


def close(a, b, tolerance=1e-6):
    assert abs(a - b) <= tolerance * max(1, abs(b)), (a, b)


def check_kind(engine, kind):
    keys = [f"loss.kind={kind}"] + (["--unset", "reference.from"] if kind in ("simpo", "orpo") else [])
    alone, weights = [], [w for *_, w in PAIRS]
    for k, row in enumerate(pairs(weighted=False)):
        engine.write("alone.jsonl", [row])
        alone.append(engine.step(f"{kind}-alone-{k}", *keys, 'data.paths=["alone.jsonl"]', "data.weights=false",
                                 "train.global_batch=2", "train.micro_batch=2"))
    wanted = sum(w * one["loss"] for w, one in zip(weights, alone)) / sum(weights)
    plain = sum(one["loss"] for one in alone) / len(alone)
    assert abs(plain - wanted) > 1e-4, (kind, plain, wanted)
    whole = engine.step(f"{kind}-8", *keys)
    close(whole["loss"], wanted)
    close(engine.evaluate(f"{kind}-8")["loss"], wanted)
    margin = sum(one["terms"]["rewards.margin"] for one in alone) / len(alone)
    close(whole["terms"]["rewards.margin"], margin)
    splits = {"2": ["train.micro_batch=2"], "4": ["train.micro_batch=4"], "ranks": ["train.micro_batch=2", "--ranks", "2"],
              "zero3": ["train.micro_batch=2", "--ranks", "2", "zero.plugin=zero3"]}
    for name, more in splits.items():
        step = engine.step(f"{kind}-{name}", *keys, *more)
        close(step["loss"], wanted)
        close(step["grad_norm"], whole["grad_norm"])
    # Twice the weight everywhere changes nothing; a weight of 2 is a pair that is there twice.
    engine.write("twice.jsonl", [{**row, "weight": 2 * row["weight"]} for row in pairs()])
    close(engine.step(f"{kind}-twice", *keys, 'data.paths=["twice.jsonl"]')["grad_norm"], whole["grad_norm"])
    repeated = [row for row, w in zip(pairs(weighted=False), weights) for _ in range(w)] + pairs(weighted=False)[:1]
    engine.write("repeated.jsonl", [{**row, "weight": 1} for row in repeated[:-1]] + [{**repeated[-1], "weight": 0}])
    size = f"train.global_batch={2 * len(repeated)}"
    step = engine.step(f"{kind}-repeated", *keys, 'data.paths=["repeated.jsonl"]', size, "train.micro_batch=4")
    close(step["loss"], wanted)
    close(step["grad_norm"], whole["grad_norm"])
    # With equal weights the loss is the plain mean.
    engine.write("ones.jsonl", [{**row, "weight": 3} for row in pairs()])
    close(engine.step(f"{kind}-ones", *keys, 'data.paths=["ones.jsonl"]')["loss"], plain)


def check_single_answers(engine):
    """k, the constant of kto, is that of a micro-batch, so there is one; only the means differ."""
    engine.write("single.jsonl", singles())
    keys = ["loss.kind=kto", "data.unpaired=true", 'data.paths=["single.jsonl"]']
    weights = [row["loss_weight"] for row in singles()]
    losses = []
    for k in range(len(weights)):  # the loss of answer k, beside the others
        engine.write("one.jsonl", [{**row, "loss_weight": float(i == k)} for i, row in enumerate(singles())])
        losses.append(engine.step(f"kto-{k}", *keys, 'data.paths=["one.jsonl"]')["loss"])
    wanted = sum(w * loss for w, loss in zip(weights, losses)) / sum(weights)
    whole = engine.step("kto", *keys)
    close(whole["loss"], wanted)
    plain = engine.step("kto-plain", *keys, "data.weights=false")
    close(plain["loss"], sum(losses) / len(losses))
    assert abs(plain["loss"] - wanted) > 1e-4, (plain, wanted)
    close(whole["terms"]["kl"], plain["terms"]["kl"])
    close(whole["terms"]["rewards.accuracy"], plain["terms"]["rewards.accuracy"])


def check_mistakes(engine):
    def told(*lines, code=4, more=()):
        (engine.work / "bad.jsonl").write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))
        return engine("run", "config.toml", "--out", "none", 'data.paths=["bad.jsonl"]', *more, expect=code)
    good = pairs()[0]
    for weight in (-1, 1e10, 1e-12, True, "2", [1]):
        text = told(good, {**good, "weight": weight})
        assert "bad.jsonl:2: the row has the weight" in text and "from 1e-9 to 1e9" in text, text
    assert "bad.jsonl:2: not valid JSON" in told(good, json.dumps(good).replace('"weight": 2', '"weight": NaN'))
    assert "bad.jsonl:1: the row has weight and loss_weight" in told({**good, "loss_weight": 1})
    text = told({**good, "weight": 0}, {**good, "weight": 0.0})
    assert "each of the 2 rows that train has the weight 0" in text and "bad.jsonl:2" in text, text
    # The losses of preferences alone read the weights of pairs; without the option they are told.
    text = engine("check", "config.toml", "loss.plugin=cross_entropy", "--unset", "reference.from", expect=4)
    assert "weights = true needs a loss that reads pair_weights" in text, text
    text = engine("run", "config.toml", "--out", "unread", "data.weights=false")
    assert "whose weight, or loss_weight, does not count: 3" in text, text
    text = engine("data", "inspect", "config.toml")
    assert "pair_weights" in text and "weights: " not in text, text


def main():
    os.environ["OMP_WAIT_POLICY"] = "passive"  # other tests run at the same time
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(pathlib.Path(folder))
        (engine.work / "config.toml").write_text(CONFIG)
        engine.write("rows.jsonl", pairs())
        # Another model as the reference, so that rewards differ: this one after a step.
        engine("run", "config.toml", "--out", "start", "--unset", "reference.from", "loss.kind=simpo", "optimizer.learning_rate=0.5")
        engine("ckpt", "export", "start", "--to", "other")
        for kind in KINDS:
            check_kind(engine, kind)
        check_single_answers(engine)
        check_mistakes(engine)


main()
