# SPDX-License-Identifier: Apache-2.0
"""The package `engine` used wrongly, and batches with fields of their own. As tests/embed/package_test.py.

  python3 tests/embed/package_mistakes_test.py    with ENGINE_LIBRARY=.../libengine.so.1, or beside a build/
"""
import copy
import pickle
import threading
import unittest

from package_test import CONFIG, WEIGHT, Case, engine, numpy

NO_DATA = CONFIG.replace("[data]\npaths = [\"text.txt\"]\nvalidation = 0.2\n", "")


class Words(Case):
    """With the standard library alone."""

    def test_texts(self):
        with engine.open(text=CONFIG, place=self.folder, files=False) as run:
            losses = [m.loss for m in run]
        self.assertEqual(losses, [m.loss for m in self.open()])
        with engine.open("train.steps=2", "-data.validation", text=CONFIG, place=self.folder, files=False) as run:
            self.assertEqual(run.steps, 2)
        with self.assertRaisesRegex(engine.Error, "of my text"):  # a name for messages
            engine.open("of my text", "train.stepz=2", text=CONFIG)
        with self.assertRaisesRegex(TypeError, "needs a configuration"):
            engine.open()
        with self.assertRaisesRegex(ValueError, "text=..."):
            engine.open(CONFIG)

    def test_unknown_words(self):
        with self.assertRaisesRegex(TypeError, r"open\(\) has no argument `fles`; did you mean `files`\?"):
            engine.open(self.config, fles=False)
        with self.assertRaisesRegex(TypeError, "has no argument `zzz`; it has: target, text, place"):
            engine.open(self.config, zzz=1)
        run = self.open()
        with self.assertRaisesRegex(TypeError, "generate.* did you mean `temperature`"):
            run.generate("plan", temprature=1)
        with self.assertRaisesRegex(AttributeError, "no attribute `rate`.*optimizer.learning_rate"):
            run.rate = 1e-3
        with self.assertRaisesRegex(AttributeError, "did you mean `evaluate`"):
            run.evaluat = 1
        with self.assertRaisesRegex(AttributeError, "`steps` of a run can only be read"):
            run.steps = 3
        with self.assertRaises(AttributeError):
            run[WEIGHT].shpe = 3
        with self.assertRaisesRegex(TypeError, "activations is a list"):
            engine.open(self.config, activations="embed.output")

    def test_numbers_and_texts_that_c_would_cut(self):
        run = self.open()
        for call in (lambda: run.generate([2 ** 32, 65]), lambda: run.generate("plan", seed=2 ** 64 + 1),
                     lambda: run.generate("plan", tokens=2 ** 63), lambda: run.generate("plan", top_k=2 ** 64),
                     lambda: run.plan(ranks=2 ** 32 + 2), lambda: run.plan(-1), lambda: run.evaluate(batches=2 ** 64)):
            self.assertRaises(OverflowError, call)
            self.assertRaisesRegex(ValueError, r"-?\d+ to \d+ is possible", call)
        for call in (lambda: run.generate([1.5]), lambda: run.plan(ranks=2.0), lambda: run.generate("plan", seed="1")):
            self.assertRaisesRegex(TypeError, "no whole number", call)
        for call in (lambda: run.generate("pl\0an"), lambda: run[WEIGHT + "\0x"],
                     lambda: engine.open(self.config, "run.name=a\0b"), lambda: engine.open(str(self.config) + "\0"),
                     lambda: engine.open(text=CONFIG + "\0", place=self.folder)):
            self.assertRaisesRegex(ValueError, "NUL", call)
        self.assertEqual(len(run.generate([65, 66], tokens=2)), 2)

    def test_what_is_printed_and_kept(self):
        run = self.open()
        self.assertEqual(repr(run), "<engine.Run not started, 6 steps>")
        metrics = run.step()
        self.assertEqual(repr(run), "<engine.Run step 1 of 6>")
        self.assertEqual(metrics._fields[:3], ("step", "tokens", "loss"))
        self.assertEqual(metrics._asdict()["loss"], metrics.loss)
        self.assertEqual(pickle.loads(pickle.dumps(metrics)), metrics)
        self.assertEqual(run.evaluate(1)._fields, ("loss", "tokens", "seconds"))
        for thing in (run, run[WEIGHT]):
            self.assertRaisesRegex(TypeError, "cannot be pickled", pickle.dumps, thing)
            self.assertRaisesRegex(TypeError, "cannot be pickled", copy.copy, thing)
        run.close()
        self.assertEqual(repr(run), "<engine.Run closed>")

    def test_one_thread_at_a_time(self):
        run, said = self.open(), {}

        def use(name, work):
            try:
                work()
            except engine.Error as refusal:
                said[name] = str(refusal)

        def inside(*_):
            other = threading.Thread(target=use, args=("other", run.step))
            other.start()
            other.join()
            use("own", run.evaluate)
            use("close", run.close)
            self.assertEqual(repr(run), "<engine.Run in use>")
            return False

        run.generate("plan", tokens=2, token=inside)
        self.assertRegex(said["other"], "`step` of a session that is in use: thread [0-9]+ is inside `generate`\n"
                                        "help: one thread at a time uses a session")
        self.assertRegex(said["own"], "`evaluate` of a session that is in use: this thread is inside `generate`")
        self.assertRegex(said["close"], "`close` of a session that is in use")
        self.assertEqual([m.step for m in run], [1, 2, 3, 4, 5, 6])

    def test_threads_on_one_run(self):
        run, steps, refused = self.open("train.steps=200"), [], []

        def work():
            for _ in range(30):
                try:
                    steps.append(run.step().step)
                except engine.Error as refusal:
                    self.assertIn("in use", str(refusal))
                    refused.append(refusal)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        self.assertEqual(sorted(steps), list(range(1, len(steps) + 1)))
        self.assertEqual(len(steps) + len(refused), 90)

    def test_fork(self):
        """A child that was forked after the start gets an error, and does not hang."""
        child = self.script("import engine, os, sys\n"
                            "words = ['config.toml', 'device.threads=2']\n"
                            "early = engine.open(*words, files=False)\n"
                            "if not os.fork():\n"
                            "    os._exit(early.step().step)\n"  # before the start it is the child's own
                            "early_status = os.waitstatus_to_exitcode(os.wait()[1])\n"
                            "run = engine.open(*words, files=False)\n"
                            "run.step()\n"
                            "if not os.fork():\n"
                            "    for call in (run.step, run.start, lambda: run['%s'], early.step):\n"
                            "        try:\n"
                            "            call()\n"
                            "            os._exit(1)\n"
                            "        except engine.Error as refusal:\n"
                            "            if 'was forked from process' not in str(refusal): os._exit(2)\n"
                            "    run.close()\n"
                            "    with engine.open(*words, files=False) as other:\n"
                            "        print(other.plan()['world_size'], flush=True)\n"
                            "    os._exit(0)\n"
                            "print(early_status, os.waitstatus_to_exitcode(os.wait()[1]), run.step().step)\n" % WEIGHT)
        out, err = self.wait(child)
        self.assertEqual((child.returncode, out), (0, "1\n1 0 2\n"), err)


@unittest.skipUnless(numpy, "NumPy is not there")
class Fields(Case):
    def setUp(self):
        super().setUp()
        self.bare = self.folder / "bare.toml"
        self.bare.write_text(NO_DATA)
        self.tokens = numpy.arange(2 * 16).reshape(2, 16) % 40 + 40

    def bare_run(self, *words, **options):
        run = engine.open(self.bare, *words, files=False, **options)
        self.addCleanup(run.close)
        return run

    def test_loss_weights_without_data(self):
        ones = numpy.ones((2, 16), "float32")
        plain = self.bare_run()
        losses = [plain.step(tokens=self.tokens).loss for _ in range(3)]
        run = self.bare_run(fields=["loss_weights"])
        self.assertEqual([run.step(tokens=self.tokens, loss_weights=ones).loss for _ in range(2)] +
                         [run.step(tokens=self.tokens).loss], losses)  # without any they are 1
        fresh = self.bare_run(fields=["loss_weights"])
        self.assertEqual(fresh.evaluate(tokens=self.tokens, loss_weights=ones / 2).loss,
                         self.bare_run().evaluate(tokens=self.tokens).loss / 2)
        # A token of weight 0 is not learnt.
        still = self.bare_run("optimizer.weight_decay=0", fields=["loss_weights"])
        before = numpy.array(still[WEIGHT])
        self.assertEqual(still.step(tokens=self.tokens, loss_weights=ones * 0).grad_norm, 0)
        self.assertTrue((numpy.asarray(still[WEIGHT]) == before).all())
        with self.assertRaisesRegex(engine.Error, "loss weight 0 is -1"):
            run.step(tokens=self.tokens, loss_weights=-ones)
        with self.assertRaisesRegex(engine.Error, "give it as float32"):
            run.step(tokens=self.tokens, loss_weights=ones.astype("float64"))

    def test_documents_without_data(self):
        segments = numpy.tile(numpy.repeat(numpy.arange(2, dtype="int32"), 8), (2, 1))
        positions = numpy.tile(numpy.arange(8, dtype="int32"), (2, 2))
        labels = numpy.roll(self.tokens, -1, 1)
        labels[:, :8] = -100  # only the second document counts
        run = self.bare_run(fields=["segments", "positions"])
        other = self.tokens.copy()
        other[:, :8] += 5
        loss = [run.evaluate(tokens=t, labels=labels, segments=segments, positions=positions).loss
                for t in (self.tokens, other)]
        self.assertEqual(loss[0], loss[1])  # the first document is not seen from the second
        self.assertEqual(run.evaluate(tokens=other, labels=labels, segments=segments).loss, loss[0])  # they follow
        together = [run.evaluate(tokens=t, labels=labels).loss for t in (self.tokens, other)]
        self.assertNotEqual(*together)  # a row without segments is one document
        self.assertTrue(run.step(tokens=self.tokens, segments=segments).loss > 0)
        with self.assertRaisesRegex(engine.Error, "a document starts at 0"):
            run.step(tokens=self.tokens, segments=segments, positions=positions + 1)

    def test_fields_beside_own_data(self):
        expected = [m.loss for m in self.open()]
        run = self.open(fields=["loss_weights"])
        self.assertEqual([m.loss for m in run], expected)
        run = self.open(fields=["loss_weights", "segments", "positions"])
        self.assertEqual(run.evaluate().tokens, self.open().evaluate().tokens)
        for loss, one in zip([m.loss for m in run], expected):
            self.assertAlmostEqual(loss, one, places=4)

    def test_wrong_fields(self):
        run = self.bare_run()
        with self.assertRaisesRegex(engine.Error, r"field `loss_weights`, which nothing asks for\n"
                                                  r"help: open the session with fields=\[\"loss_weights\"\]"):
            run.step(tokens=self.tokens, loss_weights=self.tokens)
        with self.assertRaisesRegex(engine.Error, "did you mean `tokens`"):
            run.step(tokens=self.tokens, token=self.tokens)
        with self.assertRaisesRegex(engine.Error, "did you mean `loss_weights`"):
            self.bare_run(fields=["loss_weight"]).start()
        with self.assertRaisesRegex(engine.Error, "possible are loss_weights, segments, positions"):
            self.bare_run(fields=["mask"]).plan()
        with self.assertRaisesRegex(TypeError, "fields is a list"):
            self.bare_run(fields="segments")

    def test_gradients_are_read_only(self):
        run = self.open(gradients=True)
        run.step()
        tensor = run.tensor(WEIGHT, "gradient")
        for array in (numpy.from_dlpack(tensor), numpy.asarray(tensor)):
            self.assertFalse(array.flags.writeable)
            with self.assertRaises(ValueError):
                array[:] = 0
        self.assertTrue(numpy.asarray(tensor).any())


if __name__ == "__main__":
    unittest.main()
