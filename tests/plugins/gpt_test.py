#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpt_test.py BUILD: GPT-2 on directories of transformers, as the family gpt2 and as examples/plugins/gpt, which is
compiled with the headers alone.

What gpt2 reads and does not train is exported with the same bytes: on one rank, on two with cut parameters, in several
files, and for llama.cpp. Files of 2019, with other names and masks, give the same loss. It trains; what it learned is
exported and read again. The example has the losses of gpt2, and exports the same bytes. tests/models/gpt2_test.cpp
compares losses and logits with those of transformers."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

from compiled import ROOT, compiled

BUILD = pathlib.Path(sys.argv[1]).resolve()
GOLDEN = ROOT / "tests/models/hf_gpt2"
CONFIG = """[model]
plugin = "%s"
from = "%s"
embd_pdrop = 0.0
resid_pdrop = 0.0
[data]
paths = ["text.txt"]
validation = 0.1
%s
[train]
steps = %d
micro_batch = 2
sequence_length = 32
[optimizer]
learning_rate = %g
[device]
threads = 1
"""


def tensors(folder):
    """{name: (dtype, shape, bytes)} of a directory."""
    out = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        (size,) = struct.unpack_from("<Q", data)
        for name, entry in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = (8 + size + at for at in entry["data_offsets"])
                out[name] = entry["dtype"], entry["shape"], data[begin:end]
    return out


def write(path, named):
    """A safetensors file of such tensors."""
    header, data = {}, b""
    for name, (dtype, shape, content) in named.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Engine:
    def __init__(self, work):
        self.work, self.plugin = work, "gpt2"

    def __call__(self, *args):
        command = [str(BUILD / "tools/engine"), "--plugin-path", str(self.work / "plugins")]
        done = subprocess.run(command + list(args), cwd=self.work, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False)
        assert done.returncode == 0, f"{args}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def run(self, name, directory, *more, steps=1, rate=1e-30, data=""):
        """The losses of its steps. A rate of 1e-30 changes no weight."""
        (self.work / f"{name}.toml").write_text(CONFIG % (self.plugin, directory, data, steps, rate))
        self("run", f"{name}.toml", "--out", name, "log.every=1", *more)
        lines = (self.work / name / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["loss"] for line in lines]

    def export(self, name, *more):
        to = self.work / f"{name}-hf"
        shutil.rmtree(to, ignore_errors=True)
        self("ckpt", "export", name, "--to", str(to), *more)
        return to

    def eval_loss(self, what, *more):
        return json.loads(self("eval", what, "--json", *more))["loss"]


def same_bytes(engine):
    for name, data in (("saved", ""), ("wide", 'tokenizer = "bytes"')):
        before = tensors(GOLDEN / name)
        losses = engine.run(name, GOLDEN / name, data=data)
        assert tensors(engine.export(name)) == before, name
        sharded = engine.export(name, "--shard-bytes", "9000")
        assert len(list(sharded.glob("*.safetensors"))) > 3 and tensors(sharded) == before, name
        for zero in ("zero2", "zero3"):
            two = engine.run(name + zero, GOLDEN / name, "--ranks", "2", f"zero.plugin={zero}", "train.micro_batch=1",
                             data=data)
            assert abs(two[0] - losses[0]) < 1e-5, (zero, two, losses)  # the losses of tokens are added in another order
            assert tensors(engine.export(name + zero)) == before, (name, zero)
    config = json.loads((engine.work / "saved-hf/config.json").read_text())
    theirs = json.loads((GOLDEN / "saved/config.json").read_text())
    for key in ("architectures", "model_type", "n_embd", "n_layer", "n_head", "activation_function", "vocab_size",
                "eos_token_id"):
        assert config[key] == theirs[key], key
    assert (engine.work / "saved-hf/tokenizer.json").read_bytes() == (GOLDEN / "saved/tokenizer.json").read_bytes()
    # Rounded to bf16 as any other model; read again and exported, these bytes stay too.
    half = tensors(engine.export("saved", "--dtype", "bf16"))
    engine.run("half", engine.work / "saved-hf")
    assert tensors(engine.export("half", "--dtype", "bf16")) == half
    assert {dtype for dtype, _, _ in half.values()} == {"BF16"} and half.keys() == tensors(GOLDEN / "saved").keys()


def files_of_2019(engine):
    hub = engine.work / "hub"
    shutil.copytree(GOLDEN / "saved", hub)
    named = {name.removeprefix("transformer."): value for name, value in tensors(hub).items()}
    for k in range(2):
        named[f"h.{k}.attn.bias"] = "F32", [1, 1, 4, 4], struct.pack("<16f", *([1.0] * 16))
    write(hub / "model.safetensors", named)
    assert engine.run("old", hub) == engine.run("new", GOLDEN / "saved")
    assert tensors(engine.export("old")) == tensors(GOLDEN / "saved")


def gguf_file(engine, run):
    """Names and bytes of the file for llama.cpp: q, k and v are one tensor there, and matrices are not transposed."""
    engine("ckpt", "export", run, "--to", f"{run}.gguf")
    data, theirs = (engine.work / f"{run}.gguf").read_bytes(), tensors(GOLDEN / "saved")
    assert data[:4] == b"GGUF" and b"blk.1.attn_qkv.bias" in data and b"position_embd.weight" in data
    assert theirs["transformer.h.1.attn.c_attn.bias"][2] in data and theirs["transformer.wpe.weight"][2] in data
    shape, content = theirs["transformer.h.0.mlp.c_fc.weight"][1:]  # (in, out)
    numbers = struct.unpack(f"<{shape[0] * shape[1]}f", content)
    turned = [numbers[row * shape[1] + column] for column in range(shape[1]) for row in range(shape[0])]
    assert struct.pack(f"<{len(turned)}f", *turned) in data


def trains(engine):
    losses = engine.run("trained", GOLDEN / "saved", steps=30, rate=3e-3)
    assert losses[-1] < losses[0] - 1.5, losses
    exported = engine.export("trained")
    assert tensors(exported) != tensors(GOLDEN / "saved")
    of_run, of_directory = engine.eval_loss("trained"), engine.eval_loss(str(exported), "--data", "trained.toml")
    assert of_run == of_directory and of_run < losses[0] - 1.5, (of_run, of_directory)
    assert engine("generate", str(exported), "the", "--tokens", "4", "--temperature", "0")


def example(engine):
    """The example beside the family: step by step the same numbers, but for the order in which gradients are added."""
    theirs = engine.run("family", GOLDEN / "wide", steps=5, rate=3e-3, data='tokenizer = "bytes"')
    engine.plugin = "gpt"
    for name, data in (("saved", ""), ("wide", 'tokenizer = "bytes"')):
        engine.run(f"own-{name}", GOLDEN / name, data=data)
        assert tensors(engine.export(f"own-{name}")) == tensors(GOLDEN / name), name
    ours = engine.run("example", GOLDEN / "wide", steps=5, rate=3e-3, data='tokenizer = "bytes"')
    assert ours[0] == theirs[0] and ours[0] - ours[4] > 0.05, (ours, theirs)
    assert all(abs(a - b) < 1e-5 for a, b in zip(ours, theirs)), (ours, theirs)
    gguf_file(engine, "own-saved")


def main():
    os.umask(0o022)  # plugin folders that others can write to are refused
    os.environ["OMP_WAIT_POLICY"] = "passive"  # other tests run at the same time
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder).resolve()
        (work / "plugins").mkdir()
        (work / "text.txt").write_text("".join(f"the cat number {k * 7919 % 100} sat on the mat\n" for k in range(400)))
        plugin = compiled(ROOT / "examples/plugins/gpt/gpt.cpp", work / "plugins/gpt.eng.so")
        engine = Engine(work)
        same_bytes(engine)
        gguf_file(engine, "saved")
        files_of_2019(engine)
        trains(engine)
        example(engine)
        engine("plugins", "test", str(plugin))
    print("GPT-2 is read, trained and written")


main()
