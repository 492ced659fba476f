#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares cuDNN's answers for attention on described GPUs with the committed tables answers-VERSION.txt.

  answers.py ASK --check [N]   asks for N lines of the table of the loaded version (all without N), and compares
  answers.py ASK --write       writes the table of the loaded version
  answers.py ASK --taken       writes what the loaded version says of the calls that a plan leaves to cuDNN: taken.txt
  answers.py --shapes          whether the tables have all presets of the models and all odd shapes; asks nobody

ASK is the program tests-cuda-cudnn-ask. Its environment decides which cuDNN is loaded: LD_LIBRARY_PATH must begin with
the folder of the libcuda.so.1 that was built beside it. The C++ test compares the tables with the plugin's formulas.
"""
import collections
import itertools
import pathlib
import random
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
PINNED = "9.19.0"  # what a plan counts on by default: all GPUs with all shapes
GPUS = ("A100", "H100", "H200", "B200")
PASSES = ("forward", "backward")
TAKEN = HERE / "taken.txt"
CAP = 512 << 20  # [device] attention_workspace of small cards, by default
# B, T, heads, kv_heads, D
ODD = [(1, 1, 1, 1, 64), (1, 2, 2, 2, 64), (2, 7, 4, 2, 32), (3, 17, 6, 3, 40), (1, 64, 4, 4, 20), (1, 63, 2, 1, 8),
       (1, 65, 2, 2, 16), (2, 100, 4, 2, 32), (1, 127, 71, 1, 64), (5, 128, 8, 4, 96), (1, 129, 3, 3, 128),
       (1, 333, 4, 4, 72), (2, 500, 12, 4, 136), (1, 1000, 5, 5, 160), (1, 1024, 8, 8, 192), (1, 1024, 8, 8, 256),
       (1, 1024, 8, 2, 256), (1, 777, 2, 2, 12), (7, 191, 9, 3, 104), (3, 257, 10, 10, 24), (2, 384, 16, 2, 112),
       (64, 4096, 32, 8, 128), (1, 131072, 32, 8, 64), (1, 448, 1, 1, 248), (2048, 128, 4, 4, 64)]


def presets():
    """The shapes of attention of all presets, with 8 sequences of full length, at most 8,192."""
    shapes = set()
    for model in ("llama", "opt"):
        text = (ROOT / "plugins" / model / "description.hpp").read_text()
        for part in re.split(r"\[provides\.presets\.'", text)[1:]:
            values = dict(re.findall(r"^(\w+) = (\d+)$", part.split("\n[")[0], re.M))
            heads = int(values["num_attention_heads"])
            size = int(values.get("head_dim", int(values["hidden_size"]) // heads))
            length = min(int(values["max_position_embeddings"]), 8192)
            shapes.add((8, length, heads, int(values.get("num_key_value_heads", heads)), size))
    if len(shapes) < 15:
        sys.exit("the presets of the models are not found")
    return sorted(shapes)


def lines(version):
    """All questions, in the order of the table. A later version, which takes four times as long, is asked for
    the odd shapes, and for the presets where it has another engine: on H200, from which H100 differs only in memory."""
    out = []
    gpus = GPUS if version == PINNED else ("A100", "H200", "B200")
    for gpu, way in itertools.product(gpus, PASSES):
        shapes = presets() + ODD if version == PINNED or gpu == "H200" else ODD
        out += [(gpu, *shape, "bf16", way) for shape in shapes]
        out += [(gpu, *shape, "f16", way) for shape in ODD[::6]]
    return [" ".join(map(str, words)) for words in out]


def read(path):
    return dict(line.rsplit(" ", 1) for line in path.read_text().splitlines() if line and not line.startswith("#"))


def ask(program, questions, *words):
    """The version, and an answer for each question."""
    run = subprocess.run([program, *words], input="\n".join(questions) + "\n", text=True, stdout=subprocess.PIPE)
    head, *rest = run.stdout.splitlines() or [""]
    if run.returncode or not head.startswith("# cuDNN ") or len(rest) != len(questions):
        sys.exit(f"{program} ended with {run.returncode} after {len(rest)} of {len(questions)} answers")
    return head.split()[-1], dict(line.rsplit(" ", 1) for line in rest)


def differences(version, answers, table):
    return [f"{q}: cuDNN {version} says {a}, the table {table.get(q, 'nothing')}"
            for q, a in answers.items() if table.get(q) != a]


def left_to_cudnn():
    """The bytes that a plan has for each preset's call that it leaves to cuDNN. H100 has the answers of H200."""
    asked = {" ".join(map(str, (gpu, *shape, "bf16", way))) for gpu in GPUS if gpu != "H100" for shape in presets()
             for way in PASSES}
    table = read(HERE / f"answers-{PINNED}.txt")
    return {q: int(table[q]) for q in table if q in asked and table[q] != "refused" and int(table[q]) <= CAP}


def of_call(question):
    return question.split()[0], question.split()[-1]  # GPU and pass


def write_taken(program):
    planned = left_to_cudnn()
    version, answers = ask(program, list(planned), "--quadratic")  # the engine that such a plan counts on
    found = collections.defaultdict(collections.Counter)
    for q, a in answers.items():
        found[of_call(q)]["refused" if a == "refused" else "more" if int(a) > planned[q] else "taken"] += 1
    kept = [line for line in TAKEN.read_text().splitlines()[3:] if line.split()[0] != version] if TAKEN.exists() else []
    kept += [f"{version} {' '.join(k)} {n['taken']} {n['refused']} {n['more']}" for k, n in sorted(found.items())]
    kept.sort(key=lambda line: ([int(n) for n in line.split()[0].split(".")], line))
    TAKEN.write_text("# SPDX-License-Identifier: Apache-2.0\n"
                     f"# Calls of presets that a plan for cuDNN {PINNED} leaves to cuDNN, and what versions say of them.\n"
                     "# version, GPU, pass; taken, refused, more scratch than the plan has. Written by answers.py.\n"
                     + "".join(line + "\n" for line in kept))
    print("\n".join(line for line in kept if line.startswith(version + " ")))


def wrong_in_taken():
    """True if taken.txt is not about the calls of today."""
    wanted = collections.Counter(map(of_call, left_to_cudnn()))
    found = collections.defaultdict(dict)
    for line in TAKEN.read_text().splitlines()[3:]:
        version, gpu, way, *numbers = line.split()
        found[version][gpu, way] = sum(map(int, numbers))
    return not found or any(calls != wanted for calls in found.values())


def main():
    words = sys.argv[1:]
    tables = {t.stem.split("-")[1]: t for t in sorted(HERE.glob("answers-*.txt"))}
    if words == ["--shapes"]:
        wrong = [t.name for version, t in tables.items() if list(read(t)) != lines(version)]
        if wrong or PINNED not in tables:
            sys.exit(f"{', '.join(wrong) or 'no table'}: not the presets and odd shapes of today; write them again")
        if wrong_in_taken():
            sys.exit("taken.txt: not about the calls that a plan of today leaves to cuDNN; write it again")
        print(f"{len(tables)} tables have the presets and odd shapes of today")
        return
    program, do, *rest = words
    if do == "--taken":
        return write_taken(program)
    version, _ = ask(program, lines(PINNED)[:1])
    path, wanted = HERE / f"answers-{version}.txt", lines(version)
    if do == "--write":
        _, answers = ask(program, wanted)
        path.write_text("# SPDX-License-Identifier: Apache-2.0\n"
                        f"# What cuDNN {version} answers on described GPUs; written by answers.py.\n"
                        "# GPU, B, T, heads, kv_heads, D, type, pass; bytes of workspace\n"
                        + "".join(f"{q} {a}\n" for q, a in answers.items()))
        print(f"wrote {path}")
        return
    if not path.exists():
        sys.exit(f"there is no table for cuDNN {version}, only for {', '.join(tables)}")
    table = read(path)
    if rest:
        seed = random.randrange(1 << 30)
        wanted = random.Random(seed).sample(wanted, int(rest[0]))
        print(f"a sample of {len(wanted)}, seed {seed}")
    _, answers = ask(program, wanted)
    wrong = differences(version, answers, table)
    planted = next(iter(answers))
    if len(differences(version, answers, {**table, planted: "1"})) <= len(wrong) and planted not in "".join(wrong):
        sys.exit("a planted mistake is not found")
    print("\n".join(wrong + [f"cuDNN {version}: {len(answers) - len(wrong)} of {len(answers)} answers as in the table"]))
    sys.exit(bool(wrong))


main()
