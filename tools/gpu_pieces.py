# SPDX-License-Identifier: Apache-2.0
"""The pieces of tools/gpu-check."""
import concurrent.futures
import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKED = ROOT / "pack.json"  # what a carried build says of itself
SOFTWARE = "software CUDA runtime (CPU)"
# One for each family: compute-sanitizer makes a kernel some hundred times slower.
FEW = "*activation*,*scale and cast*,*rms_norm*"
MODEL = {
    "llama": {"preset": "tiny", "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64,
              "num_attention_heads": 2},
    "gemma2": {"preset": "tiny", "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64,
               "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "query_pre_attn_scalar": 16,
               "sliding_window": 10, "attn_logit_softcapping": 0.5, "final_logit_softcapping": 2.0},
    "opt": {"preset": "tiny", "num_hidden_layers": 2, "hidden_size": 32, "ffn_dim": 128, "num_attention_heads": 2},
    "mamba": {"preset": "tiny", "num_hidden_layers": 2, "hidden_size": 32, "state_size": 4},
    "olmoe": {"preset": "tiny", "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 48,
              "num_attention_heads": 2, "num_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True},
    "mamba2": {"preset": "tiny", "num_hidden_layers": 2, "hidden_size": 32, "num_heads": 4, "head_dim": 16, "n_groups": 2,
               "state_size": 16},
    "bamba": {"preset": "tiny", "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2,
              "num_key_value_heads": 1, "attn_layer_indices": [1], "mamba_n_heads": 4, "mamba_d_state": 16},
    "qwen2_moe": {"preset": "tiny", "num_hidden_layers": 2, "hidden_size": 32, "moe_intermediate_size": 48,
                  "shared_expert_intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 1, "num_experts": 4},
}

LORA = ["adapter.plugin=lora", 'adapter.targets=["all-linear"]', "adapter.rank=2"]


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def need(holds, what):
    if not holds:
        raise Failed(what)


def toml(value):
    return json.dumps(value)


class Check:
    """Common needs of all pieces: the build, the environment of its programs, a folder for runs."""

    def __init__(self, args):
        self.args = args
        self.build = ROOT / "build" if PACKED.exists() else args.build.resolve()
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="gpu-check-"))
        self.plugin = self.build / "plugins/cuda/cuda.eng.so"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("SOFTCUDA_", "ENG_TEST_"))}
        folders = [str(ROOT / "lib")] if PACKED.exists() else []
        if args.software:
            folders.insert(0, str(self.build / "tests/cuda/runtime"))
            self.env.pop("CUDA_VISIBLE_DEVICES", None)
            self.env.update(SOFTCUDA_CARD="h200", SOFTCUDA_SEED="1")
            if self.twins():
                self.env["SOFTCUDA_TWINS"] = str(self.twins())
        else:
            folders.append(str(args.toolkit / "lib64"))
        folders += [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
        self.env.update(LD_LIBRARY_PATH=":".join(folders), ENG_TEST_DEVICE=str(self.plugin),
                        ENG_TEST_PLUGINS=str(self.build / "plugins"), HOME=str(self.work))
        # A moved build is no build tree in which the engine would look.
        self.env["ENGINE_PLUGIN_PATH"] = ":".join(str(f) for f in sorted((self.build / "plugins").iterdir()) if f.is_dir())
        self.numbers = {}

    def twins(self):
        """Kernels compiled for the host, which the software runtime runs in the place of the GPU's."""
        found = sorted((self.build / "tests/cuda").glob("*/*twins*.so"))
        return found[0] if found else None

    def need_kernels(self):
        if self.args.software and not self.twins():
            raise Skipped("this build has no kernels for the software runtime (tests/cuda/*/twins.so)")

    def run(self, command, env=None, limit=600, code=0):
        """The output of a program that ends with this exit code."""
        command = [str(word) for word in command]
        try:
            done = subprocess.run(command, env={**self.env, **(env or {})}, cwd=self.work, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, errors="replace", timeout=limit)
        except subprocess.TimeoutExpired:
            raise Failed(f"{' '.join(command)}: not done within {limit} s")
        if code is not None and done.returncode != code:
            raise Failed(f"{' '.join(command)}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
        return done

    def engine(self, *words, env=None, limit=600, code=0):
        return self.run([self.build / "tools/engine", *words], env, limit, code)

    def config(self, model, steps=None):
        text = self.work / "text.txt"
        if not text.exists():
            text.write_bytes(b"".join(p.read_bytes() for p in sorted((ROOT / "abi").glob("engine/*.h"))))
        steps = steps or (2 if self.args.quick else 6 if self.args.software else 50)
        section = "".join(f"{key} = {toml(value)}\n" for key, value in MODEL[model].items())
        path = self.work / f"{model}.toml"
        path.write_text(f"""[run]\nname = "{model}"\n[model]\nplugin = "{model}"\n{section}
[data]\npaths = ["text.txt"]\nvalidation = 0.0\n[train]\nsteps = {steps}\nmicro_batch = 2\nsequence_length = 32
[optimizer]\nlearning_rate = 1e-3\n[checkpoint]\nevery = {steps}\n""")
        return path

    def train(self, config, out, *words, device="cuda", env=None, limit=600):
        """The lines of its metrics."""
        self.need_kernels()
        folder = self.work / out
        done = self.engine("run", config, f"device.plugin={device}", "--out", folder, *words, env=env, limit=limit,
                           code=None)
        if done.returncode:
            text = done.stdout + done.stderr
            for why in ("has no kernel for", "need compute capability"):
                if why in text:
                    raise Skipped(next(l for l in text.splitlines() if why in l).strip())
            raise Failed(f"engine run {config} {' '.join(words)}: exit code {done.returncode}\n{text[-3000:]}")
        if device == "cuda":
            name = self.device_name()
            need(self.args.software == (SOFTWARE in name), f"the device calls itself {name}")
            self.need_cudnn(folder)
        return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]

    def need_cudnn(self, folder):
        choices = folder / "device_choices.txt"
        need(self.args.software or not choices.exists() or "= own\n" not in choices.read_text(),
             f"own kernels computed attention that the plan leaves to cuDNN, as {choices} says: is cuDNN 9 installed?")

    def device_name(self):
        return next(l for l in self.engine("doctor").stdout.splitlines() if l.startswith("device  cuda: "))

    def same(self, one, other, what):
        for key in ("loss", "grad_norm"):
            a, b = [[line[key] for line in lines] for lines, _ in (one, other)]
            need(a == b, f"{what}: {key} differs: {a} and {b}")
        self.engine("ckpt", "diff", self.work / one[1], self.work / other[1])

    def catch(self, program, words, env=None, limit=600, before=()):
        """Runs the tests that these words name, each in a process of its own: an error can end a context."""
        names = self.run([self.build / program, "--list-test-names-only", words], code=None).stdout.splitlines()
        need(names, f"{program} {words}: there is no such test")

        def one(name):
            done = self.run([*before, self.build / program, name.replace("\\", "\\\\").replace(",", "\\,")], env, limit)
            found = re.search(r"All tests passed \((\d+) assertion", done.stdout)
            need(found, f"{program} {name}: ran no test")
            return int(found.group(1))
        with concurrent.futures.ThreadPoolExecutor(max(1, min(6, (os.cpu_count() or 1) // 2))) as pool:
            assertions = sum(pool.map(one, names))
        return f"{assertions} assertions in {len(names)} test cases"

    # ---- pieces: each returns a line for the report -----------------------------------------------------------

    def doctor(self):
        """engine doctor lists the GPUs"""
        text = self.engine("doctor").stdout
        need("GPU 0: " in text and "in use by: " in text, "engine doctor lists no GPU:\n" + text)
        at = text.index("device  cuda: ")
        rows = text[at:].splitlines()
        block = [rows[0]] + [r for r in rows[1:] if r.startswith("     ")]
        self.numbers["doctor"] = block
        return rows[0][len("device  cuda: "):]

    def contract(self):
        """memory, queues, events, graphs and copies of the device, as abi/engine/device.h asks"""
        return self.catch("tests/cuda/device/tests-cuda-contract", "~[software]")

    def kernels(self):
        """every kernel against the reference device on the CPU, attention by the plugin and by cuDNN"""
        self.need_kernels()
        words, told = "*activation*" if self.args.quick else "~[emulated]", []  # which takes the slow ones too
        for who in ("own",) if self.args.software else ("own", "auto"):
            if who == "auto":
                words = '"*attention*"~[emulated]~[own]'
                self.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcudnn.so.9')"])  # else own kernels compute
            done = self.catch("tests/cuda/kernels/tests-cuda-kernels", words, limit=3000,
                              env={"ENG_TEST_OPTIONS": f"workspace=1048576 attention={who}"})
            told.append(f"attention = {who}: {done}")
        return "; ".join(told)

    def sanitizer(self):
        """some kernels under compute-sanitizer: memcheck, initcheck, racecheck, synccheck"""
        if self.args.software:
            raise Failed("compute-sanitizer needs a GPU")
        tool = shutil.which("compute-sanitizer") or self.args.toolkit / "bin/compute-sanitizer"
        if not pathlib.Path(tool).exists():
            raise Skipped(f"{tool} is not installed")
        def under(kind):
            return self.catch("tests/cuda/kernels/tests-cuda-kernels", FEW, limit=1500,
                              env={"ENG_TEST_OPTIONS": "workspace=65536 attention=own"},
                              before=[tool, "--tool", kind, "--error-exitcode", "9"])
        with concurrent.futures.ThreadPoolExecutor() as pool:
            done = list(pool.map(under, ("memcheck", "initcheck", "racecheck", "synccheck")))
        return f"no error in {done[0]} under each of the four"

    def against_cpu(self, model):
        config = self.config(model)
        got, want = self.train(config, model), self.train(config, model + "-cpu", device="cpu")
        worst = max(abs(g[k] / w[k] - 1) for g, w in zip(got, want) for k in ("loss", "grad_norm"))
        self.numbers.update(steps=len(got), worst=worst)
        need(len(got) == len(want), "another number of steps")
        need(worst <= 1e-4, f"losses and norms are up to {worst:.1e} from the cpu's: more than 1e-4")
        return f"{len(got)} steps, losses and norms within {worst:.1e} of the cpu's"

    def train_llama(self):
        """a tiny llama in fp32: losses and norms within 1e-4 of the cpu device's"""
        return self.against_cpu("llama")

    def train_opt(self):
        """a tiny opt, the same"""
        return self.against_cpu("opt")

    def train_mamba(self):
        """a tiny mamba, the same"""
        return self.against_cpu("mamba")

    def train_gemma2(self):
        """a tiny gemma2, with windows, capped scores and capped logits, the same"""
        return self.against_cpu("gemma2")

    def train_olmoe(self):
        """a tiny olmoe, with experts and the term of the loss that balances them, the same"""
        return self.against_cpu("olmoe")

    def train_mamba2(self):
        """a tiny mamba2, the same"""
        return self.against_cpu("mamba2")

    def train_bamba(self):
        """a tiny bamba, a hybrid of mamba2 and attention, the same"""
        return self.against_cpu("bamba")

    def train_qwen2_moe(self):
        """a tiny qwen2_moe, with an expert of every token behind a router with a sigmoid, the same"""
        return self.against_cpu("qwen2_moe")

    def train_fp8(self):
        """products in fp8, with current and with delayed scaling: losses near the cpu's, two runs equal bit for bit"""
        config, rows = self.config("llama", 3 if self.args.software else 8), {}
        for form in ("fp32", "bf16"):
            for recipe in ("current", "delayed"):
                words, out = [f"precision.plugin={form}", f'transforms=[{{plugin="fp8",recipe="{recipe}"}}]'], f"{recipe}-{form}"
                want = self.train(config, f"fp8-{out}-cpu", *words, device="cpu")
                got, again = [self.train(config, f"fp8-{out}-{k}", *words) for k in "12"]
                self.same((got, f"fp8-{out}-1"), (again, f"fp8-{out}-2"), f"two runs, {recipe}, {form}")
                rows[out] = worst = max(abs(g["loss"] / w["loss"] - 1) for g, w in zip(got, want, strict=True))
                need(worst <= 5e-3, f"{out}: losses are up to {worst:.1e} from the cpu's: more than 5e-3")
        self.numbers["worst"] = rows
        return f"{', '.join(rows)}: losses within {max(rows.values()):.1e} of the cpu's; equal when repeated"

    def repeat(self):
        """two runs are equal, bit for bit"""
        config = self.config("llama")
        again = {"SOFTCUDA_SEED": "77"} if self.args.software else None  # another order of its queues
        self.same((self.train(config, "one"), "one"), (self.train(config, "two", env=again), "two"), "two runs")
        return "losses, norms and checkpoints of two runs are equal"

    def synchronous(self):
        """a run that waits for each launch, without graphs, has the same bits"""
        config = self.config("llama")
        one, other = self.train(config, "graphs"), self.train(config, "waits", "device.synchronous=true")
        self.same((one, "graphs"), (other, "waits"), "with and without graphs")
        return "equal with and without graphs"

    def error(self):
        """an error that ends the context tells the command that finds its op, and that command does"""
        if not self.args.software:
            raise Failed("only the software runtime fails on request")
        self.need_kernels()
        config = self.config("llama", 4)
        words = ["device.plugin=cuda", "checkpoint.every=1"]
        done = self.engine("run", config, *words, "--out", "failed", env={"SOFTCUDA_FAIL": "400"}, code=3)
        command = "engine run RUN device.synchronous=true"
        need(command in done.stderr, "the command is not told:\n" + done.stderr[-2000:])
        need(", eng." not in done.stderr.splitlines()[-1], "an op is blamed that nobody knows:\n" + done.stderr[-2000:])
        done = self.engine(*command.replace("RUN", "failed").split()[1:], env={"SOFTCUDA_FAIL": "60"}, code=3)
        last = next(line for line in done.stderr.splitlines() if line.startswith("error: "))
        need("resumes from" in done.stderr and "device cuda, eng." in last and "queue 0, running: cudaError" in last,
             "the op is not told:\n" + done.stderr[-2000:])
        return last[len("error: "):].split(" (")[0]

    def stages(self):
        """zero none, zero1, zero2 and zero3 on two ranks are equal, bit for bit; over mpi they may share one GPU"""
        if not shutil.which("mpirun"):
            raise Skipped("mpirun is not installed")
        config, first = self.config("llama", 2), None
        env = {"SOFTCUDA_DEVICES": "2"} if self.args.software or gpus()[0] > 1 else {"CUDA_VISIBLE_DEVICES": "0"}
        for stage in ("none", "zero1", "zero2", "zero3"):
            run = (self.train(config, stage, "--ranks", "2", f"zero.plugin={stage}", env=env), stage)
            first = first or run
            self.same(first, run, f"none and {stage}")
        return "none, zero1, zero2 and zero3 are equal on two ranks"

    def shared_gpu(self):
        """two ranks of NCCL on one GPU, which NCCL tries from 2.30 on: zero1 to zero3 beside mpi, graphs, a lost rank"""
        from gpu_ranks import SharedCheck  # which has this class as its base
        shared = SharedCheck(self.args)
        shared.numbers = self.numbers
        return shared.report()

    def policies(self):
        """recompute, tiers of the host and of disks, and waiting for each launch change no bit, in fp32 and bf16"""
        config, told = self.config("llama", 4), []
        host = ["offload.optimizer=host", "offload.gradients=host", "offload.parameters=host", "offload.activations=host"]
        disk = ["offload.optimizer=nvme", "offload.gradients=nvme", "offload.parameters=nvme", "offload.nvme_block=4KiB",
                f"offload.nvme_paths=[{toml(str(self.work))}]", "offload.nvme_direct=false"]
        for form in ("fp32", "bf16"):
            words = [f"precision.plugin={form}", "train.accumulate=2"]
            first = (self.train(config, f"plain-{form}", *words), f"plain-{form}")
            for name, more in (("recompute", ["recompute.blocks=2"]), ("host", host), ("nvme", disk),
                               ("synchronous", ["device.synchronous=true"])):
                out = f"{name}-{form}"
                self.same(first, (self.train(config, out, *words, *more), out), f"{form}, with and without {name}")
                told.append(out)
        return "equal to the plain run: " + ", ".join(told)

    def formats(self):
        """16-bit formats and the optimizers beside adamw: losses beside those of the cpu device in the same format"""
        most, rows = {"fp32": 1e-4, "bf16": 2e-2, "bf16_sr": 2e-2, "fp16": 5e-3}, {}
        for model in ("llama", "opt", "mamba"):
            config = self.config(model, 2 if self.args.software else 8)
            for form, optimizer in (("bf16", "adamw"), ("bf16_sr", "adamw"), ("fp16", "adamw"), ("fp32", "adamw8bit"),
                                    ("fp32", "muon"), ("fp32", "normuon"), ("fp32", "sgd")):
                words, name = [f"precision.plugin={form}", f"optimizer.plugin={optimizer}"], f"{model} {form} {optimizer}"
                got = self.train(config, f"{name} cuda".replace(" ", "-"), *words)
                want = self.train(config, f"{name} cpu".replace(" ", "-"), *words, device="cpu")
                rows[name] = worst = max(abs(g["loss"] / w["loss"] - 1) for g, w in zip(got, want, strict=True))
                need(worst <= most[form], f"{name}: losses are up to {worst:.1e} from the cpu's: more than {most[form]:.0e}")
        self.numbers["worst"] = rows
        return f"losses within {max(rows.values()):.1e} of the cpu's"

    def adapters(self):
        """LoRA of llama and mamba, beside frozen weights in 8 or 4 bits, and with preferences: losses near the cpu's"""
        pairs, rows, steps = self.work / "pairs.jsonl", {}, 2 if self.args.software else 8
        pairs.write_text("".join(f'{{"prompt": "Is it {k}?", "chosen": " Yes.", "rejected": " Go away!"}}\n' for k in range(8)))
        frozen = [("llama", [f"precision.frozen={form}"]) for form in ("int8", "e4m3", "nf4", "nf4_double")]
        dpo = ["loss.plugin=preference", "reference.from=base", "data.plugin=pairs", 'data.paths=["pairs.jsonl"]']
        for model, more in [("mamba", []), ("mamba", frozen[2][1]), ("llama", dpo), *frozen]:
            words, name = [*LORA, *more], f"{model} {(more or ['lora'])[0].split('=')[-1]}"
            config, out = self.config(model, steps), name.replace(" ", "-")
            got, want = self.train(config, f"{out}-cuda", *words), self.train(config, f"{out}-cpu", *words, device="cpu")
            rows[name] = worst = max(abs(g["loss"] / w["loss"] - 1) for g, w in zip(got, want, strict=True))
            need(worst <= 1e-4, f"{name}: losses are up to {worst:.1e} from the cpu's: more than 1e-4")
        self.numbers["worst"] = rows
        return f"{', '.join(rows)}: losses within {max(rows.values()):.1e} of the cpu's"

    def analyse(self):
        """the analysis of curvature: the same bits again, the planned memory, and near what the cpu device measures"""
        self.need_kernels()
        config, results = self.config("opt", 1), {}
        words = ["--job", "curvature", "data.validation=0.2", "job.probes=2", "job.windows=2", "job.held_windows=2",
                 "job.train_windows=2", "job.noise_seeds=1", "job.noise=[0.0, 0.01]"]
        for out, device in (("analysis", "cuda"), ("analysis-again", "cuda"), ("analysis-cpu", "cpu")):
            self.engine("analyse", config, *words, f"device.plugin={device}", "--out", out)
            results[out] = json.loads((self.work / out / "results.json").read_text())
        got, again, want = results.values()
        memory = [got["memory"][which]["device_peak_bytes"] for which in ("planned", "measured")]
        need(memory[0] == memory[1], f"planned {memory[0]} bytes of the device, measured {memory[1]}")
        measured = ("tensors", "activations", "prm_results", "partition", "embedding")
        need(all(got[part] == again[part] for part in measured), "another analysis has other numbers")
        for one in got["prm_results"]["responses"]:
            need(one["sigma"] or one["perplexity_change"]["mean"] == 0, "noise of 0 changes the perplexity")
        worst = 0.0
        for g, w in zip(got["tensors"], want["tensors"], strict=True):
            for key in ("hessian_abs", "gradient_norm", "weight_norm"):
                error = abs(g[key] - w[key]) / (abs(w[key]) + 1e-2)
                need(error <= 5e-3, f"{key} of {g['name']} is {g[key]}, on the cpu {w[key]}")
                worst = max(worst, error)
        self.numbers["worst"] = worst
        return f"{len(got['tensors'])} tensors, within {worst:.1e} of the cpu's"

    def serve(self):
        """a run is resumed with the same bits, evaluated and continued as text, on the GPU as on the cpu"""
        config = self.config("llama", 6)
        whole = (self.train(config, "whole"), "whole")
        self.train(config, "parts", "train.steps=3", "checkpoint.every=3")
        self.engine("run", self.work / "parts", "train.steps=6")
        lines = [json.loads(line) for line in (self.work / "parts/metrics.jsonl").read_text().splitlines()]
        self.same(whole, (lines, "parts"), "a run in two parts")
        (self.work / "few.txt").write_bytes((self.work / "text.txt").read_bytes()[:2000])
        said = {}
        for device in ("cuda", "cpu"):
            text = self.engine("generate", self.work / "whole", "int32_t ", f"device.plugin={device}", "--tokens", "40",
                               "--temperature", "0").stdout
            score = json.loads(self.engine("eval", self.work / "whole", f"device.plugin={device}", "--json", "--all",
                                           "data.paths=[\"few.txt\"]").stdout)
            said[device] = (text, score["loss"])
        (text, loss), (wanted, close) = said["cuda"], said["cpu"]
        need(text == wanted, f"the GPU continues with {text!r}, the cpu with {wanted!r}")
        need(abs(loss / close - 1) <= 1e-5, f"eval: loss {loss} on the GPU, {close} on the cpu")
        return f"resumed bit for bit; text equal to the cpu's; eval {loss:.6f} and {close:.6f}"

    def memory(self):
        """memory that a run takes of the GPU, beside what its plan says"""
        config = self.config("llama")
        words = [] if self.args.software else ["model.hidden_size=1024", "model.intermediate_size=4096",
                                               "model.num_hidden_layers=12", "train.sequence_length=512"]
        plan = json.loads(self.engine("plan", config, "device.plugin=cuda", "--json", *words).stdout)["ranks"][0]
        planned = sum(a["total"] for a in plan["arenas"] if a["kind"] == "device")
        self.numbers.update(planned_arenas=planned, planned_peak=plan["device_peak_bytes"])
        if self.args.software:
            peak = self.work / "peak"
            self.train(config, "memory", *words, env={"SOFTCUDA_PEAK": str(peak)})
            measured = int(peak.read_text().split()[0])
            step = 2 << 20  # the driver gives memory in such steps
            need(-(-planned // step) * step == measured, f"planned {planned} bytes in arenas, allocated {measured}")
            return f"arenas of {planned} bytes planned, {measured} allocated (in steps of 2 MiB)"
        measured = self.watch(config, words)
        self.numbers.update(measured=measured)
        need(planned <= measured, f"the run took {measured} bytes, less than its arenas: was it seen?")
        need(measured <= plan["device_peak_bytes"], f"planned {plan['device_peak_bytes']} bytes, measured {measured}")
        return f"planned {plan['device_peak_bytes']} bytes with the driver's, measured {measured}"

    def watch(self, config, words):
        """The most memory of GPU 0 beyond what others use, while it trains."""
        if not shutil.which("nvidia-smi"):
            raise Skipped("nvidia-smi is not installed")

        def used():
            text = self.run(["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]).stdout
            return int(text.split()[0]) << 20
        before = most = used()
        log = open(self.work / "watched.log", "w")
        child = subprocess.Popen([str(w) for w in (self.build / "tools/engine", "run", config, "device.plugin=cuda", "--out",
                                                   self.work / "watched", *words)],
                                 env=self.env, cwd=self.work, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while child.poll() is None:
            most = max(most, used())
            time.sleep(0.05)
        need(child.returncode == 0, (self.work / "watched.log").read_text()[-3000:])
        return most - before

    def first_steps(self, steps, config, out, *words):
        """The metrics of the first steps of a run, which is ended then: its checkpoint would take long."""
        metrics, log = self.work / out / "metrics.jsonl", open(self.work / f"{out}.log", "w")
        child = subprocess.Popen([str(w) for w in (self.build / "tools/engine", "run", config, "--out", self.work / out,
                                                   "train.steps=100000", *words)],
                                 env=self.env, cwd=self.work, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        lines, end = [], time.monotonic() + 300
        while len(lines) <= steps and child.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
            if metrics.exists():
                lines = [l for l in metrics.read_text().splitlines(keepends=True) if l.endswith("\n")]
        child.kill()
        child.wait()
        need(len(lines) > steps, (self.work / f"{out}.log").read_text()[-3000:])
        return [json.loads(line) for line in lines]


def gpus():
    """(number of GPUs, why there is none)"""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        return 0, f"there is no NVIDIA driver ({e})"
    count = ctypes.c_int(0)
    error = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    return count.value, f"CUDA's driver answers with error {error}" if error else "no GPU is visible"
