#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tokenizer.py ENGINE [--megabytes N] [--rounds N] [--kinds NAME,...] [--out FILE.json]: tokens per second of
`engine data build` and of the `tokenizers` library on one core each, on the same text with the same tokenizers; and
whether every id is equal.

    pip install tokenizers==0.23.3 wordfreq
    python benchmarks/tokenizer.py build/tools/engine --out benchmarks/results/tokenizer.json

Four fifths of the text are sentences in 20 languages, whose words are drawn by their frequency (of the package wordfreq);
one fifth is Python code, of the library of the Python that runs this. Tokenizers are trained on a sample of it, with the
normalizer and the pre-tokenizer of the models that they are named after.

Both sides are measured in turns, in seconds of processor time, which a busy machine changes least. The engine's is that of
the whole command, which reads, hashes, encodes and writes, less that of the same command on a hundredth of the text. The
library's is that of encode_batch alone, and is 100 % of the text. The JSON object at the end is what benchmarks/results/
keeps: of each kind the median of the ratios of the rounds, the lowest and the highest."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import random
import resource
import statistics
import struct
import subprocess
import sys
import sysconfig
import tempfile

os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers  # noqa: E402  (it reads the variable when it is loaded)
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

LANGUAGES = "en de fr es pt it pl cs tr vi ru uk el ar he fa hi bn zh ja".split()
UNSPACED = {"zh", "ja"}
END, UNKNOWN, SPACE = "<|endoftext|>", "<unk>", "\u2581"
CASES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
PATTERNS = {
    "llama3": CASES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": CASES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CASES +
             r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CASES +
             r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}


def sentences(language, size, draw):
    """Documents in a language, of about `size` bytes together."""
    import wordfreq
    words = [w for w in wordfreq.top_n_list(language, 50000) if not any(c in w for c in ". ")]
    weights = [wordfreq.get_frequency_dict(language).get(w, 1e-9) for w in words]
    between, stop = ("", "\u3002") if language in UNSPACED else (" ", ".")
    while size > 0:
        out = []
        for chosen in (draw.choices(words, weights, k=draw.randrange(4, 25)) for _ in range(draw.randrange(5, 60))):
            if draw.random() < 0.1:
                chosen[draw.randrange(len(chosen))] = str(draw.randrange(10 ** draw.randrange(1, 6)))
            if draw.random() < 0.2:
                chosen[draw.randrange(len(chosen))] += ","
            chosen[0] = chosen[0].capitalize()
            out.append(between.join(chosen) + (stop if draw.random() < 0.9 else "?"))
        text = "".join(s + draw.choice([" ", " ", " ", "\n\n"]) for s in out)
        size -= len(text.encode())
        yield text


def documents(megabytes):
    draw, size = random.Random(1), int(megabytes * 1e6)
    out = [text for language in LANGUAGES for text in sentences(language, size * 4 // 5 // len(LANGUAGES), draw)]
    code, files = 0, sorted(pathlib.Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    draw.shuffle(files)
    while code < size // 5:
        for path in files:
            text = path.read_text(encoding="utf-8", errors="replace")[:200_000]
            code += len(text.encode())
            if text:
                out.append(text)
            if code >= size // 5:
                break
    draw.shuffle(out)
    return out


def bytes_level(regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)


def split(name):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated"), bytes_level(False)])


def bpe(pre, normalizer=None):
    def make(texts):
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre
        if normalizer:
            made.normalizer = normalizer
        made.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=32768, special_tokens=[END], show_progress=False,
                                                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        return made
    return make


def llama2(texts):
    """BPE of characters, with bytes for those that have no id, and no pre-tokenizer: as sentencepiece's models are converted."""
    taught = Tokenizer(models.BPE(unk_token=UNKNOWN))
    taught.pre_tokenizer = pre_tokenizers.Metaspace()
    names = [UNKNOWN, END] + [f"<0x{b:02X}>" for b in range(256)]
    taught.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=32000, special_tokens=names, show_progress=False, limit_alphabet=4000))
    made = json.loads(taught.to_str())
    made["model"].update(byte_fallback=True, fuse_unk=True)
    made["pre_tokenizer"] = None
    made["added_tokens"] = [token for token in made["added_tokens"] if token["content"] in (UNKNOWN, END)]
    out = Tokenizer.from_str(json.dumps(made))
    out.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    out.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return out


def unigram(texts):
    made = Tokenizer(models.Unigram())
    made.normalizer, made.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    made.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=16000, unk_token=UNKNOWN, special_tokens=[END, UNKNOWN],
                                                            show_progress=False))
    return made


def word_piece(texts):
    made = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=32768, special_tokens=[END, UNKNOWN], show_progress=False))
    return made


KINDS = {
    "gpt2": bpe(bytes_level()),
    "smollm2": bpe(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_level()])),
    "llama3": bpe(split("llama3")),
    "qwen2": bpe(split("qwen2"), normalizers.NFC()),
    "o200k": bpe(split("o200k")),
    "llama2": llama2,
    "unigram": unigram,
    "wordpiece": word_piece,
}


def spent(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def build(engine, folder, texts, name):
    """Seconds of the processor, and the ids."""
    with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as out:
        out.writelines(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in texts)
    (folder / "config.toml").write_text(
        '[model]\nplugin = "llama"\npreset = "tiny"\nvocab_size = 32768\n[data]\n'
        f'paths = ["{name}.jsonl"]\ntokenizer = "tokenizer.json"\n[train]\nsequence_length = 64\n')
    with tempfile.TemporaryDirectory(dir=folder) as place:
        before = spent(resource.RUSAGE_CHILDREN)
        done = subprocess.run([engine, "data", "build", "config.toml", "--threads", "1", "--out", place], cwd=folder,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        seconds = spent(resource.RUSAGE_CHILDREN) - before
        if done.returncode:
            sys.exit(done.stderr)
        data = (folder / done.stdout.strip()).read_bytes()
    width, count = struct.unpack_from("<IQ", data, 12)
    return seconds, memoryview(data)[256:256 + width * count].cast("H" if width == 2 else "I").tolist()


def encode(made, texts):
    before = spent(resource.RUSAGE_SELF)
    encoded = made.encode_batch(texts, add_special_tokens=False)
    seconds = spent(resource.RUSAGE_SELF) - before
    end, ids = made.token_to_id(END), []
    for one in encoded:
        ids += one.ids
        ids.append(end)
    return seconds, ids


def measure(engine, texts, sample, make, rounds):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        make(sample).save(str(folder / "tokenizer.json"))
        few, ours, theirs = texts[: max(1, len(texts) // 100)], [], []
        share = 1 - sum(len(t) for t in few) / sum(len(t) for t in texts)
        for _ in range(rounds):
            made = Tokenizer.from_file(str(folder / "tokenizer.json"))  # its memory of words is empty, as the engine's is
            start, _ = build(engine, folder, few, "few")
            took, ids = build(engine, folder, texts, "all")
            ours.append((took - start) / share)
            took, expected = encode(made, texts)
            theirs.append(took)
            if ids != expected:
                sys.exit("the ids differ")
    tokens, ratios = len(expected), [b / a for a, b in zip(ours, theirs)]
    return {"tokens": tokens, "engine": round(tokens / min(ours)), "tokenizers": round(tokens / min(theirs)),
            "ratio": {"median": round(statistics.median(ratios), 2), "lowest": round(min(ratios), 2), "highest": round(max(ratios), 2)}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine")
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--out")
    asked = parser.parse_args()
    engine, texts = str(pathlib.Path(asked.engine).resolve()), documents(asked.megabytes)
    commit = subprocess.run(["git", "-C", str(pathlib.Path(__file__).parent), "rev-parse", "--short=12", "HEAD"],
                            stdout=subprocess.PIPE, text=True).stdout.strip()
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    size, sample = sum(len(t.encode()) for t in texts), documents(min(3, asked.megabytes))
    result = {"cpu": cpu, "date": str(datetime.date.today()), "commit": commit, "load_before": os.getloadavg()[0], "rounds": asked.rounds,
              "megabytes": round(size / 1e6, 1), "documents": len(texts), "languages": len(LANGUAGES), "tokenizers": tokenizers.__version__,
              "tokens_per_second": {}}
    for kind in asked.kinds:
        one = result["tokens_per_second"][kind] = measure(engine, texts, sample, KINDS[kind], asked.rounds)
        print(f"{kind:10} {one['tokens']:9} tokens, ids equal; M tokens/s: engine {one['engine'] / 1e6:6.2f}, tokenizers "
              f"{one['tokenizers'] / 1e6:6.2f}; {one['ratio']['median']}x ({one['ratio']['lowest']} to {one['ratio']['highest']})", flush=True)
    text = json.dumps(result, indent=1)
    print(text)
    if asked.out:
        pathlib.Path(asked.out).write_text(text + "\n")


if __name__ == "__main__":
    main()
