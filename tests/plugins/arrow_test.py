#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""arrow_test.py BUILD: runs on files of Parquet and Arrow, as a user starts them.

They give the losses of the same rows as JSON Lines, and the engine's own test of plugins finds nothing."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1]).resolve()
GOLDEN = ROOT / "tests/arrow/golden"
PLUGIN = BUILD / "plugins/arrow/arrow.eng.so"
CONFIG = """[model]
plugin = "llama"
preset = "tiny"
num_hidden_layers = 1
hidden_size = 16
intermediate_size = 24
num_attention_heads = 2
num_key_value_heads = 2
vocab_size = 256
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


def engine(work, *args):
    done = subprocess.run([str(BUILD / "tools/engine"), *args], cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    assert done.returncode == 0, f"{args}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def losses(work, name, data=""):
    out = work / name.replace("/", "-")
    (work / "c.toml").write_text(CONFIG % (GOLDEN / name, data))
    engine(work, "run", "c.toml", "--out", str(out), "log.every=1")
    run = json.loads((out / "run.json").read_text())
    assert ("eng.arrow" in json.dumps(run)) == (not name.endswith(".jsonl")), "the plugin is loaded where it is needed"
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def main():
    os.umask(0o022)  # plugin folders that others can write to are refused
    os.environ["OMP_WAIT_POLICY"] = "passive"  # other tests run at the same time
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder).resolve()
        wanted = losses(work, "texts.jsonl")
        assert len(wanted) == 3
        for name in ("texts-zstd.parquet", "texts-stream-lz4.arrow", "texts-feather.feather", "saved"):
            assert losses(work, name) == wanted, name
        assert losses(work, "nested.parquet", 'format = "parquet"\nfield = "data.text"') == wanted
        os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # of Arrow's allocator, which this plugin does not use
        for name in ("texts-gzip.parquet", "texts-stream-plain.arrow"):
            said = engine(work, "plugins", "test", str(PLUGIN), "file=" + str(GOLDEN / name))
            assert "40 documents" in said, said
    print("Parquet and Arrow are read")


main()
