#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/session/gguf/q8_0.json: blocks of GGUF's type q8_0, from NumPy.

    pip install numpy gguf
    python3 tools/goldens/gguf_blocks.py

A block is 32 elements x: d = max |x| / 127, stored as f16, and round(x / d) as signed bytes, halves away from zero; all
in f32, with x / d as x * (1 / d). The `gguf` package must give the same bytes. {"values": hexadecimal f32,
"blocks": hexadecimal}, both little-endian."""
import json
import pathlib

import numpy
from gguf.quants import GGMLQuantizationType, quantize

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/session/gguf/q8_0.json"


def blocks(values):
    rows = values.reshape(-1, 32).astype(numpy.float32)
    scale = numpy.abs(rows).max(axis=1, keepdims=True) / numpy.float32(127)
    inverse = numpy.where(scale == 0, numpy.float32(0), numpy.float32(1) / numpy.where(scale == 0, 1, scale))
    scaled = rows * inverse.astype(numpy.float32)
    whole = (numpy.sign(scaled) * numpy.floor(numpy.abs(scaled) + numpy.float32(0.5))).astype(numpy.int8)
    return b"".join(s.astype("<f2").tobytes() + w.tobytes() for s, w in zip(scale, whole))


def main():
    random = numpy.random.default_rng(7)
    parts = [numpy.zeros(32), numpy.linspace(-1, 1, 32), numpy.arange(-16, 16) * 127 / 16 + 0.5,
             numpy.full(32, -3e-6), *random.normal(0, 0.02, (40, 32)), *random.normal(0, 1e3, (8, 32))]
    values = numpy.concatenate(parts).astype("<f4")
    made = blocks(values)
    assert made == quantize(values, GGMLQuantizationType.Q8_0).tobytes()
    OUT.write_text(json.dumps({"values": values.tobytes().hex(), "blocks": made.hex()}) + "\n")


main()
