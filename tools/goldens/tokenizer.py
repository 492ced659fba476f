#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/golden: small tokenizers, and the ids that the libraries give for difficult strings.

    pip install tokenizers sentencepiece
    python tools/goldens/tokenizer.py

A null among the ids of unigram means that several ways to split the string have the best score.

Each tokenizer has a folder with its files. It is trained here on this tree's own documents and the strings below:
  gpt2     tokenizer.json: byte-level BPE with GPT-2's pattern, merges as lists
  llama3   tokenizer.json: Llama-3's pattern, ignore_merges, bos put before a text, special tokens outside the vocabulary
  neox     tokenizer.json: NFC, runs of spaces as added tokens, merges as texts
  opt      vocab.json and merges.txt: GPT-2's pattern, other ids, </s> put before a text
  llama    tokenizer.model: sentencepiece BPE with bytes for unknown characters, digits one by one
  unigram  tokenizer.model: sentencepiece unigram with a table of character replacements, no bytes
corpus.bin: the first 2,000 ids of the first document by gpt2, as nanoGPT keeps them.
ids.json: {"strings": [hexadecimal, ...], "ids": {NAME: ["1 2 3", ...]}, "special": {NAME: ...}, "versions": ...}.
Invalid UTF-8 is given to the libraries as Python decodes it with errors="replace"."""
import io
import json
import pathlib
import random
import struct
import sys

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/data/golden"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
END = "<|endoftext|>"

STRINGS = [s.encode() for s in [
    "", " ", "  ", "a", " a", "a ", " a ", "\n", "\n\n", "\r\n", "\t", " \n ", "a\n b\n\n c\n\n\n  d", "a\r\n\r\nb\r\rc",
    "Hello, world!", "The quick brown fox jumps over the lazy dog.", "don't I'll we've they're he's I'm you'd",
    "DON'T I'LL WE'VE THEY'RE HE'S I'M YOU'D", "'s't'\u017f \u017fs '\u212a", "rock'n'roll '' ''' 'tis o'clock's",
    "0 1 12 123 1234 12345 1234567890 3.14159 1,000,000 0x1F 2e-8", "\u0661\u0662\u0663 \u0967\u0968 \u2167 \u00bd \u00b2\u00b3 \u2460",
    "a1b22c333d4444", "   leading and trailing   ", "tabs\tand\t\tmore\t \t mixed", "\u00a0\u00a0nbsp\u00a0x \u2003em\u2003 \u3000ideo\u3000",
    "\u0085nel\u0085 \u2028ls\u2028 \u2029ps \u180emvs\u180e \u200bzwsp\u200b \ufeffbom \u1680ogham \u202f \u205f \x1c\x1d\x1e\x1f fs",
    "caf\u00e9 cafe\u0301 na\u00efve nai\u0308ve \u212b A\u030a \u1e9b\u0323 \u0344 \uac00 \u1100\u1161 \u0958 \u2126",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01 \u3053\u3093\u306b\u3061\u306f \uc548\ub155\ud558\uc138\uc694", "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440, \u03b3\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u03ba\u03cc\u03c3\u03bc\u03b5",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f \U0001f44d\U0001f3fd\U0001f600\U0001f600",
    "\u0301 \u0301a a\u0301\u0301\u0301", "\x00 nul \x00\x00 \x01\x02\x7f", "a\x00b", "snake_case __init__ a_b CamelCase __",
    "int main(void) {\n\treturn 0;  // nothing\n}\n", "    if x:\n        y = [1, 2]\n\n\n    z", "https://example.org/a?b=c&d=%20#e",
    "e-mail: a.b+c@example.org; \"quoted\" (paren) [x] {y} <z> ... --- !!! ?!",
    END, f"a{END}b", f" {END} ", f"{END}{END}", f"x {END}\ny", "<|endoftext|", "<|endoftext|>>", "</s> <s> <unk> <pad>", "<0x41> \u2581 \u2581\u2581a",
    "<|begin_of_text|>Hi<|eot_id|><|end_of_text|>", "<|reserved", "<mask>  x <mask>", "word<one>word <one> <one>s <one>",
    "\u0120 \u010a Ġ Ċ Ā Ń", "a" * 200, " " * 120, "=" * 150, "-=" * 70, "\n" * 60, " \n" * 40, "ab" * 90, "9" * 100, "\U0001f600" * 40,
    "x" * 33 + "y" * 31, "aA" * 25 + " " * 31 + "b", "\u00e9" * 60, "e\u0301" * 60, "\u4e2d" * 60, "the " * 40, "supercalifragilisticexpialidocious" * 3,
    "x  y", "x   y", "x    y     z", "x\n  y", "x\n\n  y", "x \n y", "x\t\n\ty", ".\n", ".\n\nA", "!\r\n B", "a ,b ; c", "  1", "   12 ", "\n1\n", " '", " 's", "s' 's",
]] + [
    b"\xff", b"\x80", b"a\xc3", b"a\xc3(", b"\xe2\x82", b"\xe2\x82x", b"\xf0\x9f\x98", b"\xf0\x9f\x98 \xf0\x9f", b"\xc0\xaf \xe0\x80\xaf", b"\xed\xa0\x80\xed\xb0\x80",
    b"\xf4\x90\x80\x80", b"ok\xfe\xffok \xc3\xa9\xc3 fine", b"\xf8\x88\x80\x80\x80", bytes(range(256)), b"\xe2\x28\xa1 \xf0\x28\x8c\xbc \xf0\x90\x28\xbc",
]
PIECES = [" ", "  ", "\n", "\r\n", "\t", "'", "s", "'S", "ll", "the", "The", "Engine", "tensor", "1", "23", "4567", ".", ",", "--", "_", "(", "\u00e9", "e\u0301",
          "\u4e2d", "\u0663", "\U0001f600", "\u200d", "\u00a0", "\u3000", "\u0085", END, "<s>", "</s>", "\u00df", "\u01c5", "\u0345", "#", "\x00", "$", "\u20ac", "\ufffd"]


def strings():
    chance = random.Random(20240520)
    mixed = ["".join(chance.choice(PIECES) for _ in range(chance.randint(2, 30))) for _ in range(80)]
    return STRINGS + [s.encode() for s in mixed]


def corpus():
    texts = [p.read_text() for p in sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md", *ROOT.glob("abi/engine/*.h")])]
    return texts + [s.decode(errors="replace").replace("\0", " ") for s in STRINGS] * 3


def byte_level(size, specials, pre, normalizer=None):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre, decoders.ByteLevel()
    if normalizer:
        made.normalizer = normalizer
    made.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=size, special_tokens=specials, show_progress=False,
                                                           initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return made


def save(name, made, change=lambda data: None):
    """Writes the file, and reads the tokenizer that a reader of the file has."""
    data = json.loads(made.to_str())
    change(data)
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    (OUT / name).mkdir(parents=True, exist_ok=True)
    (OUT / name / "tokenizer.json").write_text(text + "\n")
    return Tokenizer.from_str(text)


def gpt2():
    made = byte_level(700, [END], pre_tokenizers.ByteLevel(add_prefix_space=False))
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    return save("gpt2", made)


def llama3():
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made = byte_level(700, [], pre)
    made.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", AddedToken("<mask>", lstrip=True, rstrip=True, special=True),
                             AddedToken("<one>", single_word=True, special=True)])
    begin = made.token_to_id("<|begin_of_text|>")
    made.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B:1",
                                      special_tokens=[("<|begin_of_text|>", begin)])])

    def change(data):
        data["model"]["ignore_merges"] = True
        # A word that no merges lead to, so that ignore_merges shows.
        data["model"]["merges"] = [m for m in data["model"]["merges"] if "".join(m) not in ("\u0120the", "int")]
        data["model"]["merges"] = [m for m in data["model"]["merges"] if "\u0120the" not in m and "int" not in m]
    return save("llama3", made, change)


def neox():
    made = byte_level(700, [END, "<|padding|>"], pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFC())
    made.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])

    def change(data):
        data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
    return save("neox", made, change)


def opt():
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    made = byte_level(600, names, pre_tokenizers.ByteLevel(add_prefix_space=False))
    model = json.loads(made.to_str())["model"]
    folder = OUT / "opt"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False, separators=(",", ":")) + "\n")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(" ".join(m) + "\n" for m in model["merges"]))
    config = {"add_bos_token": True, "add_prefix_space": False, "bos_token": "</s>", "eos_token": {"content": "</s>"},
              "pad_token": "<pad>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")
    made = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    # The special tokens that tokenizer_config.json names.
    made.add_special_tokens([AddedToken(n, normalized=False, special=True) for n in names[1:]])
    made.post_processor = processors.TemplateProcessing(single="</s> $A", special_tokens=[("</s>", 2)])
    return made


def sentence(name, **options):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in corpus() for line in text.split("\n")), model_writer=out, minloglevel=2,
        num_threads=1, **options)
    (OUT / name).mkdir(parents=True, exist_ok=True)
    (OUT / name / "tokenizer.model").write_bytes(out.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


def llama():
    return sentence("llama", model_type="bpe", vocab_size=700, byte_fallback=True, split_digits=True, character_coverage=0.99,
                    normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=True,
                    allow_whitespace_only_pieces=True)


def unigram():
    rules = OUT / "rules.tsv"
    rules.write_text("E9\t65\n65 301\t65\n1F600\t3A 29\nA0\t20\n")
    made = sentence("unigram", model_type="unigram", vocab_size=440, normalization_rule_tsv=str(rules), character_coverage=0.98)
    rules.unlink()
    return made


def tied(made, text):
    """True if two ways to split a text have the same score: which one is used depends on the library's version."""
    best = [sum(map(made.get_score, row)) for row in made.nbest_encode(text, nbest_size=2)] if text else []
    return len(best) == 2 and abs(best[0] - best[1]) < 1e-3


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    texts = strings()
    ids, special = {}, {}
    first = gpt2().encode(corpus()[0]).ids[:2000]
    (OUT / "corpus.bin").write_bytes(struct.pack(f"<{len(first)}H", *first))
    for name, made in (("gpt2", gpt2()), ("llama3", llama3()), ("neox", neox()), ("opt", opt()), ("llama", llama()),
                       ("unigram", unigram())):
        plain, around = [], []
        for text in texts:
            decoded = text.decode(errors="replace")
            if isinstance(made, Tokenizer):
                plain.append(made.encode(decoded, add_special_tokens=False).ids)
                around.append(made.encode(decoded, add_special_tokens=True).ids)
            else:
                plain.append(made.encode(decoded))
                around.append(made.encode(decoded, add_bos=True))
        ids[name] = [" ".join(map(str, row)) for row in plain]
        if name == "unigram":
            ids[name] = [None if tied(made, t.decode(errors="replace")) else row for t, row in zip(texts, ids[name])]
        # Only the number and values of the ids around a text matter: those of one string show them.
        special[name] = " ".join(map(str, around[3]))
    data = {"strings": [t.hex() for t in texts], "ids": ids, "special": special,
            "versions": {"tokenizers": tokenizers.__version__, "sentencepiece": sentencepiece.__version__,
                         "python": sys.version.split()[0]}}
    (OUT / "ids.json").write_text(json.dumps(data, indent=0) + "\n")


if __name__ == "__main__":
    main()
