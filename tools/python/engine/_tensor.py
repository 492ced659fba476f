# SPDX-License-Identifier: Apache-2.0
"""The results of a run: the numbers of a step, and its tensors for other libraries."""
from __future__ import annotations

import ctypes as c
import dataclasses
import math
from typing import TYPE_CHECKING, Any, ClassVar, Dict, Optional, Tuple

from . import _dlpack, _native as n

if TYPE_CHECKING:
    from ._run import Run

_DTYPES = {1: "float32", 2: "float64", 3: "bfloat16", 4: "float16", 5: "int32", 6: "int64", 7: "uint8"}


class _Record:
    """As a named tuple, for loggers that take a dictionary."""

    _fields: ClassVar[Tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._fields = tuple(cls.__annotations__)

    def _asdict(self) -> Dict[str, Any]:
        return {name: getattr(self, name) for name in self._fields}


@dataclasses.dataclass(frozen=True)
class Metrics(_Record):
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
class Evaluation(_Record):
    """The mean loss of labels that count."""

    loss: float
    tokens: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Score(_Record):
    """The scored tokens of a sequence, in their order."""

    logprobs: Tuple[float, ...]
    """the logarithm of the probability of each, after the tokens before it"""
    greedy: Tuple[bool, ...]
    """true for those that are the most likely; of equally likely ones, the one with the smallest id"""


class Tensor:
    """A tensor of a run, for `from_dlpack` of NumPy, PyTorch, JAX, CuPy and others: they see its memory in place.

    It shows the values of the moment. A step changes them, so read it between steps only. What is written through it
    counts from the next step on; gradients and activations are read-only, because a step computes them. Arrays made from
    it keep the memory allocated, also after the run was closed.
    """

    __slots__ = ("_addressable", "_flags", "_run", "dtype", "first", "name", "role", "shape", "__weakref__")

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
        """This tensor as read-only: consumers of DLPack before 1.0 then get a copy or refuse it."""
        return self._with(self._flags & ~n.WRITABLE)

    @property
    def part(self) -> "Tensor":
        """The part of it that this rank holds, as a flat tensor of `shape` from element `first` on."""
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
        if self.role in n.COMPUTED and not versioned:
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

    def __reduce__(self) -> Any:
        raise TypeError(f"`{self.name}` is memory of a run, which cannot be pickled: give a copy, numpy.array(tensor)")

    def __repr__(self) -> str:
        return f"<engine.Tensor {self.role} {self.name} {self.dtype} {self.shape}>"
