#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""parquet.py ENGINE [MEGABYTES]: how fast texts are read from Parquet, Arrow and JSON Lines, in megabytes of text per second
of one core.

    pip install pyarrow
    python benchmarks/parquet.py build/tools/engine

The texts are cuts of the standard library of the Python that runs this, of 500 to 8,000 characters, in row groups of 20,000,
shuffled: 200 megabytes (10^6 bytes) by default. The engine opens them with the tokenizer bytes, which reads the file,
decodes the texts, checks that they are UTF-8, copies and hashes them. The time is the processor time of the command, less
that of the same command on 100 texts. Best of three."""
import json
import pathlib
import platform
import random
import resource
import subprocess
import sys
import sysconfig
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq

CONFIG = """[model]
plugin = "llama"
preset = "tiny"
vocab_size = 256
[data]
paths = ["%s"]
validation = 0
memory = "4GiB"
[train]
steps = 1
sequence_length = 64
"""


def texts(megabytes):
    source = "\n".join(path.read_text(encoding="utf-8", errors="ignore")
                       for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py")))
    draw, size, out = random.Random(1), 0, []
    while size < megabytes * 10**6:
        start = draw.randrange(len(source) - 8000)
        out.append(source[start:start + draw.randrange(500, 8000)])
        size += len(out[-1].encode())
    return out, size


def write(path, rows):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in rows), encoding="utf-8")
    elif path.suffix == ".arrow":
        table = pa.table({"text": rows})
        with pa.ipc.new_stream(path, table.schema) as out:
            out.write_table(table, max_chunksize=1000)
    else:
        pq.write_table(pa.table({"text": rows}), path, compression=path.stem, row_group_size=20000)


def seconds(engine, folder, path):
    (folder / "c.toml").write_text(CONFIG % path)
    best = float("inf")
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([engine, "data", "inspect", "c.toml"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def main():
    engine = str(pathlib.Path(sys.argv[1]).resolve())
    rows, size = texts(float(sys.argv[2]) if len(sys.argv) > 2 else 200)
    print(f"{len(rows)} texts, {size / 1e6:.0f} MB; {platform.processor() or platform.machine()}; pyarrow {pa.__version__}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file in ("none.parquet", "snappy.parquet", "zstd.parquet", "stream.arrow", "lines.jsonl"):
            took = []
            for some in (rows[:100], rows):
                write(folder / file, some)
                took.append(seconds(engine, folder, folder / file))
            written = (folder / file).stat().st_size
            print(f"{file:16} {written / 1e6:6.0f} MB in the file {size / 1e6 / (took[1] - took[0]):8.0f} MB/s", flush=True)
            (folder / file).unlink()


main()
