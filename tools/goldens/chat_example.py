#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes examples/chat/tokenizer: a small tokenizer for examples/chat/chats.jsonl, with the special tokens and the kind of
chat template that SmolLM2 has.

    pip install tokenizers
    python tools/goldens/chat_example.py"""
import json
import pathlib

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples/chat"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
            "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def main():
    rows = [json.loads(line) for line in (FOLDER / "chats.jsonl").read_text().splitlines()]
    texts = [message["role"] + "\n" + message["content"] for row in rows for message in row["messages"]]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=640, special_tokens=SPECIAL, show_progress=False,
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    out = FOLDER / "tokenizer"
    out.mkdir(exist_ok=True)
    (out / "tokenizer.json").write_text(made.to_str(pretty=False) + "\n")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIAL[1], "eos_token": SPECIAL[2],
                "model_max_length": 8192, "chat_template": TEMPLATE}
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    print(made.get_vocab_size())


main()
