#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples_test.py BUILD: the plugins in examples/plugins/ against their formulas in f64, update by update.

The gradient of a step is what SGD stores as its first momentum from the same weights on the same batch (the data source
has one sample). Everything else is read from checkpoints. A planted fault, a formula with one wrong number, is noticed.
Without rustc ($RUSTC), the observer in Rust is left out; tools/dev setup installs it."""
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

from compiled import ROOT, compiled, compiled_rust, rustc

BUILD = pathlib.Path(sys.argv[1]).resolve()
STEPS, RATE, DECAY = 4, 0.01, 0.1
MODEL = """[model]
plugin = "llama"
preset = "tiny"
num_hidden_layers = 1
hidden_size = 16
intermediate_size = 24
num_attention_heads = 2
num_key_value_heads = 2
vocab_size = 40
"""
REST = """
[data]
plugin = "my_thing"
samples = 1
[train]
micro_batch = 1
sequence_length = 16
grad_clip = %g
[checkpoint]
every = 1
keep = 0
"""


def tensors(folder):
    """{name: (shape, values)} of the f32 tensors of a checkpoint."""
    out = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        (size,) = struct.unpack_from("<Q", data)
        for name, entry in json.loads(data[8:8 + size]).items():
            if name != "__metadata__" and entry["dtype"] == "F32":
                begin, end = (8 + size + at for at in entry["data_offsets"])
                out[name] = entry["shape"], struct.unpack("<%df" % ((end - begin) // 4), data[begin:end])
    return out


class Runs:
    def __init__(self, work, clip):
        self.work, self.clip = work, clip

    def train(self, name, model, optimizer, steps):
        config = self.work / (name + ".toml")
        config.write_text(model + REST % self.clip + "[optimizer]\n" + optimizer)
        command = [str(BUILD / "tools/engine"), "--plugin-path", str(self.work / "plugins"), "run", str(config), "--out",
                   str(self.work / name), f"train.steps={steps}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert done.returncode == 0, done.stdout.decode(errors="replace")
        return self.work / name / "checkpoints"

    def gradient(self, name, model):
        """(weights, gradients) at the weights of `model`."""
        made = tensors(self.train(name, model, 'plugin = "sgd"\nmomentum = 0.5\nlearning_rate = 1e-30\n', 1) / "step-00000001")
        end = ".momentum_buffer"
        return ({n: t for n, t in made.items() if not n.endswith(end)},
                {n[:-len(end)]: t[1] for n, t in made.items() if n.endswith(end)})


def clip_of(gradients, limit):
    norm = math.sqrt(sum(x * x for g in gradients.values() for x in g))
    return limit / (norm + 1e-6) if 0 < limit < norm else 1.0


def decays(name):
    return not name.endswith("norm.weight")  # the llama model excludes its norms


def lion(k, shape, p, g, state, decay, beta1=0.9, beta2=0.99):
    m = state.get("momentum", [0.0] * len(p))
    sign = [math.copysign(1, a) if a else 0.0 for a in (beta1 * x + (1 - beta1) * y for x, y in zip(m, g))]
    # If the sum is nearly 0, its sign hangs on the last bit.
    sure = [abs(beta1 * x + (1 - beta1) * y) > 1e-6 * (abs(x) + abs(y)) for x, y in zip(m, g)]
    return ([x - RATE * (s + decay * x) for x, s in zip(p, sign)], {"momentum": [beta2 * x + (1 - beta2) * y for x, y in zip(m, g)]},
            sure)


def adafactor(k, shape, p, g, state, decay, power=0.8):
    d, square, n = 1 - k ** -power, [x * x + 1e-30 for x in g], len(p)
    if len(shape) == 2:
        rows, columns = shape
        row = [d * (state["exp_avg_sq_row"][i] if state else 0) + (1 - d) * sum(square[i * columns:(i + 1) * columns]) / columns
               for i in range(rows)]
        col = [d * (state["exp_avg_sq_col"][j] if state else 0) + (1 - d) * sum(square[j::columns]) / rows for j in range(columns)]
        mean = sum(row) / rows
        u = [x / math.sqrt(row[i // columns] * col[i % columns] / mean) for i, x in enumerate(g)]
        after = {"exp_avg_sq_row": row, "exp_avg_sq_col": col}
    else:
        kept = [d * (state["exp_avg_sq"][i] if state else 0) + (1 - d) * s for i, s in enumerate(square)]
        u, after = [x / math.sqrt(v) for x, v in zip(g, kept)], {"exp_avg_sq": kept}
    large = max(1.0, math.sqrt(sum(x * x for x in u) / n))
    return [x - RATE * (y / large + decay * x) for x, y in zip(p, u)], after, [True] * n


def farthest(have, want, sure):
    """The largest difference, in units of the largest value."""
    assert len(have) == len(want)
    scale = max(map(abs, want), default=0) or 1.0
    return max((abs(a - b) / scale for a, b, good in zip(have, want, sure) if good), default=0.0)


def compare(runs, plugin, formula, **wrong):
    """The largest relative difference over all updates, of parameters and of states."""
    run = runs.train(plugin, MODEL, f'plugin = "{plugin}"\nlearning_rate = {RATE}\nweight_decay = {DECAY}\n', STEPS)
    before, seen, worst = {}, 0, 0.0
    for k in range(1, STEPS + 1):
        model = f'[model]\nfrom = "{run / ("step-%08d" % (k - 1))}"\n' if k > 1 else MODEL
        weights, gradients = runs.gradient(f"{plugin}-sgd-{k}", model)
        factor, after = clip_of(gradients, runs.clip), tensors(run / ("step-%08d" % k))
        for name, (shape, p) in weights.items():
            state = {key[len(name) + 1:]: t[1] for key, t in before.items() if key.startswith(name + ".") and key not in weights}
            want, states, sure = formula(k, shape, p, [x * factor for x in gradients[name]], state, DECAY if decays(name) else 0, **wrong)
            worst = max(worst, farthest(after[name][1], want, sure))
            for key, values in states.items():
                worst = max(worst, farthest(after[f"{name}.{key}"][1], values, [True] * len(values)))
                seen += 1
        before = after
    assert seen > 10 * STEPS and len(weights) > 10, "the checkpoints have lost their states"
    return worst


def block_of(name):
    return "embed" if "embed_tokens" in name else "layers.0" if ".layers.0." in name else "head"


def norms(runs):
    """The largest relative difference between what the observer shows and what the checkpoints say."""
    before, _ = runs.gradient("norms-start", MODEL)
    observed = '[[observers]]\nplugin = "norms"\n'
    run = runs.train("norms", MODEL, f'plugin = "adamw"\nlearning_rate = {RATE}\n' + observed, STEPS)
    lines = [json.loads(line) for line in (run.parent / "metrics.jsonl").read_text().splitlines()]
    lines = [line["observed"] for line in lines if "observed" in line]
    assert len(lines) == STEPS, lines
    worst = 0.0
    for k, shown in enumerate(lines, 1):
        after = tensors(run / ("step-%08d" % k))
        want = {"norms.weight_norm": math.sqrt(sum(x * x for name in before for x in after[name][1]))}
        for block in ("embed", "layers.0", "head"):
            want["norms.update_norm." + block] = math.sqrt(
                sum((x - y) ** 2 for name in before if block_of(name) == block for x, y in zip(after[name][1], before[name][1])))
        assert set(shown) == set(want), (shown, want)
        worst = max([worst] + [abs(shown[key] - want[key]) / want[key] for key in want])
        before = {name: after[name] for name in before}
    return worst


def main():
    os.umask(0o022)
    os.environ["OMP_WAIT_POLICY"] = "passive"  # other tests run at the same time
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "plugins").mkdir()
        compiled(ROOT / "examples/plugins/lion/lion.c", work / "plugins/lion.eng.so")
        compiled(ROOT / "examples/plugins/adafactor/adafactor.cpp", work / "plugins/adafactor.eng.so")
        compiled(ROOT / "tools/templates/data/c/my_thing.c", work / "plugins/my_thing.eng.so")
        for plugin, formula, fault in (("lion", lion, {"beta2": 0.98}), ("adafactor", adafactor, {"power": 0.79})):
            for clip in (0, 0.5):
                (work / str(clip)).mkdir(exist_ok=True)
                (work / str(clip) / "plugins").symlink_to(work / "plugins") if not (work / str(clip) / "plugins").exists() else None
                worst = compare(Runs(work / str(clip), clip), plugin, formula)
                print(f"{plugin}, grad_clip = {clip}: {STEPS} updates, largest relative difference {worst:.2g}")
                assert worst < 1e-6, worst
            (work / "fault").mkdir(exist_ok=True)
            (work / "fault" / "plugins").symlink_to(work / "plugins") if not (work / "fault" / "plugins").exists() else None
            worst = compare(Runs(work / "fault", 0), plugin, formula, **fault)
            print(f"{plugin}, planted fault {fault}: {worst:.2g}")
            assert worst > 1e-4, "a wrong formula is not noticed"
        if not shutil.which(os.environ.get("RUSTC", "rustc")):
            assert not os.environ.get("CI"), "there is no rustc"  # tools/dev setup installs it
            print("there is no rustc: the observer is left out")
            return
        made = work / "made" / "norms"  # the template itself is the example of an observer
        made.parent.mkdir()
        subprocess.run([str(BUILD / "tools/engine"), "plugins", "new", "--kind", "observer", "--lang", "rust", str(made)],
                       stdout=subprocess.DEVNULL, check=True)
        compiled_rust(made / "src/lib.rs", "norms", work / "plugins/norms.eng.so", work)
        # The bindings lie where C has every field.
        subprocess.run(rustc()[:3] + ["--test", str(ROOT / "abi/rust/src/lib.rs"), "-o", str(work / "layout")], check=True)
        said = subprocess.run([str(work / "layout")], check=True, stdout=subprocess.PIPE, text=True).stdout
        assert "test result: ok. 1 passed" in said, said
        worst = norms(Runs(work, 0))
        print(f"norms: {STEPS} steps, largest relative difference {worst:.2g}")
        assert worst < 1e-5, worst


main()
