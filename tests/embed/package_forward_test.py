# SPDX-License-Identifier: Apache-2.0
"""The package `engine` without steps: forwards of other lengths, scores, texts; and what is changed between steps. As
tests/embed/package_test.py.

  python3 tests/embed/package_forward_test.py    with ENGINE_LIBRARY=.../libengine.so.1, or beside a build/
"""
import math
import unittest

from package_test import WEIGHT, Case, engine, numpy

SEQUENCES = [[65 + (7 * k) % 26 for k in range(n)] for n in (2, 17, 9, 5, 33, 24, 9)]


def softmax(row):
    top = max(row)
    return [x - top - math.log(sum(math.exp(y - top) for y in row)) for x in row]


class Forward(Case):
    def test_lengths_leave_the_training_as_it_is(self):
        expected = [m.loss for m in self.open()]
        run = self.open(lengths=[8, 40])
        before = run.score(SEQUENCES[:1])
        losses = []
        for metrics in run:
            losses.append(metrics.loss)
            run.score(SEQUENCES)
        self.assertEqual(losses, expected)
        self.assertNotEqual(run.score(SEQUENCES[:1]), before)  # the present weights
        run[WEIGHT] = numpy.zeros(16, "float32")
        for score in run.score(SEQUENCES[:2]):  # all ids are equally likely
            self.assertTrue(all(abs(one + math.log(256)) < 1e-6 for one in score.logprobs))
            self.assertFalse(any(score.greedy))

    def test_scores_are_those_of_the_logits(self):
        for overrides in ((), ("train.micro_batch=3",)):
            run = self.open(*overrides, lengths=[8, 16, 32], train=False)
            rows = run.micro_batch_shape[0]
            together = run.score(SEQUENCES)
            for ids, score in zip(SEQUENCES, together):
                self.assertEqual(score, run.score([ids])[0])  # whatever fills up the rest
                length = next(n for n in (8, 16, 32) if n >= len(ids) - 1)
                tokens = numpy.full((rows, length), 9)
                tokens[-1, : len(ids) - 1] = ids[:-1]
                logits = numpy.from_dlpack(run.logits(tokens))
                self.assertEqual(logits.shape, (rows, length, 256))
                for k, (logprob, greedy) in enumerate(zip(score.logprobs, score.greedy)):
                    row = [float(x) for x in logits[-1, k]]
                    self.assertAlmostEqual(logprob, softmax(row)[ids[k + 1]], places=5)
                    self.assertEqual(greedy, row.index(max(row)) == ids[k + 1])
            some = run.score(SEQUENCES, [len(ids) - 1 for ids in SEQUENCES])
            self.assertEqual([one.logprobs for one in some], [one.logprobs[-1:] for one in together])
            self.assertEqual(run.score([]), [])

    def test_logits_of_the_same_length_are_the_same(self):
        run = self.open(lengths=[16], logits=True, train=False)
        other = self.open(logits=True)
        tokens = numpy.array([SEQUENCES[1][:16], SEQUENCES[4][:16]])
        numpy.testing.assert_array_equal(numpy.from_dlpack(run.logits(tokens)), numpy.from_dlpack(other.logits(tokens)))

    def test_hidden_states_of_other_lengths(self):
        two = "model.num_hidden_layers=2"
        expected = [m.loss for m in self.open(two)]
        wanted = ["embed.output", "layers.*.output", "layers.0.linear.0"]
        run = self.open(two, lengths=[8, 16, 40], activations=wanted)
        tokens = numpy.array([SEQUENCES[1][:16], SEQUENCES[4][:16]])
        hidden = {name: numpy.array(tensor) for name, tensor in run.hidden_states(tokens).items()}
        self.assertEqual(set(hidden), {"embed.output", "layers.0.output", "layers.1.output", "layers.0.linear.0"})
        self.assertEqual({value.shape for value in hidden.values()}, {(2, 16, 16)})
        for length in (8, 40):  # what comes later changes nothing before it
            other = numpy.full((2, length), 7)
            other[:, : min(length, 16)] = tokens[:, :length]
            for name, tensor in run.hidden_states(other).items():
                array = numpy.from_dlpack(tensor)
                self.assertEqual(array.shape, (2, length, 16))
                numpy.testing.assert_allclose(array[:, :16], hidden[name][:, :length], atol=2e-6)
        run.evaluate(tokens=tokens)  # those of the step's own length, in memory of their own
        for name, value in hidden.items():
            numpy.testing.assert_array_equal(numpy.from_dlpack(run.tensor(name, "activation")), value)
            numpy.testing.assert_array_equal(numpy.from_dlpack(run.hidden_states(tokens)[name]), value)
        self.assertEqual([m.loss for m in run], expected)
        for changed in (run.hidden_states(tokens), run.hidden_states(tokens[:, :8])):  # of the present weights
            self.assertFalse(numpy.array_equal(numpy.from_dlpack(changed["embed.output"])[:, :8], hidden["embed.output"][:, :8]))
        only = self.open(two, lengths=[8], activations=["layers.1.output"], train=False)
        self.assertEqual(list(only.hidden_states(tokens[:, :8])), ["layers.1.output"])
        with self.assertRaisesRegex(engine.Error, "no logits of this length"):
            only.hidden_states(tokens)
        with self.assertRaisesRegex(ValueError, r"no hidden states of 8 tokens are kept: .*lengths=\[8\]"):
            self.open(lengths=[8]).hidden_states(tokens[:, :8])

    def test_what_cannot_be_scored(self):
        run = self.open(lengths=[8], train=False)
        for sequences, first, text in (([SEQUENCES[2] + [1]], None, "sequence 0 has 10 tokens, the longest .* 9"),
                                       ([[65], []], None, "sequence 1 is empty"),
                                       ([[65, 256]], None, "token 1 of sequence 0 is 256, the model has 256 ids"),
                                       ([[65, 66]], [0], "first token that is scored of sequence 0 is 0: 1 to 2")):
            with self.assertRaisesRegex(engine.Error, text):
                run.score(sequences, first)
        with self.assertRaisesRegex(ValueError, "first has 2 numbers for 1 sequences"):
            run.score([[65, 66]], [1, 1])
        with self.assertRaisesRegex(engine.Error, "sample 1: token 7 is 300, the model has the ids 0 to 255"):
            run.logits(numpy.array([[1] * 8, [1] * 7 + [300]]))
        with self.assertRaisesRegex(engine.Error, "no logits of this length"):
            run.logits(numpy.zeros((2, 16), "int32"))
        self.assertEqual(len(run.score([SEQUENCES[2]])[0].logprobs), 8)  # it goes on
        with self.assertRaisesRegex(engine.Error, "lengths: 0 is below 1"):
            self.open(lengths=[0])
        with self.assertRaisesRegex(engine.Error, r"lengths=\[...\]"):
            self.open().score([[65, 66]])

    def test_nothing_is_trained(self):
        run = self.open(out=self.folder / "run")
        losses = [m.loss for m in run]
        expected = numpy.array(run[WEIGHT])
        text = run.generate("plan", tokens=8, seed=3)
        held_out = run.evaluate(tokens=numpy.full((2, 16), 66)).loss
        run.close()
        for target in (self.folder / "run",):
            run = engine.open(target, train=False, note=lambda text: None)
            self.addCleanup(run.close)
            numpy.testing.assert_array_equal(numpy.array(run[WEIGHT]), expected)
            self.assertEqual({t.role for t in run.tensors()}, {"parameter"})
            self.assertEqual(run.evaluate(tokens=numpy.full((2, 16), 66)).loss, held_out)
            self.assertEqual(run.generate("plan", tokens=8, seed=3), text)
            self.assertEqual((run.lr, run.directory), (None, ""))
            for call in (run.step, run.save, run.evaluate, lambda: setattr(run, "lr", 1.0)):
                with self.assertRaisesRegex(engine.Error, "nothing is trained"):
                    call()
            with self.assertRaisesRegex(engine.Error, "no step to plan"):
                run.plan()
        self.assertEqual(len(losses), 6)
        with self.assertRaisesRegex(engine.Error, "gradients"):
            self.open(train=False, gradients=True)


class Texts(Case):
    def test_ids(self):
        run = self.open()
        self.assertEqual(run.encode("plan 1"), list(b"plan 1"))
        self.assertEqual(run.decode(run.encode("Größe")), "Größe")
        self.assertEqual(run.encode(""), [])
        self.assertEqual(run.decode([]), "")
        self.assertEqual(run.special_ids, {"bos": None, "eos": None, "eot": None})
        with self.assertRaisesRegex(engine.Error, "id 1 is 256: the tokenizer has 256 ids"):
            run.decode([65, 256])

    def test_stop(self):
        run = self.open(train=False)
        text = run.generate("plan", tokens=40, temperature=0)
        stop = next(c for c in text[3:] if c.isascii())
        self.assertEqual(run.generate("plan", tokens=40, temperature=0, stop=["never", stop]), text[: text.find(stop)])
        ids = run.generate(list(b"plan"), tokens=40, temperature=0, stop=[stop])
        self.assertTrue(run.decode(ids).endswith(stop))
        with self.assertRaisesRegex(TypeError, "stop is a list"):
            run.generate("plan", stop="x")
        with self.assertRaisesRegex(ValueError, "empty"):
            run.generate("plan", stop=[""])

    def test_the_same_memory_gives_the_same_texts(self):
        run = self.open(train=False)
        texts = [run.generate(prompt, tokens=9, seed=4) for prompt in ("a", "plan 12")]
        again = [run.generate(prompt, tokens=9, seed=4, max_length=64) for prompt in ("a", "plan 12", "a")]
        self.assertEqual(again, texts + texts[:1])
        run[WEIGHT] = numpy.zeros(16, "float32")
        self.assertEqual(run.generate([65], tokens=4, temperature=0, max_length=64), [0] * 4)
        with self.assertRaisesRegex(engine.Error, "no room for new ones within the 4 positions of the sequence"):
            run.generate("plan", max_length=4)

    def test_texts_at_a_time_are_those_of_each_alone(self):
        run = self.open(train=False)
        prompts = [list(b"plan 12 and"), list(b"a"), list(b"rows")]
        for options in (dict(temperature=0, stop=["e"]), dict(temperature=0.9, seed=5, max_length=64)):
            alone = [run.generate(one, tokens=9, **options) for one in prompts]
            self.assertEqual(run.generate_all(prompts, tokens=9, **options), alone)
        self.assertNotEqual(alone[0], alone[1])
        self.assertEqual(run.generate_all([]), [])
        with self.assertRaisesRegex(engine.Error, "the prompt is empty"):
            run.generate_all([[65], []])


class BetweenSteps(Case):
    def test_learning_rate(self):
        low = [m.loss for m in self.open("schedule.kind=constant", "optimizer.learning_rate=5e-4")]
        high = [m.loss for m in self.open("schedule.kind=constant", "optimizer.learning_rate=2e-3")]
        self.assertNotEqual(low[2:], high[2:])
        run = self.open("schedule.kind=constant", "optimizer.learning_rate=5e-4")
        self.assertEqual(run.lr, 5e-4)
        run.lr = 2e-3
        self.assertEqual(run.lr, 2e-3)
        first = [run.step() for _ in range(3)]
        self.assertEqual([m.loss for m in first], high[:3])
        self.assertEqual({m.lr for m in first}, {2e-3})
        run.lr = None
        self.assertEqual(run.step().lr, 5e-4)
        for rate in (-1.0, math.inf):
            with self.assertRaisesRegex(engine.Error, "is no finite number from 0 on"):
                run.lr = rate
        with self.assertRaisesRegex(TypeError, "lr = 'x' is no number"):
            run.lr = "x"
        run.lr = 0
        before = numpy.array(run[WEIGHT])
        run.step()
        numpy.testing.assert_array_equal(numpy.array(run[WEIGHT]), before)
        list(run)
        self.assertIsNone(run.lr)

    def test_state_dict(self):
        run, other = self.open(), self.open("train.seed=9")
        run.step()
        state = run.state_dict()
        self.assertEqual(list(state), run.keys())
        other.load_state_dict(state)
        self.assertEqual(other.evaluate().loss, run.evaluate().loss)
        kept = {name: numpy.array(tensor) for name, tensor in state.items()}
        wrong = {**kept, "x": kept[WEIGHT]}
        del wrong[WEIGHT]
        with self.assertRaisesRegex(KeyError, "missing: model.norm.weight; not of this run: x"):
            other.load_state_dict(wrong)
        other.load_state_dict(wrong, strict=False)
        other.load_state_dict(kept)
        self.assertEqual(other.evaluate().loss, run.evaluate().loss)


if __name__ == "__main__":
    if numpy is None:
        raise SystemExit("NumPy is needed")
    unittest.main()
