#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/chat-masks.svg: which tokens of a conversation train, and what packing puts side by side.

chat_masks.py [--check]    --check: says whether the file is what this script draws"""
import pathlib
import sys
import xml.sax.saxutils

FILE = pathlib.Path(__file__).with_name("chat-masks.svg")
STYLE = """<style>
  .page { fill: #ffffff; stroke: #d0d7de } text { fill: #1f2328; font: 14px system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif }
  .soft { fill: #59636e; font-size: 12px } .title { font-size: 16px; font-weight: 600 } .middle { text-anchor: middle }
  .code { font: 12px ui-monospace, Menlo, Consolas, monospace; text-anchor: middle }
  .read { fill: #eef1f4; stroke: #8c959f } .trained { fill: #abdfb7; stroke: #1a7f37 } .pad { fill: none; stroke: #8c959f; stroke-dasharray: 3 3 }
  .seen { fill: #c8d9ee; stroke: #2f6fbb } .arrow { stroke: #1a7f37; stroke-width: 1.5; fill: none }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d } text { fill: #f0f6fc } .soft { fill: #9198a1 }
    .read { fill: #21262d; stroke: #656c76 } .trained { fill: #1b4a28; stroke: #3fb950 } .seen { fill: #1d3350; stroke: #4f8ccf }
    .arrow { stroke: #3fb950 }
  }
</style>"""
WIDTH, LEFT = 820, 20
# A conversation in ChatML, token by token, and whether each trains. The space and the line break are drawn as signs.
TOKENS = [("<|im_start|>", 0), ("user", 0), ("↵", 0), ("What", 0), ("␣is", 0), ("␣2+2?", 0), ("<|im_end|>", 0), ("↵", 0),
          ("<|im_start|>", 0), ("assistant", 0), ("↵", 0), ("4", 1), ("<|im_end|>", 1), ("↵", 0)]
# A packed sample: the tokens of each conversation that are read and that train, in turn.
PACKED = [("A", [6, 4]), ("B", [4, 3, 3, 2]), ("C", [5, 3])]
SAMPLE = 34  # positions of the sample


class Picture:
    def __init__(self):
        self.parts = []

    def box(self, x, y, width, height, kind):
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" class="{kind}"/>')

    def text(self, x, y, words, kind=""):
        kind = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}"{kind}>{xml.sax.saxutils.escape(words)}</text>')

    def path(self, where, kind):
        self.parts.append(f'<path d="{where}" class="{kind}"/>')


def tokens(picture, y):
    """The conversation in two rows of boxes. Returns the bottom."""
    x = LEFT
    for index, (word, trains) in enumerate(TOKENS):
        if index == 8:
            x, y = LEFT, y + 46
        width = 14 + 7.3 * len(word)
        picture.box(x, y, width, 30, "trained" if trains else "read")
        picture.text(x + width / 2, y + 19, word, "code")
        if word == "<|im_end|>" and trains:
            picture.path(f"M {x + width / 2:g} {y + 52:g} v -16 m -4 5 l 4 -5 l 4 5", "arrow")
            picture.text(x + width / 2 + 10, y + 56, "the end of the turn trains, too: it teaches the model to stop", "soft")
        x += width + 4
    return y + 62


def sample(picture, y):
    """A packed sample, and which positions see which. Returns the bottom."""
    step = (WIDTH - 2 * LEFT) / SAMPLE
    x = LEFT
    for name, lengths in PACKED:
        whole = sum(lengths) * step
        picture.text(x + whole / 2, y - 6, f"conversation {name}, positions from 0", "soft middle")
        for index, length in enumerate(lengths):
            for _ in range(length):
                picture.box(x, y, step - 3, 22, "trained" if index % 2 else "read")
                x += step
    rest = LEFT + SAMPLE * step - x
    picture.text(x + rest / 2, y - 6, "padding", "soft middle")
    while x < LEFT + SAMPLE * step - 1:
        picture.box(x, y, step - 3, 22, "pad")
        x += step
    # The triangles of attention.
    x, top = LEFT, y + 36
    for name, lengths in PACKED:
        whole = sum(lengths) * step - 3
        picture.path(f"M {x:g} {top:g} v 54 h {whole:g} Z", "seen")
        picture.text(x + whole * 0.3, top + 44, f"{name} sees {name}", "soft")
        x += whole + 3
    return top + 54


def draw():
    picture = Picture()
    picture.text(LEFT, 34, "Which tokens train", "title")
    picture.box(LEFT, 50, 16, 14, "read")
    picture.text(LEFT + 24, 62, "is read: no label, no loss", "soft")
    picture.box(LEFT + 220, 50, 16, 14, "trained")
    picture.text(LEFT + 244, 62, "trains: the loss is the mean over all of these of a step", "soft")
    bottom = tokens(picture, 80)
    picture.text(LEFT, bottom + 30, "What packing does (pack = true)", "title")
    bottom = sample(picture, bottom + 62)
    picture.text(LEFT, bottom + 22, "One sample of sequence_length tokens. Attention, positions and the states of Mamba stay "
                 "inside a conversation.", "soft")
    height = bottom + 38
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}" '
            f'role="img" aria-labelledby="title">\n<title id="title">Which tokens of a conversation train, and what packing '
            f'does</title>\n{STYLE}\n<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="6" class="page"/>\n'
            + "\n".join(picture.parts) + "\n</svg>\n")


def main():
    if sys.argv[1:] == ["--check"]:
        if not FILE.is_file() or FILE.read_text() != draw():
            sys.exit(print(f"{FILE.name} is not what {pathlib.Path(__file__).name} draws") or 1)
        return
    FILE.write_text(draw())


main()
