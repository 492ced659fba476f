# SPDX-License-Identifier: Apache-2.0
"""A model of lm-evaluation-harness: a run, or a Hugging Face directory, evaluated by the engine.

    python -m engine.lm_eval --model engine --model_args pretrained=runs/NAME/ID --tasks arc_easy --batch_size 8

takes the arguments of `lm_eval`. In a program, `lm_eval.simple_evaluate(model=engine.lm_eval.Engine("runs/NAME/ID"))`.
It needs the package `lm_eval`, and nothing that this one does not need.
"""
from __future__ import annotations

import sys
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

from . import _run

Pair = Tuple[List[int], List[int]]


def padded(length: int, most: int) -> int:
    """The planned length for so many tokens: a power of two or one and a half, from 32 on, but at most `most`."""
    size = 32
    while size < length:
        size = size * 3 // 2 if size & (size - 1) == 0 else size // 3 * 4
    return min(size, most)


def windows(tokens: List[int], prefix: int, most: int) -> Iterable[Pair]:
    """Contexts and continuations that score each token once, after as many tokens as fit: `most` are read at a time."""
    first = tokens[:most]
    yield [prefix], first
    at = len(first)
    while at < len(tokens):
        end = min(at + most, len(tokens))
        begin = max(end - most - 1, 0)
        yield tokens[begin:at], tokens[at:end]
        at = end


@register_model("engine")
class Engine(LM):
    """pretrained         a run, whose newest checkpoint is read; a Hugging Face directory; or a configuration
    batch_size         rows of a forward
    max_length         tokens that are read at most; by default those of the model, or 2,048
    max_gen_toks       new tokens of an answer, where the task does not say it
    prefix_token_id    what comes before a text without context; by default the tokenizer's bos, or eos
    add_bos_token      False: texts do not get the ids that the tokenizer's file puts around them
    Other arguments are overrides of the configuration: `precision.plugin=bf16`, `device.threads=4`.
    """

    def __init__(self, pretrained: str, batch_size: Any = 1, max_length: Optional[int] = None, max_gen_toks: int = 256,
                 prefix_token_id: Optional[int] = None, add_bos_token: bool = True, max_batch_size: Any = None,
                 device: Any = None, **overrides: Any):
        super().__init__()
        self.target, self.rows = pretrained, 8 if str(batch_size).startswith("auto") else int(batch_size)
        self.overrides = [f"{key}={value}" for key, value in overrides.items()]
        self.max_gen_toks, self.add_bos_token = int(max_gen_toks), bool(add_bos_token)
        self._lengths: List[int] = []
        self.run = self._open([])
        limit = self.run.max_length
        self.max_length = int(max_length or limit or 2048)
        ids = self.run.special_ids
        self.eot_token_id = ids["eos"] if ids["eos"] is not None else ids["eot"]
        self.prefix_token_id = prefix_token_id if prefix_token_id is not None else ids["bos"]
        if self.prefix_token_id is None:
            self.prefix_token_id = self.eot_token_id

    def _open(self, lengths: Sequence[int]) -> _run.Run:
        # The forward of the configuration's own length is not used: it is as short as the shortest.
        shape = f"train.micro_batch={self.rows}", f"train.sequence_length={min(lengths, default=16)}"
        return _run.Run(self.target, *shape, *self.overrides, lengths=lengths, train=False)

    @property
    def batch_size(self) -> int:
        return self.rows

    @property
    def tokenizer_name(self) -> str:
        return str(self.target).replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: Optional[bool] = None) -> List[int]:
        """The ids of a text. By default, one that begins with the text of the prefix token gets none put around it."""
        if add_special_tokens is None:
            prefix = "" if self.prefix_token_id is None else self.tok_decode([self.prefix_token_id])
            add_special_tokens = self.add_bos_token and not (prefix and string.startswith(prefix))
        return self.run.encode(string, special=add_special_tokens)

    def tok_decode(self, tokens: Sequence[int]) -> str:
        return self.run.decode(tokens)

    def _pair(self, context: str, continuation: str) -> Pair:
        """Ids of both; spaces at the end of a context belong to the continuation."""
        if not context:
            ids = self.tok_encode(continuation, False)
            return ([self._prefix()], ids) if ids[:1] != [self._prefix()] else (ids[:1], ids[1:])
        bare = context.rstrip()
        whole, ids = self.tok_encode(context + continuation), self.tok_encode(bare)
        return ids, whole[len(ids):]

    def _prefix(self) -> int:
        if self.prefix_token_id is None:
            raise ValueError("the tokenizer has no token that begins a text: give prefix_token_id")
        return self.prefix_token_id

    def _plan(self, lengths: Iterable[int]) -> None:
        """Opens the run with forwards of these lengths, if it has not all of them."""
        wanted = {padded(one, self.max_length) for one in lengths}
        if not wanted <= set(self._lengths):
            self.run.close()
            self._lengths = sorted(wanted)
            self.run = self._open(self._lengths)

    def _score(self, pairs: List[Pair], bar: bool = True) -> List[Tuple[float, bool]]:
        """The sum of the log-probabilities of each continuation, and whether it is the most likely one throughout."""
        sequences, first = [], []
        for context, continuation in pairs:
            if not 0 < len(continuation) <= self.max_length:
                raise ValueError(f"a continuation has {len(continuation)} tokens: 1 to {self.max_length} can be scored")
            sequences.append((context + continuation)[-self.max_length - 1:])
            first.append(len(sequences[-1]) - len(continuation))
        out: List[Tuple[float, bool]] = [(0.0, False)] * len(pairs)
        self._plan(len(one) - 1 for one in sequences)
        order = sorted(range(len(pairs)), key=lambda k: -len(sequences[k]))
        for at in _progress(range(0, len(order), self.rows), bar, "engine"):
            some = order[at: at + self.rows]
            for k, score in zip(some, self.run.score([sequences[k] for k in some], [first[k] for k in some])):
                out[k] = sum(score.logprobs), all(score.greedy)
        return out

    def loglikelihood(self, requests: List[Any], disable_tqdm: bool = False) -> List[Tuple[float, bool]]:
        arguments = [request.args for request in requests]
        out = self._score([self._pair(*one) for one in arguments], not disable_tqdm)
        for one, answer in zip(arguments, out):
            self.cache_hook.add_partial("loglikelihood", one, answer)
        return out

    def loglikelihood_rolling(self, requests: List[Any], disable_tqdm: bool = False) -> List[float]:
        texts = [request.args[0] for request in requests]
        parts = [list(windows(self.tok_encode(text), self._prefix(), self.max_length)) if text else [] for text in texts]
        scores = iter(self._score([part for of in parts for part in of], not disable_tqdm))
        out = [sum(next(scores)[0] for _ in of) for of in parts]
        for text, answer in zip(texts, out):
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), answer)
        return out

    def generate_until(self, requests: List[Any], disable_tqdm: bool = False) -> List[str]:
        out = [""] * len(requests)
        groups: Dict[Any, List[Tuple[int, List[int]]]] = {}  # of equal options: numbers of requests, and their contexts
        for k, request in enumerate(requests):
            context, given = request.args
            options = self._options(dict(given))
            tokens = options[1]
            ids = self.tok_encode(context)[tokens - self.max_length:] or [self._prefix()]
            groups.setdefault(options, []).append((k, ids))
        batches = []
        for options, all_of in groups.items():
            all_of.sort(key=lambda one: -len(one[1]))
            batches += [(options, all_of[at: at + self.rows]) for at in range(0, len(all_of), self.rows)]
        for (until, tokens, temperature, top_k, top_p, seed), some in _progress(batches, not disable_tqdm, "engine"):
            answers = self.run.generate_all([ids for _, ids in some], tokens, temperature=temperature, top_p=top_p,
                                            top_k=top_k, seed=seed, stop=until, max_length=self.max_length)
            for (k, _), new in zip(some, answers):
                out[k] = self.tok_decode(new)
                for stop in until:
                    out[k] = out[k].split(stop)[0]
        for request, answer in zip(requests, out):
            self.cache_hook.add_partial("generate_until", request.args, answer)
        return out

    def _options(self, given: Dict[str, Any]) -> Tuple[Tuple[str, ...], int, float, int, float, int]:
        """until, tokens, temperature, top_k, top_p and seed of a request."""
        until = given.pop("until", None) or []
        until = (until,) if isinstance(until, str) else tuple(one for one in until if one)
        limits = [given.pop(name, None) for name in ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")]
        tokens = int(next((one for one in limits if one is not None), self.max_gen_toks))
        sample = given.pop("do_sample", None)
        temperature = float(given.pop("temperature", None) or 0.0) * (sample is not False)
        chosen = {name: given.pop(name) for name in ("top_k", "top_p", "seed") if name in given}
        if given:
            raise ValueError(f"generation_kwargs {sorted(given)}: the engine knows until, max_gen_toks, do_sample, "
                             "temperature, top_k, top_p and seed")
        if tokens >= self.max_length:
            raise ValueError(f"max_gen_toks = {tokens} leaves no room for a context within max_length = {self.max_length}")
        return until, tokens, temperature, chosen.get("top_k", 0), chosen.get("top_p", 1.0), chosen.get("seed", 1)

    def apply_chat_template(self, chat_history: List[Dict[str, str]], add_generation_prompt: bool = True) -> str:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.target).apply_chat_template(
            chat_history, tokenize=False, add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt)


def _progress(what: Any, shown: bool, name: str) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        return what
    return tqdm(what, desc=name, disable=not shown)


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    sys.exit(cli_evaluate())
