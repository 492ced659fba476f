#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/kernels/golden/packed.bin: two chunks of 4,096 values in nf4, int8, e4m3 and nf4_double, as
engine/packed.h lays them out.

nf4 is that of bitsandbytes (quantize_4bit, blocks of 64), and the rounding to e4m3 that of torch. Both are compared
with plain NumPy first. The scales of nf4_double are this engine's own; of normal values they must be nearer to the exact
ones than those that bitsandbytes quantises twice (compress_statistics). Needs numpy, torch and bitsandbytes; made with 2.4.6, 2.15.0 and 0.50.2, on the CPU.
"""
import pathlib

import bitsandbytes.functional as bnb
import numpy as np
import torch

BLOCK, CHUNK = 64, 4096
NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
                -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
                0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
                0.7229568362236023, 1.0], np.float32)


def values(n):
    """The numbers that packed_exact.cpp makes, too: products of an integer and powers of two, each rounded once."""
    state, out = 12345, np.empty(n, np.float32)
    for k in range(n):
        state = (state * 1664525 + 1013904223) % 2**32
        x = np.float32(np.float32(state - 2**32 if state >= 2**31 else state) * np.float32(2.0**-31))
        cube = np.float32(np.float32(x * x) * x)
        out[k] = cube * np.float32(2.0 ** (k // BLOCK % 7 - 3))
    out[5 * BLOCK:6 * BLOCK] = 0
    out[8 * BLOCK:9 * BLOCK] = np.tile(NF4, 4)
    return out


def chunks(codes, scales, bytes_of_chunk):
    return b"".join(codes[k * bytes_of_chunk:(k + 1) * bytes_of_chunk].tobytes() +
                    scales[k * 64:(k + 1) * 64].tobytes() for k in range(len(scales) // 64))


x = values(2 * CHUNK)
blocks = x.reshape(-1, BLOCK)
scales = np.abs(blocks).max(1)
inverse = np.divide(np.float32(1), scales, where=scales > 0, out=np.zeros_like(scales))
scaled = (blocks * inverse[:, None]).clip(-1, 1).reshape(-1)

codes = np.searchsorted((NF4[:-1] + NF4[1:]) / 2, scaled, side="left").astype(np.uint8)
nf4 = codes[::2] << 4 | codes[1::2]
theirs, state = bnb.quantize_4bit(torch.from_numpy(x), blocksize=BLOCK, quant_type="nf4")
assert np.array_equal(theirs.numpy().reshape(-1), nf4) and np.array_equal(state.absmax.numpy(), scales)
assert np.array_equal(state.code.numpy(), NF4)

int8 = np.rint(scaled * np.float32(127)).astype(np.int8).view(np.uint8)

size = np.arange(127)
e4m3_values = np.where(size < 8, size * 2.0**-9, (8 + size % 8) * 2.0**(size // 8 - 10))
target = np.abs(scaled * np.float32(448)).astype(np.float64)
above = np.searchsorted(e4m3_values, target).clip(1, 126)
low, high = target - e4m3_values[above - 1], e4m3_values[above] - target
near = np.where((low < high) | ((low == high) & (above % 2 == 1)), above - 1, above)
e4m3 = (near | np.where(np.signbit(scaled), 128, 0)).astype(np.uint8)
theirs = torch.from_numpy(scaled * np.float32(448)).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
assert np.array_equal(theirs, e4m3)



def eight_bits(scales):
    """(codes, largest scale of each chunk, decoded scales)."""
    of_chunks = scales.reshape(-1, CHUNK // BLOCK)
    top = of_chunks.max(1)
    codes = np.rint(of_chunks / top[:, None] * np.float32(255)).astype(np.uint8)
    return codes, top, (top[:, None] * (codes / np.float32(255))).reshape(-1)


normal = np.random.default_rng(1).standard_normal(64 * CHUNK).astype(np.float32)
_, state = bnb.quantize_4bit(torch.from_numpy(normal), blocksize=BLOCK, quant_type="nf4", compress_statistics=True)
nested = (bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset).numpy()
exact = np.abs(normal.reshape(-1, BLOCK)).max(1)
assert np.abs(eight_bits(exact)[2] - exact).mean() < np.abs(nested - exact).mean()
scale_codes, top, _ = eight_bits(scales)
assert scale_codes[scales.reshape(scale_codes.shape) > 0].all()  # no block but that of zeros is rounded to zeros
double = b"".join(nf4[k * CHUNK // 2:(k + 1) * CHUNK // 2].tobytes() + scale_codes[k].tobytes() + top[k].tobytes()
                  for k in range(len(top)))

(pathlib.Path(__file__).resolve().parents[2] / "tests/kernels/golden/packed.bin").write_bytes(
    chunks(nf4, scales, CHUNK // 2) + chunks(int8, scales, CHUNK) + chunks(e4m3, scales, CHUNK) +
    double)
