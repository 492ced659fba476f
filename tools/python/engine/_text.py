# SPDX-License-Identifier: Apache-2.0
"""Texts and ids of a run: its tokenizer, scores of sequences, generation."""
from __future__ import annotations

import array
import ctypes as c
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from . import _native as n, _words
from ._tensor import Score


def _ids(name: str, ids: Any) -> "array.array[int]":
    """Ids as C reads them; a number that is none is refused with its place."""
    try:
        return array.array("i", iter(ids))  # bytes are ids, too
    except (TypeError, OverflowError):
        return array.array("i", [_words.whole(f"{name}[{k}]", one, 32) for k, one in enumerate(ids)])


def _pointer(values: "array.array[int]", kind: Any) -> Any:
    return (kind * len(values)).from_buffer(values) if values else None


class Texts:
    """The part of `Run` for texts."""

    __slots__ = ()

    def _handle(self) -> int:
        raise NotImplementedError

    # ---- the tokenizer -----------------------------------------------------------------------------------

    @property
    def special_ids(self) -> Dict[str, Optional[int]]:
        """Ids of the tokenizer: "bos" begins a text, "eos" ends it, "eot" is between documents; None: it has no such."""
        out = n.TokenizerInfo()
        out.struct_size = c.sizeof(out)
        n.call("tokenizer", self._handle(), c.byref(out))
        return {name: None if getattr(out, name) < 0 else getattr(out, name) for name in ("bos", "eos", "eot")}

    @_words.named
    def encode(self, text: Union[str, bytes], special: bool = False) -> List[int]:
        """The ids of a text, by the run's tokenizer; with `special`, also those that its file puts around a text."""
        data = text if isinstance(text, bytes) else text.encode(errors="surrogateescape")
        flags, size = n.SPECIAL if special else 0, c.c_uint64(len(data) + 8)
        while True:
            room = size.value
            ids = (c.c_int32 * room)()
            n.call("encode", self._handle(), data, len(data), flags, ids, room, c.byref(size))
            if size.value <= room:
                return ids[: size.value]

    @_words.named
    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids. Bytes that are no whole character become the replacement character."""
        given, size = _ids("ids", ids), c.c_uint64(16 * len(ids) + 16)
        while True:
            text = c.create_string_buffer(size.value)
            n.call("decode", self._handle(), _pointer(given, c.c_int32), len(given), text, len(text), c.byref(size))
            if size.value <= len(text):
                return text.raw[: size.value].decode(errors="replace")

    # ---- forwards ----------------------------------------------------------------------------------------

    @_words.named
    def score(self, sequences: Sequence[Sequence[int]], first: Optional[Sequence[int]] = None) -> List[Score]:
        """The log-probabilities of the tokens of sequences of ids, of each from token `first` on: 1, or its own number.

        The run was opened with `lengths`. A sequence has at most one token more than the longest of them, and is computed
        in the shortest forward that takes it, together with others of about its length. The numbers are those that it
        would get alone.
        """
        sequences = [_ids(f"sequences[{k}]", one) for k, one in enumerate(sequences)]
        ids, ends = array.array("i"), array.array("Q")
        for one in sequences:
            ids.extend(one)
            ends.append(len(ids))
        starts = array.array("Q", [1] * len(sequences))
        if first is not None:
            if len(first) != len(sequences):
                raise ValueError(f"first has {len(first)} numbers for {len(sequences)} sequences")
            starts = array.array("Q", [_words.whole(f"first[{k}]", one, 63, False) for k, one in enumerate(first)])
        logprobs, greedy = (c.c_float * len(ids))(), (c.c_uint8 * len(ids))()
        request = n.ScoreRequest()
        request.struct_size, request.n = c.sizeof(request), len(sequences)
        request.ids, request.ends = _pointer(ids, c.c_int32), _pointer(ends, c.c_uint64)
        request.first, request.logprobs, request.greedy = _pointer(starts, c.c_uint64), logprobs, greedy
        n.call("score", self._handle(), c.byref(request))
        out = []
        for begin, start, end in zip([0, *ends], starts, ends):
            scored = slice(begin + start, end)
            out.append(Score(tuple(logprobs[scored]), tuple(map(bool, greedy[scored]))))
        return out

    @_words.named
    def generate(self, prompt: Union[str, Sequence[int]], tokens: int = 128, *, temperature: float = 0.8, top_k: int = 0,
                 top_p: float = 0.95, seed: int = 1, stop: Sequence[str] = (), max_length: int = 0,
                 tokenizer: Optional[str] = None,
                 token: Optional[Callable[[int, bytes], Any]] = None) -> Union[str, List[int]]:
        """Continues a text, or a list of ids, with the present weights; returns the new part as the prompt came.

        stop           texts: the new text ends before the first of them. Of ids, the last one is where it became complete
        max_length     positions of the whole sequence; 0: those that the prompt and `tokens` need
        token          `token(id, bytes)` is called with each new token; if it returns False, the text ends there
        """
        text = isinstance(prompt, str)
        ends = _stops(stop)
        made = bytearray()
        new: List[int] = []
        failed: List[BaseException] = []

        @n.TOKEN
        def taken(_, identity, data, length):
            piece = c.string_at(data, length) if length else b""
            new.append(identity)
            try:
                more = token is None or token(identity, piece) is not False
            except BaseException as failure:  # a C function must not see it
                failed.append(failure)
                return 0
            return 0 if _stopped(made, piece, ends) or not more else 1

        ids = array.array("i") if text else _ids("prompt", prompt)
        request = _request(ids, tokens, temperature, top_k, top_p, seed, max_length, tokenizer)
        request.prompt = _words.text("prompt", prompt) if text else None
        request.token = taken
        n.call("generate", self._handle(), c.byref(request))
        if failed:
            raise failed[0]
        return made.decode(errors="replace") if text else new

    @_words.named
    def generate_all(self, prompts: Sequence[Sequence[int]], tokens: int = 128, *, temperature: float = 0.8, top_k: int = 0,
                     top_p: float = 0.95, seed: int = 1, stop: Sequence[str] = (), max_length: int = 0,
                     tokenizer: Optional[str] = None) -> List[List[int]]:
        """Continues several lists of ids at a time: of each the ids that `generate` gives for it alone.

        They are at the same position: one whose prompt has ended goes on while others still read theirs. So prompts of
        about equal length cost least. The other arguments are those of `generate`.
        """
        if not len(prompts):
            return []
        stops = _stops(stop)
        ids, ends = array.array("i"), array.array("Q")
        for k, one in enumerate(prompts):
            ids.extend(_ids(f"prompts[{k}]", one))
            ends.append(len(ids))
        made = [bytearray() for _ in prompts]
        new: List[List[int]] = [[] for _ in prompts]

        @n.TOKEN_OF
        def taken(_, prompt, identity, data, length):
            new[prompt].append(identity)
            return 0 if _stopped(made[prompt], c.string_at(data, length) if length else b"", stops) else 1

        request = _request(ids, tokens, temperature, top_k, top_p, seed, max_length, tokenizer)
        request.n_prompts, request.ends, request.token_of = len(prompts), _pointer(ends, c.c_uint64), taken
        n.call("generate", self._handle(), c.byref(request))
        return new


def _stops(stop: Sequence[str]) -> List[bytes]:
    _words.texts("stop", stop)
    if not all(stop):
        raise ValueError("stop has an empty text")
    return [one.encode() for one in stop]


def _stopped(made: bytearray, piece: bytes, ends: List[bytes]) -> bool:
    """Adds a piece to a text. If one of the ends is in it then, cuts the text off before the first and returns True."""
    before = len(made)
    made.extend(piece)
    found = [at for at in (made.find(end, max(0, before - len(end) + 1)) for end in ends) if at >= 0]
    if found:
        del made[min(found):]
    return bool(found)


def _request(ids: "array.array[int]", tokens: int, temperature: float, top_k: int, top_p: float, seed: int, max_length: int,
             tokenizer: Optional[str]) -> Any:
    request = n.GenerateRequest()
    request.struct_size = c.sizeof(request)
    request.ids, request.n_ids = _pointer(ids, c.c_int32), len(ids)
    request.tokens, request.top_k = _words.whole("tokens", tokens, 64), _words.whole("top_k", top_k, 64)
    request.max_length = _words.whole("max_length", max_length, 64)
    request.top_p, request.temperature = top_p, temperature
    request.seed, request.tokenizer = _words.whole("seed", seed, 64, False), _words.path("tokenizer", tokenizer)
    return request
