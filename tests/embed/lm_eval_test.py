# SPDX-License-Identifier: Apache-2.0
"""engine.lm_eval gives the answers that lm-evaluation-harness got from transformers: tools/goldens/harness.py. The harness
is not needed: what the class takes of it is replaced. As tests/embed/package_test.py.

  python3 tests/embed/lm_eval_test.py    with ENGINE_LIBRARY=.../libengine.so.1, or beside a build/
"""
import json
import pathlib
import sys
import types
import unittest

from package_test import ROOT

FOLDER = ROOT / "tests" / "embed" / "lm_eval"


def harness():
    """Modules with the names that engine.lm_eval imports."""
    class Hook:
        def __init__(self):
            self.seen = []

        def add_partial(self, *what):
            self.seen.append(what)

    class LM:
        def __init__(self):
            self.cache_hook = Hook()

    for name, entries in (("lm_eval", {}), ("lm_eval.api", {}), ("lm_eval.api.model", {"LM": LM}),
                          ("lm_eval.api.registry", {"register_model": lambda *names: lambda made: made})):
        module = types.ModuleType(name)
        module.__dict__.update(entries)
        sys.modules[name] = module


harness()
from engine.lm_eval import Engine, padded, windows  # noqa: E402


class Request:
    def __init__(self, args):
        self.args = tuple(args)


class LmEval(unittest.TestCase):
    golden = json.loads((FOLDER / "golden.json").read_text())["requests"]

    def requests(self, task):
        return [Request(args) for args, _ in self.golden[task]], [answer for _, answer in self.golden[task]]

    def near(self, ours, theirs):
        self.assertLess(abs(ours - theirs), 1e-5 * max(1, abs(theirs)), (ours, theirs))

    def test_answers(self):
        for rows in (1, 4):
            model = Engine(str(FOLDER / "model"), batch_size=rows)
            self.addCleanup(model.run.close)
            self.assertEqual(model.max_length, 48)
            requests, answers = self.requests("engine_choices")
            for (logprob, greedy), theirs in zip(model.loglikelihood(requests, disable_tqdm=True), answers):
                self.near(logprob, theirs[0])
                self.assertEqual(greedy, theirs[1])
            self.assertEqual([what[1] for what in model.cache_hook.seen], [one.args for one in requests])
            requests, answers = self.requests("engine_texts")
            for ours, theirs in zip(model.loglikelihood_rolling(requests, disable_tqdm=True), answers):
                self.near(ours, theirs[0] if isinstance(theirs, list) else theirs)
            requests, answers = self.requests("engine_answers")
            self.assertEqual(model.generate_until(requests, disable_tqdm=True), answers)

    def test_refusals(self):
        model = Engine(str(FOLDER / "model"), batch_size="auto")
        self.addCleanup(model.run.close)
        self.assertEqual(model.batch_size, 8)
        with self.assertRaisesRegex(ValueError, r"\['num_beams'\]: the engine knows until"):
            model.generate_until([Request(("plan", {"num_beams": 2}))], disable_tqdm=True)
        with self.assertRaisesRegex(ValueError, "max_gen_toks = 48 leaves no room"):
            model.generate_until([Request(("plan", {"max_gen_toks": 48}))], disable_tqdm=True)
        with self.assertRaisesRegex(ValueError, "a continuation has 0 tokens"):
            model.loglikelihood([Request(("plan", ""))], disable_tqdm=True)

    def test_lengths_and_windows(self):
        self.assertEqual([padded(n, 512) for n in (1, 32, 33, 49, 65, 100, 400, 513)], [32, 32, 48, 64, 96, 128, 512, 512])
        self.assertEqual(list(windows(list(range(10)), -1, 4)), [([-1], [0, 1, 2, 3]), ([3], [4, 5, 6, 7]), ([5, 6, 7], [8, 9])])
        self.assertEqual(list(windows([1], -1, 4)), [([-1], [1])])


if __name__ == "__main__":
    unittest.main()
