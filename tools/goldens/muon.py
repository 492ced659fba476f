# SPDX-License-Identifier: Apache-2.0
"""Makes the golden of muon: matrices updated with given gradients, in double precision, by independent formulas.

  python3 tools/goldens/muon.py [OUT_DIR]      needs numpy; writes muon.json

The update is that of Keller Jordan's reference (https://github.com/KellerJordan/Muon, muon.py), without its rounding to
bfloat16: the matrix is transposed if it is tall, divided by its Frobenius norm, and put through the quintic. `rms` is
the factor 0.2 sqrt(max(M, N)) of Liu et al. 2025, "Muon is scalable for LLM training".
"""
import json
import pathlib
import sys

import numpy

HERE = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models" / "golden"


def newton_schulz(gradient, steps):
    a, b, c = 3.4445, -4.7750, 2.0315
    turned = gradient.shape[0] > gradient.shape[1]
    x = gradient.T if turned else gradient
    x = x / (numpy.sqrt((x * x).sum()) + 1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if turned else x


def train(weight, gradients, settings):
    momentum, out = numpy.zeros_like(weight), []
    rows, columns = weight.shape
    factor = {"rms": 0.2 * max(rows, columns) ** 0.5, "shape": max(1, rows / columns) ** 0.5, "none": 1.0}[settings["scale"]]
    for gradient in gradients:
        gradient = gradient * settings["clip"]
        momentum = settings["momentum"] * momentum + gradient
        direction = gradient + settings["momentum"] * momentum if settings["nesterov"] else momentum
        update = newton_schulz(direction, settings["steps"]) * factor * settings["matrix_rate"]
        weight = weight - settings["learning_rate"] * settings["weight_decay"] * weight
        weight = weight - settings["learning_rate"] * update
        out.append(weight)
    return out, momentum


def main():
    random = numpy.random.default_rng(7)
    base = {"momentum": 0.95, "nesterov": True, "steps": 5, "scale": "rms", "matrix_rate": 1.0, "weight_decay": 0.1,
            "learning_rate": 0.125, "clip": 0.5}
    cases = []
    for shape, changes in [((4, 6), {}), ((7, 3), {"scale": "shape", "matrix_rate": 2.0}), ((5, 5), {"scale": "none"}),
                           ((3, 8), {"nesterov": False, "weight_decay": 0.0}), ((2, 9), {"momentum": 0.0, "steps": 3})]:
        settings = base | changes
        weight = random.standard_normal(shape)
        gradients = [random.standard_normal(shape) * scale for scale in (1.0, 0.01, 30.0)]
        weights, momentum = train(weight, gradients, settings)
        singular = numpy.linalg.svd(newton_schulz(gradients[0], 5), compute_uv=False)
        assert 0.3 < singular.min() and singular.max() < 1.3, singular  # near 1
        flat = lambda matrix: [float(x) for x in matrix.ravel()]
        cases.append({"shape": list(shape), "settings": settings, "weight": flat(weight),
                      "gradients": [flat(g) for g in gradients], "weights": [flat(w) for w in weights],
                      "momentum": flat(momentum)})
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    (out / "muon.json").write_text(json.dumps({"made_by": "tools/goldens/muon.py", "numpy": numpy.__version__,
                                               "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
