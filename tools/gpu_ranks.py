# SPDX-License-Identifier: Apache-2.0
"""Several GPUs together: the compositions of tools/gpu-check --ranks N, each row against one rank or another row.

All ranks run by NCCL, and are started by hand, as any launcher does: no MPI is needed. A row is one result of the
report. Every run makes the same steps of the same sequences: `global_batch` holds for every number of ranks."""
import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import time

from gpu_pieces import Check, Failed, PACKED, Skipped, gpus, need

# Largest relative difference of a loss from that of one rank: other orders of sums in fp32; fewer bits of summands.
ROUNDING, FEWER_BITS = 1e-4, 2e-2

LLAMA = {"preset": "tiny", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 8}
EXPERTS = {"preset": "tiny", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 8,
           "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "output_router_logits": True}
FP8 = 'transforms=[{plugin="fp8"}]'
PAIRS = """[data]\nplugin = "pairs"\npaths = ["pairs.jsonl"]\ntokenizer = "bytes"\n[loss]\nplugin = "preference"
[reference]\nfrom = "start"\n"""


def rows_of(ranks):
    """(name, model, words, what it is compared with, how): "bits" of another row, or the losses of one rank within a
    bound. Groups of half of the ranks need a power of two."""
    rows = [("one rank", "llama", (), None, 0),
            ("none", "llama", ("zero.plugin=none",), "one rank", ROUNDING)]
    for stage in ("zero1", "zero2", "zero3"):
        rows.append((stage, "llama", (f"zero.plugin={stage}",), "none", "bits"))
    rows += [("zero3 again", "llama", ("zero.plugin=zero3",), "zero3", "bits"),
             ("prefetch", "llama", ("zero.plugin=zero3", "zero.prefetch=2", "zero.bucket=64KiB"), "zero3", "bits"),
             ("no overlap", "llama", ("zero.plugin=zero3", "zero.overlap=false"), "zero3", "bits"),
             ("recompute", "llama", ("zero.plugin=zero3", "recompute.policy=full"), "zero3", "bits"),
             ("early", "llama", ("zero.plugin=zero2", "offload.optimizer=host", "offload.update_early=true",
                                 "offload.early_share=0.5"), "none", "bits"),
             ("late", "llama", ("zero.plugin=zero2", "offload.optimizer=host", "offload.update_late=true"), "none", "bits")]
    if ranks >= 4 and ranks % 2 == 0:
        half = f"zero.group={ranks // 2}"
        how = "bits" if ranks & (ranks - 1) == 0 else ROUNDING
        for plugin in ("hpz", "mics"):
            rows.append((plugin, "llama", (f"zero.plugin={plugin}", half), "none", how))
    for sum_of in ("bf16", "int8"):
        rows.append((f"sum {sum_of}", "llama", ("zero.plugin=zero2", f"zero.sum={sum_of}"), "one rank", FEWER_BITS))
    rows.append(("gather int8", "llama", ("zero.plugin=zero3", "zero.gather=int8"), "one rank", FEWER_BITS))
    rows.append(("fast sums", "llama", ("zero.plugin=zero2", "comm.reduce=fast"), "one rank", ROUNDING))
    for degree in sorted({2, ranks} if ranks % 2 == 0 and 8 % ranks == 0 else {2} if ranks % 2 == 0 else set()):
        for way in ("tensor", "context"):
            rows.append((f"{way} {degree}", "llama", ("zero.plugin=zero2", f"parallel.{way}={degree}"), "one rank", ROUNDING))
    if ranks >= 4 and ranks % 4 == 0:
        rows.append(("tensor x context", "llama", ("zero.plugin=zero2", "parallel.tensor=2", "parallel.context=2"),
                     "one rank", ROUNDING))
    if ranks % 2 == 0:
        stage = ("zero.plugin=zero2", "parallel.pipeline=2")
        rows += [("sequence", "llama", ("zero.plugin=zero2", "parallel.tensor=2", "parallel.sequence=true"), "one rank", ROUNDING),
                 ("pipeline", "llama", stage, "one rank", "bits" if ranks == 2 else ROUNDING),
                 ("pipeline recompute", "llama", (*stage, "recompute.policy=full", "offload.optimizer=host"), "pipeline", "bits"),
                 ("pipeline tiers", "llama", (*stage, "offload.activations=host", "offload.optimizer=host",
                                              "offload.update_early=true", "offload.early_share=0.5"), "pipeline", "bits"),
                 ("virtual stages", "llama", (*stage, "parallel.virtual_stages=2", "offload.activations=host"), "pipeline", "bits"),
                 ("pairs one", "pairs", (), None, 0),
                 ("pairs", "pairs", ("zero.plugin=zero3",), "pairs one", ROUNDING),
                 ("pairs pipeline", "pairs", stage, "pairs one", "bits" if ranks == 2 else ROUNDING)]
    if ranks % 4 == 0:
        for way in ("tensor", "context"):
            rows.append((f"pipeline x {way}", "llama", (*stage, f"parallel.{way}=2"), "one rank", ROUNDING))
        rows += [("pipeline zero3", "llama", ("zero.plugin=zero3", "parallel.pipeline=2"), "pipeline", "bits"),
                 ("pipeline sum int8", "llama", (*stage, "zero.sum=int8"), "one rank", FEWER_BITS),
                 ("pipeline of 4", "llama", ("parallel.pipeline=4", "offload.activations=host"), "one rank",
                  "bits" if ranks == 4 else ROUNDING)]
    rows += [("fp8 one", "llama", ("precision.plugin=bf16", FP8), None, 0),
             ("fp8", "llama", ("precision.plugin=bf16", FP8, "zero.plugin=zero2"), "fp8 one", FEWER_BITS)]
    if ranks % 2 == 0:
        rows.append(("fp8 pipeline", "llama", ("precision.plugin=bf16", FP8, *stage), "fp8 one", FEWER_BITS))
    rows += [("experts one", "mixtral", (), None, 0),
             ("experts", "mixtral", ("zero.plugin=zero3",), "experts one", ROUNDING)]
    if ranks % 2 == 0:
        rows.append(("experts tensor", "mixtral", ("zero.plugin=zero2", "parallel.tensor=2"), "experts one", ROUNDING))
    rows.append(("fewer ranks", "llama", ("zero.plugin=zero3",), "one rank", ROUNDING))
    rows.append(("lost rank", "llama", ("zero.plugin=zero3", "checkpoint.memory_every=1"), "one rank", ROUNDING))
    return rows


class RankCheck(Check):
    """N ranks, each with a GPU of its own."""

    def __init__(self, args):
        super().__init__(args)
        self.ranks, self.losses = args.ranks, {}
        self.comm = ("comm.plugin=nccl", "comm.timeout=60s")
        if args.software:
            self.env["LD_LIBRARY_PATH"] = f"{self.build / 'tests/cuda/nccl'}:{self.env['LD_LIBRARY_PATH']}"
            self.env["SOFTCUDA_DEVICES"] = str(self.ranks)

    def ready(self):
        """The reason for which no row can run, or None."""
        if not self.args.software and gpus()[0] < self.ranks:
            return f"{self.ranks} ranks need as many GPUs, and {gpus()[0]} are visible"
        if not (self.build / "plugins/nccl/nccl.eng.so").exists():
            return "this build has no plugin nccl: it needs NCCL's library and header (tools/cuda-toolkit brings them)"
        if self.args.software and not self.twins():
            return "this build has no kernels for the software runtime (tests/cuda/*/twins.so)"
        return None

    def config(self, model, steps=None):
        super().config("llama", steps)  # the text
        steps, per_rank = (4, 1) if self.args.software else (20, 2)
        section = "".join(f"{key} = {json.dumps(value)}\n" for key, value in (EXPERTS if model == "mixtral" else LLAMA).items())
        rows = 2 if model == "pairs" else 1
        data = PAIRS if model == "pairs" else '[data]\npaths = ["text.txt"]\nvalidation = 0.0\n'
        (self.work / "pairs.jsonl").write_text("".join(
            json.dumps({"prompt": f"{k} and {k}", "chosen": f" is {2 * k}", "rejected": f" is {k}"}) + "\n" for k in range(500)))
        path = self.work / f"{model}-ranks.toml"
        path.write_text(f"""[run]\nname = "{model}"\n[model]\nplugin = "{'mixtral' if model == 'mixtral' else 'llama'}"\n{section}
{data}[train]\nsteps = {steps}\nmicro_batch = {rows}\nglobal_batch = {rows * per_rank * self.ranks}
sequence_length = {32 * per_rank}\n[optimizer]\nlearning_rate = 1e-3\n[checkpoint]\nevery = {steps // 2}\n""")
        return path

    def spawn(self, ranks, words):
        """The processes of `engine` as so many ranks. Each writes a log."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        children = []
        for rank in range(ranks):
            env = dict(self.env)
            if ranks > 1:
                env.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(port))
            log = open(self.work / f"rank-{rank}.log", "w")
            children.append(subprocess.Popen([str(w) for w in (self.build / "tools/engine", *words)], env=env, cwd=self.work,
                                             stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        return children

    def start(self, ranks, words, limit=600):
        """Runs `engine` on so many ranks. Fails with what the first rank that failed says."""
        children = self.spawn(ranks, words)
        end = time.monotonic() + limit
        try:
            codes = [child.wait(max(0.1, end - time.monotonic())) for child in children]
        except subprocess.TimeoutExpired:
            codes = None
        finally:
            for child in children:
                if child.poll() is None:
                    child.kill()
                child.wait()
        texts = [(self.work / f"rank-{rank}.log").read_text(errors="replace") for rank in range(ranks)]
        if codes is None:
            raise Failed(f"{' '.join(map(str, words))}: not done within {limit} s\n{texts[0][-2000:]}")
        bad = next((rank for rank, code in enumerate(codes) if code), None)
        if bad is None:
            return
        lines = [l for text in texts for l in text.splitlines() if "error: " in l and "NOTE" not in l]
        for line in lines:
            if any(why in line for why in ("has no kernel for", "is not there yet", "cannot divide", "needs NCCL")):
                raise Skipped(line[line.index("error: ") + 7:])
        raise Failed(f"{' '.join(map(str, words))}: rank {bad} ended with {codes[bad]}\n{texts[bad][-3000:]}")

    def train(self, name, model, ranks, *words):
        """The lines of its metrics."""
        out = self.work / name.replace(" ", "-").replace(",", "")
        comm = self.comm if ranks > 1 else ()
        steps = (f"train.steps={2 if self.args.software else 10}",) if name == "fewer ranks" else ()
        self.start(ranks, ("run", self.config(model), "device.plugin=cuda", *comm, "--out", out, *words, *steps))
        if steps:  # the rest of it by one rank, from the checkpoint of all
            self.start(1, ("run", out, f"train.steps={4 if self.args.software else 20}", "zero.plugin=none"))
        return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]

    def lost(self, words):
        """A rank is killed in a step: the others end, and half of them go on from the memory of the host."""
        out, config = self.work / "lost-rank", self.config("llama")
        metrics = out / "metrics.jsonl"

        def steps():
            return metrics.read_text().count("\n") if metrics.exists() else 0

        children = self.spawn(self.ranks, ("run", config, "device.plugin=cuda", *self.comm, "--out", out, *words,
                                           "train.steps=100000", "checkpoint.every=100000"))
        try:
            end = time.monotonic() + 300
            while steps() < 3 and time.monotonic() < end and children[0].poll() is None:
                time.sleep(0.01)
            need(children[0].poll() is None and steps() >= 3, "the ranks did not come to step 3")
            children[-1].kill()
            begin = time.monotonic()
            codes = [child.wait(100) for child in children]
            seconds = time.monotonic() - begin
        except subprocess.TimeoutExpired:
            raise Failed("a rank was killed, and another one has not ended after 100 s") from None
        finally:
            for child in children:
                child.kill()
                child.wait()
        need(0 not in codes, f"a rank was killed, and the ranks ended with {codes}")
        half = max(self.ranks // 2, 1)
        comm = ("comm.plugin=nccl",) if half > 1 else ("zero.plugin=none",)
        last = steps() + 2
        self.start(half, ("run", out, f"train.steps={last}", *comm))
        need("was only in memory" in (self.work / "rank-0.log").read_text(errors="replace"), "it went on from a checkpoint on disk")
        self.start(1, ("run", config, "device.plugin=cuda", "--out", self.work / "never-lost", f"train.steps={last}"))
        got, want = ([json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
                     for folder in (out, self.work / "never-lost"))
        need(len(got) == len(want) == last, f"{len(got)} steps and {len(want)}, not {last}")
        worst = max(abs(g / w - 1) for g, w in zip(got, want))
        self.numbers.update(ranks=self.ranks, seconds_to_end=round(seconds, 1), worst=worst)
        need(worst <= ROUNDING, f"losses are up to {worst:.1e} from those of one rank: more than {ROUNDING:.0e}")
        return f"the others ended after {seconds:.1f} s; {half} rank{'s' * (half > 1)} went on; losses within {worst:.1e} of one rank's"

    def row(self, name, model, words, beside, how):
        """One composition: a line for the report."""
        if name == "lost rank":
            return self.lost(words)
        ranks = 1 if beside is None else self.ranks
        lines = self.train(name, model, ranks, *words)
        self.losses[name] = [(line["loss"], line["grad_norm"]) for line in lines]
        rate = statistics.median(line["tokens_per_second"] for line in lines[1:])
        self.numbers.update(ranks=ranks, steps=len(lines), tokens_per_second=round(rate, 1))
        told = f"{rate:.0f} tokens/s"
        if beside is None:
            return told
        if beside not in self.losses:
            raise Skipped(f"`{beside}` did not run, with which it is compared")
        got, want = self.losses[name], self.losses[beside]
        need(len(got) == len(want), f"{len(got)} steps, and {len(want)} of `{beside}`")
        if how == "bits":
            need(got == want, f"losses or norms differ from those of `{beside}`: {got} and {want}")
            if not any(word.startswith("offload.update_late") for word in words):  # its last update may be left
                folder = [self.work / one.replace(" ", "-").replace(",", "") for one in (name, beside)]
                self.engine("ckpt", "diff", *folder)
            return f"{told}; the bits of `{beside}`"
        worst = max(abs(g[0] / w[0] - 1) for g, w in zip(got, want))
        self.numbers["worst"] = worst
        need(worst <= how, f"losses are up to {worst:.1e} from those of `{beside}`: more than {how:.0e}")
        return f"{told}; losses within {worst:.1e} of `{beside}`"

    def speed(self, form, stage):
        """Tokens per second of a LLaMA of 58 million parameters on all GPUs, and on one."""
        rates = {}
        for ranks in (1, self.ranks):
            source = (self.root / "benchmarks/step/llama_58m.toml").read_text().splitlines()
            config = self.work / "llama_58m.toml"
            config.write_text("\n".join(l for l in source if not l.startswith(('plugin = "cpu"', "threads"))) + "\n")
            out = self.work / f"speed-{form}-{stage}-{ranks}"
            comm = ("comm.plugin=nccl", f"zero.plugin={stage}") if ranks > 1 else ()
            self.start(ranks, ("run", config, 'data.paths=["text.txt"]', "device.plugin=cuda", f"precision.plugin={form}",
                               "train.steps=60", "checkpoint.every=0", "--out", out, *comm), limit=900)
            lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            rates[ranks] = statistics.median(line["tokens_per_second"] for line in lines[10:])
        self.numbers["tokens_per_second"] = {str(k): round(v, 1) for k, v in rates.items()}
        share = rates[self.ranks] / (self.ranks * rates[1])
        return f"{rates[self.ranks]:.0f} tokens/s on {self.ranks} GPUs, {rates[1]:.0f} on one: {share:.2f} of {self.ranks} times that"

    root = PACKED.parent

    def pieces(self):
        """(name, function that returns a line), in order."""
        out = [(row[0], lambda row=row: self.row(*row)) for row in rows_of(self.ranks)]
        if not self.args.software:
            for form, stage in (("bf16", "none"), ("bf16", "zero2"), ("bf16", "zero3"), ("fp32", "zero3")):
                out.append((f"speed {form} {stage}", lambda form=form, stage=stage: self.speed(form, stage)))
        return out


class SharedCheck(RankCheck):
    """Two ranks of NCCL on one GPU, which NCCL 2.30 and later try on request. One GPU is enough for it."""

    def __init__(self, args):
        super().__init__(argparse.Namespace(**{**vars(args), "ranks": 2}))
        self.comm += ("comm.share_gpus=true",)
        self.env.update(CUDA_VISIBLE_DEVICES=self.env.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0],
                        NCCL_MULTI_RANK_GPU_ENABLE="1")
        if args.software:
            self.env.update(SOFTCUDA_DEVICES="1", SOFTNCCL_VERSION="23007")
        elif newer := os.environ.get("LD_LIBRARY_PATH"):  # before the toolkit's NCCL, which may be too old
            self.env["LD_LIBRARY_PATH"] = f"{newer}:{self.env['LD_LIBRARY_PATH']}"

    def report(self):
        """A line of what was run and compared."""
        if not (self.build / "plugins/nccl/nccl.eng.so").exists():
            raise Skipped("this build has no plugin nccl")
        self.need_kernels()
        try:
            told, (first, how) = "", ("mpi", "bits")
            if shutil.which("mpirun"):
                self.start(1, ("run", self.config("llama"), "--ranks", "2", "comm.plugin=mpi", "device.plugin=cuda",
                               "zero.plugin=zero3", "--out", self.work / "mpi"))
                lines = (self.work / "mpi/metrics.jsonl").read_text().splitlines()
                self.losses["mpi"] = [(line["loss"], line["grad_norm"]) for line in map(json.loads, lines)]
            else:
                told, (first, how) = " (mpirun is not installed)", ("one rank", ROUNDING)
                self.row(first, "llama", (), None, 0)
            for stage in ("zero1", "zero2", "zero3"):
                self.row(stage, "llama", (f"zero.plugin={stage}",), first, how)
                first, how = stage, "bits"
            self.row("waits", "llama", ("zero.plugin=zero3", "device.synchronous=true"), "zero3", "bits")
            lost = self.lost(("zero.plugin=zero3", "checkpoint.memory_every=1"))
        finally:
            shutil.rmtree(self.work, ignore_errors=True)
        return f"zero1 to zero3 with the bits of {'mpi' if not told else 'each other'}{told}, with and without graphs; {lost}"
