#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""chat_test.py ENGINE: engine generate --chat with a small run: one message, files of conversations, a conversation on a
terminal, and what is refused."""
import json
import os
import pathlib
import pty
import subprocess
import sys
import tempfile
import termios
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENGINE = ""
CONFIG = """
[model]
plugin = "llama"
preset = "tiny"
num_hidden_layers = 1
hidden_size = 32
intermediate_size = 64
num_attention_heads = 2
max_position_embeddings = 256
[data]
paths = ["text.txt"]
validation = 0.0
[train]
steps = 60
micro_batch = 4
sequence_length = 32
[optimizer]
learning_rate = 1e-2
"""
TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")
GREEDY = ("--temperature", "0", "--tokens", "9", "--stop", "\n")


def message(role, content):
    return {"role": role, "content": content}


class Chat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        (cls.folder / "text.txt").write_text("".join("plan %d\n" % (k * 7919 % 1000) for k in range(2000)))
        (cls.folder / "config.toml").write_text(CONFIG)
        (cls.folder / "t.jinja").write_text(TEMPLATE)
        done = cls.engine("run", "config.toml", "--out", "run")
        assert done.returncode == 0, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @classmethod
    def engine(cls, *words, **more):
        return subprocess.run([ENGINE, *words], cwd=cls.folder, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env={**os.environ, "OMP_WAIT_POLICY": "passive"}, **more)

    def chat(self, *words, exit=0):
        done = self.engine("generate", "run", "--chat", "--chat-template", "t.jinja", *GREEDY, *words)
        self.assertEqual(done.returncode, exit, done.stderr)
        return done.stderr if exit else done.stdout

    def answers(self, rows, *words):
        (self.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return [json.loads(line) for line in self.chat("--prompts", "rows.jsonl", *words).splitlines()]

    def test_one_message(self):
        plain = self.engine("generate", "run", "<user>plan 1</><assistant>", *GREEDY)
        self.assertEqual(self.chat("plan 1"), plain.stdout)
        with_system = self.engine("generate", "run", "<system>Be.</><user>plan 1</><assistant>", *GREEDY, "--ids")
        done = self.engine("generate", "run", "--chat", "--chat-template", "t.jinja", "--system", "Be.", "plan 1", *GREEDY,
                           "--ids")
        self.assertEqual((done.stdout, done.stderr.splitlines()[0]),
                         (with_system.stdout, with_system.stderr.splitlines()[0]))

    def test_files_of_conversations(self):
        rows = [{"messages": [message("user", "plan 1"), message("assistant", "plan 2"), message("user", "3")], "id": 7},
                "plan 1", {"prompt": "plan 12345"}, {"conversations": [{"from": "human", "value": "plan 1"}]}]
        for batch in ("1", "4"):
            got = self.answers(rows, "--batch", batch)
            self.assertEqual([set(one) for one in got], [{"messages", "id", "text", "end"}, {"prompt", "text", "end"},
                                                         {"prompt", "text", "end"}, {"conversations", "text", "end"}])
            self.assertEqual(got[0]["messages"], rows[0]["messages"])
            texts = [one["text"] + "\n" for one in got]
            self.assertEqual(texts[0], self.engine("generate", "run", "<user>plan 1</><assistant>plan 2</><user>3</><assistant>",
                                                   *GREEDY).stdout)
            self.assertEqual(texts[1], self.chat("plan 1"))
            self.assertEqual(texts[2], self.chat("plan 12345"))
            self.assertEqual(texts[3], texts[1])

    def test_a_conversation_on_a_terminal(self):
        master, slave = pty.openpty()
        settings = termios.tcgetattr(slave)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        lines = ["plan 1", "", "more", "x" * 250, "again", "/new", "plan 1"]
        os.write(master, ("\n".join(lines) + "\n\x04").encode())
        child = subprocess.run([ENGINE, "generate", "run", "--chat", "--chat-template", "t.jinja", *GREEDY], cwd=self.folder,
                               stdin=slave, capture_output=True, text=True, timeout=120)
        os.close(slave)
        os.close(master)
        self.assertEqual(child.returncode, 0, child.stderr)
        said = child.stdout.split("\n")
        self.assertEqual(said[-2:], ["> ", ""], child.stdout)
        answers = [line.split("> ")[-1] for line in said[:-2]]
        self.assertEqual(len(answers), 4, child.stdout)
        history = [message("user", "plan 1")]
        self.assertEqual(answers[0] + "\n", self.chat("plan 1"))
        for question, answer in zip(("more", "again"), answers[1:]):
            history += [message("assistant", answers[len(history) // 2]), message("user", question)]
            self.assertEqual(self.answers([{"messages": history}])[0]["text"], answer)
        self.assertEqual(answers[3], answers[0])
        self.assertIn("conversation of up to 256 tokens", child.stderr)
        self.assertIn("leaves no room for an answer within 256", child.stderr)

    def test_the_template_of_the_data(self):
        """A run that was trained on chats has its template."""
        (self.folder / "chat.toml").write_text(CONFIG.replace('paths = ["text.txt"]', f'''plugin = "chat"
paths = ["{ROOT}/examples/chat/chats.jsonl"]
tokenizer = "{ROOT}/examples/chat/tokenizer"
too_long = "cut"
pack = true''').replace("steps = 60", "steps = 3").replace("sequence_length = 32", "sequence_length = 128")
                                               .replace("hidden_size = 32", "hidden_size = 32\nvocab_size = 640"))
        done = self.engine("run", "chat.toml", "--out", "chats")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.engine("generate", "chats", "--chat", "Hi", "--ids", *GREEDY)
        self.assertEqual(done.returncode, 0, done.stderr)
        plain = self.engine("generate", "chats", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "--ids", *GREEDY)
        self.assertEqual(done.stderr.splitlines()[0], plain.stderr.splitlines()[0])

    def test_what_is_refused(self):
        self.assertIn("prompt is required\nhelp: give a message", self.chat(exit=2))
        self.assertIn("run has no chat template", self.engine("generate", "run", "x", "--chat").stderr)
        self.assertIn("give --chat too", self.engine("generate", "run", "x", "--chat-template", "t.jinja").stderr)
        self.assertIn("there is no file", self.engine("generate", "run", "x", "--chat", "--chat-template", "no.jinja").stderr)
        for rows, words, text in (
                ([["a"]], (), "rows.jsonl:1 is neither a JSON text nor an object with `messages`"),
                (["a", {"messages": [message("user", "a"), message("assistant", "b")]}], (),
                 "prompt 2 of rows.jsonl: chat of plugin eng.data: the conversation ends with an answer"),
                ([{"messages": [message("system", "a"), message("user", "b")]}], ("--system", "c"), "and there is --system"),
                ([{"messages": [message("user", "a")], "tools": [{"type": "function"}]}], (), "no place for them"),
                ([{"messages": [message("user", "x" * 300)]}], (), "leaves no room")):
            (self.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            self.assertIn(text, self.chat("--prompts", "rows.jsonl", *words, exit=2))
        (self.folder / "drops.jinja").write_text("{% for m in messages if m.role == 'user' %}<{{ m.content }}>{% endfor %}")
        done = self.engine("generate", "run", "x", "--chat", "--chat-template", "drops.jinja", "--system", "s")
        self.assertIn('drops message 1, of the role "system"', done.stderr)
        (self.folder / "rows.jsonl").write_text(json.dumps({"messages": [message("user", "a")]}) + "\n")
        done = self.engine("generate", "run", "--prompts", "rows.jsonl")
        self.assertIn("give --chat for a file of conversations", done.stderr)


if __name__ == "__main__":
    ENGINE = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
