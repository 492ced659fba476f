#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""chat_weights_test.py BUILD: weights of messages and of conversations in the loss.

The loss of a step and of an evaluation is the sum of the weighted losses of all answers, divided by the sum of the weights
of their tokens; the losses of the answers come from evaluations of each alone. So it is packed or not, and for every
division of the batch into micro-batches, and as a source of a mixture. `data inspect` shows the weights."""
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
[data]
plugin = "chat"
paths = ["rows.jsonl"]
tokenizer = "bytes"
chat_template = "t.jinja"
validation = 0.0
weights = true
[train]
steps = 1
global_batch = 4
micro_batch = 4
sequence_length = 40
grad_clip = 0.0
[optimizer]
plugin = "sgd"
learning_rate = 0.01
[device]
threads = 1
"""
TEMPLATE = "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}$\n{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"

# Each row: the weight of the row, and answers with their weights.
ROWS = [(1, [("yes", 0.5), ("or no", 2)]), (0.25, [("well", 1), ("it is", 0)]), (3, [("three", 0.125)]), (1, [("four", 1)])]


class Engine:
    def __init__(self, work):
        self.work = work

    def __call__(self, *args, expect=0):
        done = subprocess.run([str(BUILD / "tools/engine"), *args], cwd=self.work, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False)
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + (done.stderr if expect else "")

    def loss(self, name, *overrides):
        """The loss of the first step."""
        self("run", "config.toml", "--out", name, *overrides)
        lines = map(json.loads, (self.work / name / "metrics.jsonl").read_text().splitlines())
        return next(line["loss"] for line in lines if "grad_norm" in line)

    def evaluate(self, *overrides):
        shown = json.loads(self("eval", str(MODEL), "--data", "config.toml", "--json", "data.validation=1", *overrides))
        return shown["loss"], shown["tokens"]


def messages(answers, weights):
    out = []
    for (text, _), weight in zip(answers, weights):
        out += [{"role": "user", "content": "So?"}, {"role": "assistant", "content": text, "weight": weight}]
    return out


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def expected(engine):
    """The weighted mean, from the loss of each answer alone."""
    above = below = 0.0
    for of_row, answers in ROWS:
        for k, (_, weight) in enumerate(answers):
            alone = [1.0 if k == i else 0.0 for i in range(len(answers))]
            write(engine.work / "alone.jsonl", [{"messages": messages(answers, alone)}])
            loss, tokens = engine.evaluate('data.paths=["alone.jsonl"]', "data.weights=false")
            above += of_row * weight * tokens * loss
            below += of_row * weight * tokens
    return above / below


def main():
    os.environ["OMP_WAIT_POLICY"] = "passive"  # other tests run at the same time
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(pathlib.Path(folder))
        (engine.work / "config.toml").write_text(CONFIG)
        (engine.work / "t.jinja").write_text(TEMPLATE)
        write(engine.work / "rows.jsonl",
              [{"messages": messages(answers, [w for _, w in answers]), "weight": row} for row, answers in ROWS])
        wanted = expected(engine)

        def close(loss):
            assert abs(loss / wanted - 1) < 2e-6, (loss, wanted)
        close(engine.evaluate()[0])
        for rows in (1, 2, 4):
            close(engine.loss(f"by-{rows}", f"train.micro_batch={rows}"))
        close(engine.loss("packed", "data.pack=true", "train.sequence_length=160", "train.micro_batch=1", "train.global_batch=1"))
        # Without weights it is another loss; and none of them may be read by nobody.
        plain = [{"messages": messages(answers, [1] * len(answers))} for _, answers in ROWS]
        write(engine.work / "plain.jsonl", plain)
        mean = engine.loss("plain", 'data.paths=["plain.jsonl"]', "data.weights=false")
        assert abs(mean / wanted - 1) > 1e-3, (mean, wanted)
        assert engine.loss("ones", 'data.paths=["plain.jsonl"]') == mean
        # In a mixture a source without weights counts by its tokens.
        mixed = CONFIG.replace("weights = true", "").replace('paths = ["rows.jsonl"]', "") + """
[[data.sources]]
paths = ["rows.jsonl"]
weights = true
[[data.sources]]
paths = ["plain.jsonl"]
"""
        (engine.work / "mixed.toml").write_text(mixed)
        engine("run", "mixed.toml", "--out", "mixed", "train.global_batch=8", "train.micro_batch=2")
        line = next(line for line in map(json.loads, (engine.work / "mixed/metrics.jsonl").read_text().splitlines())
                    if "grad_norm" in line)
        tokens = {True: 0.0, False: 0}
        for row, answers in ROWS:
            for text, weight in answers:
                tokens[True] += row * weight * (len(text) + 1)
                tokens[False] += len(text) + 1
        both = (tokens[True] * wanted + tokens[False] * mean) / (tokens[True] + tokens[False])
        assert abs(line["loss"] / both - 1) < 2e-6, (line["loss"], both)
        shown = engine("data", "inspect", "config.toml")
        assert "fields: tokens, labels, loss_weights" in shown and "weights: 0.25 to 2, " in shown, shown
        assert "{+yes$|0.5+}" in shown or "{+well$|0.25+}" in shown or "{+three$|0.375+}" in shown, shown
        text = engine("check", "config.toml", 'data.paths=["rows.jsonl"]', 'loss.plugin=preference', 'loss.kind=simpo', expect=4)
        assert "weights = true needs a model and a loss that read loss_weights" in text, text
        text = engine("analyse", "config.toml", "--job", "curvature", expect=2)
        assert "the loss is a mean over weights of tokens" in text and "data.weights = false" in text, text


main()
