#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/golden/patterns.json: how the `tokenizers` library splits texts at the matches of patterns.

    pip install tokenizers
    python tools/goldens/oniguruma.py
    python tools/goldens/oniguruma.py --try COMMAND [SEED]    # compares random patterns for ever

Patterns are known ones, one for each construct, and random ones that the library takes. Each row is [pattern, behaviour, invert, texts, parts];
parts are null where the library refuses the pattern. COMMAND reads lines "PATTERN BEHAVIOUR INVERT TEXT..." with
hexadecimal texts, and prints "no REASON", or "ok", and for each text "/" and its parts, which are hexadecimal too."""
import json
import pathlib
import random
import subprocess
import sys

from tokenizers import Regex, pre_tokenizers

WILD = "wild"
OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/data/golden/patterns.json"
BEHAVIOURS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
KNOWN = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r" ?[^(\s|.,!?…。，、।۔،)]+", r"[一-龥\u3040-ゟ゠-ヿ]+", r"\s?\p{L}+", r"\s?\p{P}+", r"[0-9][0-9][0-9]", r"\p{N}{1,3}(?=(?:\p{N}{3})*$)",
    r"(?:\r?\n)+(?!\r?\n)", r"(?=(\d{3})+(?!\d))", r"[\p{L}&&[^\p{Han}]]+", r"\d+|\D+", r"[^\W\d_]+|\d|_",
]
CONSTRUCTS = [
    r"a{1,2}+", r"\d{2}+", r"\d{1,3}+", r"a{2}?", r"a{1,2}?", r"a{,2}", r"a{2,}+b", r"a**", r"a+*", r"a{2}{2}", r"a?{2}", r"a{", r"a{,}", r"{a", r"x*", r"(?=[A-Z])",
    r"\h", r"\H+", r"[\h]+", r"[^\h]+", r"(?m).+", r"(?m:a.)b", r".+", r"(?i)ab|C", r"b(?i)a|c", r"(?i:a)b", r"(?i:a(?-i)b)c", r"(?im-i:A.)", r"\R", r"\R+", r"\N+", r"\O",
    r"^", r"$", r"^a", r"b$", r"\A.", r".\Z", r".\z", r"\Z", r"\bb", r"\B.", r"(?<=a)b", r"(?<!a)b", r"(?<=a|bb)c", r"(?>a+)b", r"(?<n>a)b", r"a(?#b)+", r"(?x) a b # c",
    r"[a-c&&[^b]]", r"[a-w&&[^c-g]b]+", r"[[a-b]1]+", r"[^[a-b]1]+", r"[\p{L}&&\p{ASCII}]+", r"[[:digit:]]+", r"[[:space:]]+", r"[[:^space:]]+", r"[[:word:]]+", r"[[:xdigit:]]+", r"[[:cntrl:]]",
    r"\p{^L}+", r"\P{^L}+", r"\p{Letter}+", r"\p{Decimal_Number}", r"\p{greek}+", r"[\P{L}]+", r"[\W]+", r"[\S]+", r"[\D]+", r"[\s\d]+", r"[\w-]+", r"[a-]+", r"[-a]+", r"[]a]+", r"[^]a]+",
    r"\x{e9}", r"\u00e9", r"\x41", r"\0", r"\v", r"\e", r"\a", r"[\b]", r"\-", r"\é", r"]", r"}", r"(|a)b", r"a||b", r"(a|b?)*c", r"(?:a??)*b", r"\w\s\d", r"\S+", r"\W+",
    r"\p{Nd}+", r"(?i)[a-z]+", r"(?i)[^a]+", r"(?i)k", r"(?i)ſ?s",
    r"\X", r"\K", r"\G", r"\y", r"(?~a)", r"(a)\1", r"\k<n>", r"(?s)a", r"(?W)\w", r"\pL", r"\p{Alpha}", r"[[:alpha:]]", r"(?i)ss", r"(?i)st", r"(?i)é", r"(?i)[\p{L}]", r"\xe3\x81\x82", r"a{2,1}", r"*a", r"[z-a]",
    r"[a-\d]", r"a)", r"(a", r"[a", r"^*", r"(?P<n>a)", r"(?(1)a|b)", r"\Qa\E", r"\101", r"[a&&]", r"(*FAIL)", r"\8", r"(?<=a+)b",
]
TEXTS = ["aab12 \nbaB\tcC 3456\r\n\u00e9\u00df \u0416\u4e2d\u3042", "AaBb, 1234567 it's IT'S  \n\n x\u0301y_z-[]{}", "caabbc\u2028\u00a0 \u212aKk \u017fsS \ufb05 \u03b1\u0391 \x0b\x00\x1b", "a", "\n", "a\n"]
ATOMS = ["a", "b", "c", "A", "1", "s", "k", " ", ".", r"\n", r"\s", r"\S", r"\w", r"\W", r"\d", r"\D", r"\h", r"\H", r"\R", r"\N", r"\O", r"\p{L}", r"\P{L}", r"\p{^N}", r"\p{Lu}", r"\p{Han}", r"\p{P}",
         r"\b", r"\B", r"^", r"$", r"\A", r"\z", r"\Z", "é", "ß", "中", "'", "-", r"\-", r"\.", r"\x{e9}", r"\u0041", r"\t", "{", "}", "]", ","]
ITEMS = ["a", "b", "A", "1", " ", "a-c", "0-9", "A-Z", r"\s", r"\S", r"\w", r"\W", r"\d", r"\D", r"\h", r"\p{L}", r"\P{L}", r"\p{^N}", r"\p{Lu}", r"\n", r"\r\n", "é", "中", r"\]", r"\[", r"\-", ".", "[:digit:]", "[:^space:]", "[:word:]", "一-龥", r"\u3040-\u30ff", "'", "&"]
REPEATS = ["*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{1,2}", "{1,}", "{,2}", "{2}?", "{1,2}?", "{2}+", "{1,3}+", "{1,}+", "**", "+?+"]
PIECES = ["a", "b", "c", "A", "B", "1", "2", "34", " ", "  ", "\n", "\r\n", "\t", "s", "S", "k", "\u212a", "\u017f", "é", "e\u0301", "ß", "中", "あ", "Ж", "'", "'s", ".", "-", "_", "{", "]", "\u00a0", "\u2028", "\x0b", "²", "٣", "\u0345"]


def random_class(chance, depth=0):
    out = "[" + chance.choice(["", "", "^"])
    parts = [chance.choice(ITEMS) if depth > 1 or chance.random() < 0.85 else random_class(chance, depth + 1) for _ in range(chance.randint(1, 4))]
    parts = ["[" + p + "]" if p.startswith("[:") else p for p in parts]
    out += "".join(parts)
    if depth < 2 and chance.random() < 0.15:
        out += "&&" + random_class(chance, depth + 1)
    return out + "]"


def random_pattern(chance, depth=0):
    branches = []
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        out = ""
        for _ in range(chance.randint(1, 3)):
            kind = chance.random()
            if kind < 0.55 or depth > 2:
                out += chance.choice(ATOMS)
            elif kind < 0.75:
                out += random_class(chance)
            elif kind < 0.78:
                out += chance.choice(["(?i)", "(?m)", "(?-i)", "(?im)", "(?x) ", "(?#c)"])
                continue
            else:
                out += chance.choice(["(", "(?:", "(?i:", "(?m:", "(?-m:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?<n>"]) + random_pattern(chance, depth + 1) + ")"
            if chance.random() < 0.35:
                out += chance.choice(REPEATS)
        branches.append(out)
    return "|".join(branches)


def random_text(chance):
    return "".join(chance.choice(PIECES) for _ in range(chance.randint(1, 14)))


def parts_of(pattern, behaviour, invert, texts):
    """None if the library refuses the pattern, WILD if it gives up on a text."""
    try:
        split = pre_tokenizers.Split(Regex(pattern), behaviour, invert)
    except BaseException:  # the library has no narrower one
        return None
    try:
        return [[part for part, _ in split.pre_tokenize_str(text)] for text in texts]
    except KeyboardInterrupt:
        raise
    except BaseException:
        return WILD


def compare(command, seed):
    """Prints patterns that the command splits at in another way than the library."""
    chance = random.Random(seed)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    tried = refused = differ = 0
    while True:
        pattern, behaviour, invert = random_pattern(chance), chance.randrange(5), chance.random() < 0.2
        texts = [random_text(chance) for _ in range(6)]
        want = parts_of(pattern, BEHAVIOURS[behaviour], invert, texts)
        if want is None or want == WILD:
            continue
        process.stdin.write(f"{pattern.encode().hex()} {behaviour}{int(invert)} {' '.join(t.encode().hex() for t in texts)}\n")
        process.stdin.flush()
        line = process.stdout.readline().rstrip("\n")
        tried += 1
        if line.startswith("no"):
            refused += 1
        elif [[bytes.fromhex(x).decode() for x in part.split()] for part in line[2:].split("/")[1:]] != want:
            differ += 1
            print("differs:", repr(pattern), BEHAVIOURS[behaviour], invert, texts, line[:300], want, flush=True)
        if tried % 5000 == 0:
            print(f"{tried} patterns, {refused} refused, {differ} differ", flush=True)


def main():
    if sys.argv[1:2] == ["--try"]:
        compare(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    chance = random.Random(7)
    rows = [[p, "isolated", False, TEXTS] for p in KNOWN + CONSTRUCTS]
    rows += [[p, b, i, TEXTS[:2]] for p in ("a+", "x*", r"\s", "(?=B)") for b in BEHAVIOURS for i in (False, True)]
    # Matches that PCRE2 10.42 loses with its optimisations, and white space that only Oniguruma counts.
    rows += [[r"\P{L}+\P{N}k", "isolated", False, ["1 k"]], [r"(?>\S+?-\w)B", "isolated", False, ["b-b-BB"]], [r"\s", "isolated", False, ["a\u180e\u0085\x1cb"]]]
    rows = [row + [parts_of(*row)] for row in rows]
    while len(rows) < 600:
        row = [random_pattern(chance), chance.choice(BEHAVIOURS), chance.random() < 0.2, [random_text(chance) for _ in range(3)]]
        parts = parts_of(*row)
        if parts is not None and parts != WILD and len(row[0]) < 100:
            rows.append(row + [parts])
    OUT.write_text("[\n" + ",\n".join(json.dumps(row, ensure_ascii=True) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
