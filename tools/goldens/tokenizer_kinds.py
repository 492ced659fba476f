#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/golden/kinds.json and folders.json: kinds of tokenizer.json, and folders of a tokenizer with the files
beside it, with the ids that the libraries give.

    pip install tokenizers transformers sentencepiece tiktoken
    python tools/goldens/tokenizer_kinds.py

Both are {"texts": [...], "vocabulary": {TEXT: id}, "cases": {NAME: {...}}}. A case has "ids" (a text of numbers for each
text), "special" (those of the first text with the ids around it), "count", and for folders "eos". In kinds.json a case
has "file", a tokenizer.json; in folders.json it has "files": {NAME: content}, and with "model" the tokenizer.model of
tests/data/golden/llama beside them. Where a file has "vocab" or "merges" set to "common", the test puts the common ones
there; vocab.json and merges.txt with the content "common" too."""
import json
import pathlib
import shutil
import sys
import tempfile

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/data/golden"
TEXTS = [
    "The quick brown fox jumps over 12345 lazy dogs, isn't it?", " leading and trailing  ", "a", " ", "  ", "", "\n\n  x\t\ty\r\n", "caf\u00e9 cafe\u0301 \u212b na\u00efve \u00df \u1e9b\u0323", "\u4e2d\u6587\u3042\U0001f600 \u0416\u0301 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "snake_case CamelCase HTTPServer x1y22z333 3.14 1,000,000 \u00b2\u00bd\u2167\u0663", "\u2581under \u2581\u2581score\u2581", "--- !!! ... ?! (a)[b]{c} $5+3=8 \u3002\uff01\u00bf", "<|im_start|>user\nhello<|im_end|>\n<|im_start|> x <|im_end|>", "a<X>b <X> c  <X>  d<X><X>",
    "word word1 <one>x <one> y<one>", "<s>a</s> <unk> <pad> <mask> b <|endoftext|>c", "the the the  the   the", "don't DON'T we'll I'VE", "e\u0301\u0323\u0345x \u0344\u0958", "<0x41> <0xE4>\u00e4", "\u00a0nbsp\u3000ideo\u2003em\u0085nel\u2028", "aaaa bbbb  cc\x00\x01dd",
]
CORPUS = (TEXTS + ["the quick brown fox jumps over the lazy dog and then the other dogs too", "Hello world, hello there user",
                   "in the beginning there was the word and the word was with them", "2023 2024 12345 67890"]) * 3
S = "\u2581"
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def train(pre, size, specials=(), byte_level=False):
    made = Tokenizer(models.BPE(unk_token="<unk>" if "<unk>" in specials else None))
    made.pre_tokenizer = pre
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(specials), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if byte_level else []))
    return json.loads(made.to_str())["model"]


def file(model, normalizer=None, pre=None, added=(), decoder=None, post=None, **options):
    base = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(added), "normalizer": normalizer, "pre_tokenizer": pre,
            "post_processor": post, "decoder": decoder, "model": {**base, **model, **options}}


def token(content, id, **options):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **options}


def sequence(kind, *items):
    return {"type": "Sequence", kind: list(items)}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern if isinstance(pattern, dict) else {"Regex": pattern}, "behavior": behavior, "invert": invert}


def metaspace(scheme="always", split=True):
    return {"type": "Metaspace", "replacement": S, "prepend_scheme": scheme, "split": split}


def bytes_level(regex=False, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


BYTES = bytes_level(True, True)
LLAMA_DECODER = sequence("decoders", {"type": "Replace", "pattern": {"String": S}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                         {"type": "Strip", "content": " ", "start": 1, "stop": 0})


def characters():
    """A vocabulary whose words begin with U+2581, with bytes for other characters."""
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    model = train(pre_tokenizers.Metaspace(), 240, ["<unk>"])
    keep = {w for w in model["vocab"] if all(c.isascii() or c == S for c in w) and not ("<" in w and len(w) > 1)}
    merges = [m for m in model["merges"] if all(x in keep for x in (*m, "".join(m)))] + [[S, S]]
    order = [w for w in sorted(model["vocab"], key=model["vocab"].get) if w in keep]
    return {"vocab": {w: i for i, w in enumerate(names + order + ([S + S] if S + S not in keep else []))}, "merges": merges}


def kinds():
    c = characters()
    n = len(c["vocab"])
    few = {"vocab": {w: i for i, w in enumerate(w for w in sorted(c["vocab"], key=c["vocab"].get) if w not in ("<0xC3>", "<0xE4>"))}, "merges": c["merges"]}
    b = train(pre_tokenizers.ByteLevel(add_prefix_space=False), 330, ["<|endoftext|>"], True)
    w = train(pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]), 200, ["<unk>"])
    llama = dict(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    prepend = sequence("normalizers", {"type": "Prepend", "prepend": S}, {"type": "Replace", "pattern": {"String": " "}, "content": S})
    own = [token("<unk>", 0), token("<s>", 1), token("</s>", 2)]
    more = [token("<|im_start|>", n), token("<|im_end|>", n + 1), token("<X>", n + 2, lstrip=True, rstrip=True), token("<one>", n + 3, single_word=True, normalized=True, special=False)]
    bos = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    pieces = [["<unk>", 0.0], [S, -2.5]] + [[p, -3.0 - i * 0.37] for i, p in enumerate(
        [S + "the", "the", S + "a", "e", "t", "a", "o", "n", "i", "s", "r", "h", S + "word", "er", "in", S + "b", "d", "c", "x", "<", ">", "1", "2", "3", "ing", "an", "qu", "k", "l", "m", "u", "w", ".", ",", "'", S + S, "\u00e9", "\u4e2d"])]
    with_bytes = pieces + [[f"<0x{x:02X}>", -20.0] for x in range(256)]
    unigram = {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": False}
    out = {
        "llama2": file(c, prepend, None, own + more, LLAMA_DECODER, bos, **llama),
        "llama first": file(c, None, metaspace("first", False), own + more, LLAMA_DECODER, bos, **llama),
        "always": file(c, None, metaspace("always", True), own + more, LLAMA_DECODER, **llama),
        "never": file(c, None, metaspace("never", True), own, {"type": "Metaspace", "replacement": S, "prepend_scheme": "never", "split": True}, **llama),
        "first split": file(c, None, metaspace("first", True), own + more, LLAMA_DECODER, **llama),
        "gemma": file(c, {"type": "Replace", "pattern": {"String": " "}, "content": S}, split({"String": " "}, "MergedWithPrevious"), own + more, LLAMA_DECODER, **llama),
        "holes": file(few, None, metaspace("first", False), (), None, **llama),
        "holes unfused": file(few, None, metaspace("first", False), (), None, **{**llama, "fuse_unk": False}),
        "no bytes": file(c, prepend, None, own, None, unk_token="<unk>", fuse_unk=True),
        "no unknown": file(c, prepend, None, (), None),
        "whole words": file(c, None, metaspace("always", True), own, None, ignore_merges=True, **llama),
        "strip": file(c, sequence("normalizers", {"type": "NFKC"}, {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}), metaspace("first", True), own + more, None, **llama),
        "falcon": file(b, None, sequence("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, bytes_level(True), {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]")), [token("<|endoftext|>", 0)], BYTES),
        "starcoder": file(b, None, sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, bytes_level(True)), [token("<|endoftext|>", 0)], BYTES),
        "digits": file(b, None, sequence("pretokenizers", {"type": "Digits", "individual_digits": False}, bytes_level()), [], BYTES),
        "bloom": file(b, None, sequence("pretokenizers", split(r" ?[^(\s|[.,!?…。，、।۔،])]+"), bytes_level()), [], BYTES),
        "possessive": file(b, None, sequence("pretokenizers", split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"), bytes_level()), [], BYTES),
        "deepseek": file(b, sequence("normalizers"), sequence("pretokenizers", split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"), {"type": "Digits", "individual_digits": True}, bytes_level()), [], BYTES),
        "capitals": file(b, None, sequence("pretokenizers", split("(?=[A-Z])", "MergedWithNext"), bytes_level(False, True)), [], BYTES),
        "punctuation": file(b, None, sequence("pretokenizers", {"type": "Punctuation"}, bytes_level()), [], BYTES),
        "whitespace": file(w, None, {"type": "Whitespace"}, [token("<unk>", 0)], None, unk_token="<unk>"),
        "whitespace split": file(w, None, sequence("pretokenizers", {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "MergedWithPrevious"}), [], None, unk_token="<unk>", fuse_unk=True),
        "bert": file(w, {"type": "NFD"}, {"type": "BertPreTokenizer"}, [], None, unk_token="<unk>"),
        "delimiter": file(w, None, {"type": "CharDelimiterSplit", "delimiter": "e"}, [], None, unk_token="<unk>"),
        "unigram": {**file({}, None, metaspace("always", True), [token("<unk>", 0)]), "model": unigram},
        "unigram bytes": {**file({}, sequence("normalizers", {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}), metaspace("first", False), [token("<unk>", 0), token("<X>", len(with_bytes), lstrip=True)], LLAMA_DECODER), "model": {**unigram, "vocab": with_bytes, "byte_fallback": True}},
        "unigram whole": {**file({}, None, None), "model": unigram},
    }
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        out["split " + behavior] = file(b, None, sequence("pretokenizers", split(r"[\s\p{P}]", behavior), bytes_level()), [], BYTES)
        out["inverted " + behavior] = file(b, None, sequence("pretokenizers", split(r"\p{L}", behavior, True), bytes_level()), [], BYTES)
    def cased(after, digits):
        rest = digits + r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        return rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{after}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{after}|" + rest

    own_bytes = [token("<|endoftext|>", 0)]
    phi = [token(name, n + i, rstrip=name != "<|endoftext|>", special=name != "<|user|>") for i, name in enumerate(("<|endoftext|>", "<|assistant|>", "<|user|>", "<|im_start|>"))]
    three = (r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    out |= {
        "o200k": file(b, None, sequence("pretokenizers", split(cased(CONTRACTIONS + "?", r"\p{N}{1,3}")), bytes_level()), own_bytes, BYTES),
        "tekken": file(b, None, sequence("pretokenizers", split(cased("", r"\p{N}")), bytes_level()), own_bytes, BYTES, ignore_merges=True),
        "qwen2": file(b, {"type": "NFC"}, sequence("pretokenizers", split(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), bytes_level()), own_bytes, BYTES),
        "deepseek v3": file(b, sequence("normalizers"), sequence("pretokenizers", *map(split, three), bytes_level()), own_bytes, BYTES),
        "phi3": file(c, prepend, None, own + phi, LLAMA_DECODER, bos, **llama),
    }
    common = {"characters": c, "bytes": b, "words": w}
    cases = {}
    for name, data in out.items():
        made = Tokenizer.from_str(json.dumps(data))
        cases[name] = {"ids": [" ".join(map(str, made.encode(t, add_special_tokens=False).ids)) for t in TEXTS],
                       "special": " ".join(map(str, made.encode(TEXTS[0]).ids)), "count": made.get_vocab_size()}
        for key, model in common.items():
            if data["model"].get("vocab") == model["vocab"]:
                data["model"]["vocab"] = data["model"]["merges"] = key
        cases[name]["file"] = data
    return {"texts": TEXTS, "common": common, "cases": cases}


def decoder(*tokens):
    return {"added_tokens_decoder": {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in tokens}}


def folders():
    from transformers import AutoTokenizer

    b = train(pre_tokenizers.ByteLevel(add_prefix_space=False), 330, ["<|endoftext|>", "<s>", "</s>", "<unk>", "<pad>", "<mask>"], True)
    n = len(b["vocab"])
    chat = [token("<|im_start|>", n), token("<|im_end|>", n + 1)]
    odd = [token("<X>", n + 2, lstrip=True, rstrip=True), token("<one>", n + 3, single_word=True, special=False, normalized=True)]
    gpt2 = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
    parts = {"vocab.json": "common", "merges.txt": "common"}
    whole = file({"vocab": "common", "merges": "common"}, None, bytes_level(True), [token("<|endoftext|>", 0)], BYTES)
    fast = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    m = 700  # pieces of golden/llama
    out = {
        "decoder": {**parts, "tokenizer_config.json": {**gpt2, **decoder(*chat, *odd)}},
        "added_tokens.json": {**parts, "tokenizer_config.json": {**gpt2}, "added_tokens.json": {"<|im_start|>": n, "<|im_end|>": n + 1, "<X>": n + 2}, "special_tokens_map.json": {"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]}},
        "special_tokens_map.json": {**parts, "tokenizer_config.json": {**gpt2, "eos_token": "</s>"}, "special_tokens_map.json": {"eos_token": {"content": "<|im_end|>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}, "pad_token": "<pad>"}},
        "named alone": {**parts, "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<X>", "additional_special_tokens": ["<|im_start|>", "<one>"], "image_token": "lazy"}},
        "class alone": {**parts, "tokenizer_config.json": {"tokenizer_class": "GPT2TokenizerFast"}},
        "prefix space": {**parts, "tokenizer_config.json": {**gpt2, "add_prefix_space": True, "add_bos_token": True, "add_eos_token": True, **decoder(*chat)}},
        "qwen2": {**parts, "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": None, **decoder(*chat)}},
        "model_type alone": {**parts, "tokenizer_config.json": {"eos_token": "<|endoftext|>"}, "config.json": {"model_type": "qwen2"}},
        "model_type against class": {**parts, "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"}, "config.json": {"model_type": "qwen2"}},
        "class of config.json": {**parts, "config.json": {"model_type": "opt", "tokenizer_class": "GPTNeoXTokenizer"}},
        "gpt_neox": {**parts, "tokenizer_config.json": {"tokenizer_class": "GPTNeoXTokenizer", "add_bos_token": True, **decoder(*chat)}},
        "codegen": {**parts, "tokenizer_config.json": {"tokenizer_class": "CodeGenTokenizer", **decoder(*chat, *odd)}},
        "roberta": {**parts, "tokenizer_config.json": {"tokenizer_class": "RobertaTokenizer", "mask_token": {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False, "special": True}}},
        "bart": {**parts, "tokenizer_config.json": {"tokenizer_class": "BartTokenizer"}},
        "cohere": {**parts, "tokenizer_config.json": {"tokenizer_class": "CohereTokenizer"}},
        "tokenizer.json, decoder": {"tokenizer.json": whole, "tokenizer_config.json": {**fast, "eos_token": "<|im_end|>", **decoder(token("<|endoftext|>", 0), *chat, *odd)}},
        "tokenizer.json, added_tokens.json": {"tokenizer.json": whole, "tokenizer_config.json": fast, "added_tokens.json": {"<|im_end|>": n + 1, "<|im_start|>": n}},
        "tokenizer.json, other flags": {"tokenizer.json": {**whole, "added_tokens": [token("<|endoftext|>", 0), token("<X>", n)]}, "tokenizer_config.json": {**fast, **decoder(token("<X>", n, lstrip=True, rstrip=True))}},
        "tokenizer.json, named": {"tokenizer.json": whole, "tokenizer_config.json": {**fast, "eos_token": "</s>", "pad_token": "<X>", "add_bos_token": True, "bos_token": "<s>", "extra_special_tokens": {"start": "<|im_start|>"}}},
        "marked otherwise": {"tokenizer.json": {**whole, "added_tokens": [token("<|endoftext|>", 0), token("<one>", n, lstrip=True, single_word=True, normalized=True)]}, "tokenizer_config.json": {**fast, **decoder(token("<one>", n, special=False))}},
        "named twice": {**parts, "tokenizer_config.json": {"tokenizer_class": "GPTNeoXTokenizer", "bos_token": "<s>", "eos_token": {"__type": "AddedToken", **token("<s>", 1, lstrip=True)}, "mask_token": {"__type": "AddedToken", **token("<s>", 1)}, "additional_special_tokens": ["<X>", "<one>"], "pad_token": {"__type": "AddedToken", **token("<X>", 1, rstrip=True)}}},
        "qwen2 plain": {**parts, "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<X>", **decoder(*chat, *odd)}},
        "cohere lists": {**parts, "tokenizer_config.json": {"tokenizer_class": "CohereTokenizer", "additional_special_tokens": ["<X>"], "eos_token": "<|im_end|>", **decoder(*chat, *odd)}},
        "model, added_tokens.json": {"model": True, "tokenizer_config.json": {"add_bos_token": True, "tokenizer_class": "SentencePieceBackend", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}, "added_tokens.json": {"<|im_start|>": m, "<|im_end|>": m + 1}},
        "model, decoder": {"model": True, "tokenizer_config.json": {"add_bos_token": True, "tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "<|im_end|>", "unk_token": "<unk>", **decoder(token("<unk>", 0), token("<s>", 1), token("</s>", 2), token("<|im_start|>", m), token("<|im_end|>", m + 1), token("<X>", m + 2, lstrip=True, rstrip=True))}},
        "model, legacy": {"model": True, "tokenizer_config.json": {"add_bos_token": True, "tokenizer_class": "LlamaTokenizer", "legacy": True, "add_eos_token": True, **decoder(token("<unk>", 0), token("<s>", 1), token("</s>", 2), token("<|im_start|>", m), token("<|im_end|>", m + 1))}},
    }
    cases = {}
    for name, files in out.items():
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for path, content in files.items():
                if path == "model":
                    shutil.copy(OUT / "llama/tokenizer.model", folder / "tokenizer.model")
                elif path == "merges.txt":
                    (folder / path).write_text("#version: 0.2\n" + "".join(" ".join(m) + "\n" for m in b["merges"]))
                elif path == "tokenizer.json":
                    (folder / path).write_text(json.dumps({**content, "model": {**content["model"], "vocab": b["vocab"], "merges": b["merges"]}}))
                else:
                    (folder / path).write_text(json.dumps(b["vocab"] if content == "common" else content))
            for content in files.values():  # ids are of the lists alone
                for key, value in content.items() if isinstance(content, dict) else ():
                    if isinstance(value, dict) and value.get("__type"):
                        value.pop("id", None)
            if "tokenizer_config.json" in files:
                (folder / "tokenizer_config.json").write_text(json.dumps(files["tokenizer_config.json"]))
            made = AutoTokenizer.from_pretrained(folder)
            # If a text begins with a space, transformers 5 and sentencepiece differ.
            skip = [bool(files.get("model")) and (t.startswith((" ", S)) or "\x00" in t or t == "") for t in TEXTS]
            cases[name] = {"ids": [None if s else " ".join(map(str, made.encode(t, add_special_tokens=False))) for s, t in zip(skip, TEXTS)],
                           "special": None if "SentencePieceBackend" in json.dumps(files) else " ".join(map(str, made.encode(TEXTS[0]))), "count": len(made), "eos": made.eos_token_id, "files": files}
    return {"texts": TEXTS, "vocab": b["vocab"], "merges": b["merges"], "cases": cases}


def write(name, data):
    (OUT / name).write_text(json.dumps(data, ensure_ascii=True, separators=(",", ":")).replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    which = sys.argv[1:] or ["kinds", "folders"]
    if "kinds" in which:
        write("kinds.json", kinds())
    if "folders" in which:
        write("folders.json", folders())
