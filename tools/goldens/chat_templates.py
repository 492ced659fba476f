#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the goldens of chat data: expressions of templates and their text by Jinja as transformers sets it up
(tests/data/golden/jinja.json), and, for each template of tests/data/golden/chat/, ids and mask of many random
conversations by transformers' apply_chat_template (results.json; the conversations are beside it), and the ids of the same
conversations without their last answer, up to where it begins (prompts.json).

    pip install transformers jinja2 tokenizers
    python tools/goldens/chat_templates.py [CONVERSATIONS]      200 are committed; the tests read as many as there are

The templates are written after the public behaviour of the models that they are named for. In each, {% generation %}
stands around what an answer consists of; transformers makes the mask of it. Without these tags a template gives the same
text, which is checked here, so the mask is also the right one for the template without them."""
import json
import pathlib
import random
import re
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import _compile_jinja_template

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/data/golden"
CHAT = GOLDEN / "chat"
CONVERSATIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
MARKS = re.compile(r"\{% (?:end)?generation %\}")
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
           "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]",
           "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<｜User｜>",
           "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<think>", "</think>", "<tool_call>", "</tool_call>",
           "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<|end_of_turn|>"]
WORDS = ("the a of and is it what how why answer question number three four plus seven sun moon water house Grüße naïve café "
         "東京 こんにちは 😀 1234 56.7 x=y {brace} <b>bold</b> \"quoted\" it's back\\slash snake_case CamelCase").split()

VARIABLES = {
    "messages": [{"role": "system", "content": " Be <b> "}, {"role": "user", "content": "Grüße 'x' \"y\"\n\tü\u200b😀"},
                 {"role": "assistant", "content": "ok", "tool_calls": [{"function": {"name": "f", "arguments": {
                     "a": 1, "b": [1.5, None, True, 1e20, 1e-7, 100000.0, 0.1]}}}]}],
    "n": 5, "f": 2.5, "none": None, "empty": [], "d": {"b": 1, "A": 2, "c": {"z": [1, 2, 3], "y": "q"}},
    "s": "Hello world foo-bar (baz)", "lines": "a\nb\n\nc"}
# Templates, one a line; a line end inside of one is written \n, a backslash \\.
EXPRESSIONS = (pathlib.Path(__file__).with_name("jinja_expressions.txt")).read_text().splitlines()


def rendered(text, variables):
    template, blocks, spans = _compile_jinja_template(text), [], []
    with template.environment.activate_tracker(blocks, spans):
        for block in template.generate(**variables):
            blocks.append(block)
    return "".join(blocks), spans


def expressions():
    out = []
    for line in EXPRESSIONS:
        if not line or line.startswith("##"):
            continue
        text = re.sub(r"\\([nrt\\])", lambda m: {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}[m[1]], line)
        try:
            got, spans = rendered(text, VARIABLES)
            out.append({"template": text, "text": got, "spans": [[len(got[:k].encode()) for k in s] for s in spans]})
        except Exception as error:  # of any kind: ours must fail as well
            out.append({"template": text, "error": type(error).__name__})
    (GOLDEN / "jinja.json").write_text(json.dumps({"variables": VARIABLES, "cases": out}, ensure_ascii=False, indent=0) + "\n")
    print(len(out), "expressions,", sum("error" in one for one in out), "of them errors")


def text_of(draw):
    words = [draw.choice(WORDS) for _ in range(draw.randint(1, 9))]
    text = draw.choice([" ", " ", " ", "\n", "  "]).join(words)
    return draw.choice(["", "", "", " ", "\n"]) + text + draw.choice(["", "", "", ".", " ", "\n\n"])


def conversation(draw):
    row, messages = {}, []
    if draw.random() < 0.4:
        messages.append({"role": "system", "content": text_of(draw)})
    tools = draw.random() < 0.25
    if tools:
        row["tools"] = [{"type": "function", "function": {
            "name": draw.choice(["weather", "add"]), "description": text_of(draw).replace("\n", " "),
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "number"}},
                           "required": ["city"]}}} for _ in range(draw.randint(1, 2))]
    for _ in range(draw.randint(1, 4)):
        messages.append({"role": "user", "content": text_of(draw)})
        if tools and draw.random() < 0.6:
            call = {"id": "call%05d" % draw.randint(0, 99999), "type": "function", "function": {
                "name": "weather", "arguments": {"city": draw.choice(WORDS), "n": draw.choice([1, 2.5, True])}}}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            messages.append({"role": "tool", "name": "weather", "tool_call_id": call["id"], "content": text_of(draw)})
        answer = text_of(draw)
        if draw.random() < 0.15:
            answer = "<think>\n" + text_of(draw) + "\n</think>\n\n" + answer
        messages.append({"role": "assistant", "content": answer})
    return {"messages": messages, **row}


def tokenizer():
    draw = random.Random(2)
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator([text_of(draw) + " user assistant system" for _ in range(400)], trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    made.add_special_tokens(SPECIAL)
    made.save(str(CHAT / "tokenizer.json"), pretty=False)
    (CHAT / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}) + "\n")
    return PreTrainedTokenizerFast.from_pretrained(CHAT)


def fnv(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001b3) % 2**64
    return "%08x" % (value >> 32)


def prompts(tok):
    out = {}
    rows = [json.loads(line) for line in (CHAT / "conversations.jsonl").read_text().splitlines()]
    for path in sorted(CHAT.glob("*.jinja")):
        template, hashes = path.read_text(), []
        for row in rows:
            try:
                got = tok.apply_chat_template(conversation=row["messages"][:-1], tools=row.get("tools"), chat_template=template,
                                              add_generation_prompt=True, return_dict=True)
                hashes.append(fnv(" ".join(map(str, got["input_ids"])).encode()))
            except Exception:
                hashes.append("-")
        print(path.stem, len(hashes) - hashes.count("-"), "prompts")
        out[path.stem] = hashes
    (CHAT / "prompts.json").write_text(json.dumps(out, indent=0).replace(",\n", ",").replace("],", "],\n") + "\n")


def main():
    expressions()
    draw, tok, out = random.Random(1), tokenizer(), {}
    rows = [conversation(draw) for _ in range(CONVERSATIONS)]
    (CHAT / "conversations.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    for path in sorted(CHAT.glob("*.jinja")):
        template, hashes = path.read_text(), []
        plain = MARKS.sub("", template)
        for row in rows:
            given = {"conversation": row["messages"], "tools": row.get("tools")}
            try:
                text = tok.apply_chat_template(**given, chat_template=template, tokenize=False)
            except Exception:
                hashes.append("-")
                continue
            assert text == tok.apply_chat_template(**given, chat_template=plain, tokenize=False), path.name
            got = tok.apply_chat_template(**given, chat_template=template, return_assistant_tokens_mask=True, return_dict=True)
            ids, mask = got["input_ids"], got["assistant_masks"]
            hashes.append(fnv(" ".join(f"{i}{'+' * m}" for i, m in zip(ids, mask)).encode()))
        print(path.stem, len(hashes) - hashes.count("-"), "conversations")
        out[path.stem] = hashes
    (CHAT / "results.json").write_text(json.dumps(out, indent=0).replace(",\n", ",").replace("],", "],\n") + "\n")
    prompts(tok)


if __name__ == "__main__":
    main()
