#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The UMAP of plugins/curvature beside umap-learn: trustworthiness on scikit-learn's digits.

    tools/umappp-headers
    tools/dev build && ninja -C build benchmarks/umap/bench-umap
    python3 benchmarks/umap_trustworthiness.py [--seeds 5] [--neighbours 15] [--build build] [--out benchmarks/results/FILE.json]

Needs scikit-learn and umap-learn (PyPI). Both embed the 1797 digits of 64 pixels in the plane, with one thread, once for
each seed. umap-learn counts a point among its own neighbours, so it is given one more. Trustworthiness
(sklearn.manifold.trustworthiness) is 1 where near points of the embedding are near points of the data; PCA's, which a
build without UMAP falls back to, is given for comparison. The exit status is 1 if the median over the seeds lies more
than 0.02 below umap-learn's. The JSON object at the end is what benchmarks/results/ keeps.
"""
import argparse
import importlib.metadata
import json
import pathlib
import statistics
import subprocess
import time
import warnings

import numpy
import umap
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness

from cpu_step import HERE, cpu_name

ALLOWED = 0.02  # below umap-learn
COUNTS = (5, 15)  # of neighbours that trustworthiness looks at


def ours(program, points, neighbours, seed):
    done = subprocess.run([str(program), str(points.shape[1]), str(neighbours), str(seed)], input=points.tobytes(),
                          stdout=subprocess.PIPE, check=True)
    return numpy.frombuffer(done.stdout).reshape(-1, 2)


def theirs(points, neighbours, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that a seed means one thread
        return umap.UMAP(n_neighbors=neighbours + 1, random_state=seed).fit_transform(points)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--neighbours", type=int, default=15)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--out", type=pathlib.Path, help="also write the JSON object here")
    args = parser.parse_args()
    program = args.build / "benchmarks/umap/bench-umap"
    if not program.exists():
        raise SystemExit(f"{program} is not built: ninja -C {args.build} benchmarks/umap/bench-umap")
    points = numpy.ascontiguousarray(load_digits().data, dtype=numpy.float64)
    sides = {"engine": lambda seed: ours(program, points, args.neighbours, seed),
             "umap-learn": lambda seed: theirs(points, args.neighbours, seed)}
    out = {"cpu": cpu_name(), "points": len(points), "columns": points.shape[1], "neighbours": args.neighbours,
           "versions": {name: importlib.metadata.version(name) for name in ("scikit-learn", "umap-learn", "numpy")}}
    theirs(points[:200], args.neighbours, 0)  # compiles umap-learn
    for side, embed in sides.items():
        found = {"seconds": [], **{f"trustworthiness_{k}": [] for k in COUNTS}}
        for seed in range(1, args.seeds + 1):
            begin = time.perf_counter()
            embedded = embed(seed)
            found["seconds"].append(round(time.perf_counter() - begin, 2))
            for k in COUNTS:
                found[f"trustworthiness_{k}"].append(round(float(trustworthiness(points, embedded, n_neighbors=k)), 5))
        out[side] = found
    flat = PCA(2).fit_transform(points)
    out["pca"] = {f"trustworthiness_{k}": round(float(trustworthiness(points, flat, n_neighbors=k)), 5) for k in COUNTS}
    failed = False
    for k in COUNTS:
        name = f"trustworthiness_{k}"
        here, there = (statistics.median(out[side][name]) for side in sides)
        out[f"below_{k}"] = round(there - here, 5)
        failed |= there - here > ALLOWED
        print(f"{k:2} neighbours  engine {here:.4f}   umap-learn {there:.4f}   PCA {out['pca'][name]:.4f}   "
              f"below umap-learn by {there - here:+.4f}, allowed {ALLOWED}")
    text = json.dumps(out)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")
    raise SystemExit(int(failed))


if __name__ == "__main__":
    main()
