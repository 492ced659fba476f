#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""random_tokenizers.py [--seconds N] [--seed N] [--cases N]: random tokenizer.json files and random texts, whose ids are
compared with those of the `tokenizers` library.

    pip install tokenizers==0.23.3
    python3 tests/data/random_tokenizers.py    with ENGINE_LIBRARY=.../libengine.so.1, or beside a build/

A file that the engine or the library refuses is counted and left out. If ids differ, the text is made as short as possible,
and the seed, the file and both lists are printed; `--seed N --cases 1` tries that case again. Without --seed one is drawn."""
import argparse
import json
import os
import pathlib
import random
import sys
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools/python"), str(ROOT / "tools/goldens")]
os.environ["RAYON_NUM_THREADS"] = "1"
import engine  # noqa: E402
from tokenizer_models import ALL_TEXTS, LANGUAGES, charsmap  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # noqa: E402

S, END, UNKNOWN = "\u2581", "<|end|>", "<unk>"
CONFIG = '[model]\nplugin = "llama"\npreset = "tiny"\n[data]\npaths = ["none.txt"]\ntokenizer = "tokenizer.json"\n'
CASES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
KNOWN = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    CASES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    CASES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CASES + r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}"
    r"\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CASES + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", r"\s?\p{L}+", r"\d+", r"[0-9][0-9][0-9]", r" ?[^(\s|[.,!?…。，、।۔،])]+",
]
ATOMS = [r"\p{L}", r"\p{N}", r"\s", r"\S", r"[^\s\p{L}\p{N}]", r"[^\r\n\p{L}\p{N}]", " ", r"[\r\n]", r"\p{Lu}", r"\p{Ll}", r"\p{M}", r"\p{P}",
         r"\d", r"\w", "a", "e", ".", "[a-zA-Z]", r"\p{Han}", CASES, "x", r"[\p{L}\p{M}]", r"[^a-e\s]", r"\P{L}", "(?:the|a)", "(?:e|er)",
         r"\p{Cyrillic}", r"[\s\p{P}]", "é", r"\n", "(?i:t)", "(?i:K)"]
REPEATS = ["", "", "", "+", "+", "*", "?", "{1,3}", "{2}", "{2,}", "{0,2}", "++", "*+", "?+", "+?", "{1,3}+"]
LOOKS = [r"(?!\S)", r"(?=\s)", r"(?=\p{L})", r"(?!\p{N})", r"\b", "$", r"\z", r"(?<=\s)", "(?!e)"]
BEHAVIOURS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
PARTS = [" ", " ", " ", "  ", "\n", "\r\n", "\t", "the", "The", "THE", "'s", "'LL", "don't", "1", "2024", "12345", ".", ",", "?!", "...", "(", "_", "e\u0301", "\u0301",
         "\u0323", "é", "É", "ﬁ", "①", "ß", "ſ", "\u212a", "İ", "ı", "Σς", "ǅ", "ﬀ", "\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", "\u200d", "\ufeff", "\u00ad", "中", "文字", "あ",
         "ー", "ア", "ｶﾞ", "한", "\u1100\u1161", "\u11a8", "각", "क्ष", "ก็", "مُ", "Ж", "й", "😀", "👨‍👩‍👧", "🇩🇪", "\U00010400", "\ue000", "\U000f0000", "\u0378",
         "\x00", "\x07", "\x7f", S, S + S, "<", ">", "<X>", END, UNKNOWN, "<0x41>", "##", "x" * 40, "aaaa", "A", "z", "-", "$", "+", "\u0600", "\u30fb", "\u16d6a", "\U0001e030"]


def pattern(draw):
    if draw.random() < 0.4:
        return draw.choice(KNOWN)
    branches = []
    for _ in range(draw.randrange(1, 5)):
        parts = [draw.choice(ATOMS) + draw.choice(REPEATS) for _ in range(draw.randrange(1, 4))]
        if draw.random() < 0.25:
            parts.insert(draw.randrange(len(parts) + 1), draw.choice(LOOKS))
        branches.append("".join(parts))
    return "|".join(branches)


def either_pattern(draw):
    return {"Regex": pattern(draw)} if draw.random() < 0.8 else {"String": draw.choice(PARTS[:20])}


def normalizer(draw):
    kind = draw.choice(["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "BertNormalizer", "Replace", "Replace", "Prepend", "Strip", "Precompiled"])
    out = {"type": kind}
    if kind == "BertNormalizer":
        out.update(clean_text=draw.random() < 0.7, handle_chinese_chars=draw.random() < 0.7, strip_accents=draw.choice([None, True, False]),
                   lowercase=draw.random() < 0.5)
    elif kind == "Replace":
        out.update(pattern={"String": " "} if draw.random() < 0.5 else either_pattern(draw), content=draw.choice([S, "", " ", "ab", "é"]))
    elif kind == "Prepend":
        out.update(prepend=draw.choice([S, " ", "x"]))
    elif kind == "Strip":
        out.update(strip_left=draw.random() < 0.5, strip_right=draw.random() < 0.5)
    elif kind == "Precompiled":
        return charsmap({"ﬁ": "fi", "①": "1", "\u3000": " ", "é": "e", "e\u0301": "e", "A": "a", "\x07": ""})
    return out


def pre_tokenizer(draw):
    kind = draw.choice(["ByteLevel", "Metaspace", "Split", "Split", "Split", "Split", "CharDelimiterSplit", "Digits", "Punctuation", "Whitespace",
                        "WhitespaceSplit", "BertPreTokenizer", "UnicodeScripts"])
    out = {"type": kind}
    if kind == "ByteLevel":
        out.update(add_prefix_space=draw.random() < 0.5, trim_offsets=True, use_regex=draw.random() < 0.7)
    elif kind == "Metaspace":
        out.update(replacement=S, prepend_scheme=draw.choice(["always", "first", "never"]), split=draw.random() < 0.7)
    elif kind == "Split":
        out.update(pattern=either_pattern(draw), behavior=draw.choice(BEHAVIOURS + ["Isolated"] * 4), invert=draw.random() < 0.15)
    elif kind == "CharDelimiterSplit":
        out.update(delimiter=draw.choice(" ,e中"))
    elif kind == "Digits":
        out.update(individual_digits=draw.random() < 0.5)
    elif kind == "Punctuation":
        out.update(behavior=draw.choice(BEHAVIOURS))
    return out


def several(draw, one, key, most):
    parts = [one(draw) for _ in range(draw.randrange(most + 1))]
    return None if not parts else parts[0] if len(parts) == 1 else {"type": "Sequence", key: parts}


def trained():
    """Models by name: as JSON."""
    texts, out = ALL_TEXTS + LANGUAGES * 2, {}

    def add(name, model, trainer, pre):
        made = Tokenizer(model)
        made.pre_tokenizer = pre
        made.train_from_iterator(texts, trainer)
        out[name] = json.loads(made.to_str())["model"]

    special = {"special_tokens": [UNKNOWN, END], "show_progress": False}
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    add("bytes", models.BPE(), trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, **special), pre_tokenizers.ByteLevel(add_prefix_space=False))
    names = [UNKNOWN, END] + [f"<0x{b:02X}>" for b in range(256)]
    add("characters", models.BPE(unk_token=UNKNOWN), trainers.BpeTrainer(vocab_size=900, limit_alphabet=300, special_tokens=names, show_progress=False),
        pre_tokenizers.Metaspace())
    add("spaced", models.BPE(unk_token=UNKNOWN), trainers.BpeTrainer(vocab_size=800, limit_alphabet=300, **special), pre_tokenizers.Split(" ", "merged_with_previous"))
    add("affixes", models.BPE(unk_token=UNKNOWN), trainers.BpeTrainer(vocab_size=700, limit_alphabet=200, end_of_word_suffix="</w>", **special), pre_tokenizers.Whitespace())
    add("unigram", models.Unigram(), trainers.UnigramTrainer(vocab_size=500, unk_token=UNKNOWN, **special), pre_tokenizers.Metaspace())
    add("pieces", models.WordPiece(unk_token=UNKNOWN), trainers.WordPieceTrainer(vocab_size=700, limit_alphabet=200, **special), pre_tokenizers.Whitespace())
    add("words", models.WordLevel(unk_token=UNKNOWN), trainers.WordLevelTrainer(vocab_size=300, **special), pre_tokenizers.Whitespace())
    return out


def file_of(draw, all_models):
    name = draw.choice(["bytes"] * 4 + ["characters"] * 2 + ["unigram"] * 2 + list(all_models))
    model = dict(all_models[name])
    pre = several(draw, pre_tokenizer, "pretokenizers", 3)
    if name == "bytes":
        last = {"type": "ByteLevel", "add_prefix_space": draw.random() < 0.3, "trim_offsets": True, "use_regex": draw.random() < 0.4}
        parts = [] if pre is None else pre.get("pretokenizers", [pre])
        pre = {"type": "Sequence", "pretokenizers": [p for p in parts if p["type"] not in ("ByteLevel", "Metaspace")] + [last]}
        model["ignore_merges"] = draw.random() < 0.2
    elif name in ("characters", "spaced"):
        model.update(byte_fallback=name == "characters" and draw.random() < 0.7, fuse_unk=draw.random() < 0.5, ignore_merges=draw.random() < 0.15)
        if draw.random() < 0.2:
            model["unk_token"] = None
        if draw.random() < 0.4:
            pre = None
    elif name == "unigram" and draw.random() < 0.5:
        pre = {"type": "Metaspace", "replacement": S, "prepend_scheme": draw.choice(["always", "first"]), "split": draw.random() < 0.8}
    added, count = [], len(model["vocab"])
    for content in draw.sample(["<X>", " y ", "é", "the", S, "\n", "<|im_start|>", "aa", "ａ", END, "中文", "the river"], draw.randrange(5)):
        known = model["vocab"].get(content) if isinstance(model["vocab"], dict) else None
        added.append({"id": count if known is None else known, "content": content, "special": draw.random() < 0.5,
                      **{flag: draw.random() < 0.25 for flag in ("single_word", "lstrip", "rstrip", "normalized")}})
        count += known is None
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": several(draw, normalizer, "normalizers", 2),
            "pre_tokenizer": pre, "post_processor": None, "decoder": None, "model": model}


def text_of(draw):
    out = []
    for _ in range(draw.randrange(1, 30)):
        how = draw.random()
        if how < 0.5:
            out.append(draw.choice(PARTS))
        elif how < 0.8:
            words = draw.choice(ALL_TEXTS)
            begin = draw.randrange(max(1, len(words)))
            out.append(words[begin:begin + draw.randrange(1, 30)])
        elif how < 0.9:
            out.append(draw.choice(PARTS) * draw.randrange(2, 9))
        else:
            c = draw.choice([draw.randrange(0x3000), draw.randrange(0x20000)])
            out.append(chr(c) if not 0xD800 <= c < 0xE000 else "?")
    return "".join(out)


class Case:
    def __init__(self, seed, all_models, folder):
        self.draw, self.folder = random.Random(seed), folder
        self.file = json.dumps(file_of(self.draw, all_models), ensure_ascii=False)
        self.refused = ""
        try:
            self.library = Tokenizer.from_str(self.file)
        except BaseException as error:  # a panic of the library's is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            self.refused = f"library: {error}"
            return
        (folder / "tokenizer.json").write_text(self.file)
        self.run = engine.open(text=CONFIG, place=folder, files=False, note=lambda line: None)
        try:
            self.run.encode("")
        except engine.Error as error:
            self.refused = f"engine: {error}"

    def wanted(self, text):
        try:
            return self.library.encode(text, add_special_tokens=False).ids
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return None

    def differs(self, text):
        wanted = self.wanted(text)
        try:
            return wanted is not None and self.run.encode(text) != wanted
        except engine.Error as error:
            if any(reason in str(error) for reason in ("no id for", "no unk")):
                return False
            raise

    def shortest(self, text):
        size = len(text) // 2
        while size:
            at = 0
            while at < len(text):
                shorter = text[:at] + text[at + size:]
                if self.differs(shorter):
                    text = shorter
                else:
                    at += size
            size //= 2
        return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--cases", type=int, default=10**9)
    parser.add_argument("--texts", type=int, default=40)
    parser.add_argument("--panics", action="store_true", help="shows what the library writes when it panics")
    asked = parser.parse_args()
    first = asked.seed if asked.seed is not None else random.SystemRandom().randrange(10**9)
    print(f"random_tokenizers: the first seed is {first}", flush=True)
    all_models, compared, refused, tried = trained(), 0, {"engine": 0, "library": 0}, 0
    end = time.monotonic() + asked.seconds
    if not asked.panics:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with tempfile.TemporaryDirectory() as name:
        while tried < asked.cases and time.monotonic() < end:
            seed, tried = first + tried, tried + 1
            case = Case(seed, all_models, pathlib.Path(name))
            if case.refused:
                refused[case.refused.split(":")[0]] += 1
                continue
            for _ in range(asked.texts):
                text = text_of(case.draw)
                if case.differs(text):
                    text = case.shortest(text)
                    made = json.loads(case.file)
                    made["model"] = {k: v for k, v in made["model"].items() if k not in ("vocab", "merges")}
                    print(f"ids differ: --seed {seed} --cases 1\n{json.dumps(made)}\ntext {text!r}\nlibrary {case.wanted(text)}\nengine  {case.run.encode(text)}")
                    return 1
                compared += 1
            case.run.close()
    print(f"{compared} texts of {tried - sum(refused.values())} tokenizers have the same ids; refused: engine {refused['engine']}, library {refused['library']}")
    return 0 if compared else 1


try:
    sys.exit(main())
except Exception:
    traceback.print_exc(file=sys.stdout)  # the other stream may be closed
    sys.exit(1)
