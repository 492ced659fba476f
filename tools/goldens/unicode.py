#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unicode.py ENGINE: checks that `engine data build` gives the ids of the `tokenizers` library for texts with every
Unicode character, with every kind of pattern and normaliser of a tokenizer.json. No file is written. Run it by hand after
a change to plugins/data/unicode*, pattern.cpp or character_class.cpp.

    pip install tokenizers
    python tools/goldens/unicode.py build/tools/engine

A second pre-tokenizer drops the first character of each word, so that ids show where the words begin."""
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

from tokenizers import Regex, Tokenizer, AddedToken, decoders, models, normalizers, pre_tokenizers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
PATTERNS = {
    "gpt2": GPT2,
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
             r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
             r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek": r"\p{N}{1,3}|[一-龥぀-ゟ゠-ヿ]+|[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"
                r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "han": r"[\p{Han}]+|\P{Han}",
    "kawi": r"\p{Kawi}+|[^\p{Kawi}\P{L}]+|(?:.|\n)",
    "words": r"\w+|[^\w\s]+|\b\s+",
    "not letters": r"\P{L}+|[\P{N}]",
}
FORMS = {"": None, "NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "NFKC": normalizers.NFKC(), "NFKD": normalizers.NFKD()}


def documents():
    out, lines = [], []
    for c in range(0x110000):
        if 0xD800 <= c < 0xE000:
            continue
        x = chr(c)
        lines.append(f"j{x}'s {x}1{x}A{x}{x}, \u0345{x}\u0301quix{x}")
        if len(lines) == 64:
            out.append("\n".join(lines))
            lines = []
    return out  # their number is a multiple of 64


def tokenizer(pattern, form):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.Split(Regex(r"\A(?:.|\n)"), "removed"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if form is not None:
        made.normalizer = form
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("quix", single_word=True, special=True)])
    return made


def main():
    engine, texts, bad = sys.argv[1], documents(), 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
        (folder / "config.toml").write_text("[model]\nplugin = 'llama'\npreset = 'tiny'\nvocab_size = 512\n[data]\n"
                                            "paths = ['texts.jsonl']\ntokenizer = 'tokenizer.json'\neot = false\nseparator = ''\n")
        cases = [(p, "") for p in PATTERNS] + [("gpt2", f) for f in FORMS if f]
        for pattern, form in cases:
            made = tokenizer(PATTERNS[pattern], FORMS[form])
            made.save(str(folder / "tokenizer.json"))
            done = subprocess.run([engine, "data", "build", folder / "config.toml"], capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{pattern} {form}: {done.stderr}")
            data = pathlib.Path(done.stdout.strip()).read_bytes()
            width, tokens, count, table = *struct.unpack_from("<IQQ", data, 12), struct.unpack_from("<Q", data, 56)[0]
            ids = struct.unpack_from(f"<{tokens}{'H' if width == 2 else 'I'}", data, 256)
            starts = [*struct.unpack_from(f"<{count}Q", data, table), tokens]
            assert count == len(texts), (count, len(texts))
            wrong = []
            for i in range(0, len(texts), 1024):
                for k, e in enumerate(made.encode_batch(texts[i:i + 1024], add_special_tokens=False), i):
                    if tuple(e.ids) != ids[starts[k]:starts[k + 1]]:
                        wrong.append(k)
            bad += len(wrong)
            print(f"{pattern:12} {form:5} {len(texts)} texts, {len(wrong)} differ",
                  f"first: {texts[wrong[0]][:20]!r}" if wrong else "", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
