# SPDX-License-Identifier: Apache-2.0
"""The speeds of tools/gpu-check: limits of the GPU, measured on the spot, and steps beside them, beside the plan's
estimates, and beside PyTorch."""
import array
import collections
import concurrent.futures
import ctypes
import json
import os
import random
import re
import statistics
import subprocess
import time
import typing

from gpu_pieces import Check, Failed, LORA, ROOT, Skipped, need

# The products of a step of these models: (tokens, layers, products of a layer as {(inputs, outputs): how many}, products
# of the head). A training step makes each product three times.
PRODUCTS = {
    "llama_1b": (4 * 2048, 22, {(2048, 2048): 4, (2048, 5632): 2, (5632, 2048): 1}, (2048, 32000)),
    "llama_7b": (8 * 1024, 32, {(4096, 4096): 4, (4096, 11008): 2, (11008, 4096): 1}, (4096, 32000)),
    "mamba_1b": (4 * 1024, 34, {(2048, 8192): 1, (4096, 160): 1, (128, 4096): 1, (4096, 2048): 1}, (2048, 50304)),
}


class Row(typing.NamedTuple):
    """A step that is measured."""
    name: str
    what: str
    model: str         # the [model] section
    batch: tuple       # micro_batch, accumulate, sequence_length
    words: tuple       # more of the configuration
    steps: int         # measured ones; two thirds of them count
    products: str = ""  # of PRODUCTS
    peer: str = ""      # MODEL FORMAT of benchmarks/torch_step.py
    h200: float = 0     # tokens/s of benchmarks/results/steps-h200.md


LLAMA_1B = 'plugin = "llama"\npreset = "tinyllama"\nnum_key_value_heads = 32\n'
LLAMA_7B = 'plugin = "llama"\npreset = "7b"\n'
LLAMA_58M = 'plugin = "llama"\npreset = "bench"\n'
BF16, ON_HOST = "precision.plugin=bf16", "offload.optimizer=host"
ROWS = (
    Row("speed_1b", "LLaMA 1.26B, 4 x 2048, bf16", LLAMA_1B, (4, 1, 2048), (BF16,), 20, "llama_1b", "llama_1b autocast-bf16",
        60300),
    Row("speed_mamba", "Mamba 1.0B, 4 x 1024, 50,257 ids, bf16", 'plugin = "mamba"\npreset = "1b_mamba"\n', (4, 1, 1024),
        (BF16,), 20, "mamba_1b", h200=38000),
    Row("speed_58m_f32", "LLaMA 58M, 8 x 256, fp32", LLAMA_58M, (8, 1, 256), (), 60, peer="llama fp32", h200=53700),
    Row("speed_58m", "LLaMA 58M, 8 x 256, bf16", LLAMA_58M, (8, 1, 256), (BF16,), 60, peer="llama autocast-bf16", h200=654000),
    Row("speed_7b", "LLaMA 7B, 8 x 1024 x 8, bf16_sr", LLAMA_7B, (8, 8, 1024), ("precision.plugin=bf16_sr",), 5, "llama_7b",
        h200=13830),
    Row("speed_host", "LLaMA 7B, 4 x 2048 x 8, AdamW on the host, updated early and late", LLAMA_7B, (4, 8, 2048),
        (BF16, ON_HOST, "offload.update_early=true", "offload.update_late=true"), 4, "llama_7b"),
    Row("speed_host_waits", "the same, updated between the steps", LLAMA_7B, (4, 8, 2048), (BF16, ON_HOST), 4, "llama_7b",
        h200=8300),
    Row("speed_both", "the same, updated by host and GPU together", LLAMA_7B, (4, 8, 2048),
        (BF16, ON_HOST, "offload.update=both"), 4, "llama_7b"),
    Row("speed_muon", "LLaMA 1.26B, 4 x 2048, bf16, muon", LLAMA_1B, (4, 1, 2048), (BF16, "optimizer.plugin=muon"), 10,
        "llama_1b", h200=5800),
    Row("speed_fp8", "LLaMA 1.26B, 4 x 2048, products in fp8", LLAMA_1B, (4, 1, 2048), (BF16, 'transforms=[{plugin="fp8"}]'),
        15, "llama_1b"),
    Row("speed_mamba_7b", "Mamba 7B, 4 x 1024 x 4, 4 checkpoints, AdamW on the host", 'plugin = "mamba"\npreset = "7b_mamba"\n',
        (4, 4, 1024), (BF16, ON_HOST, "recompute.blocks=4"), 4, h200=2900),
    Row("speed_lora", "LoRA of a LLaMA 8B, 2 x 4096, bf16", 'plugin = "llama"\npreset = "llama-3-8b"\n', (2, 1, 4096),
        (BF16, *LORA[:2], "adapter.rank=16"), 8),
    Row("speed_qlora", "the same, frozen weights in nf4", 'plugin = "llama"\npreset = "llama-3-8b"\n', (2, 1, 4096),
        (BF16, *LORA[:2], "adapter.rank=16", "precision.frozen=nf4"), 8),
    Row("speed_packed", "the same LoRA, packed documents", 'plugin = "llama"\npreset = "llama-3-8b"\n', (2, 1, 4096),
        (BF16, *LORA[:2], "adapter.rank=16", 'data.paths=["documents.jsonl"]', "data.pack=true"), 8),
)
# In software: that the script reads what a run says. No speed of a GPU.
SMALL = ("model.preset=tiny", "model.num_hidden_layers=2", "model.hidden_size=32", "model.intermediate_size=64",
         "model.num_attention_heads=2", "train.sequence_length=32", "train.micro_batch=2")
SOFTWARE_ROW = "speed_58m_f32"


class Gpu:
    """GPU 0 by the CUDA runtime's and cuBLAS' own functions: what copies and products alone take."""

    def __init__(self, env):
        folders = env["LD_LIBRARY_PATH"].split(":")
        self.runtime, self.blas = (self.library(folders, name) for name in ("libcudart.so.13", "libcublas.so.13"))
        need(self.runtime, "libcudart.so.13 was not found")
        self.start, self.end = (self.made("cudaEventCreateWithFlags", ctypes.c_uint(0)) for _ in range(2))
        self.stream = self.made("cudaStreamCreateWithFlags", ctypes.c_uint(1))  # 1: it waits for no other stream

    @staticmethod
    def library(folders, name):
        for path in [os.path.join(f, name) for f in folders] + [name]:
            try:
                return ctypes.CDLL(path)
            except OSError:
                pass
        return None

    def call(self, name, *words):
        code = getattr(self.runtime, name)(*words)
        need(code == 0, f"{name} answers with error {code}")

    def made(self, name, *words):
        out = ctypes.c_void_p()
        self.call(name, ctypes.byref(out), *words)
        return out

    def seconds(self, work, times):
        """The middle of so many calls of work(), after two that do not count."""
        took, ms = [], ctypes.c_float()
        for k in range(times + 2):
            self.call("cudaEventRecord", self.start, self.stream)
            work()
            self.call("cudaEventRecord", self.end, self.stream)
            self.call("cudaEventSynchronize", self.end)
            self.call("cudaEventElapsedTime", ctypes.byref(ms), self.start, self.end)
            took.append(ms.value / 1e3)
        return statistics.median(took[2:])

    def copies(self, size):
        """Bytes per second within the GPU's memory (read and written), to it, and from it."""
        bytes_, one, other = ctypes.c_size_t(size), *(self.made("cudaMalloc", ctypes.c_size_t(size)) for _ in range(2))
        host, rates = self.made("cudaHostAlloc", bytes_, ctypes.c_uint(0)), []
        for to, source, moved in ((one, other, 2 * size), (one, host, size), (host, one, size)):
            def copy():
                self.call("cudaMemcpyAsync", to, source, bytes_, ctypes.c_int(4), self.stream)  # 4: whichever way
            rates.append(moved / max(self.seconds(copy, 5), 1e-9))
        for pointer in (one, other):
            self.call("cudaFree", pointer)
        self.call("cudaFreeHost", host)
        return rates

    def matrix(self, elements):
        """bf16 of 2^-3 to 2 and both signs, at random: zeros take less power, and so less time."""
        random.seed(elements)
        some = array.array("H", (random.choice((0x3e00, 0x3f00, 0xbe00, 0xbf00)) | random.getrandbits(8) for _ in range(1 << 16)))
        out = self.made("cudaMalloc", ctypes.c_size_t(elements * 2))
        for at in range(0, elements, len(some)):
            size = min(len(some), elements - at) * 2
            self.call("cudaMemcpy", ctypes.c_void_p(out.value + at * 2), ctypes.c_void_p(some.buffer_info()[0]),
                      ctypes.c_size_t(size), ctypes.c_int(1))
        return out

    def products(self, tokens, inputs, outputs):
        """Seconds of the three products of a linear layer: y = x w', dx = dy w, dw = dy' x, in bf16 with sums in f32."""
        handle = ctypes.c_void_p()
        need(self.blas.cublasCreate_v2(ctypes.byref(handle)) == 0, "cublasCreate fails")
        need(self.blas.cublasSetStream_v2(handle, self.stream) == 0, "cublasSetStream fails")
        x, w, y = (self.matrix(n) for n in (tokens * inputs, inputs * outputs, tokens * outputs))
        one, zero = ctypes.c_float(1), ctypes.c_float(0)

        # Matrices are by columns there: rows of ours are its columns.
        def multiply(flip_a, flip_b, m, n, k, a, lda, b, ldb, c):
            code = self.blas.cublasGemmEx(handle, *map(ctypes.c_int, (flip_a, flip_b, m, n, k)), ctypes.byref(one), a,
                                          ctypes.c_int(14), ctypes.c_int(lda), b, ctypes.c_int(14), ctypes.c_int(ldb),
                                          ctypes.byref(zero), c, ctypes.c_int(14), ctypes.c_int(m), ctypes.c_int(68),
                                          ctypes.c_int(-1))  # 14: bf16; 68: sums in f32; -1: its own choice
            need(code == 0, f"cublasGemmEx answers with error {code}")
        out = sum(self.seconds(work, 10) for work in (
            lambda: multiply(1, 0, outputs, tokens, inputs, w, inputs, x, inputs, y),
            lambda: multiply(0, 0, inputs, tokens, outputs, w, inputs, y, outputs, x),
            lambda: multiply(0, 1, inputs, outputs, tokens, x, inputs, y, outputs, w)))
        for pointer in (x, w, y):
            self.call("cudaFree", pointer)
        self.blas.cublasDestroy_v2(handle)
        return out


def measure_limits(env, software):
    """(a line for the report, its numbers)"""
    gpu = Gpu(env)
    inside, to, back = gpu.copies(1 << 20 if software else 1 << 30)
    numbers = {"copy": inside, "to_device": to, "to_host": back, "products": {}}
    told = f"copies {inside / 1e12:.2f} TB/s inside, {to / 1e9:.1f} GB/s to the GPU, {back / 1e9:.1f} GB/s from it"
    if software or not gpu.blas:
        return told + "; no libcublas.so.13: products were not measured", numbers
    for name, (tokens, layers, layer, head) in PRODUCTS.items():
        seconds = gpu.products(tokens, *head) + layers * sum(
            count * gpu.products(tokens, *sizes) for sizes, count in layer.items())
        flops = 6 * tokens * (head[0] * head[1] + layers * sum(a * b * count for (a, b), count in layer.items()))
        numbers["products"][name] = tokens / seconds
        told += f"; products of {name} alone {tokens / seconds:.0f} tokens/s, {flops / seconds / 1e12:.0f} TFLOP/s"
    return told, numbers


class SpeedCheck(Check):
    """The pieces of one GPU, with those that measure."""

    def limits(self):
        """what this GPU can do at most: bytes per second of copies, FLOP/s of the products of three models"""
        with concurrent.futures.ProcessPoolExecutor(1) as pool:  # a process that takes its context of the GPU with it
            told, numbers = pool.submit(measure_limits, self.env, self.args.software).result()
        self.numbers.update(numbers)
        return told

    def attention(self):
        """milliseconds of the gradient of attention by own kernels, by those for sm_90 and by cuDNN, and their values"""
        self.need_kernels()
        told = []
        for shape in ("1 2 70 64", "1 1 130 128") if self.args.software else ("4 32 2048 64", "4 16 2048 128"):
            done = self.run([self.build / "tests/cuda/kernels/tests-cuda-kernels", "speed of the gradient of attention*"],
                            {"ENG_TEST_SPEED": shape}, 300)
            rows = re.findall(r"^(\S+) (?:([\d.]+) ms ([\d.e+-]+) apart|refused)", done.stdout, re.M)
            need([who for who, _, _ in rows] == ["own", "own-wgmma", "cudnn"], f"not the lines that were expected:\n{done.stdout}")
            self.numbers[shape] = {who: float(ms) if ms else None for who, ms, _ in rows}
            told.append(" x ".join(shape.split()) + ": " + ", ".join(
                f"{who} {ms} ms ({apart} apart)" if ms else f"{who} refuses" for who, ms, apart in rows))
        return "; ".join(told)

    def speed(self, row):
        if self.args.software:
            need(row.name == SOFTWARE_ROW, "the software runtime has no speed of a GPU")
        config, words = self.speed_config(row), [*row.words, *(SMALL if self.args.software else ())]
        done = self.engine("plan", config, "--json", *words, code=None)
        need(done.returncode in (0, 5, 6), f"engine plan {config}: exit code {done.returncode}\n{done.stderr[-3000:]}")
        plan = json.loads(done.stdout)
        if done.returncode:  # it does not fit
            gpu, host = (plan["ranks"][0][of + "_peak_bytes"] / 2**30 for of in ("device", "host"))
            raise Skipped(f"it needs {gpu:.1f} GiB of the GPU and {host:.1f} GiB of the host, more than there is")
        steps = 3 if self.args.software else row.steps
        lines = self.first_steps(steps, config, row.name, f"--trace={steps - 1}-{steps - 1}", *words)
        self.need_cudnn(self.work / row.name)
        rate = statistics.median(line["tokens_per_second"] for line in lines[steps // 3:])
        seconds = plan["step_seconds_estimate"]  # null: the rates of this GPU are not known
        used = [line["device"]["used_bytes"] for line in lines if "used_bytes" in line.get("device", {})]
        self.numbers.update(what=row.what, tokens_per_second=round(rate, 1), h200=row.h200, products=row.products,
                            estimate=round(lines[-1]["tokens"] / lines[-1]["step"] / seconds, 1) if seconds else 0,
                            planned_bytes=plan["ranks"][0]["device_peak_bytes"], used_bytes=max(used, default=0),
                            loss=[lines[0]["loss"], lines[-1]["loss"]], ops=self.ops(config, self.work / row.name, words), peers={})
        if self.args.torch and row.peer:
            self.peers(row)
        beside = {"estimated": self.numbers["estimate"], **self.numbers["peers"]}
        return f"{rate:.0f} tokens/s" + "".join(f", {name} {value:.0f}" for name, value in beside.items() if value)

    def speed_config(self, row):
        micro, accumulate, length = row.batch
        self.config("llama")  # which writes text.txt
        if any("documents" in word for word in row.words):
            text = (self.work / "text.txt").read_text(errors="replace") * 2
            (self.work / "documents.jsonl").write_text("".join(  # of 100 to 1,600 characters
                json.dumps({"text": text[k * 900:][:100 + k * 977 % 1500]}) + "\n" for k in range(len(text) // 900)))
        path = self.work / f"{row.name}.toml"
        path.write_text(f"""[model]\n{row.model}[data]\npaths = ["text.txt"]\nvalidation = 0.0\n[train]\nsteps = 1
micro_batch = {micro}\naccumulate = {accumulate}\nsequence_length = {length}\ngrad_clip = 1.0\n[optimizer]\nlearning_rate = 1e-4
[checkpoint]\nevery = 0\n[device]\nplugin = "cuda"\n""")
        return path

    def ops(self, config, out, words):
        """{op: [measured ms, estimated ms]} of the step that was traced, on whichever queue; the largest."""
        estimated = self.work / "estimated.json"
        self.engine("plan", config, "--trace", estimated, *words)
        sums = []
        for path in (out / "trace-rank-00000.json", estimated):
            events = json.loads(path.read_text())
            events = events["traceEvents"] if isinstance(events, dict) else events
            of = collections.Counter()
            for event in events:
                if event.get("ph") == "X" and event["name"].startswith("eng."):
                    of[event["name"]] += event["dur"] / 1e3
            sums.append(of)
        return {name: [round(of[name], 3) for of in sums] for name, _ in sums[0].most_common(12)}

    def speed_curvature(self):
        """seconds and memory of an analysis of OPT-1.3B: 8 probes of the diagonal, in f32"""
        config = self.speed_config(Row("speed_curvature", "", 'plugin = "opt"\npreset = "1.3b"\n', (1, 1, 1024), (), 0))
        words = ["--job", "curvature", "job.probes=8", "job.windows=4", "job.held_windows=4", "job.train_windows=4",
                 "job.noise_seeds=1", "job.noise=[0.0, 0.01]", "data.validation=0.2"]
        if self.args.software:
            words += ["model.preset=tiny", "model.num_hidden_layers=1", "model.hidden_size=16", "model.ffn_dim=32",
                      "model.num_attention_heads=2", "train.sequence_length=32", "job.probes=2"]
        start = time.monotonic()
        self.engine("analyse", config, *words, "--out", "curvature", limit=400)
        memory = json.loads((self.work / "curvature/results.json").read_text())["memory"]
        planned, measured = (memory[which]["device_peak_bytes"] for which in ("planned", "measured"))
        self.numbers.update(seconds_of_analysis=round(time.monotonic() - start, 1), planned_bytes=planned)
        need(planned == measured, f"planned {planned} bytes of the device, measured {measured}")
        return f"{self.numbers['seconds_of_analysis']} s, {planned / 2**30:.1f} GiB planned and measured"

    def peers(self, row):
        model, form = row.peer.split()
        for mode in ("compile", "reduce-overhead", "max-autotune"):
            command = [self.args.torch, ROOT / "benchmarks/torch_step.py", model, mode, "20", form, "cuda"]
            env = {"LD_LIBRARY_PATH": os.environ.get("TORCH_LD_LIBRARY_PATH", "")}
            try:
                told = json.loads(self.run(command, env, limit=300).stdout.splitlines()[-1])
                self.numbers["peers"][f"torch {told['torch']} {mode}"] = told["tokens_per_second"]
            except (Failed, ValueError, IndexError) as e:  # not every version compiles every mode
                self.numbers.setdefault("peers_failed", {})[mode] = str(e)[-500:]


def piece(row):
    def run(self):
        return self.speed(row)
    run.__doc__ = f"tokens per second: {row.what}"
    return run


for row in ROWS:
    setattr(SpeedCheck, row.name, piece(row))
SPEEDS = (*(row.name for row in ROWS), "speed_curvature")


def table(pieces):
    """Lines of the report: each step beside the limits that were measured on this GPU, the estimates, and the peers; then
    where the time of each went."""
    rows = {name: one for name, one in pieces.items() if one["result"] == "passed" and "ops" in one}
    if not rows:
        return []
    alone = pieces.get("limits", {}).get("products", {})
    number = lambda value: f"{value:,.0f}" if value else ""
    lines = ["", "## Steps", "", "Tokens per second; products alone are those of this GPU by cuBLAS, in bf16.", "",
             "| step | measured | estimated | products alone | PyTorch, its fastest mode | H200, 4aeccbe8 | planned | taken of the GPU |",
             "|---|---|---|---|---|---|---|---|"]
    for name, one in rows.items():
        best = max(one["peers"].items(), key=lambda item: item[1], default=("", 0))
        peer = f"{number(best[1])} ({best[0].split()[-1]})" if best[1] else ""
        lines.append("| " + " | ".join((
            one["what"], number(one["tokens_per_second"]), number(one["estimate"]), number(alone.get(one["products"])), peer,
            number(one["h200"]), *(f"{one[key] / 2**30:.1f} GiB" if one[key] else "" for key in ("planned_bytes", "used_bytes")))) + " |")
    lines += ["", "## Where the time of a step goes", "", "Milliseconds of one traced step, measured / estimated:", ""]
    for name, one in rows.items():
        lines.append(f"* {one['what']}: " + ", ".join(f"{op} {a:.1f} / {b:.1f}" for op, (a, b) in one["ops"].items()))
    return lines
