#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the goldens of the mathematics of plugins/curvature by SciPy, NumPy and scikit-learn.

  python3 tools/goldens/curvature.py [OUT_DIR]      needs scipy, scikit-learn; writes statistics.json, clusters.json
                                                    and components.json

Inputs are random draws of a fixed seed, rounded to four digits, and iris. Numbers are written so that they read back as
the same f64. Where scikit-learn computes distances by the expansion |x|^2 - 2 xy + |y|^2, which cancels (silhouettes,
trustworthiness), it is given those of SciPy's cdist instead.
"""
import json
import pathlib
import platform
import sys

import numpy
import scipy
import sklearn
from scipy import stats
from scipy.spatial.distance import cdist
from sklearn import datasets
from sklearn.cluster import DBSCAN
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness
from sklearn.metrics import roc_auc_score, silhouette_samples, silhouette_score
from sklearn.preprocessing import StandardScaler

HERE = pathlib.Path(__file__).resolve().parents[2] / "tests" / "curvature" / "golden"


def flat(array):
    return numpy.asarray(array).ravel().tolist()


def t_quantiles():
    places = [1e-9, 1e-6, 5e-4, 0.005, 0.025, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.975, 0.995, 0.9995, 1 - 1e-6]
    return [{"probability": p, "degrees": d, "t": float(stats.t.ppf(p, d))}
            for d in (0.5, 1, 2, 3, 4, 5.5, 7, 15, 31, 63, 255, 1e4, 1e8) for p in places]


def intervals(draw):
    cases = []
    for n, offset, scale in ((2, 0, 1), (5, 3, 0.1), (32, -1e6, 2), (500, 1e3, 1e-3)):
        samples = numpy.round(offset + scale * draw.standard_normal(n), 6)
        for level in (0.5, 0.9, 0.95, 0.999):
            low, high = stats.t.interval(level, n - 1, loc=samples.mean(), scale=stats.sem(samples))
            cases.append({"samples": flat(samples), "level": level, "mean": samples.mean(), "low": low, "high": high,
                          "variance": samples.var(ddof=1)})
    return cases


def quantile_cases(draw):
    cases = []
    places = [0, 0.001, 0.1, 0.25, 1 / 3, 0.5, 0.6, 0.75, 0.9, 0.99, 1]
    for n in (1, 2, 3, 10, 101):
        values = numpy.round(draw.standard_normal(n) * 10, 1 if n == 101 else 4)  # with ties
        cases.append({"values": flat(values), "at": places, "quantiles": flat(numpy.quantile(values, places))})
    return cases


def auc_cases(draw):
    cases = []
    for positives, negatives, shift, digits in ((1, 1, 0, 4), (30, 50, 0.5, 4), (40, 40, 1, 0), (7, 60, -1, 1), (5, 5, 90, 2)):
        p, q = (numpy.round(draw.standard_normal(n) + s, digits) for n, s in ((positives, shift), (negatives, 0)))
        area = roc_auc_score([1] * positives + [0] * negatives, numpy.concatenate([p, q]))
        cases.append({"positives": flat(p), "negatives": flat(q), "auc": float(area)})
    return cases


def blobs(draw, sizes, d, spread):
    centres = draw.uniform(-4, 4, (len(sizes), d))
    points = numpy.concatenate([c + spread * draw.standard_normal((n, d)) for c, n in zip(centres, sizes)])
    return numpy.round(draw.permutation(points), 4)


def clouds(draw):
    """name: (points, [(eps, min_samples)])"""
    moons = numpy.round(datasets.make_moons(90, noise=0.06, random_state=3)[0], 4)
    lattice = numpy.array([(x, y) for x in range(6) for y in range(5) if (x * 7 + y * 3) % 5], float)
    twice = numpy.repeat(blobs(draw, (8, 8), 2, 0.4), 3, axis=0)
    return {
        "blobs": (blobs(draw, (40, 30, 25), 2, 0.6), [(0.4, 4), (0.7, 5), (2.5, 3), (0.01, 2), (0.5, 1)]),
        "blobs4": (blobs(draw, (30, 30, 30), 4, 0.5), [(0.8, 5), (1.2, 8)]),
        "moons": (moons, [(0.25, 4), (0.2, 3), (0.15, 6)]),
        "lattice": (lattice, [(1.0, 3), (1.0, 4), (2 ** 0.5, 6), (0.5, 2)]),  # distances equal to eps
        "twice": (twice, [(0.3, 4), (1e-9, 3), (1e-9, 4)]),
        "line": (numpy.round(draw.standard_normal((40, 1)), 3), [(0.05, 3), (0.2, 4)]),
        "iris": (datasets.load_iris().data, [(0.5, 5), (0.42, 5), (0.8, 10)]),
    }


def silhouette_case(points, labels, counted):
    """scikit-learn's results for the points that count; null where it refuses."""
    kept = points[counted], labels[counted]
    clusters = len(set(kept[1]))
    if not 2 <= clusters < len(kept[1]):
        return None
    far = cdist(kept[0], kept[0])
    samples, plain = silhouette_samples(far, kept[1], metric="precomputed"), silhouette_samples(*kept)
    print(f"  silhouette: {numpy.abs(samples - plain).max():.1e} apart from the expansion's")
    return {"mean": float(silhouette_score(far, kept[1], metric="precomputed")), "samples": flat(samples)}


def clusters(draw):
    cases = []
    for name, (points, settings) in clouds(draw).items():
        case = {"name": name, "columns": points.shape[1], "points": flat(points), "runs": []}
        for eps, min_samples in settings:
            labels = DBSCAN(eps=eps, min_samples=min_samples).fit(points).labels_
            print(f"{name} {eps} {min_samples}: {labels.max() + 1} clusters, {(labels < 0).sum()} noise of {len(labels)}")
            case["runs"].append({"eps": eps, "min_samples": min_samples, "labels": flat(labels),
                                 "a_cluster": silhouette_case(points, labels, labels > -2),
                                 "left_out": silhouette_case(points, labels, labels >= 0)})
        cases.append(case)
    return cases


def trustworthinesses(name, points, embedded):
    """By number of neighbours. Not of iris: among equal distances, scikit-learn's order is not defined."""
    return {} if name == "iris" else {
        str(k): float(trustworthiness(cdist(points, points), embedded, n_neighbors=k, metric="precomputed"))
        for k in (1, 2, 5, 9) if 2 * k < len(points)}


def components(draw):
    cases = []
    shapes = {"normal": draw.standard_normal((50, 4)) @ draw.standard_normal((4, 4)) + 3,
              "wide": draw.standard_normal((6, 20)), "far": draw.standard_normal((30, 3)) * [1, 5, 0.1] + 1000,
              "flat": draw.standard_normal((20, 2)) @ draw.standard_normal((2, 5)), "constant column": draw.uniform(size=(25, 3)) * [1, 0, 1] + 2,
              "scales": draw.standard_normal((40, 4)) * [1e-6, 1, 1e3, 1e-2]}
    for name, points in {**shapes, "iris": None}.items():
        points = datasets.load_iris().data if points is None else numpy.round(points, 9 if name == "scales" else 4)
        fit = PCA(2, svd_solver="full").fit(points)
        embedded = fit.transform(points)
        cases.append({"name": name, "columns": points.shape[1], "points": flat(points), "coordinates": flat(embedded),
                      "directions": flat(fit.components_), "variance": flat(fit.explained_variance_),
                      "share": flat(fit.explained_variance_ratio_),
                      "standardised": flat(StandardScaler().fit_transform(points)),
                      "trustworthiness": trustworthinesses(name, points, embedded)})
    return cases


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    out.mkdir(parents=True, exist_ok=True)
    versions = {"numpy": numpy.__version__, "scipy": scipy.__version__, "scikit-learn": sklearn.__version__,
                "python": platform.python_version()}
    draw = numpy.random.default_rng(16)
    made = {"statistics": {"t": t_quantiles(), "intervals": intervals(draw), "quantiles": quantile_cases(draw),
                           "auc": auc_cases(draw)},
            "clusters": {"clouds": clusters(draw)}, "components": {"cases": components(draw)}}
    for name, values in made.items():
        (out / f"{name}.json").write_text(json.dumps({"versions": versions, **values}) + "\n")


if __name__ == "__main__":
    main()
