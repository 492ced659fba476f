# SPDX-License-Identifier: Apache-2.0
"""Runs: sessions of engine/embed.h as Python objects."""
from __future__ import annotations

import ctypes as c
import dataclasses
import math
import os
import shlex
import signal
import sys
import threading
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _dlpack, _native as n

_DTYPES = {1: "float32", 2: "float64", 3: "bfloat16", 4: "float16", 5: "int32", 6: "int64", 7: "uint8"}


@dataclasses.dataclass(frozen=True)
class Metrics:
    """The numbers of one step."""

    step: int
    """counted from 1"""
    tokens: int
    """of all steps so far"""
    loss: float
    """mean of the step's labels, of all ranks"""
    grad_norm: float
    lr: float
    loss_scale: float
    eval_loss: Optional[float]
    """of the evaluation that was due after this step"""
    seconds: float
    tokens_per_second: float
    mfu: Optional[float]
    wait_data: float
    wait_comm: float
    device_peak_bytes: int
    host_peak_bytes: int
    skipped: bool
    """the gradients were not finite, and nothing was updated"""
    saved: bool
    """a checkpoint became complete"""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The mean loss of labels that count."""

    loss: float
    tokens: int
    seconds: float


class Tensor:
    """A tensor of a run, for `from_dlpack` of NumPy, PyTorch, JAX, CuPy and others: they see its memory in place.

    It shows the values of the moment. A step changes them, so read it between steps only. What is written through it
    counts from the next step on. Arrays made from it keep the memory allocated, also after the run was closed.
    """

    def __init__(self, run: "Run", name: str, role: str, info: n.TensorInfo, flags: int):
        self._run, self.name, self.role, self._flags = run, name, role, flags
        self.shape: Tuple[int, ...] = tuple(info.desc.dims[: info.desc.ndim])
        """of the whole tensor; of a part, its number of elements"""
        self.dtype: str = _DTYPES[info.desc.dtype]
        self.first: int = info.first
        """of a part: the first of its elements, in row-major order"""
        if flags & n.PART:
            self.shape = (info.count,)
        self._addressable = bool(info.flags & n.ADDRESSABLE)

    @property
    def readonly(self) -> "Tensor":
        """The same, as read-only: consumers of DLPack before 1.0 then get a copy or refuse it."""
        return self._with(self._flags & ~n.WRITABLE)

    @property
    def part(self) -> "Tensor":
        """What this rank holds of it, as a flat tensor of `shape` from element `first` on."""
        return self._with(self._flags | n.PART)

    def _with(self, flags: int) -> "Tensor":
        return Tensor(self._run, self.name, self.role, self._run._info_of(self.name, self.role), flags)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self._run._place(self)

    def __dlpack__(self, *, stream: Optional[int] = None, max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        """A capsule: versioned if `max_version` is 1.0 or later, else the old kind, which cannot be read-only.

        `copy=True` copies the whole tensor into memory of the host, gathered from the ranks that hold parts (all ranks
        must ask for it); `copy=False` never copies. On a device of its own the values are complete for any stream.
        """
        here = self.__dlpack_device__()
        _dlpack.check_stream(here, stream)
        wanted = here if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
        if wanted != here and wanted != (n.CPU, 0):
            raise BufferError(f"`{self.name}` is on device {here}; it can be copied to the host, (1, 0), only")
        if wanted != here and copy is False:
            raise BufferError(f"`{self.name}` is on device {here}: it is on the host only as a copy")
        flags = self._flags
        if copy or wanted != here:
            flags = (flags | n.COPY) & ~n.PART
        versioned = max_version is not None and int(max_version[0]) >= n.MAJOR
        if self.role == "activation" and not versioned:
            flags |= n.WRITABLE  # an old capsule cannot be read-only; the next step writes over what is written there
        out = c.c_void_p()
        try:
            n.call("take" if versioned else "take_legacy", self._run._handle(), self.name.encode(), self.role.encode(),
                   flags, c.byref(out))
        except n.Error as refusal:
            if refusal.status == n.UNSUPPORTED:
                raise BufferError(str(refusal)) from None
            raise
        return _dlpack.capsule_of(out.value, versioned)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        """For `numpy.asarray`: in place, and writable also where NumPy takes old capsules as read-only."""
        import numpy

        here = self.__dlpack_device__()
        if here[0] != n.CPU or self.dtype == "bfloat16":
            raise TypeError(f"`{self.name}` is {self.dtype} on device {here}, for which NumPy has no array")
        out = c.c_void_p()
        n.call("take", self._run._handle(), self.name.encode(), self.role.encode(), self._flags, c.byref(out))
        tensor = n.Versioned.from_address(out.value).tensor
        kind = numpy.dtype(self.dtype)
        count = math.prod(self.shape)
        buffer = (c.c_char * (count * kind.itemsize)).from_address((tensor.data or 0) + tensor.byte_offset)
        buffer.owner = _dlpack.Owner(out.value)  # as long as any array of it
        array = numpy.frombuffer(buffer, kind, count).reshape(self.shape)
        if not self._flags & n.WRITABLE:
            array.flags.writeable = False
        return array.astype(dtype or kind) if copy or (dtype is not None and kind != dtype) else array

    def __repr__(self) -> str:
        return f"<engine.Tensor {self.role} {self.name} {self.dtype} {self.shape}>"


Callback = Callable[["Run", Metrics], Any]


class Run:
    """A run, step by step. Made by `engine.open`.

    Iterating makes the steps that are left and gives the metrics of each. Used with `with`, it is closed at the end; on
    an exception that asks to stop, KeyboardInterrupt or SystemExit, it saves a checkpoint first, as `engine run` does.
    With several ranks SIGINT stops all of them after the same step, with a checkpoint. Any other exception ends the run
    as failed, on all ranks.
    """

    def __init__(self, target: Union[str, "os.PathLike[str]"], *overrides: str, text: Optional[str] = None,
                 place: Union[str, "os.PathLike[str]", None] = None,
                 out: Union[str, "os.PathLike[str]", None] = None, resume: str = "auto", files: bool = True,
                 gradients: bool = False, logits: bool = False, activations: Sequence[str] = (), alone: bool = False,
                 plugin_paths: Sequence[Union[str, "os.PathLike[str]"]] = (),
                 note: Optional[Callable[[str], Any]] = None):
        self._session: Optional[int] = None
        self._callbacks: List[Callback] = []
        self._roles: Dict[Tuple[str, str], int] = {}
        self._interrupted = False
        self._handler: Any = None
        encode = lambda value: None if value is None else os.fsencode(os.fspath(value))  # noqa: E731
        tell = note or (lambda line: print("note:", line, file=sys.stderr))

        @n.NOTE
        def noted(_, text, length):
            tell(c.string_at(text, length).decode(errors="replace"))

        self._noted = noted  # as long as the session
        words = (c.c_char_p * len(overrides))(*[o.encode() for o in overrides])
        paths = (c.c_char_p * len(plugin_paths))(*[encode(p) for p in plugin_paths])
        request = n.Request()
        request.struct_size = c.sizeof(request)
        request.flags = (n.NO_FILES * (not files) | n.GRADIENTS * gradients | n.LOGITS * logits | n.ALONE * alone)
        request.target, request.text, request.place = encode(target), None if text is None else text.encode(), encode(place)
        request.out, request.resume = encode(out), resume.encode()
        request.command = " ".join(map(shlex.quote, sys.argv)).encode(errors="replace") or b"python"
        request.overrides, request.n_overrides = words, len(overrides)
        request.plugin_paths, request.n_plugin_paths = paths, len(plugin_paths)
        if isinstance(activations, str):
            raise TypeError(f"activations is a list of names: [{activations!r}]")
        wanted = (c.c_char_p * len(activations))(*[name.encode() for name in activations])
        request.activations, request.n_activations = wanted, len(activations)
        request.note = noted
        session = c.c_void_p()
        n.call("open", c.byref(request), c.byref(session))
        self._session = session.value

    # ---- state -------------------------------------------------------------------------------------------

    def _handle(self) -> int:
        if self._session is None:
            raise ValueError("this run is closed")
        return self._session

    def _info(self) -> n.Info:
        out = n.Info()
        out.struct_size = c.sizeof(out)
        n.call("describe", self._handle(), c.byref(out))
        return out

    def _started(self) -> n.Info:
        info = self._info()
        if info.started:
            return info
        n.call("start", self._session)
        return self._info()

    def start(self) -> "Run":
        """Takes the memory and reads or makes the weights. Every function that needs it does it."""
        self._started()
        return self

    @property
    def steps_done(self) -> int:
        """Completed steps."""
        return self._started().step

    @property
    def steps(self) -> int:
        """Steps of the whole run: [train] steps."""
        return self._info().steps

    @property
    def rank(self) -> int:
        return self._info().rank

    @property
    def ranks(self) -> int:
        return self._info().ranks

    @property
    def batch_shape(self) -> Tuple[int, int]:
        """(rows, length) of a batch of this rank for one step."""
        info = self._started()
        return info.rows, info.length

    @property
    def micro_batch_shape(self) -> Tuple[int, int]:
        """(rows, length) of a micro-batch: what `logits` takes."""
        info = self._started()
        return info.micro_rows, info.length

    @property
    def vocabulary(self) -> int:
        """Ids are below this."""
        return self._started().vocabulary

    @property
    def parameters(self) -> int:
        """Their number."""
        return self._started().parameters

    @property
    def directory(self) -> str:
        """Of the run; "" without files."""
        return os.fsdecode(self._started().directory)

    # ---- steps -------------------------------------------------------------------------------------------

    @staticmethod
    def _fields(fields: Mapping[str, Any]) -> Any:
        made = []
        try:
            for name, value in fields.items():
                made.append(_dlpack.incoming(value, name))
        except BaseException:
            for one in made:
                _dlpack.give_back(one)
            raise
        return (n.TensorIn * len(made))(*made)

    def step(self, **fields: Any) -> Optional[Metrics]:
        """Makes the next step, on the run's own data or on the given batch; None if none is left or it was stopped.

        Fields: `tokens`, (rows, length) as `batch_shape` says, and optionally `labels` of that shape, where -100 counts
        for nothing. Without labels each token's is the one after it; `tokens` may have one column more for the last.
        """
        handle = self._handle()
        all_fields, out = self._fields(fields), n.StepResult()
        out.struct_size = c.sizeof(out)
        n.call("step", handle, all_fields, len(all_fields), c.byref(out))
        if out.ended:
            if self._interrupted:
                raise KeyboardInterrupt
            return None
        value = lambda x: None if math.isnan(x) else x  # noqa: E731
        metrics = Metrics(out.step, out.tokens, out.loss, out.grad_norm, out.lr, out.loss_scale, value(out.eval_loss),
                          out.seconds, out.tokens_per_second, value(out.mfu), out.wait_data, out.wait_comm,
                          out.device_peak_bytes, out.host_peak_bytes, bool(out.skipped), bool(out.saved))
        for callback in list(self._callbacks):
            callback(self, metrics)
        return metrics

    def __iter__(self) -> Iterator[Metrics]:
        while (metrics := self.step()) is not None:
            yield metrics

    def on_step(self, callback: Callback) -> Callback:
        """Calls `callback(run, metrics)` after each step, where tensors may be read and written. Also a decorator."""
        self._callbacks.append(callback)
        return callback

    def stop(self) -> None:
        """The step that is being made, or the next one, is the last: a checkpoint is saved. From any thread."""
        n.library.eng_session_stop(self._handle())

    def evaluate(self, batches: int = 0, **fields: Any) -> Evaluation:
        """The loss of `batches` micro-batches of the held-out data (0: all of it), or of the given batch."""
        handle = self._handle()
        all_fields, out = self._fields(fields), n.EvalResult()
        out.struct_size = c.sizeof(out)
        n.call("evaluate", handle, all_fields, len(all_fields), batches, c.byref(out))
        return Evaluation(out.loss, out.tokens, out.seconds)

    def logits(self, tokens: Any) -> Tensor:
        """Those of one micro-batch of tokens, (rows, length, vocabulary). The run was opened with `logits=True`.

        They lie in memory of the run, where the next call writes its own."""
        handle = self._handle()
        fields = self._fields({"tokens": tokens})
        n.call("logits", handle, fields, len(fields))
        return self.tensor("logits", "activation")

    def generate(self, prompt: Union[str, Sequence[int]], tokens: int = 128, *, temperature: float = 0.8, top_k: int = 0,
                 top_p: float = 0.95, seed: int = 1, tokenizer: Optional[str] = None,
                 token: Optional[Callable[[int, bytes], Any]] = None) -> Union[str, List[int]]:
        """Continues a text, or a list of ids, with the present weights; returns the new part as the prompt came.

        `token(id, bytes)` is called with each new token; if it returns False, the text ends there.
        """
        text = isinstance(prompt, str)
        pieces: List[bytes] = []
        new: List[int] = []
        failed: List[BaseException] = []

        @n.TOKEN
        def taken(_, identity, data, length):
            piece = c.string_at(data, length) if length else b""
            new.append(identity)
            pieces.append(piece)
            try:
                return 0 if token is not None and token(identity, piece) is False else 1
            except BaseException as failure:  # a C function must not see it
                failed.append(failure)
                return 0

        ids = [] if text else [int(i) for i in prompt]
        request = n.GenerateRequest()
        request.struct_size = c.sizeof(request)
        request.prompt = prompt.encode() if text else None
        request.ids, request.n_ids = (c.c_int32 * len(ids))(*ids), len(ids)
        request.tokens, request.top_k, request.top_p, request.temperature = tokens, top_k, top_p, temperature
        request.seed, request.tokenizer = seed, None if tokenizer is None else os.fsencode(tokenizer)
        request.token = taken
        n.call("generate", self._handle(), c.byref(request))
        if failed:
            raise failed[0]
        return b"".join(pieces).decode(errors="replace") if text else new

    def plan(self, ranks: int = 1) -> Dict[str, Any]:
        """The plan of a step on `ranks` ranks, as `engine plan --json` prints it. Runs nothing."""
        return self._json("plan", ranks)

    def activations(self) -> List[Dict[str, Any]]:
        """What `engine.open(..., activations=[...])` can name, in the model's order: name, op, dtype, shape, bytes, and
        the parameters that the op reads. Runs nothing."""
        return self._json("activations")

    def _json(self, function: str, *arguments: Any) -> Any:
        import json

        size = c.c_uint64(1 << 16)
        while True:
            text = c.create_string_buffer(size.value)
            n.call(function, self._handle(), *arguments, text, len(text), c.byref(size))
            if size.value <= len(text):
                return json.loads(text.raw[: size.value])

    # ---- tensors -----------------------------------------------------------------------------------------

    def _table(self) -> Dict[Tuple[str, str], int]:
        if not self._roles:
            for index in range(self._started().tensors):
                info = self._tensor(index)
                self._roles[info.name.decode(), info.role.decode()] = index
        return self._roles

    def _tensor(self, index: int) -> n.TensorInfo:
        out = n.TensorInfo()
        out.struct_size = c.sizeof(out)
        n.call("tensor", self._handle(), index, c.byref(out))
        return out

    def _info_of(self, name: str, role: str) -> n.TensorInfo:
        index = self._table().get((name, role))
        if index is not None:
            return self._tensor(index)
        unwanted = c.c_void_p()  # the library says why, with names that are near
        n.call("take", self._handle(), name.encode(), role.encode(), 0, c.byref(unwanted))
        raise n.Error(n.NOT_FOUND, f"there is no {role} `{name}`")

    def _place(self, tensor: Tensor) -> Tuple[int, int]:
        info = self._info()
        device = info.dl_device_type, info.dl_device_id
        if device[0] == n.CPU or not tensor._addressable:
            return n.CPU, 0
        # A tensor may be on a tier, in memory of the host: only the capsule says it.
        out = c.c_void_p()
        n.call("take", self._handle(), tensor.name.encode(), tensor.role.encode(), tensor._flags & n.PART, c.byref(out))
        place = n.Versioned.from_address(out.value).tensor.device
        device = place.type, place.id
        _dlpack.delete(n.Versioned, out.value)
        return device

    def tensor(self, name: str, role: str = "parameter") -> Tensor:
        """A tensor by name and role: "parameter", "gradient", "activation", or the name of an optimizer's state."""
        return Tensor(self, name, role, self._info_of(name, role), self._access(role))

    def tensors(self, role: Optional[str] = None) -> List[Tensor]:
        """All of them, or those of a role, in the model's order."""
        return [Tensor(self, name, of, self._tensor(index), self._access(of))
                for (name, of), index in self._table().items() if role is None or of == role]

    @staticmethod
    def _access(role: str) -> int:
        return 0 if role == "activation" else n.WRITABLE

    def __getitem__(self, name: str) -> Tensor:
        return self.tensor(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.write(name, value)

    def __contains__(self, name: object) -> bool:
        return (name, "parameter") in self._table()

    def keys(self) -> List[str]:
        """The names of all parameters."""
        return [name for name, role in self._table() if role == "parameter"]

    def write(self, name: str, value: Any, role: str = "parameter", round: bool = False) -> None:
        """Replaces the values of a tensor; with `round`, the elements may be rounded to its type."""
        handle = self._handle()
        n.call("write", handle, name.encode(), role.encode(), c.byref(_dlpack.incoming(value, name)),
               n.ROUND if round else 0)

    # ---- the end -----------------------------------------------------------------------------------------

    def save(self) -> None:
        """A checkpoint of the last step, unless there is one."""
        n.call("save", self._handle())

    def close(self) -> None:
        """Ends the run. Arrays that were made of its tensors stay valid. Saves nothing: the last step of a run does."""
        session, self._session = self._session, None
        if session is not None:
            n.call("close", session)

    def __enter__(self) -> "Run":
        # Several ranks stop at the same step, or wait for each other for good: the signal asks for it.
        if self.ranks > 1 and threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def _interrupt(self, *_: Any) -> None:
        signal.signal(signal.SIGINT, self._handler)  # a second one is not waited for
        self._interrupted = True
        self.stop()

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        if self._session is None:
            return
        if kind is not None and issubclass(kind, (KeyboardInterrupt, SystemExit)):
            info = self._info()
            if info.started and info.directory and info.ranks == 1:
                self.save()
        elif kind is not None and not issubclass(kind, n.Error):
            n.library.eng_session_fail(self._session, f"{kind.__name__}: {value}".encode(errors="replace"))
        self.close()

    def __del__(self) -> None:
        session, self._session = getattr(self, "_session", None), None
        if session is not None and not sys.is_finalizing():
            n.call("close", session)
