#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""preference_test.py BUILD: the loss `preference` with [reference] and the data source `pairs`.

Gradients agree with differences. 20 steps of each loss are those of TRL (tools/goldens/preference.py). A resumed run is
an uninterrupted one. Checkpoints have no reference; the plan has it, and so much memory is used. Mistakes are told."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1]).resolve()
SANITIZED = b"__asan_init" in (BUILD / "tools/engine").read_bytes()
GOLDEN = ROOT / "tests/plugins/golden"
MODEL = ROOT / "tests/models/hf/single"
CONFIG = f"""[model]
from = "{MODEL}"
[loss]
plugin = "preference"
[reference]
from = "{MODEL}"
[data]
plugin = "pairs"
paths = ["{GOLDEN}/pairs.jsonl"]
validation = 0.0
[train]
steps = 5
global_batch = 4
micro_batch = 4
sequence_length = 40
grad_clip = 0.0
[optimizer]
plugin = "sgd"
learning_rate = 0.02
[device]
threads = 1
[checkpoint]
every = 0
"""
RATE = "optimizer.learning_rate=0.01"  # of the curves of TRL


class Engine:
    def __init__(self, work):
        self.work = work

    def __call__(self, *args, expect=0):
        done = subprocess.run([str(BUILD / "tools/engine"), *args], cwd=self.work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        assert done.returncode == expect, done.stdout
        return done.stdout

    def run(self, name, *overrides):
        return self("run", "config.toml", "--out", name, *overrides)

    def steps(self, name):
        lines = map(json.loads, (self.work / name / "metrics.jsonl").read_text().splitlines())
        return [line for line in lines if "terms" in line and "grad_norm" in line]


def toml(value):
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def close(a, b, tolerance=1e-5):
    return abs(a - b) <= tolerance * max(1, abs(b))


def check_curves(engine):
    """Losses and rewards are those of TRL, with one micro-batch and with two."""
    for number, curve in enumerate(json.loads((GOLDEN / "curves.json").read_text())["curves"]):
        keys = [f"loss.{key}={toml(value)}" for key, value in {"kind": curve["kind"], **curve["keys"]}.items()]
        compares = curve["kind"] in ("dpo", "ipo")
        for rows in (4, 2):
            name = f"curve-{number}-{rows}"
            engine.run(name, *keys, "train.steps=20", RATE, f"train.micro_batch={rows}", *([] if compares else ["--unset", "reference.from"]))
            steps = engine.steps(name)
            assert len(steps) == len(curve["steps"]) == 20
            for ours, theirs in zip(steps, curve["steps"]):
                found = {"loss": ours["loss"], **{key[8:]: value for key, value in ours["terms"].items() if key.startswith("rewards.")}}
                assert set(theirs) <= set(found) and len(found) == 5, found
                assert all(close(found[key], theirs[key]) for key in theirs), (curve["kind"], curve["keys"], found, theirs)


def check_single_answers(engine):
    """Losses and the constant of kto are those of TRL; the rows are one batch in every order."""
    data = [f'data.paths=["{GOLDEN}/unpaired.jsonl"]', "data.unpaired=true", "loss.kind=kto", "train.global_batch=8", "train.micro_batch=8"]
    for number, curve in enumerate(json.loads((GOLDEN / "kto.json").read_text())["curves"]):
        name = f"kto-{number}"
        engine.run(name, *data, "train.steps=20", RATE, *[f"loss.{key}={toml(value)}" for key, value in curve["keys"].items()])
        steps = engine.steps(name)
        assert len(steps) == len(curve["steps"]) == 20
        for ours, theirs in zip(steps, curve["steps"]):
            assert close(ours["loss"], theirs["loss"]) and close(ours["terms"]["kl"], theirs["kl"], 1e-4), (ours, theirs)
            assert 0 <= ours["terms"]["rewards.accuracy"] <= 1
    engine.run("kto-whole", *data, "checkpoint.every=2")
    engine.run("kto-parts", *data, "train.steps=2")
    engine("run", "kto-parts", "train.steps=5")
    assert [s["loss"] for s in engine.steps("kto-whole")] == [s["loss"] for s in engine.steps("kto-parts")]
    shown = json.loads(engine("eval", "kto-whole", "data.validation=1", "--json"))
    assert 0 < shown["loss"] < 0.5, shown

    def told(*overrides):
        return engine("check", "config.toml", *overrides, expect=2)
    assert "the data are single answers" in told(*data[:2])
    assert "unpaired = true" in told("loss.kind=kto")
    assert "two sequences for each answer" in told(*data, "train.micro_batch=1", "train.global_batch=8")
    assert "desirable_weight is for kind" in told("loss.desirable_weight=2.0")
    assert "nll is not for kind" in told(*data, "loss.nll=1.0")

    def rows(*lines):
        (engine.work / "single.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return engine("run", "config.toml", "--out", "none", *data, 'data.paths=["single.jsonl"]', expect=4)
    good = {"prompt": "a", "completion": "b", "label": True}
    assert 'single.jsonl:2: no field "label": a row is' in rows(good, {"prompt": "a", "completion": "b"})
    assert 'field "label" is neither true nor false' in rows({**good, "label": 1})
    assert 'no field "completion": a row is' in rows({"prompt": "a", "label": True})
    assert "one row is too few" in rows(good)
    assert "the answer has no token to train" in rows({**good, "completion": ""})


def check_resume(engine):
    """A run that was stopped goes on with the same bits; without the weights of its reference it does not."""
    reference = engine.work / "frozen"
    shutil.copytree(MODEL, reference)
    keys = ["loss.kind=dpo", f"reference.from={reference}", "checkpoint.every=2", "train.seed=3"]
    engine.run("whole", *keys)
    engine.run("parts", *keys, "train.steps=2")
    engine("run", "parts", "train.steps=5")
    whole, parts = engine.steps("whole"), engine.steps("parts")
    assert [[s[key] for key in ("step", "loss", "grad_norm", "terms")] for s in whole] == \
        [[s[key] for key in ("step", "loss", "grad_norm", "terms")] for s in parts]
    saved = [sorted((engine.work / name / "checkpoints").iterdir())[-1] for name in ("whole", "parts")]
    assert saved[0].name == saved[1].name
    for file in saved[0].glob("*.safetensors"):
        assert file.read_bytes() == (saved[1] / file.name).read_bytes(), file
    manifest = (saved[0] / "manifest.json").read_text()
    assert "reference.model" not in manifest, manifest
    identity = json.loads((engine.work / "whole/run.json").read_text())["reference"]
    assert identity["from"] == str(reference) and identity["hash"] in manifest, identity
    shown = json.loads(engine("eval", "whole", "data.validation=1", "--json"))
    assert shown["terms"]["rewards.accuracy"] == 1 and shown["loss"] < 0.3, shown
    assert engine("generate", "whole", "ab", "--tokens", "2", "--ids")
    # Another reference is noticed, and so is a missing one.
    other = bytearray((reference / "model.safetensors").read_bytes())
    other[-3] ^= 1
    (reference / "model.safetensors").write_bytes(other)
    text = engine("run", "parts", "train.steps=6", expect=9)
    assert "a reference of other weights" in text and "reference.from" in text, text
    shutil.rmtree(reference)
    assert "is not a directory" in engine("run", "parts", "train.steps=6", expect=2)


def check_origins(engine):
    """"start", a run and a Hugging Face directory of the same weights are the same reference."""
    engine.run("zero", "train.steps=1", "optimizer.learning_rate=1e-30", "loss.kind=simpo", "--unset", "reference.from")
    for name, origin in (("by-start", "start"), ("by-run", "zero"), ("by-path", str(MODEL))):
        engine.run(name, f"reference.from={origin}")
    losses = [[s["terms"] for s in engine.steps(name)] for name in ("by-start", "by-run", "by-path")]
    assert losses[0] == losses[1] == losses[2] and losses[0][0]["rewards.margin"] == 0, losses


def check_memory(engine):
    """The reference is in the plan, and a run takes what was planned."""
    wide = ["--unset", "model.from", "model.plugin=llama", "model.vocab_size=2048", "model.hidden_size=512", "model.intermediate_size=1536",
            "model.num_attention_heads=8", "model.num_hidden_layers=4", "train.steps=2"]
    parameters = 4 * (4 * 512 * 512 + 3 * 512 * 1536 + 2 * 512) + 2 * 2048 * 512 + 512
    plan = engine("plan", "config.toml", *wide, "reference.from=start")
    assert f"reference         {parameters} parameters, frozen, from the start of the run" in plan, plan
    assert any(line.split()[0] == "reference" and "bytes" in line for line in plan.splitlines() if line.split()), plan
    peaks = {}
    for name, keys in {"with": ["reference.from=start"], "without": ["--unset", "reference.from", "loss.kind=simpo"]}.items():
        engine.run(name, *wide, *keys)
        planned = json.loads((engine.work / name / "run.json").read_text())["planned"]["host_peak_bytes"]
        measured = engine.steps(name)[-1]["host_peak_bytes"]
        peaks[name] = (planned, measured)
        # A sanitizer's own memory is in no plan.
        assert SANITIZED or abs(measured - planned) < max(0.02 * planned, 8 << 20), (name, peaks)
    more = [a - b for a, b in zip(peaks["with"], peaks["without"])]
    assert abs(more[0] - 4 * parameters) < 1 << 20, (more, 4 * parameters)
    assert SANITIZED or abs(more[1] - 4 * parameters) < 4 << 20, (more, 4 * parameters)


def check_mistakes(engine):
    def told(*overrides):
        return engine("check", "config.toml", *overrides, expect=2)
    assert "name a reference model" in told("--unset", "reference.from")
    assert "[reference] has no effect" in told("loss.kind=simpo")
    assert "train.micro_batch must be even" in told("train.micro_batch=1")
    assert "is not a directory" in told("reference.from=nowhere")
    assert "margin is for kind" in told("loss.margin=1.0")
    assert "label_smoothing is for kind" in told("loss.kind=ipo", "loss.label_smoothing=0.1")
    assert "is trained" in told("reference.from=base")
    other = engine.work / "other"
    shutil.copytree(MODEL, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "num_attention_heads": 2, "head_dim": 8}))
    text = told("reference.from=other")
    assert "is another model" in text and "num_attention_heads = 2 instead of 4" in text, text

    def data(line, *overrides, code=4):
        (engine.work / "rows.jsonl").write_text(line + "\n")
        return engine("run", "config.toml", "--out", "none", 'data.paths=["rows.jsonl"]', *overrides, expect=code)
    good = {"prompt": "a", "chosen": "b", "rejected": "c"}
    assert "rows.jsonl:1: no field \"rejected\"" in data('{"prompt": "a", "chosen": "b"}')
    assert "chats are not read as pairs yet" in data(json.dumps({**good, "chosen": [{"role": "user"}]}))
    assert "an answer has no token to train" in data(json.dumps({**good, "rejected": ""}))
    assert "too_long" in data(json.dumps({**good, "chosen": "x" * 50}))
    assert "longer than a sample" in data(json.dumps({**good, "chosen": "x" * 50}), "data.too_long=skip")


def main():
    os.environ["OMP_WAIT_POLICY"] = "passive"  # other tests run at the same time
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(pathlib.Path(folder))
        (engine.work / "config.toml").write_text(CONFIG)
        plugin = BUILD / "plugins/loss/preference.eng.so"
        for kind in ("simpo", "orpo"):
            text = engine("plugins", "test", str(plugin), f"kind={kind}", "nll=0.3")
            assert "against central differences in f64" in text, text
        check_curves(engine)
        check_single_answers(engine)
        check_resume(engine)
        check_origins(engine)
        check_memory(engine)
        check_mistakes(engine)


main()
