#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/golden/ranks.json: files of tiktoken and tekken.json with the ids that tiktoken and mistral-common give.

    pip install tiktoken mistral-common
    python3 tools/goldens/ranks.py [OUT [TEXTS]]

{"texts": [...], "ranks": [TOKEN in base64, ...], "cases": {NAME: {...}}}. A case of tiktoken has "pattern" and "special"
({TEXT: id}), one of tekken "tekken", a tekken.json whose "vocab" the test makes of the ranks; both have "ids", a text of
numbers for each text, and "count". The texts are of many scripts, drawn at random from a fixed seed, of characters that
Unicode 15 has. With TEXTS, so many are drawn: a longer comparison, by hand."""
import base64
import json
import pathlib
import random
import sys
import tempfile
import unicodedata

import tiktoken
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from tiktoken._educational import bpe_train
from tiktoken_ext import openai_public

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/data/golden/ranks.json"
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 40
FIXED = ["", "Hello world, it's 12345 DON'T we'll", "a\n\n  b\n   \n", "  \n", " \t ", "x   ", "caf\u00e9 cafe\u0301 \u212b \u1e9b\u0323", "\u4e2d\u6587 \U0001f600\U0001f468\u200d\U0001f469",
         "<|endoftext|>a<|x|> b", "HTTPServer/path//to\r\n/x", "'\u017ft 'S 'LL \u212aelvin", "aaaaaaaaaaaaaaaa", "\u00bd\u2167\u0663\u0e51 12 123 1234", "\ufb06'\ufb06", "\u2028\u2029\u0085\u00a0\u3000x",
         "the" * 40, "a\u0300\u0301b\u0e31\u0e33 \u0ba8\u0bbf", "\x00\x01\x7f"]
# The first letter and the number of letters of some scripts, and of signs, spaces and numbers.
SCRIPTS = [(0x20, 95), (0x20, 95), (0x20, 95), (0xa0, 96), (0x370, 120), (0x400, 120), (0x530, 80), (0x590, 90), (0x600, 220), (0x900, 110),
           (0xb80, 100), (0xe00, 90), (0xf00, 100), (0x10a0, 90), (0x1100, 90), (0x1e00, 200), (0x2000, 112), (0x2070, 200), (0x2190, 80),
           (0x2460, 90), (0x3000, 160), (0x4e00, 400), (0xac00, 300), (0xfb00, 80), (0xff00, 200), (0x10400, 80), (0x1d7c0, 60), (0x1f600, 70)]


def drawn(count):
    rng = random.Random(8)
    words = ["the", " and", "'s", "'LL", "\n", "\r\n", "  ", "\t", "123", "It", "HTTP", "/", "_", "\u00e9", "\u4e2d\u6587", " \u0438", "\ud55c"]
    out = []
    while len(out) < count:
        text, scripts = "", [rng.choice(SCRIPTS) for _ in range(3)]
        for _ in range(rng.randrange(1, 40)):
            start, size = rng.choice(scripts)
            c = chr(start + rng.randrange(size))
            text += c if rng.random() < 0.7 and unicodedata.category(c) != "Cn" else rng.choice(words)
        out.append(text)
    return out


def main():
    texts = FIXED + drawn(COUNT)
    corpus = (ROOT / "README.md").read_text() + (ROOT / "README.zh-CN.md").read_text() + "aaaaaaaa bbb    the the they  them\n\n\n" * 40
    ranks = bpe_train(corpus[:40000], 700, openai_public.r50k_pat_str.replace("++", "+"), visualise=None)
    ordered = [base64.b64encode(token).decode() for token, _ in sorted(ranks.items(), key=lambda entry: entry[1])]
    tokens = {base64.b64decode(token): rank for rank, token in enumerate(ordered)}
    plain = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    # Only the patterns of these are taken, without their vocabularies.
    openai_public.load_tiktoken_bpe = lambda *a, **k: {}
    patterns = {"gpt2": openai_public.r50k_pat_str, "cl100k": openai_public.cl100k_base()["pat_str"], "o200k": openai_public.o200k_base()["pat_str"],
                "llama3": plain, "qwen": plain.replace("{1,3}", ""), "dropped": r"\p{L}+| ?\d{2,3}+|\x21\x{3f}", "edges": r"^\p{Lu}+|\s+$|\S+?(?=\s|$)|\s"}
    special = {"<|endoftext|>": 700, "<|x|>": 703}
    cases = {}
    for name, pattern in patterns.items():
        made = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=tokens, special_tokens=special)
        cases[name] = {"pattern": pattern, "special": special, "count": 704,
                       "ids": [" ".join(map(str, made.encode(text, allowed_special="all"))) for text in texts]}
    for version, listed in (("v3", None), ("v7", ["<unk>", "<s>", "</s>", "[INST]"]), ("v11", ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])):
        count = 30 if listed is None else 8
        file = {"config": {"pattern": patterns["o200k"].replace(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", ""), "num_vocab_tokens": 700,
                           "default_vocab_size": 650 + count, "default_num_special_tokens": count, "version": version}, "vocab": []}
        if listed:
            file["special_tokens"] = [{"rank": k, "token_str": text, "is_control": True} for k, text in enumerate(listed)]
        whole = {**file, "vocab": [{"rank": k, "token_bytes": token, "token_str": None} for k, token in enumerate(ordered)]}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tekken.json"
            path.write_text(json.dumps(whole))
            made = Tekkenizer.from_file(path)
        cases["tekken " + version] = {"tekken": file, "count": made.n_words,
                                      "ids": [" ".join(map(str, made.encode(text, bos=False, eos=False))) for text in texts]}
    OUT.write_text(json.dumps({"texts": texts, "ranks": ordered, "cases": cases}, separators=(",", ":"), ensure_ascii=True) + "\n")


main()
