# SPDX-License-Identifier: Apache-2.0
"""DLPack capsules in both directions, without a compiler."""
from __future__ import annotations

import ctypes as c
from typing import Any, Optional, Tuple

from . import _native as n

_api = c.pythonapi
_api.PyCapsule_New.restype, _api.PyCapsule_New.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]
_api.PyCapsule_IsValid.restype, _api.PyCapsule_IsValid.argtypes = c.c_int, [c.py_object, c.c_char_p]
_api.PyCapsule_GetPointer.restype = c.c_void_p
_api.PyCapsule_GetPointer.argtypes = [c.py_object, c.c_char_p]
_api.PyCapsule_SetName.restype, _api.PyCapsule_SetName.argtypes = c.c_int, [c.py_object, c.c_char_p]

# A capsule keeps the address of its name, so these live as long as the process.
LEGACY, VERSIONED = b"dltensor", b"dltensor_versioned"
USED_LEGACY, USED_VERSIONED = b"used_dltensor", b"used_dltensor_versioned"

def _make_destructor() -> Any:
    """Deletes capsules that nobody took. It may run while the interpreter is taken down, so it reads no module's
    globals."""
    # It gets the bare object, which must not be counted: it is being destroyed.
    is_valid = c.PYFUNCTYPE(c.c_int, c.c_void_p, c.c_char_p)(("PyCapsule_IsValid", _api))
    pointer = c.PYFUNCTYPE(c.c_void_p, c.c_void_p, c.c_char_p)(("PyCapsule_GetPointer", _api))
    kinds = ((VERSIONED, n.Versioned), (LEGACY, n.Legacy))
    call = c.CFUNCTYPE(None, c.c_void_p)

    @c.PYFUNCTYPE(None, c.c_void_p)
    def destroy(capsule):
        for name, kind in kinds:
            if is_valid(capsule, name):
                address = pointer(capsule, name)
                call(kind.from_address(address).deleter)(address)  # the library's: it needs no Python

    _api.Py_IncRef(c.py_object(destroy))  # a capsule may outlive this module
    return destroy


_destroy = _make_destructor()


def capsule_of(address: int, versioned: bool) -> Any:
    """A capsule that owns what eng_session_take gave."""
    return _api.PyCapsule_New(address, VERSIONED if versioned else LEGACY, c.cast(_destroy, c.c_void_p))


def delete(kind: Any, address: int) -> None:
    """Calls the deleter of a tensor that nobody else will."""
    if deleter := kind.from_address(address).deleter:
        c.CFUNCTYPE(None, c.c_void_p)(deleter)(address)


class Owner:
    """Calls the deleter of a tensor once, when the last reference goes."""

    def __init__(self, address: int):
        self._address, self._call = address, c.CFUNCTYPE(None, c.c_void_p)(n.Versioned.from_address(address).deleter)

    def __del__(self) -> None:
        self._call(self._address)


def shape_of(given: n.TensorIn) -> Tuple[int, ...]:
    """The shape of a tensor that `incoming` made, before the library gets it."""
    kind, address = (n.Versioned, given.versioned) if given.versioned else (n.Legacy, given.legacy)
    tensor = kind.from_address(address).tensor
    return tuple(tensor.shape[: tensor.ndim])


def give_back(tensor: n.TensorIn) -> None:
    """Releases a tensor that `incoming` made and nobody took."""
    if tensor.versioned:
        delete(n.Versioned, tensor.versioned)
    if tensor.legacy:
        delete(n.Legacy, tensor.legacy)


def check_stream(device: Tuple[int, int], stream: Optional[int]) -> None:
    """The values are complete when a tensor is taken, so no stream waits; but a stream must be one."""
    if device[0] != n.CUDA:
        if stream is not None:
            raise ValueError("stream must be None for a tensor in memory of the host")
    elif stream is not None and (not isinstance(stream, int) or isinstance(stream, bool) or stream == 0 or stream < -1):
        raise ValueError(f"stream = {stream!r}: None, -1, 1 (legacy), 2 (per thread) or a handle; 0 is ambiguous")


def incoming(value: Any, name: str) -> n.TensorIn:
    """A tensor of another library, moved into an eng_tensor_in. Whoever gets it calls its deleter."""
    if not hasattr(value, "__dlpack__"):
        value = _as_array(value, name)
    capsule = _ask(value)
    out = n.TensorIn(c.sizeof(n.TensorIn), 0, name.encode(), None, None, None)
    if _api.PyCapsule_IsValid(capsule, VERSIONED):
        out.versioned = _api.PyCapsule_GetPointer(capsule, VERSIONED)
        _api.PyCapsule_SetName(capsule, USED_VERSIONED)
    elif _api.PyCapsule_IsValid(capsule, LEGACY):
        out.legacy = _api.PyCapsule_GetPointer(capsule, LEGACY)
        _api.PyCapsule_SetName(capsule, USED_LEGACY)
    else:
        raise BufferError(f"`{name}`: __dlpack__ returned no unused DLPack capsule")
    return out


def _ask(value: Any) -> Any:
    """Its capsule, of the newest kind that it has, in memory of the host where it can bring itself there: it then waits
    for its own streams."""
    device = value.__dlpack_device__()
    host = {"dl_device": (n.CPU, 0)} if int(device[0]) not in (n.CPU, n.CUDA_HOST) else {}
    for arguments in ({"max_version": (n.MAJOR, n.MINOR), **host}, {"max_version": (n.MAJOR, n.MINOR)}, {}):
        try:
            return value.__dlpack__(**arguments)
        except TypeError:  # it is of an older standard
            continue
        except BufferError:
            # NumPy before 2.1 refuses read-only arrays, for which an old capsule has no word.
            if arguments or not hasattr(value, "copy"):
                continue
            return value.copy().__dlpack__()
    raise BufferError(f"{type(value).__name__} on device {tuple(map(int, device))} gives no DLPack capsule: copy it to "
                      "the host first")


def _as_array(value: Any, name: str) -> Any:
    """Lists, and buffers such as array.array, by the NumPy that the caller has anyhow."""
    try:
        import numpy
    except ImportError:
        raise TypeError(f"`{name}`: {type(value).__name__} has no __dlpack__; NumPy is needed to read it") from None
    array = numpy.asarray(value)
    if array.dtype.kind not in "iufb":
        raise TypeError(f"`{name}`: {type(value).__name__} holds {array.dtype}, no numbers")
    return array.astype("int64") if array.dtype.kind == "b" else array
