# SPDX-License-Identifier: Apache-2.0
"""Runs: sessions of engine/embed.h as Python objects."""
from __future__ import annotations

import ctypes as c
import math
import os
import shlex
import signal
import sys
import threading
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _dlpack, _native as n, _words
from ._tensor import Evaluation, Metrics, Tensor
from ._text import Texts

Callback = Callable[["Run", Metrics], Any]
Loss = Callable[[Tensor, slice], Tuple[Any, Any]]


class Run(Texts):
    """A run, step by step. Made by `engine.open`.

    Iterating makes the steps that are left and gives the metrics of each. Used with `with`, it is closed at the end; on
    an exception that asks to stop, KeyboardInterrupt or SystemExit, it saves a checkpoint first, as `engine run` does.
    With several ranks SIGINT stops all of them after the same step, with a checkpoint. Any other exception ends the run
    as failed, on all ranks. A block that ends with steps left saves nothing: `save` does.
    """

    __slots__ = ("_callbacks", "_handler", "_interrupted", "_noted", "_pid", "_roles", "_session", "__weakref__")

    @_words.named
    def __init__(self, target: Union[str, "os.PathLike[str]", None] = None, *overrides: str, text: Optional[str] = None,
                 place: Union[str, "os.PathLike[str]", None] = None,
                 out: Union[str, "os.PathLike[str]", None] = None, resume: Union[str, int] = "auto", files: bool = True,
                 gradients: bool = False, logits: bool = False, activations: Sequence[str] = (),
                 fields: Sequence[str] = (), lengths: Sequence[int] = (), train: bool = True, alone: bool = False,
                 plugin_paths: Sequence[Union[str, "os.PathLike[str]"]] = (),
                 note: Optional[Callable[[str], Any]] = None):
        self._session: Optional[int] = None
        self._callbacks: List[Callback] = []
        self._roles: Dict[Tuple[str, str], int] = {}
        self._interrupted = False
        self._handler: Any = None
        self._pid = os.getpid()
        if text is None and target is None:
            raise TypeError("open() needs a configuration: a file, a run's directory, or text=\"[model]...\"")
        if text is None and isinstance(target, str) and "\n" in target:
            raise ValueError("the target is a text, not a path: give a configuration as text=...")
        if text is not None and isinstance(target, str) and (target.startswith("-") or "=" in target):
            # An override, and no name for messages.
            target, overrides = None, (target, *overrides)
        tell = note or (lambda line: print("note:", line, file=sys.stderr))

        @n.NOTE
        def noted(_, text, length):
            tell(c.string_at(text, length).decode(errors="replace"))

        self._noted = noted  # as long as the session
        request = n.Request()
        request.struct_size = c.sizeof(request)
        request.flags = (n.NO_FILES * (not files) | n.GRADIENTS * bool(gradients) | n.LOGITS * bool(logits)
                         | n.ALONE * bool(alone) | n.FORWARD * (not train))
        request.target, request.place = _words.path("target", target), _words.path("place", place)
        request.text = None if text is None else _words.text("text", text)
        request.out, request.resume = _words.path("out", out), _words.text("resume", str(resume))
        request.command = " ".join(map(shlex.quote, sys.argv)).encode(errors="replace") or b"python"
        for name, given in {"overrides": overrides, "activations": activations, "fields": fields}.items():
            setattr(request, name, _words.texts(name, given))
            setattr(request, "n_" + name, len(given))
        sizes = [_words.whole(f"lengths[{k}]", one, 64) for k, one in enumerate(lengths)]
        request.lengths, request.n_lengths = (c.c_int64 * len(sizes))(*sizes), len(sizes)
        paths = [_words.path("plugin_paths", one) for one in plugin_paths]
        request.plugin_paths, request.n_plugin_paths = (c.c_char_p * len(paths))(*paths), len(paths)
        request.note = noted
        session = c.c_void_p()
        n.call("open", c.byref(request), c.byref(session))
        self._session = session.value

    def __setattr__(self, name: str, value: Any) -> None:
        own = getattr(type(self), name, None)
        if isinstance(own, property) and own.fset is None:
            raise AttributeError(f"`{name}` of a run can only be read; it follows from the configuration, which "
                                 "engine.open takes with overrides, such as \"train.steps=100\"")
        if own is None and type(self) is Run:
            known = [word for word in dir(type(self)) if not word.startswith("_")]
            raise AttributeError(f"a run has no attribute `{name}`{_words.near(name, known) or ';'} values of the "
                                 "configuration are set when it is opened, for example by "
                                 "engine.open(config, \"optimizer.learning_rate=1e-3\")")
        object.__setattr__(self, name, value)

    def __reduce__(self) -> Any:
        raise TypeError("a run cannot be pickled: it is memory and threads of this process. Give the other process what "
                        "engine.open takes, and open it there")

    def __repr__(self) -> str:
        if self._session is None:
            return "<engine.Run closed>"
        try:
            info = self._info()
        except n.Error:  # another thread is inside, or the process was forked
            return "<engine.Run in use>"
        ranks = f", rank {info.rank} of {info.ranks}" if info.ranks > 1 else ""
        if not info.started:
            return f"<engine.Run not started, {info.steps} steps{ranks}>"
        where = f", {os.fsdecode(info.directory)}" if info.directory else ""
        return f"<engine.Run step {info.step} of {info.steps}{ranks}{where}>"

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
    def max_length(self) -> int:
        """The longest sequence that the model was made for; 0: it has no limit."""
        return self._started().max_length

    @property
    def lr(self) -> Optional[float]:
        """The learning rate of the next step; None if there is none. What is assigned holds for all further steps, until
        None gives them back to [schedule]. Checkpoints do not keep it, and all ranks must assign the same."""
        rate = self._started().lr
        return None if math.isnan(rate) else rate

    @lr.setter
    def lr(self, rate: Optional[float]) -> None:
        n.call("set_rate", self._handle(), math.nan if rate is None else _words.number("lr", rate))

    @property
    def parameters(self) -> int:
        """Their number."""
        return self._started().parameters

    @property
    def directory(self) -> str:
        """The directory of the run; "" without files."""
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

    def step(self, *, loss: Union[None, float, Loss] = None, logit_gradients: Optional[Sequence[Any]] = None,
             **fields: Any) -> Optional[Metrics]:
        """Makes the next step, on the run's own data or on the given batch; None if none is left or it was stopped.

        Fields: `tokens`, (rows, length) as `batch_shape` says, and optionally `labels` of that shape, where -100 counts
        for nothing. Without labels each token's is the one after it; `tokens` may have one column more for the last.
        What `engine.open(fields=[...])` names is given likewise, or left out for all rows: then weights are 1, and a
        row is one document.

        `loss`, where the configuration says loss.plugin = "caller": a function of (logits, rows) that is called for each
        micro-batch and returns its loss, a number, and the gradient by these logits: float32, of their shape (micro-batch
        rows, length, vocabulary), of any library. `rows` is the slice of the batch. Or the loss of all micro-batches as a
        number; `logit_gradients` is then the list of their gradients. Gradients of micro-batches and ranks are added.
        """
        handle = self._handle()
        if callable(loss):
            if logit_gradients is not None:
                raise TypeError("step() was given logit_gradients, and a loss that returns them: give one of them")
            loss, logit_gradients = self._losses(loss, fields)
        if (loss is None) != (logit_gradients is None):
            raise TypeError("step() needs loss and logit_gradients together, or a loss that is a function")
        own = None if loss is None else n.OwnLoss(c.sizeof(n.OwnLoss), 0, None, _words.number("loss", loss))
        all_fields, out = self._fields(fields), n.StepResult()
        out.struct_size = c.sizeof(out)
        if own is None:
            n.call("step", handle, all_fields, len(all_fields), c.byref(out))
        else:
            try:
                gradients = self._fields({f"logit_gradients[{k}]": one for k, one in enumerate(logit_gradients)})
            except BaseException:
                for one in all_fields:
                    _dlpack.give_back(one)
                raise
            own.gradients, own.n = gradients, len(gradients)
            n.call("step_with_loss", handle, all_fields, len(all_fields), c.byref(own), c.byref(out))
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

    def _losses(self, loss: Loss, fields: Mapping[str, Any]) -> Tuple[float, List[Any]]:
        """The loss and the gradients of each micro-batch."""
        if "tokens" not in fields:
            raise TypeError("a step with a loss of the caller needs its batch: tokens=...")
        tokens, (rows, length), total, gradients = fields["tokens"], self.micro_batch_shape, 0.0, []
        for begin in range(0, self.batch_shape[0], rows):
            part = slice(begin, begin + rows)
            value, gradient = loss(self.logits(tokens[part, :length]), part)
            total += float(value)
            gradients.append(gradient)
        return total, gradients

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
        n.call("evaluate", handle, all_fields, len(all_fields), _words.whole("batches", batches, 64), c.byref(out))
        return Evaluation(out.loss, out.tokens, out.seconds)

    def logits(self, tokens: Any) -> Tensor:
        """The logits of one micro-batch of tokens, (rows, length, vocabulary). The run was opened with `logits=True`, for
        samples of its own length, or with the length among `lengths`.

        They lie in memory of the run, where the next call writes its own."""
        other = "logits %d" % self._forward(tokens)
        return self.tensor(other if (other, "activation") in self._table() else "logits", "activation")

    def hidden_states(self, tokens: Any) -> Dict[str, Tensor]:
        """The activations of one micro-batch of tokens, (rows, length), by name: those that `engine.open` was given as
        `activations`. The length is one of `lengths`. `logits` of the same tokens are computed with them.

        They are read-only, of the element type of the forward, and lie in memory of the run, where the next call of this
        or of `logits` writes its own."""
        end = f" {self._forward(tokens)}"
        names = [name for name, role in self._table()
                 if role == "activation" and name.endswith(end) and name != "logits" + end]
        if not names:
            raise ValueError(f"no hidden states of{end} tokens are kept: open the run with their names, such as "
                             f"activations=[\"layers.*.output\"], and with lengths=[{end[1:]}]")
        return {name[: -len(end)]: self.tensor(name, "activation") for name in names}

    def _forward(self, tokens: Any) -> int:
        """Computes the logits; returns the length of the tokens."""
        handle = self._handle()
        fields = self._fields({"tokens": tokens})
        length = (_dlpack.shape_of(fields[0]) or (0,))[-1]
        n.call("logits", handle, fields, len(fields))
        return length

    @_words.named
    def plan(self, ranks: int = 1) -> Dict[str, Any]:
        """The plan of a step on `ranks` ranks, as `engine plan --json` prints it. Runs nothing."""
        return self._json("plan", _words.whole("ranks", ranks, 32, False))

    def activations(self) -> List[Dict[str, Any]]:
        """The activations that `engine.open(..., activations=[...])` can name, in the model's order: name, op, dtype,
        shape, bytes, and the parameters that the op reads. Runs nothing."""
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
        n.call("take", self._handle(), _words.text("name", name), _words.text("role", role), 0, c.byref(unwanted))
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

    @_words.named
    def tensor(self, name: str, role: str = "parameter") -> Tensor:
        """A tensor by name and role: "parameter", "gradient", "activation", or the name of an optimizer's state."""
        return Tensor(self, name, role, self._info_of(name, role), self._access(role))

    def tensors(self, role: Optional[str] = None) -> List[Tensor]:
        """All of them, or those of a role, in the model's order."""
        return [Tensor(self, name, of, self._tensor(index), self._access(of))
                for (name, of), index in self._table().items() if role is None or of == role]

    @staticmethod
    def _access(role: str) -> int:
        return 0 if role in n.COMPUTED else n.WRITABLE

    def __getitem__(self, name: str) -> Tensor:
        return self.tensor(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.write(name, value)

    def __contains__(self, name: object) -> bool:
        return (name, "parameter") in self._table()

    def keys(self) -> List[str]:
        """The names of all parameters."""
        return [name for name, role in self._table() if role == "parameter"]

    def state_dict(self) -> Dict[str, Tensor]:
        """All parameters by name, in place: of a later step they show its values. `load_state_dict` takes such a
        dictionary, of tensors of any library."""
        return {name: self.tensor(name) for name in self.keys()}

    @_words.named
    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True, round: bool = False) -> None:
        """Writes parameters by name. `strict`: they must be all of them, and no others; nothing is written if they are
        not. Otherwise names that this run does not have are left out, and parameters that `state` does not have stay.
        `round`: as in `write`."""
        missing = [name for name in self.keys() if name not in state]
        unknown = [name for name in state if name not in self]
        if strict and (missing or unknown):
            raise KeyError("; ".join(f"{what}: {', '.join(names[:10])}{' ...' if len(names) > 10 else ''}"
                                     for what, names in (("missing", missing), ("not of this run", unknown)) if names))
        for name in self.keys():
            if name in state:
                self.write(name, state[name], round=round)

    @_words.named
    def write(self, name: str, value: Any, role: str = "parameter", round: bool = False) -> None:
        """Replaces the values of a tensor; with `round`, the elements may be rounded to its type."""
        handle = self._handle()
        words = _words.text("name", name), _words.text("role", role)
        n.call("write", handle, *words, c.byref(_dlpack.incoming(value, name)), n.ROUND if round else 0)

    # ---- the end -----------------------------------------------------------------------------------------

    def save(self) -> None:
        """A checkpoint of the last step, unless there is one."""
        n.call("save", self._handle())

    def close(self) -> None:
        """Ends the run. Arrays that were made of its tensors stay valid. Saves nothing: the last step of a run does."""
        session, self._session = self._session, None
        if session is None:
            return
        try:
            n.call("close", session)
        except n.Error as refusal:
            if refusal.status == n.PRECONDITION and os.getpid() != self._pid:
                return  # it is the parent's, who closes it
            if refusal.status == n.PRECONDITION:  # another thread is inside: it stays open
                self._session = session
            raise

    def _lost(self) -> bool:
        """True if this process was forked from the one that has the run."""
        try:
            self._info()
        except n.Error as refusal:
            return refusal.status == n.PRECONDITION and os.getpid() != self._pid
        return False

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
        if self._session is None or self._lost():
            return
        if kind is not None and issubclass(kind, (KeyboardInterrupt, SystemExit)):
            info = self._info()
            if info.started and info.directory and info.ranks == 1:
                self.save()
        elif kind is not None and not issubclass(kind, n.Error):
            n.library.eng_session_fail(self._session, f"{kind.__name__}: {value}".encode(errors="replace"))
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_session", None) is not None and not sys.is_finalizing():
            self.close()
