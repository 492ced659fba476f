#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tokenizer.py ENGINE [FILE ...]: tokens per second of `engine data build` and of the `tokenizers` library, one
thread each, on the same text with the same tokenizers; and whether every id is equal.

    pip install tokenizers
    python benchmarks/tokenizer.py build/tools/engine

The text is FILE ..., by default the standard library of the Python that runs this (code with English in it) and its
manual (English). Tokenizers are trained on it: BPE with 32,768 ids, with GPT-2's and with Llama-3's pattern, and Unigram
and WordPiece with 8,192 ids. The engine's time is that of the whole command's work: reading, hashing, encoding, writing.
The library's is that of encode_batch alone. Best of three."""
import json
import os
import pathlib
import platform
import re
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers  # noqa: E402  (it reads the variable when it is loaded)
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers  # noqa: E402

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
PATTERNS = {
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "llama3": pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
}
END, UNKNOWN = "<|endoftext|>", "<unk>"


def untrained():
    """(name, tokenizer, trainer) of each kind."""
    plain = {"special_tokens": [END, UNKNOWN], "show_progress": False}
    for name, pre in PATTERNS.items():
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre
        yield name, made, trainers.BpeTrainer(vocab_size=32768, special_tokens=[END], show_progress=False,
                                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.Unigram())
    made.normalizer, made.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    yield "unigram", made, trainers.UnigramTrainer(vocab_size=8192, unk_token=UNKNOWN, **plain)
    made = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    yield "wordpiece", made, trainers.WordPieceTrainer(vocab_size=8192, **plain)


def documents(files):
    if files:
        return [pathlib.Path(f).read_text(errors="replace") for f in files]
    import pydoc_data.topics
    library = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return list(pydoc_data.topics.topics.values()) + [f.read_text(errors="replace") for f in library]


def build(engine, folder, again):
    """Tokens per second as the command says, and the ids."""
    command = [engine, "data", "build", str(folder / "config.toml"), "--threads", "1", "--out", str(folder / f"out{again}")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    data = pathlib.Path(done.stdout.strip()).read_bytes()
    width, count = struct.unpack_from("<IQ", data, 12)
    rate = float(re.search(r"\((\d+) tokens/s\)", done.stderr).group(1))
    return rate, memoryview(data)[256:256 + width * count].cast("H" if width == 2 else "I").tolist()


def main():
    engine = str(pathlib.Path(sys.argv[1]).resolve())
    texts = [t for t in documents(sys.argv[2:]) if t]
    size = sum(len(t.encode()) for t in texts)
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    print(f"{len(texts)} documents, {size / 1e6:.1f} MB; {cpu}; tokenizers {tokenizers.__version__}, Python {platform.python_version()}")
    for name, made, trainer in untrained():
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            made.train_from_iterator(texts, trainer)
            made.save(str(folder / "tokenizer.json"))
            made = Tokenizer.from_file(str(folder / "tokenizer.json"))
            with open(folder / "texts.jsonl", "w") as out:
                out.writelines(json.dumps({"text": t}) + "\n" for t in texts)
            (folder / "config.toml").write_text(
                '[model]\nplugin = "llama"\npreset = "tiny"\nvocab_size = 32768\n'
                '[data]\npaths = ["texts.jsonl"]\ntokenizer = "tokenizer.json"\n[train]\nsequence_length = 64\n')
            ours = [build(engine, folder, i) for i in range(3)]
            seconds, expected = [], []
            for _ in range(3):
                begin = time.perf_counter()
                encoded = made.encode_batch(texts, add_special_tokens=False)
                seconds.append(time.perf_counter() - begin)
            for e in encoded:
                expected += e.ids + [made.token_to_id(END)]
            equal = all(ids == expected for _, ids in ours)
            best, theirs = max(rate for rate, _ in ours), len(expected) / min(seconds)
            print(f"{name}: {len(expected)} tokens, {size / len(expected):.2f} bytes each; engine {best / 1e6:.2f} M tokens/s, "
                  f"tokenizers {theirs / 1e6:.2f} M tokens/s: {best / theirs:.1f}x; ids {'equal' if equal else 'DIFFER'}")
            if not equal:
                sys.exit(1)


if __name__ == "__main__":
    main()
