# SPDX-License-Identifier: Apache-2.0
"""The package `engine` with losses of its caller: gradients by the logits in, the backward and the update of a step. As
tests/embed/package_test.py.

  python3 tests/embed/package_loss_test.py    with ENGINE_LIBRARY=.../libengine.so.1, or beside a build/
"""
import pathlib
import subprocess
import unittest

from package_test import ROOT, WEIGHT, Case, engine, numpy

CALLER = "loss.plugin=caller"


def cross_entropy(labels, count):
    """The built-in loss: a mean over `count` labels, and its gradient by the logits."""

    def loss(logits, rows):
        logits = numpy.from_dlpack(logits).astype("float64")
        at = labels[rows]
        shifted = logits - logits.max(-1, keepdims=True)
        probabilities = numpy.exp(shifted) / numpy.exp(shifted).sum(-1, keepdims=True)
        counts = (at != -100)[..., None]
        hot = numpy.eye(logits.shape[-1])[numpy.where(at == -100, 0, at)] * counts
        value = -(hot * numpy.log(probabilities)).sum() / count
        return value, ((probabilities * counts - hot) / count).astype("float32")

    return loss


@unittest.skipIf(numpy is None, "needs NumPy")
class Loss(Case):
    def batches(self, run, n):
        draw = numpy.random.default_rng(5)
        for _ in range(n):
            labels = draw.integers(0, 256, run.batch_shape)
            labels[:, ::5] = -100
            yield draw.integers(0, 256, run.batch_shape), labels

    def compare(self, *overrides, steps=5, tolerance=2e-6, **options):
        own = self.open(*overrides, gradients=True, **options)
        caller = self.open(*overrides, CALLER, gradients=True, **options)
        for tokens, labels in self.batches(own, steps):
            expected = own.step(tokens=tokens, labels=labels)
            got = caller.step(tokens=tokens, loss=cross_entropy(labels, (labels != -100).sum()))
            self.assertAlmostEqual(got.loss, expected.loss, delta=20 * tolerance)
            self.assertAlmostEqual(got.grad_norm / expected.grad_norm, 1, delta=20 * tolerance)
            for tensor in own.tensors("gradient"):
                a, b = (numpy.from_dlpack(run.tensor(tensor.name, "gradient")) for run in (own, caller))
                self.assertGreater(abs(a).max(), 0, tensor.name)
                self.assertLess(abs(a - b).max(), tolerance * (1 + 20 * abs(a).max()), tensor.name)
        return own, caller

    def test_the_cross_entropy_of_a_caller_is_the_built_in_one(self):
        own, caller = self.compare()
        for name in own.keys():  # after five updates
            a, b = numpy.from_dlpack(own[name]), numpy.from_dlpack(caller[name])
            self.assertLess(abs(a - b).max(), 1e-4, name)

    def test_micro_batches_have_gradients_of_their_own(self):
        self.compare("train.accumulate=3")
        self.compare("train.accumulate=2", "model.tie_word_embeddings=true", "recompute.policy=full")

    def test_formats(self):
        self.compare("precision.plugin=bf16", steps=2, tolerance=3e-3)
        self.compare("precision.plugin=fp16", steps=2, tolerance=3e-3)

    def test_gradients_are_taken_as_they_are(self):
        run = self.open(CALLER, "train.grad_clip=0", gradients=True)
        (tokens, _), = self.batches(run, 1)
        logits = numpy.from_dlpack(run.logits(tokens)).copy()
        self.assertEqual(logits.shape, (2, 16, 256))
        metrics = run.step(tokens=tokens, loss=7.5, logit_gradients=[numpy.zeros_like(logits)])
        self.assertEqual((metrics.loss, metrics.grad_norm), (7.5, 0))
        # One logit: the gradient of the head's row is its hidden state, and others are zero.
        gradient = numpy.zeros_like(logits)
        gradient[1, 3, 65] = 2
        run.step(tokens=tokens, loss=0, logit_gradients=[gradient])
        head = numpy.from_dlpack(run.tensor("lm_head.weight", "gradient"))
        self.assertGreater(abs(head[65]).max(), 0)
        self.assertEqual(abs(numpy.delete(head, 65, 0)).max(), 0)
        # Strides of any kind.
        state = {name: numpy.array(tensor) for name, tensor in run.state_dict().items()}
        base = run.step(tokens=tokens, loss=0, logit_gradients=[gradient]).grad_norm
        run.load_state_dict(state)
        turned = numpy.ascontiguousarray(gradient.transpose(2, 0, 1)).transpose(1, 2, 0)
        self.assertEqual(run.step(tokens=tokens, loss=0, logit_gradients=[turned]).grad_norm, base)

    def test_logits_of_a_step_are_those_that_it_differentiates(self):
        """Finite differences of a loss that no plugin has: the mean of the squared logits."""
        run = self.open(CALLER, "train.grad_clip=0", gradients=True)
        (tokens, _), = self.batches(run, 1)

        def value():
            return float((numpy.from_dlpack(run.logits(tokens)).astype("float64") ** 2).mean())

        def loss(logits, rows):
            logits = numpy.from_dlpack(logits)
            return (logits ** 2).mean(), 2 * logits / logits.size

        state = {name: numpy.array(tensor) for name, tensor in run.state_dict().items()}
        self.assertAlmostEqual(run.step(tokens=tokens, loss=loss).loss, value(), delta=1)
        gradient = numpy.array(run.tensor(WEIGHT, "gradient"))
        direction = numpy.random.default_rng(2).standard_normal(gradient.shape).astype("float32")
        ends = []
        for sign in (1, -1):
            run.load_state_dict(state)
            run[WEIGHT] = state[WEIGHT] + sign * numpy.float32(1e-2) * direction
            ends.append(value())
        self.assertAlmostEqual((ends[0] - ends[1]) / 2e-2 / float((gradient * direction).sum()), 1, delta=1e-2)

    def test_what_is_refused(self):
        run = self.open(CALLER, "train.accumulate=2")
        (tokens, labels), = self.batches(run, 1)
        good = [numpy.zeros((2, 16, 256), "float32") for _ in range(2)]
        for fields, text in (({}, "given no gradients of a loss"),
                             ({"loss": 1, "logit_gradients": good[:1]}, "1 gradients are given, and a step has 2"),
                             ({"loss": 1, "logit_gradients": [good[0]] * 2}, "lies in the memory of another one"),
                             ({"loss": float("nan"), "logit_gradients": good}, "the loss is nan"),
                             ({"loss": 1, "logit_gradients": [good[0], good[1][:1]]}, r"gradient 1 .*\(1, 16, 256\); the logits"),
                             ({"loss": 1, "logit_gradients": [good[0], good[1].astype("float64")]}, "give it as float32")):
            with self.assertRaisesRegex(engine.Error, text):
                run.step(tokens=tokens, **fields)
        for fields in ({"loss": 1}, {"logit_gradients": good}, {"loss": lambda *_: None, "logit_gradients": good}):
            with self.assertRaisesRegex(TypeError, "loss"):
                run.step(tokens=tokens, **fields)
        with self.assertRaisesRegex(TypeError, "tokens"):
            run.step(loss=lambda *_: None)
        with self.assertRaisesRegex(ZeroDivisionError, "division"):  # the caller's own error, and the run goes on
            run.step(tokens=tokens, loss=lambda *_: 1 / 0)
        self.assertEqual(run.step(tokens=tokens, loss=0, logit_gradients=good).loss, 0)
        with self.assertRaisesRegex(engine.Error, "has no loss to evaluate"):
            run.evaluate(tokens=tokens)
        with self.assertRaisesRegex(engine.Error, "the loss of this run is its own"):
            self.open().step(tokens=tokens[:2], loss=0, logit_gradients=good[:1])
        with self.assertRaisesRegex(engine.Error, "train.eval_every"):
            self.open(CALLER, "train.eval_every=1").step(tokens=tokens)
        with self.assertRaisesRegex(engine.Error, "z_loss"):
            self.open(CALLER, "loss.z_loss=1e-4").start()

    def test_dropout_is_refused(self):
        self.config.write_text(self.config.read_text().replace('plugin = "llama"\npreset = "tiny"\n',
                                                               'plugin = "opt"\ndropout = 0.1\n')
                               .replace("intermediate_size", "ffn_dim"))
        with self.assertRaisesRegex(engine.Error, "draws at random .*eng.dropout/1"):
            self.open(CALLER).start()

    def test_a_run_without_a_caller(self):
        command = pathlib.Path(engine._native.library._name).resolve()
        tool = next((at / "tools/engine" for at in command.parents if (at / "tools/engine").is_file()), None)
        if tool is None:
            self.skipTest("there is no command beside the library")
        done = subprocess.run([tool, "run", self.config, CALLER], cwd=self.folder, text=True, capture_output=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("given no gradients of a loss", done.stderr)


if __name__ == "__main__":
    unittest.main()
