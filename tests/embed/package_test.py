# SPDX-License-Identifier: Apache-2.0
"""The package `engine`. Needs nothing but the standard library: what needs NumPy, JAX or PyTorch runs where it is.

  python3 tests/embed/package_test.py            with ENGINE_LIBRARY=.../libengine.so.1, or beside a build/
"""
import ctypes
import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "python"))
import engine  # noqa: E402
from engine import _dlpack, _native  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None
try:
    import jax
except ImportError:
    jax = None
try:
    import torch
except ImportError:
    torch = None

CONFIG = """
[model]
plugin = "llama"
preset = "tiny"
num_hidden_layers = 1
hidden_size = 16
intermediate_size = 32
num_attention_heads = 2
[data]
paths = ["text.txt"]
validation = 0.2
[train]
steps = 6
micro_batch = 2
sequence_length = 16
[optimizer]
learning_rate = 1e-3
"""
WEIGHT = "model.norm.weight"


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "text.txt").write_text("".join("plan %d " % (k * 7919 % 1000) for k in range(400)))
        self.config = self.folder / "config.toml"
        self.config.write_text(CONFIG)

    def open(self, *overrides, **options):
        options.setdefault("files", "out" in options)
        run = engine.open(self.config, *overrides, **options)
        self.addCleanup(run.close)
        return run

    def script(self, text, *arguments, extra=(), **more):
        """A program of its own, in the folder; `extra` are its arguments."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools" / "python")}
        return subprocess.Popen([*arguments, sys.executable, "-c", text, *extra], cwd=self.folder, env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)

    def wait(self, child):
        try:
            return child.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            child.terminate()  # mpirun ends its ranks
            out, err = child.communicate()
            self.fail("it hangs: " + out + err)


class Standard(Case):
    """With the standard library alone."""

    def test_iterates_and_ends_as_engine_run(self):
        run = self.open(out=self.folder / "out")
        seen = []
        run.on_step(lambda of, metrics: seen.append((metrics.step, of.steps_done)))
        losses = [m.loss for m in run]
        self.assertEqual(seen, [(k, k) for k in range(1, 7)])
        self.assertIsNone(run.step())
        self.assertTrue((self.folder / "out/checkpoints/step-00000006").is_dir())
        run.close()
        written = [json.loads(line)["loss"] for line in (self.folder / "out/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(losses, written)
        self.assertEqual(json.loads((self.folder / "out/state.json").read_text())["status"], "done")
        with self.assertRaisesRegex(ValueError, "closed"):
            run.step()

    def test_facts(self):
        run = self.open()
        plan = run.plan(ranks=2)
        self.assertEqual(plan["world_size"], 2)
        self.assertEqual(plan["parameters"], run.parameters)
        self.assertEqual(run.batch_shape, (2, 16))
        self.assertEqual((run.rank, run.ranks, run.steps, run.steps_done, run.vocabulary), (0, 1, 6, 0, 256))
        self.assertIn(WEIGHT, run)
        self.assertNotIn("x", run)
        self.assertEqual(run[WEIGHT].shape, (16,))
        self.assertEqual({t.role for t in run.tensors()}, {"parameter", "exp_avg", "exp_avg_sq"})

    def test_memory_of_activations(self):
        """The process grows by what the plan says."""
        text = ("import engine, sys\n"
                "run = engine.open('config.toml', 'train.micro_batch=16', 'train.sequence_length=256', 'data.validation=0',\n"
                "                  files=False, activations=sys.argv[1:])\n"
                "plan = run.plan()['ranks'][0]['host_peak_bytes']\n"
                "run.step()\n"
                "print(plan, run.step().host_peak_bytes)\n")
        (self.folder / "text.txt").write_text("".join("plan %d " % (k * 7919 % 1000) for k in range(4000)))
        found = []
        for names in ([], ["layers.*"]):
            child = self.script(text, extra=names)
            out, err = self.wait(child)
            self.assertEqual(child.returncode, 0, err)
            found.append([int(word) for word in out.split()])
        (plan, measured), (more, larger) = found
        self.assertGreater(more - plan, 4 << 20)
        self.assertLess(abs((larger - measured) - (more - plan)), 1 << 20, found)

    def test_errors(self):
        with self.assertRaisesRegex(engine.Error, "steps"):
            engine.open(self.config, "train.stepz=1")
        run = self.open()
        with self.assertRaisesRegex(KeyError, "did you mean `model.norm.weight`"):
            run["model.norm.weigth"]
        with self.assertRaisesRegex(engine.Error, "gradients=True"):
            run.tensor(WEIGHT, "gradient")
        with self.assertRaisesRegex(TypeError, "__dlpack__|no numbers"):
            run.step(tokens=object())
        with self.assertRaises(BufferError):  # no word for read-only in old capsules
            run[WEIGHT].readonly.__dlpack__()
        with self.assertRaisesRegex(ValueError, "stream"):
            run[WEIGHT].__dlpack__(stream=1)
        with self.assertRaisesRegex(BufferError, "device"):
            run[WEIGHT].__dlpack__(dl_device=(2, 0))
        self.assertIsNotNone(run.step())

    def test_capsules(self):
        run = self.open()
        tensor = run[WEIGHT]
        valid = ctypes.pythonapi.PyCapsule_IsValid
        self.assertEqual(tensor.__dlpack_device__(), (1, 0))
        for arguments, name in (({}, b"dltensor"), ({"max_version": None}, b"dltensor"),
                                ({"max_version": (0, 8)}, b"dltensor"),
                                ({"max_version": (1, 0)}, b"dltensor_versioned"),
                                ({"max_version": (2, 5)}, b"dltensor_versioned"),
                                ({"max_version": (1, 3), "dl_device": (1, 0), "copy": False}, b"dltensor_versioned")):
            self.assertTrue(valid(tensor.__dlpack__(**arguments), name), arguments)

        def flags(of, **more):
            capsule = of.__dlpack__(max_version=(1, 3), **more)
            return _native.Versioned.from_address(_dlpack._api.PyCapsule_GetPointer(capsule, b"dltensor_versioned")).flags

        self.assertEqual(flags(tensor), 0)
        self.assertEqual(flags(tensor.readonly), _native.FLAG_READ_ONLY)
        self.assertEqual(flags(tensor, copy=True), _native.FLAG_COPIED)
        # Tensors that nobody consumed are given back: the run's memory goes with the last one.
        del tensor
        gc.collect()

    def test_own_tensors_as_batches(self):
        """An object with __dlpack__ is a batch, and so is one of another run."""
        run, other = self.open("train.sequence_length=8"), self.open()
        with self.assertRaisesRegex(engine.Error, r"tokens` is float32 \(256, 16\); a batch is"):
            run.step(tokens=other["model.embed_tokens.weight"])
        run.write(WEIGHT, other[WEIGHT])

    def test_generate(self):
        run = self.open()
        text = run.generate("plan", tokens=5, seed=2)
        pieces = []
        self.assertEqual(run.generate("plan", tokens=5, seed=2, token=lambda i, b: pieces.append(b)), text)
        self.assertEqual(b"".join(pieces).decode(errors="replace"), text)
        self.assertEqual(len(run.generate(b"plan", tokens=5)), 5)
        self.assertEqual(len(run.generate(b"plan", tokens=5, token=lambda i, b: False)), 1)

        def fail(i, b):
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            run.generate("plan", tokens=5, token=fail)

    def test_threads(self):
        expected = [[m.loss for m in self.open("train.seed=%d" % s)] for s in (1, 2)]
        got = [None, None]

        def train(k):
            got[k] = [m.loss for m in self.open("train.seed=%d" % (k + 1))]

        threads = [threading.Thread(target=train, args=(k,)) for k in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, expected)

    def test_interrupt_saves(self):
        # A shell starts what runs in the background with the signal ignored.
        child = self.script("import engine, signal\n"
                            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                            "with engine.open('config.toml', 'train.steps=1000000', out='out') as run:\n"
                            "    for metrics in run:\n"
                            "        print(metrics.step, flush=True)\n")
        for _ in range(3):
            self.assertTrue(child.stdout.readline())
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
        self.assertIn("KeyboardInterrupt", err)
        state = json.loads((self.folder / "out/state.json").read_text())
        self.assertEqual(state["status"], "stopped")
        self.assertGreaterEqual(state["step"], 3)
        self.assertEqual(state["last_checkpoint"], "step-%08d" % state["step"])
        with engine.open(self.folder / "out", "train.steps=%d" % (state["step"] + 1)) as again:
            self.assertEqual([m.step for m in again], [state["step"] + 1])

    def test_interrupt_of_one_rank_stops_all(self):
        mpirun = "/usr/bin/mpirun"
        if not os.path.exists(mpirun):
            self.skipTest("there is no mpirun")
        child = self.script("import engine, os\n"
                            "with engine.open('config.toml', 'train.steps=1000000', out='out') as run:\n"
                            "    for metrics in run:\n"
                            "        if run.rank == 1 and metrics.step == 3: print(os.getpid(), flush=True)\n",
                            mpirun, "-n", "2", "--oversubscribe", "--allow-run-as-root")
        os.kill(int(child.stdout.readline()), signal.SIGINT)
        out, err = self.wait(child)
        self.assertIn("KeyboardInterrupt", err)
        state = json.loads((self.folder / "out/state.json").read_text())
        self.assertEqual(state["status"], "stopped")
        self.assertGreaterEqual(state["step"], 3)
        self.assertEqual(state["last_checkpoint"], "step-%08d" % state["step"])

    def test_shutdown(self):
        """A capsule that nobody took, and a run that nobody closed, when the interpreter ends."""
        child = self.script("import engine\nrun = engine.open('config.toml', files=False)\nrun.step()\n"
                            "kept = run['%s'].__dlpack__(max_version=(1, 0))\n"
                            "import sys\nsys.kept = [kept, run['%s'].__dlpack__()]\n"
                            "sys.kept.append(sys.kept)\nprint('end')\n" % (WEIGHT, WEIGHT))
        out, err = child.communicate(timeout=60)
        self.assertEqual((child.returncode, out, err), (0, "end\n", ""))


@unittest.skipUnless(numpy, "NumPy is not there")
class WithNumpy(Case):
    def test_zero_copy(self):
        run = self.open()
        array = numpy.from_dlpack(run[WEIGHT])
        again = numpy.asarray(run[WEIGHT])
        self.assertEqual(array.dtype, numpy.float32)
        self.assertEqual(array.ctypes.data, again.ctypes.data)
        self.assertFalse(numpy.asarray(run[WEIGHT].readonly).flags.writeable)
        before = array.copy()
        run.step()
        self.assertFalse((array == before).all())  # the step's write is seen
        run[WEIGHT] = numpy.full(16, 0.5, "float32")
        self.assertTrue((array == 0.5).all())
        with self.assertRaisesRegex(engine.Error, "round=True"):
            run[WEIGHT] = numpy.full(16, 0.1)
        run.write(WEIGHT, numpy.full(16, 0.1), round=True)
        self.assertEqual(array[3], numpy.float32(0.1))
        moments = numpy.from_dlpack(run.tensor(WEIGHT, "exp_avg"))
        self.assertTrue(moments.any())

    def test_a_write_is_seen_by_the_engine(self):
        loss = self.open().evaluate().loss
        run = self.open()
        array = numpy.from_dlpack(run[WEIGHT])
        if not array.flags.writeable:  # NumPy before 2.1: what an old capsule brings is read-only
            self.assertLess(numpy.lib.NumpyVersion(numpy.__version__), "2.1.0")
            array = numpy.asarray(run[WEIGHT])
        array[:] = 0.25
        changed = run.evaluate().loss
        self.assertNotEqual(changed, loss)
        array[:] = 1
        self.assertEqual(run.evaluate().loss, loss)

    def test_memory_outlives_the_run(self):
        run = self.open()
        array = numpy.from_dlpack(run["model.embed_tokens.weight"])
        copy = array.copy()
        run.close()
        del run
        gc.collect()
        self.assertTrue((array == copy).all())
        other = self.open("train.seed=9")
        other.step()
        self.assertTrue((array == copy).all())
        thread = threading.Thread(target=lambda held: held.clear(), args=([array],))
        del array
        thread.start()
        thread.join()
        self.assertIsNotNone(other.step())

    def test_batches(self):
        rng = numpy.random.default_rng(1)
        tokens = rng.integers(32, 128, (2, 17))
        losses = {}
        for name, fields in {"int64": {"tokens": tokens}, "int32": {"tokens": tokens.astype("int32")},
                             "columns": {"tokens": numpy.asfortranarray(tokens)},
                             "reversed": {"tokens": tokens[::-1, ::-1].copy()[::-1, ::-1]},
                             "labels": {"tokens": tokens[:, :-1], "labels": tokens[:, 1:]},
                             "uint8": {"tokens": tokens.astype("uint8")},
                             "list": {"tokens": tokens.tolist()}}.items():
            losses[name] = self.open().step(**fields).loss
        self.assertEqual(len(set(losses.values())), 1, losses)
        readonly = tokens.copy()
        readonly.flags.writeable = False
        self.assertEqual(self.open().step(tokens=readonly).loss, losses["int64"])
        run = self.open()
        for wrong, words in ((tokens[:, :5], "a batch is"), (tokens.astype("float32"), "no integer type"),
                             (tokens + 200, "has the ids")):
            with self.assertRaisesRegex(engine.Error, words):
                run.step(tokens=wrong)
        with self.assertRaisesRegex(engine.Error, "nothing asks for"):
            run.step(tokens=tokens, mask=tokens)
        self.assertEqual(run.step(tokens=tokens).loss, losses["int64"])
        self.assertEqual(run.evaluate(tokens=rng.integers(32, 128, (5, 16))).tokens, 75)

    def test_logits_and_gradients(self):
        run = self.open("train.grad_clip=0", logits=True, gradients=True)
        tokens = numpy.arange(32).reshape(2, 16) + 40
        logits = numpy.from_dlpack(run.logits(tokens))
        self.assertEqual(logits.shape, (2, 16, 256))
        picked = logits[:, :-1].astype("float64")
        chosen = numpy.take_along_axis(picked, tokens[:, 1:, None], 2)[..., 0]
        loss = (numpy.log(numpy.exp(picked).sum(-1)) - chosen).mean()
        self.assertAlmostEqual(run.evaluate(tokens=tokens).loss, loss, places=5)
        metrics = run.step()
        squares = sum((numpy.from_dlpack(g).astype("float64") ** 2).sum() for g in run.tensors("gradient"))
        self.assertAlmostEqual(metrics.grad_norm, squares ** 0.5, places=4)

    def test_activations(self):
        run = self.open("train.accumulate=2", activations=["embed.output", "layers.*.linear.0"], logits=True)
        listed = {one["name"]: one for one in run.activations()}
        self.assertEqual(listed["layers.0.linear.0"]["parameters"], ["model.layers.0.self_attn.q_proj.weight"])
        self.assertEqual({t.name for t in run.tensors("activation")}, {"embed.output", "layers.0.linear.0", "logits"})
        tensor = run.tensor("embed.output", "activation")
        self.assertEqual((tensor.shape, tensor.dtype), ((2, 16, 16), "float32"))
        self.assertEqual(list(tensor.shape), listed["embed.output"]["shape"])
        rows = numpy.asarray(run["model.embed_tokens.weight"]).copy()
        tokens = numpy.arange(64).reshape(4, 16) + 40
        loss = run.step(tokens=tokens).loss
        output = numpy.from_dlpack(tensor)
        self.assertTrue((output == rows[tokens[2:]]).all())  # of the last micro-batch
        self.assertFalse(output.flags.writeable)
        self.assertFalse(numpy.asarray(tensor).flags.writeable)
        run.step(tokens=tokens + 1)
        self.assertFalse((output == rows[tokens[2:]]).any())  # in place
        self.assertEqual(self.open("train.accumulate=2").step(tokens=tokens).loss, loss)
        with self.assertRaisesRegex(engine.Error, "activations"):
            run.write("embed.output", output, role="activation")
        with self.assertRaisesRegex(engine.Error, "nearest names: embed.output"):
            self.open(activations=["embed.ouptut"]).start()
        with self.assertRaisesRegex(KeyError, "did you mean `embed.output`"):
            run.tensor("embed.ouptut", "activation")
        with self.assertRaisesRegex(TypeError, "list of names"):
            self.open(activations="embed.output")

    def test_ranks(self):
        """One session of several ranks: mpirun -n 2 python train.py."""
        text = ("import engine, numpy, sys\n"
                "with engine.open('config.toml', 'zero.plugin=zero3', out='out', activations=['embed.output']) as run:\n"
                "    name = 'model.embed_tokens.weight'\n"
                "    losses = [m.loss for m in run]\n"
                "    part, whole = run[name].part, numpy.from_dlpack(run[name], **COPY)\n"
                "    mine = numpy.from_dlpack(part)\n"
                "    assert (whole.ravel()[part.first:part.first + len(mine)] == mine).all()\n"
                "    found = [run.rank, run.ranks, losses[-1].hex(), float(whole.sum()).hex(), len(mine)]\n"
                "    open(f'rank{run.rank}', 'w').write(' '.join(map(str, found)))\n"  # their output may be mixed
                "    tokens = numpy.arange(32).reshape(2, 16) + 40 * (1 + run.rank)\n"
                "    run.evaluate(tokens=tokens)\n"
                "    own = numpy.from_dlpack(run.tensor('embed.output', 'activation'))\n"
                "    assert (own == whole[tokens]).all(), 'these are not the activations of this rank'\n"
                "    run.generate('plan', tokens=3)\n")
        if int(numpy.__version__.split(".")[0]) < 2:
            self.skipTest("NumPy before 2.1 asks for no copy")
        started = self.two_ranks()
        child = self.script(text.replace("**COPY", "copy=True"), *started)
        _, err = self.wait(child)
        self.assertEqual(child.returncode, 0, err)
        lines = [(self.folder / f"rank{rank}").read_text().split() for rank in (0, 1)]
        self.assertEqual([line[:2] for line in lines], [["0", "2"], ["1", "2"]])
        self.assertEqual(lines[0][2:4], lines[1][2:4])
        self.assertEqual(int(lines[0][4]) + int(lines[1][4]), 256 * 16)
        metrics = [json.loads(l) for l in (self.folder / "out/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(metrics[-1]["loss"], float.fromhex(lines[0][2]))
        # An error that ends one rank ends both, and says why.
        child = self.script("import engine\nwith engine.open('config.toml', out='failed') as run:\n"
                            "    run.step()\n    assert run.rank == 0, 'rank 1 is lost'\n    run.step()\n", *started)
        out, err = self.wait(child)
        self.assertNotEqual(child.returncode, 0)
        self.assertIn("AssertionError: rank 1 is lost", err)
        self.assertEqual(json.loads((self.folder / "failed/state.json").read_text())["status"], "failed")

    def two_ranks(self):
        if not os.path.exists("/usr/bin/mpirun"):
            self.skipTest("there is no mpirun")
        return ["/usr/bin/mpirun", "-n", "2", "--oversubscribe", "--allow-run-as-root"]

    def test_activations_of_ranks(self):
        """Each rank has a part of its own, and the losses stay the same."""
        text = ("import engine, numpy, sys, zlib\n"
                "words = ['zero.plugin=zero3', 'train.accumulate=3', 'train.reduce=step', 'recompute.policy=full']\n"
                "with engine.open('config.toml', *words, files=False, activations=sys.argv[1:]) as run:\n"
                "    tokens = numpy.arange(6 * 16).reshape(6, 16) + 40 * (1 + run.rank)\n"
                "    losses = [run.step(tokens=tokens + k).loss for k in range(4)]\n"
                "    rows = [zlib.crc32(numpy.from_dlpack(t).tobytes()) for t in run.tensors('activation')]\n"
                "    text = ' '.join([losses[-1].hex(), str(len(rows)), str(rows[:1])])\n"
                "    open(f'{len(sys.argv)}.{run.rank}', 'w').write(text)\n")
        for names in ([], ["*"]):
            child = self.script(text, *self.two_ranks(), extra=names)
            _, err = self.wait(child)
            self.assertEqual(child.returncode, 0, err)
        plain, *kept = [(self.folder / name).read_text().split() for name in ("1.0", "2.0", "2.1")]
        self.assertEqual({plain[0]}, {one[0] for one in kept})
        self.assertGreater(int(kept[0][1]), 10)
        self.assertNotEqual(kept[0][2], kept[1][2])


@unittest.skipUnless(jax, "JAX is not there")
class WithJax(Case):
    def test_zero_copy(self):
        run = self.open()
        array = jax.dlpack.from_dlpack(run[WEIGHT])
        self.assertEqual(array.unsafe_buffer_pointer(), numpy.from_dlpack(run[WEIGHT]).ctypes.data)
        run.step()
        self.assertNotEqual(float(array[0]), 1.0)
        run.close()
        self.assertEqual(array.shape, (16,))

    def test_batch(self):
        tokens = jax.numpy.arange(34).reshape(2, 17) + 40
        expected = self.open().step(tokens=numpy.arange(34).reshape(2, 17) + 40).loss
        self.assertEqual(self.open().step(tokens=tokens).loss, expected)


@unittest.skipUnless(torch, "PyTorch is not there")
class WithTorch(Case):
    def test_zero_copy(self):
        run = self.open()
        tensor = torch.from_dlpack(run[WEIGHT])
        self.assertEqual(tensor.data_ptr(), numpy.from_dlpack(run[WEIGHT]).ctypes.data)
        run.step()
        self.assertNotEqual(tensor[0].item(), 1.0)
        loss = self.open().evaluate().loss
        fresh = self.open()
        torch.from_dlpack(fresh[WEIGHT]).fill_(0.25)
        self.assertNotEqual(fresh.evaluate().loss, loss)

    def test_batch(self):
        tokens = torch.arange(34).reshape(2, 17) + 40
        expected = self.open().step(tokens=tokens.numpy()).loss
        self.assertEqual(self.open().step(tokens=tokens).loss, expected)
        self.assertEqual(self.open().step(tokens=tokens.t().contiguous().t()).loss, expected)


if __name__ == "__main__":
    unittest.main()
