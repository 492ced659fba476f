# SPDX-License-Identifier: Apache-2.0
"""Matrix products of another library, one for each line of the input, as benchmarks/kernels/products.cpp answers them.

python products_peer.py mkl|onednn|openblas   mkl: PyTorch's products (of 16 bits they are oneDNN's); onednn: oneDNN's
through PyTorch; openblas: NumPy's, whose wheels bring it. With OMP_NUM_THREADS=1 it measures processor time.
"""
import json
import os
import sys
import time


def openblas():
    import numpy
    random = numpy.random.default_rng(1)

    def make(kind, _, m, n, k):
        a = lambda rows, columns: random.random((rows, columns), dtype=numpy.float32) - 0.5
        if kind == "forward":
            x, w, out = a(m, k), a(n, k), numpy.empty((m, n), numpy.float32)
            return lambda: numpy.matmul(x, w.T, out=out)
        if kind == "dx":
            y, w, out = a(m, n), a(n, k), numpy.empty((m, k), numpy.float32)
            return lambda: numpy.matmul(y, w, out=out)
        y, x, out = a(m, n), a(m, k), numpy.empty((n, k), numpy.float32)
        return lambda: numpy.matmul(y.T, x, out=out)

    return "NumPy " + numpy.__version__, make


def pytorch(onednn):
    import torch
    torch.manual_seed(1)
    types = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}

    def make(kind, dtype, m, n, k):
        a = lambda rows, columns: (torch.rand(rows, columns) - 0.5).to(types[dtype])
        if kind == "forward":
            left, right = a(m, k), a(n, k).t()
        elif kind == "dx":
            left, right = a(m, n), a(n, k)
        else:
            left, right = a(m, n).t(), a(m, k)
        if onednn:
            return lambda: torch.ops.mkldnn._linear_pointwise(left, right.t(), None, "none", [], "")
        out = torch.empty(left.shape[0], right.shape[1], dtype=types[dtype])
        return lambda: torch.mm(left, right, out=out)

    return "PyTorch " + torch.__version__, make


def main():
    name, make = openblas() if sys.argv[1] == "openblas" else pytorch(sys.argv[1] == "onednn")
    print(json.dumps(name), flush=True)
    last, product = None, None
    now = time.process_time if os.environ.get("OMP_NUM_THREADS") == "1" else time.perf_counter
    for line in sys.stdin:
        *key, count = line.split()
        if key != last:
            product = make(key[0], key[1], *map(int, key[2:]))
            product()
            last = key
        start = now()
        for _ in range(int(count)):
            product()
        print(f"{(now() - start) / int(count):.9f}", flush=True)


if __name__ == "__main__":
    main()
