# SPDX-License-Identifier: Apache-2.0
"""One training step of the same model in PyTorch, as fast as it gets without changing the numbers.

python torch_step.py llama|llama_1b|opt MODE ROUNDS|serve [FORMAT [cuda]]   prints JSON, as engine-bench-step does.
MODE: eager; compile; or reduce-overhead, max-autotune: compiled in that mode of torch.compile, on GPUs with CUDA graphs.
llama is written out here, opt is that of transformers. scaled_dot_product_attention, AdamW(fused=True),
zero_grad(set_to_none=True), clip_grad_norm_. FORMAT: fp32; bf16 or fp16, a model with weights of that format and no
master; autocast-bf16 or autocast-fp16, fp32 weights under torch.autocast.
"""
import json
import resource
import statistics
import sys
import time
import typing

import torch
import torch.nn.functional as F

class Sizes(typing.NamedTuple):
    hidden: int
    layers: int
    heads: int
    ffn: int
    batch: int
    length: int
    vocabulary: int = 32000


class RMSNorm(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-6)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Layer(torch.nn.Module):
    def __init__(self, s):
        super().__init__()
        linear = lambda i, o: torch.nn.Linear(i, o, bias=False)
        self.q, self.k, self.v, self.o = (linear(s.hidden, s.hidden) for _ in range(4))
        self.gate, self.up, self.down = linear(s.hidden, s.ffn), linear(s.hidden, s.ffn), linear(s.ffn, s.hidden)
        self.n1, self.n2 = RMSNorm(s.hidden), RMSNorm(s.hidden)
        self.heads = s.heads

    def forward(self, h, cos, sin):
        n = self.n1(h)
        split = lambda x: x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)
        q, k, v = split(self.q(n)), split(self.k(n)), split(self.v(n))
        a = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        h = h + self.o(a.transpose(1, 2).reshape(h.shape))
        n = self.n2(h)
        return h + self.down(F.silu(self.gate(n)) * self.up(n))


class Llama(torch.nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed = torch.nn.Embedding(s.vocabulary, s.hidden)
        self.layers = torch.nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.norm = RMSNorm(s.hidden)
        self.head = torch.nn.Linear(s.hidden, s.vocabulary, bias=False)
        d = s.hidden // s.heads
        angle = torch.outer(torch.arange(s.length).float(), 10000.0 ** (-torch.arange(0, d, 2).float() / d))
        self.register_buffer("cos", torch.cat((angle, angle), -1).cos())
        self.register_buffer("sin", torch.cat((angle, angle), -1).sin())

    def forward(self, tokens, labels):
        h = self.embed(tokens)
        for layer in self.layers:
            h = layer(h, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1), labels.view(-1))


class Opt(torch.nn.Module):
    """OPT-125M of transformers, its loss alone."""

    def __init__(self, _):
        super().__init__()
        from transformers import OPTConfig, OPTForCausalLM
        self.model = OPTForCausalLM(OPTConfig(dropout=0.0, attn_implementation="sdpa", use_cache=False))

    def forward(self, tokens, labels):
        return self.model(input_ids=tokens, labels=labels).loss


MODELS = {"llama": (Llama, Sizes(512, 8, 8, 1376, 8, 256)), "llama_1b": (Llama, Sizes(2048, 22, 32, 5632, 4, 2048)),
          "opt": (Opt, Sizes(768, 12, 12, 3072, 4, 512, 50272))}


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    make, sizes = MODELS[sys.argv[1]]
    mode, rounds, form = sys.argv[2], sys.argv[3], (sys.argv + ["fp32"])[4]
    device = sys.argv[5] if len(sys.argv) > 5 else "cpu"
    cast = form.startswith("autocast-")
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[form.removeprefix("autocast-")]
    torch.manual_seed(1)
    model = (make(sizes) if cast else make(sizes).to(dtype)).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(sizes.vocabulary, (sizes.batch, sizes.length), device=device)
    forward = model if mode == "eager" else torch.compile(model, mode=None if mode == "compile" else mode)

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(device, dtype, enabled=cast):
            loss = forward(tokens, tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def timed():
        start = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    serves = rounds == "serve"
    for _ in range(1 if serves else 2):
        step()
    result = {"torch": torch.__version__, "mode": mode, "format": form, "parameters": parameters}
    if serves:  # answers each line of its input: "step" with the seconds of one, "peak" with the memory so far
        print(json.dumps(result), flush=True)
        for line in sys.stdin:
            print(f"{timed():.6f}" if line.strip() == "step" else json.dumps({"peak_rss_bytes": peak()}), flush=True)
        return
    seconds = statistics.median(timed() for _ in range(int(rounds)))
    print(json.dumps({**result, "step_seconds": seconds, "tokens_per_second": tokens.numel() / seconds,
                      "peak_rss_bytes": peak(),
                      **({"peak_device_bytes": torch.cuda.max_memory_allocated()} if device == "cuda" else {})}))


if __name__ == "__main__":
    main()
