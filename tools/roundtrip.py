#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Imports weights into the engine, exports them again, and checks that transformers loads the same model.

    pip install torch transformers safetensors      (CPU builds are enough)
    python3 tools/roundtrip.py [DIR ...]            by default every directory of tests/models/hf

For each directory, `engine run` with [model] from makes one step that changes nothing (a rate of 1e-60, which is 0 in
fp32) and saves. `engine ckpt export` writes a directory. transformers must load it without missing or unexpected keys. Its
logits and the tensors' bytes must equal those of the original directory, bit for bit.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, logging

ROOT = pathlib.Path(__file__).resolve().parents[1]
ENGINE = ROOT / "build" / "tools" / "engine"
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


def stored(folder):
    out = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            out |= {name: file.get_tensor(name) for name in file.keys()}
    return out


def engine(*words):
    done = subprocess.run([ENGINE, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"engine {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout.strip()


def logits(folder, tokens):
    model, told = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        ignored = {key for key in told[kind] if key.endswith("rotary_emb.inv_freq")}
        assert set(told[kind]) == ignored, f"{folder}: {kind} {told[kind]}"
    with torch.no_grad():
        return model.eval()(input_ids=tokens).logits


def other_spelling(name):
    """The engine's name of a tensor in OPT files without `model.` and in mamba_ssm files."""
    return name.removeprefix("model.").replace("backbone.embeddings.", "backbone.embedding.")


def round_trip(source, work):
    before = stored(source)
    dtype = next(iter(before.values())).dtype
    vocabulary = json.loads((source / "config.json").read_text())["vocab_size"]
    text = work / "text.txt"
    text.write_bytes((ROOT / "README.md").read_bytes()[:20000])
    config = work / "config.toml"
    config.write_text(f'[model]\nfrom = "{source.resolve()}"\n[data]\npaths = ["text.txt"]\nvalidation = 0.0\n'
                      "[train]\nsteps = 1\nsequence_length = 16\n[optimizer]\nlearning_rate = 1e-60\n")
    engine("run", config, "--out", work / "run")
    said = engine("ckpt", "export", work / "run", "--to", work / "out", "--dtype", NAMES[dtype])
    after = stored(work / "out")
    for name, tensor in after.items():
        assert tensor.dtype == dtype, f"{name}: {tensor.dtype}"
        was = before.get(name, before.get(other_spelling(name)))
        assert tensor.view(-1).view(torch.uint8).equal(was.view(-1).view(torch.uint8)), f"{name} changed"
    named = set(after) | {other_spelling(name) for name in after}
    left = [name for name in before if name not in named]
    tokens = torch.arange(48).reshape(2, 24) * 7 % vocabulary
    there = logits(work / "out", tokens)
    if set(after) <= set(before):
        here = logits(source, tokens)
        assert torch.equal(here, there), f"{source}: logits differ by {(here - there).abs().max()}"
        judged = f"logits {tuple(here.shape)} equal"
    else:
        judged = "loaded (its source's spelling is not that of transformers)"
    print(f"{source.name:<12} {len(after):>3} tensors of {NAMES[dtype]:<4} the same bytes, {judged}"
          + (f"; not written: {', '.join(left)}" if left else ""))
    return said


def main():
    logging.set_verbosity_error()
    given = [pathlib.Path(word) for word in sys.argv[1:]]
    for source in given or sorted(path for path in (ROOT / "tests" / "models" / "hf").iterdir() if path.is_dir()):
        with tempfile.TemporaryDirectory() as folder:
            round_trip(source, pathlib.Path(folder))


if __name__ == "__main__":
    main()
