#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/golden/models.json: more kinds of tokenizer.json, trained on text of twenty languages and on code,
with the ids and the text that the `tokenizers` library gives.

    pip install tokenizers==0.23.3
    python tools/goldens/tokenizer_models.py

It is like kinds.json (tokenizer_kinds.py). A case may also have "decoded" (for each text, the ids as text) and "crc": the
CRC-32 of the ids, as four bytes each, of `all_characters`."""
import base64
import json
import struct
import zlib

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from tokenizer_kinds import BYTES, LLAMA_DECODER, OUT, S, TEXTS, bytes_level, file, metaspace, sequence, split, token

LANGUAGES = [
    "The river was high, so nobody crossed the old bridge that night.",
    "Der Fluss war so hoch, dass in jener Nacht niemand über die alte Brücke ging.",
    "La rivière était si haute que personne n'a traversé le vieux pont cette nuit-là.",
    "El río venía tan crecido que nadie cruzó el viejo puente aquella noche. ¿Quién lo sabía?",
    "O rio estava tão alto que ninguém atravessou a velha ponte naquela noite.",
    "Il fiume era così alto che nessuno attraversò il vecchio ponte quella notte.",
    "Rzeka była tak wysoka, że nikt nie przeszedł tej nocy przez stary most.",
    "Řeka byla tak vysoká, že tu noc nikdo nepřešel přes starý most.",
    "Nehir o kadar yüksekti ki o gece kimse eski köprüden geçmedi. İSTANBUL ılık.",
    "Sông dâng cao đến nỗi đêm đó không ai qua cây cầu cũ.",
    "Река поднялась так высоко, что в ту ночь никто не перешёл старый мост.",
    "Ріка була така висока, що тієї ночі ніхто не перейшов старий міст.",
    "Το ποτάμι ήταν τόσο ψηλό που κανείς δεν πέρασε την παλιά γέφυρα. ΝΎΧΤΑΣ",
    "הנהר היה כה גבוה שאיש לא חצה את הגשר הישן באותו לילה. שָׁלוֹם",
    "كان النهر عاليا جدا فلم يعبر أحد الجسر القديم تلك الليلة. مُحَمَّد",
    "नदी इतनी ऊँची थी कि उस रात किसी ने पुराना पुल पार नहीं किया। क्षत्रिय",
    "நதி மிகவும் உயரமாக இருந்ததால் அன்று இரவு யாரும் பழைய பாலத்தைக் கடக்கவில்லை.",
    "แม่น้ำสูงมากจนคืนนั้นไม่มีใครข้ามสะพานเก่า",
    "河水很高，那天晚上没有人过那座旧桥。",
    "川の水位が高くて、その夜は誰も古い橋を渡らなかった。コンピューター",
    "강물이 너무 높아서 그날 밤 아무도 낡은 다리를 건너지 않았다.",
    "def crossing(level: float) -> bool:\n    return level < 3.5  # metres\n\n\nfor i in range(10):\n\tprint(f\"{i:>3}\", crossing(i))\n",
    "#include <vector>\nint main() { std::vector<int> v{1, 2, 3}; return v.size() != 3u; }\r\n",
]
MORE = ["ﬁ\u0301 ﬃ ℃ ① ㍿ ｶﾞ Ａ\u0301 \u1100\u1161\u11a8 각\u0301", "a\u200bb\u200cc\ufeffd\u00ade\u2028f\u0007g\r\nh\u001ci", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u00a9\u200d\u2764 \U0001f1e9\U0001f1ea\u0301 \u0600A",
        "क्ष\u0301 क\u0301 \u0e33\u0e49 \u0301\u0301a", " \u0301a", "\u3042\u30fc\u30a2x\u0431 \u0431x", "\ufffd\ue000\U000f0000z", "İı ǅ Σς ẞ \U00010400 \ua7dc", "supercalifragilistic " + "x" * 101, "x" * 100]
SHOWN_OTHERWISE = ("unigram, charsmap", "unigram, ties", "clip")  # the library shows the characters of the file
ALL_TEXTS = TEXTS + LANGUAGES + MORE


def all_characters():
    """Each character that is assigned, and some others, between letters and marks, in documents of 1,024 characters."""
    for first in [*range(0, 0xD800, 1024), *range(0xE000, 0x32400, 1024), 0xE0000, 0xF0000]:
        yield "".join(f"A{chr(c)}e\u0301{chr(c)} " for c in range(first, first + 1024))


def checksum(made):
    value = 0
    for text in all_characters():
        ids = made.encode(text, add_special_tokens=False).ids
        value = zlib.crc32(struct.pack(f"<{len(ids)}I", *ids), value)
    return value


def charsmap(rules):
    """sentencepiece's binary form of {TEXT: TEXT}: a double array of the bytes of the keys, and the texts."""
    root, texts = {}, b""
    for key, value in rules.items():
        node = root
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[-1] = len(texts)
        texts += value.encode() + b"\0"
    units, used = {0: 0}, {0}

    def place(node, at):
        labels = [max(byte, 0) for byte in node]
        offset = next(o for o in range(1, 1 << 21) if all(at ^ o ^ label not in used for label in labels))
        target = at ^ offset
        used.update(target ^ label for label in labels)
        units[at] |= offset << 10 | (-1 in node) << 8
        for byte, child in node.items():
            units[target ^ max(byte, 0)] = child | 1 << 31 if byte == -1 else byte
        for byte, child in node.items():
            if byte != -1:
                place(child, target ^ byte)
    place(root, 0)
    size = (max(units) // 256 + 1) * 256
    data = struct.pack(f"<I{size}I", 4 * size, *(units.get(i, 0) for i in range(size))) + texts
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


RULES = {"A": "x", "\u00e9": "e", "e\u0301": "\u00e9", "\r": " ", "\n": " ", "\ufb01": "fi", "\u0007": "", "\u2103": "\u00b0C", "\uff21": "A", "\u0600": "#", "\u00a9": "(c)", "\u3000": " ", "\u0915": "k", "\u2460": "1", "\uac01": "gag", "\u0301": "'"}


def train(model, trainer, normalizer=None, pre=None):
    made = Tokenizer(model)
    if normalizer:
        made.normalizer = normalizer
    if pre:
        made.pre_tokenizer = pre
    made.train_from_iterator(ALL_TEXTS * 2, trainer)
    return json.loads(made.to_str())["model"]


def whole(model, **parts):
    return {**file({}, **parts), "model": model}


def cases():
    alphabet = {"vocab": {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, "merges": []}
    plain = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    own = [token(t, i) for i, t in enumerate(special)]
    bert = normalizers.BertNormalizer()
    pieces = train(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(vocab_size=700, special_tokens=special, show_progress=False), bert, pre_tokenizers.BertPreTokenizer())
    words = train(models.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer(vocab_size=150, special_tokens=special, show_progress=False), None, pre_tokenizers.Whitespace())
    unigram = train(models.Unigram(), trainers.UnigramTrainer(vocab_size=500, unk_token="<unk>", special_tokens=["<unk>", "<s>", "</s>"], show_progress=False), normalizers.NFKC(), pre_tokenizers.Metaspace())
    for piece in unigram["vocab"]:
        piece[1] = round(piece[1], 4)
    with_bytes = {**unigram, "vocab": unigram["vocab"] + [[f"<0x{b:02X}>", -15.0] for b in range(256)], "byte_fallback": True}
    clip = train(models.BPE(end_of_word_suffix="</w>", unk_token="<unk>"), trainers.BpeTrainer(vocab_size=600, end_of_word_suffix="</w>", special_tokens=["<unk>"], show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
                 normalizers.Lowercase(), pre_tokenizers.ByteLevel(add_prefix_space=False))
    first = train(models.BPE(end_of_word_suffix="</w>", unk_token="<unk>"), trainers.BpeTrainer(vocab_size=400, end_of_word_suffix="</w>", special_tokens=["<unk>"], show_progress=False), bert, pre_tokenizers.BertPreTokenizer())
    inner = train(models.BPE(continuing_subword_prefix="##", unk_token="<unk>"), trainers.BpeTrainer(vocab_size=400, continuing_subword_prefix="##", special_tokens=["<unk>"], show_progress=False), bert, pre_tokenizers.BertPreTokenizer())
    bert_json = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    cased = {**bert_json, "strip_accents": False, "lowercase": False}
    split_bert = {"type": "BertPreTokenizer"}
    around = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
              "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for i, t in enumerate(special)}}
    wp = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    clip_pattern = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    spaces = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
    lower = {"type": "Lowercase"}
    out = {
        "bert": whole(pieces, normalizer=bert_json, pre=split_bert, added=own, decoder=wp, post=around),
        "bert cased": whole(pieces, normalizer=cased, pre=split_bert, added=own, decoder={**wp, "cleanup": False}, post={"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}),
        "word pieces, no decoder": whole({**plain, "vocab": pieces["vocab"], "max_input_chars_per_word": 8}, normalizer=sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"}, lower), pre=sequence("pretokenizers", {"type": "WhitespaceSplit"}, {"type": "Digits", "individual_digits": True})),
        "words": whole(words, pre={"type": "Whitespace"}, added=own),
        "words in scripts": whole(words, pre=sequence("pretokenizers", {"type": "UnicodeScripts"}, {"type": "WhitespaceSplit"}), added=own, normalizer={"type": "Nmt"}),
        "unigram": whole(unigram, normalizer={"type": "NFKC"}, pre=metaspace("always", True), added=[token("<unk>", 0), token("</s>", 2)], decoder={"type": "Metaspace", "replacement": S, "prepend_scheme": "always", "split": True}),
        "unigram, charsmap": whole(unigram, normalizer=sequence("normalizers", charsmap(RULES), {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}), pre=metaspace("first", False), added=[token("<unk>", 0), token("</s>", 2)]),
        "unigram, bytes": whole(with_bytes, normalizer=sequence("normalizers", {"type": "Nmt"}, {"type": "NFKC"}), pre=metaspace("first", False), decoder=LLAMA_DECODER),
        # Sums of scores that differ in their last bit, as serde_json reads the scores.
        "unigram, ties": whole({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", -20.0], [S, -3.0]] + [["x" * k, -2.868705084669106 * k] for k in (1, 2, 3, 5, 7)], "byte_fallback": False}, pre=metaspace("first", False)),
        "clip": whole(clip, normalizer=sequence("normalizers", {"type": "NFC"}, spaces, lower), pre=sequence("pretokenizers", split(clip_pattern, "Removed", True), bytes_level()), decoder={"type": "BPEDecoder", "suffix": "</w>"}),
        "ends of words": whole(first, normalizer=bert_json, pre=split_bert, decoder={"type": "BPEDecoder", "suffix": "</w>"}),
        "ends of words, fused": whole({**first, "fuse_unk": True}, pre={"type": "WhitespaceSplit"}, decoder={"type": "BPEDecoder", "suffix": "</w>"}),
        "inner prefix": whole(inner, normalizer=bert_json, pre=split_bert, decoder=wp),
        "bytes before": whole({"type": "BPE", **alphabet}, normalizer=sequence("normalizers", lower, {"type": "ByteLevel"}), decoder=BYTES),
    }
    forms = {"Lowercase": lower, "StripAccents": {"type": "StripAccents"}, "Nmt": {"type": "Nmt"}, "Precompiled": charsmap(RULES), "BertNormalizer": bert_json, "BertNormalizer, cased": cased,
             "BertNormalizer, accents": {**bert_json, "clean_text": False, "strip_accents": True, "lowercase": False}, "UnicodeScripts": None}
    texts_of_bytes = {"type": "BPE", "dropout": None, "unk_token": None, **alphabet}
    for name, form in forms.items():
        # A space stands before each part, so the parts show.
        steps = [{"type": "UnicodeScripts"}] if form is None else []
        out["all: " + name] = whole(texts_of_bytes, normalizer=form, pre=sequence("pretokenizers", *steps, bytes_level(False, True)), decoder=BYTES)
    return {"alphabet": alphabet, "pieces": {"vocab": pieces["vocab"]}, "words": {"vocab": words["vocab"]}, "unigram": {"vocab": unigram["vocab"]}}, out


def main():
    common, files = cases()
    out = {}
    for name, data in files.items():
        made = Tokenizer.from_str(json.dumps(data))
        encoded = [made.encode(t, add_special_tokens=False).ids for t in ALL_TEXTS]
        if name.startswith("all: "):
            out[name] = {"ids": [None] * len(ALL_TEXTS), "special": None, "crc": checksum(made)}
        else:
            out[name] = {"ids": [" ".join(map(str, ids)) for ids in encoded], "special": " ".join(map(str, made.encode(ALL_TEXTS[0]).ids))}
            if name not in SHOWN_OTHERWISE:
                out[name]["decoded"] = [made.decode(ids, skip_special_tokens=False) for ids in encoded]
        out[name]["count"] = made.get_vocab_size()
        for key, model in common.items():
            if data["model"].get("vocab") == model["vocab"]:
                data["model"] = {k: key if k in ("vocab", "merges") else v for k, v in data["model"].items()}
        out[name]["file"] = data
    text = json.dumps({"texts": ALL_TEXTS, "common": common, "cases": out}, ensure_ascii=True, separators=(",", ":"))
    (OUT / "models.json").write_text(text.replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()
