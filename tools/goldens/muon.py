# SPDX-License-Identifier: Apache-2.0
"""Makes the goldens of muon and normuon: matrices updated with given gradients, in double precision, by independent
formulas.

  python3 tools/goldens/muon.py [OUT_DIR]      needs numpy; writes muon.json and normuon.json

The update is that of Keller Jordan's reference (https://github.com/KellerJordan/Muon, muon.py), without its rounding to
bfloat16: the matrix is transposed if it is tall, divided by its Frobenius norm, and put through the quintic. `rms` is
the factor 0.2 sqrt(max(M, N)) of Liu et al. 2025, "Muon is scalable for LLM training". `polar_express` is algorithm 1 of
Amsel et al. 2025, arXiv:2505.16932; its coefficients are computed here: each polynomial is the best one for where those
before leave the values that began between 0.001 and 1, with the paper's cushion and safety.

With products of bf16 the engine defines where it rounds; `rounded` says it, with exact sums. The difference from the
iteration without rounding, and from one that rounds where the reference does, is checked here.

normuon is algorithm 1 of Li et al. 2025, arXiv:2510.05491: the norm that its update is brought to, 0.2 sqrt(M N), is that
of an orthogonal matrix times the factor `rms`; with another `scale` it is that times the other factor.
"""
import json
import pathlib
import sys

import numpy

HERE = pathlib.Path(__file__).resolve().parents[2] / "tests" / "models" / "golden"


def best_quintic(low, high):
    """The odd polynomial of degree 5 that is nearest to 1 from low to high (Remez)."""
    if low > (1 - 5e-6) * high:
        return 15 / 8 / high, -10 / 8 / high**3, 3 / 8 / high**5
    at = numpy.array([low, (3 * low + high) / 4, (low + 3 * high) / 4, high])
    for _ in range(100):
        rows = [[x, x**3, x**5, sign] for x, sign in zip(at, (1, -1, 1, -1))]
        a, b, c, _error = numpy.linalg.solve(numpy.array(rows), numpy.ones(4))
        root = numpy.sqrt(9 * b * b - 20 * a * c)
        at = numpy.array([low, numpy.sqrt((-3 * b - root) / (10 * c)), numpy.sqrt((-3 * b + root) / (10 * c)), high])
    return a, b, c


def polar_express(steps, low=1e-3, cushion=0.02407327424182761, safety=1.01):
    """(a, b, c) of each step."""
    high, out = 1.0, []
    for _ in range(min(steps, 7)):
        a, b, c = best_quintic(max(low, cushion * high), high)
        middle = 2 / sum(a * x + b * x**3 + c * x**5 for x in (low, high))
        a, b, c = a * middle, b * middle, c * middle
        low = a * low + b * low**3 + c * low**5
        high = 2 - low
        out.append((a / safety, b / safety**3, c / safety**5))
    return out + [(1.875, -1.25, 0.375)] * (steps - len(out))


def quintics(settings):
    """(a, b, c) of each step, and what the norm is multiplied by."""
    if settings["coefficients"] == "polar_express":
        return polar_express(settings["steps"]), 1.01
    return [(3.4445, -4.7750, 2.0315)] * settings["steps"], 1.0


def newton_schulz(gradient, settings, to=lambda x: x):
    """As published; `to` rounds."""
    turned = gradient.shape[0] > gradient.shape[1]
    x = to(gradient.T if turned else gradient)
    steps, norm = quintics(settings)
    x = to(x / (to(numpy.sqrt((x * x).sum())) * norm + 1e-7))
    for a, b, c in steps:
        square = to(x @ x.T)
        x = to(to(a * x) + to(to(to(b * square) + to(to(c * square) @ square)) @ x))
    return x.T if turned else x


def bf16(x):
    """Rounded to f32, and then to bf16, both to nearest even."""
    bits = x.astype(numpy.float32).view(numpy.uint32).astype(numpy.uint64)
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000
    return bits.astype(numpy.uint32).view(numpy.float32).astype(float)


def rounded(gradient, settings, factor):
    """factor * newton_schulz(gradient) with products of bf16. z = t x; each t follows from the next one."""
    turned = gradient.shape[0] > gradient.shape[1]
    x = gradient.T if turned else gradient
    steps, norm = quintics(settings)
    t = [factor]
    for _, _, c in reversed(steps):
        t.insert(0, (c * t[0]) ** 0.2)
    z = bf16(x / (numpy.sqrt((x * x).sum()) * norm + 1e-7) * t[0])
    for (a, b, c), now in zip(steps, t):
        square = bf16(z @ z.T)
        polynomial = bf16(square @ square + bf16(square * (b * now**2 / c)))
        z = bf16(polynomial @ z + bf16(z * (a * now**4 / c)))
    return z.T if turned else z


def train(weight, gradients, settings):
    momentum, out = numpy.zeros_like(weight), []
    second = numpy.zeros(weight.shape[0])
    rows, columns = weight.shape
    factor = {"rms": 0.2 * max(rows, columns) ** 0.5, "shape": max(1, rows / columns) ** 0.5, "none": 1.0}[settings["scale"]]
    for gradient in gradients:
        gradient = gradient * settings["clip"]
        momentum = settings["momentum"] * momentum + gradient
        direction = gradient + settings["momentum"] * momentum if settings["nesterov"] else momentum
        factor_now = factor * settings["matrix_rate"]
        f32 = settings["products"] == "f32"
        if "neuron_beta" in settings:
            direction = newton_schulz(direction, settings) if f32 else rounded(direction, settings, 1.0)
            beta = settings["neuron_beta"]
            second = beta * second + (1 - beta) * (direction ** 2).mean(axis=1)
            direction = direction / (numpy.sqrt(second)[:, None] + 1e-8)
            norm = factor_now * min(rows, columns) ** 0.5
            if settings["scale"] == "rms":
                assert numpy.isclose(norm, 0.2 * (rows * columns) ** 0.5 * settings["matrix_rate"])
            weight = weight - settings["learning_rate"] * settings["weight_decay"] * weight
            weight = weight - settings["learning_rate"] * norm / numpy.linalg.norm(direction) * direction
            out.append(weight)
            continue
        update = newton_schulz(direction, settings) * factor_now if f32 else rounded(direction, settings, factor_now)
        weight = weight - settings["learning_rate"] * settings["weight_decay"] * weight
        weight = weight - settings["learning_rate"] * update
        out.append(weight)
    return out, momentum, second


def check_rounding(random):
    """`rounded` is as near to the exact iteration as rounding where the reference does, and in the band."""
    for coefficients, least, most in (("jordan", 0.66, 1.22), ("polar_express", 0.83, 1.14)):
        settings = {"coefficients": coefficients, "steps": 5}
        for shape in ((24, 40), (96, 64), (256, 256)):
            left, _, right = numpy.linalg.svd(random.standard_normal(shape), full_matrices=False)
            spectrum = numpy.geomspace(1, 0.01, min(shape))
            if min(shape) < 200:
                matrix = left @ numpy.diag(spectrum / numpy.linalg.norm(spectrum)) @ right
            else:
                matrix = left @ numpy.diag(1 + spectrum) @ right
            exact, ours = newton_schulz(matrix, settings), rounded(matrix, settings, 1.0)
            theirs = newton_schulz(matrix, settings, bf16)
            assert numpy.linalg.norm(ours - exact) < 1.1 * numpy.linalg.norm(theirs - exact)
            singular = numpy.linalg.svd(ours, compute_uv=False)
            first = numpy.linalg.svd(matrix, compute_uv=False) / numpy.linalg.norm(matrix)
            inside = singular[first > 0.005]
            assert least < inside.min() and singular.max() < most, (coefficients, shape, singular)


def main():
    random = numpy.random.default_rng(7)
    base = {"momentum": 0.95, "nesterov": True, "steps": 5, "scale": "rms", "matrix_rate": 1.0, "weight_decay": 0.1,
            "learning_rate": 0.125, "clip": 0.5, "products": "f32", "coefficients": "jordan"}
    express, bf16_products = {"coefficients": "polar_express"}, {"products": "bf16"}
    cases = []
    for shape, changes in [((4, 6), {}), ((7, 3), {"scale": "shape", "matrix_rate": 2.0}), ((5, 5), {"scale": "none"}),
                           ((3, 8), {"nesterov": False, "weight_decay": 0.0}), ((2, 9), {"momentum": 0.0, "steps": 3}),
                           ((4, 7), express), ((6, 3), express | {"steps": 6, "scale": "none"}),
                           ((4, 6), bf16_products), ((7, 3), bf16_products | {"scale": "shape", "matrix_rate": 2.0}),
                           ((5, 9), bf16_products | express), ((8, 5), bf16_products | express | {"steps": 9})]:
        settings = base | changes
        weight = random.standard_normal(shape)
        gradients = [random.standard_normal(shape) * scale for scale in (1.0, 0.01, 30.0)]
        weights, momentum, _ = train(weight, gradients, settings)
        singular = numpy.linalg.svd(newton_schulz(gradients[0], settings | {"steps": 5}), compute_uv=False)
        assert 0.3 < singular.min() and singular.max() < 1.3, singular  # near 1
        flat = lambda matrix: [float(x) for x in matrix.ravel()]
        cases.append({"shape": list(shape), "settings": settings, "weight": flat(weight),
                      "gradients": [flat(g) for g in gradients], "weights": [flat(w) for w in weights],
                      "momentum": flat(momentum)})
    check_rounding(random)
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    (out / "muon.json").write_text(json.dumps({"made_by": "tools/goldens/muon.py", "numpy": numpy.__version__,
                                               "cases": cases}) + "\n")
    neurons, cases = {"neuron_beta": 0.9}, []
    for shape, changes in [((4, 6), {}), ((7, 3), {"scale": "shape", "matrix_rate": 2.0}), ((5, 5), {"scale": "none"}),
                           ((3, 8), {"nesterov": False, "neuron_beta": 0.0}), ((6, 3), express | {"weight_decay": 0.0}),
                           ((4, 6), bf16_products), ((8, 5), bf16_products | express)]:
        settings = base | neurons | changes
        weight = random.standard_normal(shape)
        gradients = [random.standard_normal(shape) * scale for scale in (1.0, 0.01, 30.0)]
        weights, momentum, second = train(weight, gradients, settings)
        cases.append({"plugin": "normuon", "shape": list(shape), "settings": settings, "weight": flat(weight),
                      "gradients": [flat(g) for g in gradients], "weights": [flat(w) for w in weights],
                      "momentum": flat(momentum), "neurons": flat(second)})
    (out / "normuon.json").write_text(json.dumps({"made_by": "tools/goldens/muon.py", "numpy": numpy.__version__,
                                                  "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
