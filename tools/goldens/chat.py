#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/cli/chat.json: chat templates as they are commonly shipped, and their output by Jinja, configured as in
transformers.

    pip install jinja2
    python tools/goldens/chat.py"""
import json
import pathlib

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/cli/chat.json"
MESSAGE = "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
START = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
EACH = "{% for message in messages %}"
LLAMA3 = ("{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
          "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
          "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}")
ALTERNATE = ("{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must "
             "alternate user/assistant/user/assistant/...') }}{% endif %}")
TEMPLATES = {
    "chatml": EACH + MESSAGE + START,
    "chatml, older": "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}" +
                     EACH + MESSAGE + START,
    "smollm2": EACH + "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI "
               "assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}" + MESSAGE + START,
    "zephyr": "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + "
              "eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
              "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n"
              "{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    "llama3": LLAMA3 + "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "llama3, first": LLAMA3 + "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}",
    "mistral": "{{ bos_token }}{% for message in messages %}" + ALTERNATE + "{% if message['role'] == 'user' %}{{ '[INST] ' + "
               "message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}"
               "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}",
    "llama2": "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = "
              "messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
              "{% for message in loop_messages %}" + ALTERNATE + "{% if loop.index0 == 0 and system_message != false %}"
              "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set "
              "content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + "
              "content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + "
              "eos_token }}{% endif %}{% endfor %}",
}


def refuse(text):
    raise TemplateError(text)


def main():
    jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    jinja.globals["raise_exception"] = refuse
    system, user, out = " Be \"short\". ", "  What's 1 {{ + }} 1?\n", []
    for name, text in TEMPLATES.items():
        rendered = []
        for messages in ([], [{"role": "system", "content": system}]):
            try:
                rendered.append(jinja.from_string(text).render(
                    messages=messages + [{"role": "user", "content": user}], bos_token="<s>", eos_token="</s>",
                    add_generation_prompt=True))
            except TemplateError:
                rendered.append(None)
        out.append({"name": name, "template": text, "user": rendered[0], "system": rendered[1]})
    OUT.write_text(json.dumps({"system": system, "message": user, "templates": out}, indent=1) + "\n")


if __name__ == "__main__":
    main()
