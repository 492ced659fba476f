#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""real_texts.py ENGINE FOLDER [--megabytes 100] [--kinds NAME,...] [--tokenizer NAME=FILE ...]: the ids of `engine data
build` beside those of the `tokenizers` library, on texts that people wrote: in 26 languages, and code.

    pip install tokenizers==0.23.3
    python3 tests/data/real_texts.py build/tools/engine ~/.cache/engine-texts

The texts are those of LibreOffice's help and of its messages, which FOLDER keeps: packages of Debian that `apt-get download`
brings, about 70 MB, once. Code is the Python library of the interpreter that runs this, and the headers in /usr/include.
Each language has an equal part of four fifths, if there is so much of it; code is the rest.

Tokenizers are those of benchmarks/tokenizer.py, trained on a sample of the texts, and files tokenizer.json that --tokenizer
names. A kind is done when all of its ids are equal; otherwise the first document with another id is printed, and what
follows it in both."""
import argparse
import gettext
import html.parser
import io
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import tokenizer as kinds  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

HELP = "cs de el en-us es fi fr hi hu it ja ko nl pl pt ru sv tr vi zh-cn".split()
MESSAGES = "ar bn fa he th uk".split()  # languages that the help is not translated to
# Languages with the least text come first: the others share what these leave.
PACKAGES = [f"libreoffice-l10n-{x}" for x in MESSAGES] + [f"libreoffice-help-{x}" for x in HELP]
MOST = 200_000  # characters of a document
SLICE = 2_000_000  # characters that the library gets at a time


class Words(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.out, self.hidden = [], 0

    def handle_starttag(self, tag, attrs):
        self.hidden += tag in ("script", "style")
        if tag in ("p", "h1", "h2", "h3", "li", "tr", "div"):
            self.out.append("\n")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data):
        if not self.hidden:
            self.out.append(data)


def page(data):
    words = Words()
    words.feed(data.decode("utf-8", "replace"))
    return "".join(words.out).strip()


def messages(data):
    return "\n".join(text for text in gettext.GNUTranslations(io.BytesIO(data))._catalog.values() if isinstance(text, str) and text)


def texts_of(package, folder, draw):
    file = next(iter(sorted(folder.glob(f"{package}_*.deb"))), None)
    if file is None:
        subprocess.run(["apt-get", "-q", "download", package], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        file = sorted(folder.glob(f"{package}_*.deb"))[0]
    unpacked = subprocess.run(["dpkg-deb", "--fsys-tarfile", file], check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
        members = [member for member in archive if member.isfile() and member.name.endswith((".html", ".mo"))]
        draw.shuffle(members)
        for member in members:
            text = (page if member.name.endswith(".html") else messages)(archive.extractfile(member).read())
            if len(text) > 40:
                yield text


def code(draw):
    places = ((pathlib.Path(sysconfig.get_path("stdlib")), "*.py"), (pathlib.Path("/usr/include"), "*.h"))
    files = [file for place, ending in places for file in sorted(place.rglob(ending)) if file.is_file()]
    draw.shuffle(files)
    for file in files:
        yield file.read_text(encoding="utf-8", errors="replace")


def some(texts, size):
    """Documents of about so many bytes together, as far as there are so many."""
    out = []
    for text in texts:
        for begin in range(0, len(text), MOST):
            out.append(text[begin:begin + MOST])
            size -= len(out[-1].encode())
        if size <= 0:
            break
    return out


def gather(folder, megabytes):
    draw, size = random.Random(1), megabytes * 1e6
    out, told = [], []
    for k, package in enumerate(PACKAGES):
        left = sum(len(text.encode()) for text in out)
        part = some(texts_of(package, folder, draw), (size * 0.8 - left) / (len(PACKAGES) - k))
        told.append(f"{package.split('-', 2)[2]} {sum(len(text.encode()) for text in part) / 1e6:.1f}")
        out += part
    part = some(code(draw), size - sum(len(text.encode()) for text in out))
    told.append(f"code {sum(len(text.encode()) for text in part) / 1e6:.1f}")
    out += part
    draw.shuffle(out)
    print("MB:", ", ".join(told), flush=True)
    return out


def build(engine, folder, vocabulary):
    """The ids of all documents, each followed by the id of the end of a text."""
    (folder / "config.toml").write_text(
        f'[model]\nplugin = "llama"\npreset = "tiny"\nvocab_size = {vocabulary}\n[data]\n'
        'paths = ["texts.jsonl"]\ntokenizer = "tokenizer.json"\n[train]\nsequence_length = 64\n')
    done = subprocess.run([engine, "data", "build", "config.toml", "--threads", "1", "--out", "tokens"], cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    data = (folder / done.stdout.strip()).read_bytes()
    width, count = struct.unpack_from("<IQ", data, 12)
    return memoryview(data)[256:256 + width * count].cast("H" if width == 2 else "i")


def slices(texts):
    part, size = [], 0
    for text in texts:
        part.append(text)
        size += len(text)
        if size > SLICE:
            yield part
            part, size = [], 0
    yield part


def compare(engine, folder, file, texts):
    """None, or what differs."""
    made = Tokenizer.from_file(str(file))
    if file != folder / "tokenizer.json":
        (folder / "tokenizer.json").write_bytes(file.read_bytes())
    began = time.process_time()
    ids, at = build(engine, folder, made.get_vocab_size()), 0
    for part in slices(texts):
        for text, encoded in zip(part, made.encode_batch(part, add_special_tokens=False)):
            wanted = encoded.ids
            here = ids[at:at + len(wanted)].tolist()
            if here != wanted:
                first = next((k for k, (a, b) in enumerate(zip(here, wanted)) if a != b), len(here))
                where = encoded.offsets[first][0] if first < len(wanted) else len(text)
                return f"at character {where} of {text[max(0, where - 40):where + 40]!r}: engine {here[first:first + 9]}, library {wanted[first:first + 9]}"
            at += len(wanted) + 1  # the end of the text
    if at != len(ids):
        return f"the engine has {len(ids)} ids, the library {at}"
    print(f"  {len(ids)} ids, the library took {time.process_time() - began:.0f} s", flush=True)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--kinds", type=lambda text: [name for name in text.split(",") if name], default=list(kinds.KINDS))
    parser.add_argument("--tokenizer", action="append", default=[], metavar="NAME=FILE")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    texts = gather(asked.folder, asked.megabytes)
    sample = some(texts, 3e6)
    files = [(one.split("=", 1)[0], pathlib.Path(one.split("=", 1)[1]).resolve()) for one in asked.tokenizer]
    passed = failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with open(folder / "texts.jsonl", "w", encoding="utf-8") as out:
            out.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
        for kind in asked.kinds:
            made = folder / "tokenizer.json"
            kinds.KINDS[kind](sample).save(str(made))
            files.append((kind, made))
            told = compare(engine=asked.engine, folder=folder, file=made, texts=texts)
            files.pop()
            failed += told is not None
            passed += told is None
            print(f"{kind}: {told or 'ids equal'}", flush=True)
        for kind, file in files:
            told = compare(asked.engine, folder, file, texts)
            failed += told is not None
            passed += told is None
            print(f"{kind}: {told or 'ids equal'}", flush=True)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
