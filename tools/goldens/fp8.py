#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/kernels/golden/fp8.bin: values rounded to e4m3 and e5m2, and a linear map with its gradients in them;
and fp8_delayed.bin beside it: the same map over some steps, with scales from the steps before.

The rounding is that of ml_dtypes (float8_e4m3fn, float8_e5m2), scales and products are those of engine/ops_fp8.h in plain
NumPy. Needs numpy and ml_dtypes; made with 2.3.5 and 0.6.0.

All numbers are little-endian f32, but for the sizes, i32:
  n; x (n); e4m3 (n); e5m2 (n)                      single values, finite ones too large becoming the largest
  count, then for each tensor n, margin, x (n), e4m3 n, Q (n), e5m2 n, Q (n)
  M, K, N, margin; x (M, K), w (N, K), bias (N), dy (M, N); y (M, N), dx (M, K), dw (N, K), dbias (N), and dx, dw with
  gradients in e4m3
fp8_delayed.bin:
  count, then for each case: H, recent, margin, gradients (4 or 5, the bits of the exponent), steps, micro-batches, M, K, N;
  for each step: for each micro-batch x (M, K), w (N, K), dy (M, N), y (M, N), dx (M, K), dw (N, K);
  then for each of x, w, dy: the scale of the next step (0: none), the largest values of the last H steps, latest first
"""
import pathlib
import struct

import ml_dtypes
import numpy as np

FORMATS = {"e4m3": (ml_dtypes.float8_e4m3fn, 448.0), "e5m2": (ml_dtypes.float8_e5m2, 57344.0)}
F32 = np.float32


def to_format(x, name):
    """The values of a format that are nearest to finite f32 values, as f32."""
    dtype, most = FORMATS[name]
    with np.errstate(over="ignore"):
        return np.clip(x, F32(-most), F32(most)).astype(dtype).astype(F32)


def exponent(x, name, margin):
    """By trying: the largest n with which the largest value times 2^n is in the format, less the margin."""
    finite = np.abs(x[np.isfinite(x)]).astype(np.float64)
    largest = finite.max() if finite.size else 0.0
    if largest == 0:
        return 0
    n = max(n for n in range(-200, 200) if largest * 2.0**n <= FORMATS[name][1]) - margin
    return min(max(n, -120), 100)


def quantised(x, name, margin=0):
    """(n, Q(x)); the division by 2^n is exact, or ends in f32's own range."""
    n = exponent(x, name, margin)
    return n, np.ldexp(to_format(np.ldexp(x, n).astype(F32), name).astype(np.float64), -n)


class Delayed:
    """A tensor's history: the largest values of past steps decide about the scale of the next one."""

    def __init__(self, name, history, recent, margin):
        self.name, self.recent, self.margin = name, recent, margin
        self.past, self.now = [0.0] * history, 0.0

    def exponent(self):
        """n of the next step, or None without a history."""
        decides = self.past[0] if self.recent else max(self.past)
        return exponent(np.array([decides]), self.name, self.margin) if decides > 0 else None

    def quantised(self, x):
        n = self.exponent()
        finite = np.abs(x[np.isfinite(x)])
        self.now = max(self.now, float(finite.max()) if finite.size else 0.0)
        if n is None:
            return quantised(x, self.name, self.margin)[1]
        scaled = np.ldexp(x.astype(np.float64), n)
        return np.ldexp(to_format(np.clip(scaled, -1e9, 1e9).astype(F32), self.name).astype(np.float64), -n)

    def end_step(self):
        self.past, self.now = [self.now] + self.past[:-1], 0.0


def delayed_case(rng, history, recent, margin, gradients, steps=6, batches=2, m=4, k=16, n=8):
    tensors = [Delayed(name, history, recent, margin) for name in ("e4m3", "e4m3", gradients)]
    parts = [struct.pack("<9i", history, recent, margin, 4 if gradients == "e4m3" else 5, steps, batches, m, k, n)]
    for step in range(steps):
        w = (0.05 * 1.3**step * rng.standard_normal((n, k))).astype(F32)  # grows: saturates
        for _ in range(batches):
            x = (rng.standard_normal((m, k)) * 2.0 ** rng.integers(-3, 4)).astype(F32)
            dy = (1e-5 * 3.0 ** (-step) * rng.standard_normal((m, n))).astype(F32)  # shrinks
            if step == 1:
                dy[:] = 0  # a step without gradients
            if step == 4:
                x[0, 0] = 1e30  # an outlier beyond every scale so far
            qx, qw, qdy = (t.quantised(v) for t, v in zip(tensors, (x, w, dy)))
            parts += [f32(x), f32(w), f32(dy), f32(qx @ qw.T), f32(qdy @ qw), f32(qdy.T @ qx)]
        for t in tensors:
            t.end_step()
            parts.append(f32([2.0 ** t.exponent() if t.exponent() is not None else 0.0] + t.past))
    return parts


def neighbourhoods():
    """Each value of both formats, the middle between it and the next one, and what lies beside them in f32."""
    out = []
    for dtype, most in FORMATS.values():
        values = np.arange(256, dtype=np.uint8).view(dtype).astype(F32)
        values = np.unique(values[np.isfinite(values)])
        middle = (values[1:] + values[:-1]) / 2
        for x in (values, middle):
            out += [x, np.nextafter(x, F32(np.inf)), np.nextafter(x, F32(-np.inf))]
        out.append(np.array([most * s for s in (1.01, 1.0714, 1.0715, 1.1, 2.0, 1e20, -1e20)], F32))
    out.append(np.array([0.0, -0.0, 2.0**-149, 2.0**-126, 2.0**-10, 2.0**-17, 3.4e38, -3.4e38], F32))
    rng = np.random.default_rng(3)
    out.append((rng.standard_normal(1000) * 2.0 ** rng.integers(-20, 18, 1000)).astype(F32))
    return np.concatenate(out)


def f32(x):
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(x, F32).tobytes()


def main():
    parts = []
    x = neighbourhoods()
    assert np.array_equal(to_format(x[np.abs(x) <= 448], "e4m3"),
                          x[np.abs(x) <= 448].astype(ml_dtypes.float8_e4m3fn).astype(F32))
    parts += [struct.pack("<i", x.size), f32(x), f32(to_format(x, "e4m3")), f32(to_format(x, "e5m2"))]

    rng = np.random.default_rng(4)
    tensors = [(np.zeros(48, F32), 0)]
    for scale in (2.0**-140, 2.0**-100, 1e-12, 1e-3, 1.0, 447.0, 1e6, 1e30):
        for margin in (0, 3):
            tensors.append(((rng.standard_normal(48) * scale).astype(F32), margin))
    # The largest value alone decides: just in the format, and just beyond it.
    for largest in (448.0, np.nextafter(F32(448), F32(449)), 57344.0, 1.75, np.nextafter(F32(1.75), F32(2))):
        tensors.append((np.array([largest] + [1.0, 0.3, -0.01, 1e-9] * 4, F32), 0))
    odd = rng.standard_normal(48).astype(F32)
    odd[[3, 17]] = np.inf, -np.inf  # the scale does not depend on them
    tensors.append((odd, 0))
    parts.append(struct.pack("<i", len(tensors)))
    for t, margin in tensors:
        parts += [struct.pack("<ii", t.size, margin), f32(t)]
        for name in FORMATS:
            with np.errstate(invalid="ignore"):
                n, q = quantised(np.where(np.isfinite(t), t, F32(0)), name, margin)
            q = np.where(np.isfinite(t), q, np.nan if name == "e4m3" else t)
            parts += [struct.pack("<i", n), f32(q)]

    m, k, n, margin = 6, 32, 48, 1
    x, w = rng.standard_normal((m, k)).astype(F32), (0.05 * rng.standard_normal((n, k))).astype(F32)
    bias, dy = rng.standard_normal(n).astype(F32), (1e-4 * rng.standard_normal((m, n))).astype(F32)
    qx, qw, qdy = (quantised(t, f, margin)[1] for t, f in ((x, "e4m3"), (w, "e4m3"), (dy, "e5m2")))
    other = quantised(dy, "e4m3", margin)[1]
    y = qx @ qw.T + bias.astype(np.float64)
    parts += [struct.pack("<4i", m, k, n, margin), f32(x), f32(w), f32(bias), f32(dy), f32(y), f32(qdy @ qw),
              f32(qdy.T @ qx), f32(dy.astype(np.float64).sum(0)), f32(other @ qw), f32(other.T @ qx)]
    folder = pathlib.Path(__file__).resolve().parents[2] / "tests/kernels/golden"
    (folder / "fp8.bin").write_bytes(b"".join(parts))

    cases = ((4, 0, 0, "e5m2"), (3, 1, 0, "e5m2"), (1, 0, 2, "e4m3"))
    delayed = [part for case in cases for part in delayed_case(np.random.default_rng(5), *case)]
    (folder / "fp8_delayed.bin").write_bytes(struct.pack("<i", len(cases)) + b"".join(delayed))


if __name__ == "__main__":
    main()
