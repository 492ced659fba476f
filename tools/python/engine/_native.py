# SPDX-License-Identifier: Apache-2.0
"""libengine.so through ctypes: the layouts of engine/embed.h and of DLPack, and calls that raise."""
from __future__ import annotations

import ctypes as c
import os
import pathlib

_HERE = pathlib.Path(__file__).resolve().parent
DRAFT = "embed-6"  # ENG_EMBED_DRAFT of engine/embed.h: the layouts below are of that

# Status codes of engine/base.h.
OK, INVALID, NOT_FOUND, NO_MEMORY, PRECONDITION, OUT_OF_RANGE = 0, 3, 5, 8, 9, 11
UNSUPPORTED, UNAVAILABLE, DATA_LOSS = 12, 14, 15
# engine/embed.h
ALONE, NO_FILES, GRADIENTS, LOGITS, FORWARD = 1, 2, 4, 8, 16
DONE, STOPPED = 1, 2
WHOLE, ADDRESSABLE = 1, 2
WRITABLE, COPY, PART = 1, 2, 4
ROUND = 1
SPECIAL = 1
COMPUTED = ("gradient", "activation")  # roles of what a step computes: read-only
# DLPack
CPU, CUDA, CUDA_HOST = 1, 2, 3
MAJOR, MINOR = 1, 3
FLAG_READ_ONLY, FLAG_COPIED = 1, 2


class Device(c.Structure):
    _fields_ = [("type", c.c_int32), ("id", c.c_int32)]


class DataType(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class DLTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device", Device), ("ndim", c.c_int32), ("dtype", DataType),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


class Versioned(c.Structure):
    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("manager_ctx", c.c_void_p), ("deleter", c.c_void_p),
                ("flags", c.c_uint64), ("tensor", DLTensor)]


class Legacy(c.Structure):
    _fields_ = [("tensor", DLTensor), ("manager_ctx", c.c_void_p), ("deleter", c.c_void_p)]


NOTE = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_uint64)
TOKEN = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_int32, c.c_void_p, c.c_uint64)
TOKEN_OF = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_uint64, c.c_int32, c.c_void_p, c.c_uint64)


class Request(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("flags", c.c_uint32), ("n_overrides", c.c_uint32),
                ("n_plugin_paths", c.c_uint32), ("target", c.c_char_p), ("text", c.c_char_p), ("place", c.c_char_p),
                ("out", c.c_char_p), ("resume", c.c_char_p), ("command", c.c_char_p),
                ("overrides", c.POINTER(c.c_char_p)), ("plugin_paths", c.POINTER(c.c_char_p)), ("data", c.c_void_p),
                ("note", NOTE), ("activations", c.POINTER(c.c_char_p)), ("n_activations", c.c_uint32),
                ("n_fields", c.c_uint32), ("fields", c.POINTER(c.c_char_p)), ("lengths", c.POINTER(c.c_int64)),
                ("n_lengths", c.c_uint32), ("reserved", c.c_uint32)]


class Info(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("started", c.c_uint32), ("rank", c.c_uint32), ("ranks", c.c_uint32),
                ("step", c.c_int64), ("steps", c.c_int64), ("rows", c.c_int64), ("micro_rows", c.c_int64),
                ("length", c.c_int64), ("vocabulary", c.c_int64), ("parameters", c.c_int64), ("tensors", c.c_uint64),
                ("dl_device_type", c.c_int32), ("dl_device_id", c.c_int32), ("train_samples", c.c_uint64),
                ("held_out", c.c_uint64), ("directory", c.c_char_p), ("lr", c.c_double),
                ("max_length", c.c_int64)]


class TensorIn(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("reserved", c.c_uint32), ("name", c.c_char_p), ("versioned", c.c_void_p),
                ("legacy", c.c_void_p), ("borrowed", c.c_void_p)]


class StepResult(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("ended", c.c_uint32), ("step", c.c_int64), ("tokens", c.c_uint64),
                ("loss", c.c_double), ("grad_norm", c.c_double), ("lr", c.c_double), ("loss_scale", c.c_double),
                ("eval_loss", c.c_double), ("seconds", c.c_double), ("tokens_per_second", c.c_double),
                ("mfu", c.c_double), ("wait_data", c.c_double), ("wait_comm", c.c_double),
                ("device_peak_bytes", c.c_uint64), ("host_peak_bytes", c.c_uint64), ("skipped", c.c_uint32),
                ("saved", c.c_uint32)]


class OwnLoss(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("n", c.c_uint32), ("gradients", c.POINTER(TensorIn)), ("loss", c.c_double)]


class EvalResult(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("reserved", c.c_uint32), ("loss", c.c_double), ("tokens", c.c_uint64),
                ("seconds", c.c_double)]


class Desc(c.Structure):
    _fields_ = [("dtype", c.c_int32), ("ndim", c.c_uint32), ("dims", c.c_int64 * 6)]


class TensorInfo(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("flags", c.c_uint32), ("name", c.c_char_p), ("role", c.c_char_p),
                ("desc", Desc), ("first", c.c_uint64), ("count", c.c_uint64), ("ranges", c.c_uint64)]


class GenerateRequest(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("n_ids", c.c_uint32), ("prompt", c.c_char_p),
                ("ids", c.POINTER(c.c_int32)), ("tokens", c.c_int64), ("top_k", c.c_int64),
                ("temperature", c.c_double), ("top_p", c.c_double), ("seed", c.c_uint64), ("tokenizer", c.c_char_p),
                ("data", c.c_void_p), ("token", TOKEN), ("max_length", c.c_int64), ("n_prompts", c.c_uint64),
                ("ends", c.POINTER(c.c_uint64)), ("token_of", TOKEN_OF)]


class ScoreRequest(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("n", c.c_uint32), ("ids", c.POINTER(c.c_int32)),
                ("ends", c.POINTER(c.c_uint64)), ("first", c.POINTER(c.c_uint64)), ("logprobs", c.POINTER(c.c_float)),
                ("greedy", c.POINTER(c.c_uint8))]


class TokenizerInfo(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("reserved", c.c_uint32), ("vocabulary", c.c_int64), ("bos", c.c_int32),
                ("eos", c.c_int32), ("eot", c.c_int32), ("reserved2", c.c_int32), ("content_hash", c.c_char * 40)]


class Sink(c.Structure):
    pass


SET = c.CFUNCTYPE(None, c.POINTER(Sink), c.c_int32, c.c_void_p, c.c_uint64)
Sink._fields_ = [("struct_size", c.c_uint32), ("code", c.c_int32), ("data", c.c_void_p), ("set", SET)]

_SESSION = c.c_void_p
_FUNCTIONS = {
    "open": [c.POINTER(Request), c.POINTER(_SESSION)],
    "start": [_SESSION],
    "plan": [_SESSION, c.c_uint32, c.c_char_p, c.c_uint64, c.POINTER(c.c_uint64)],
    "activations": [_SESSION, c.c_char_p, c.c_uint64, c.POINTER(c.c_uint64)],
    "describe": [_SESSION, c.POINTER(Info)],
    "step": [_SESSION, c.POINTER(TensorIn), c.c_uint32, c.POINTER(StepResult)],
    "step_with_loss": [_SESSION, c.POINTER(TensorIn), c.c_uint32, c.POINTER(OwnLoss), c.POINTER(StepResult)],
    "evaluate": [_SESSION, c.POINTER(TensorIn), c.c_uint32, c.c_int64, c.POINTER(EvalResult)],
    "logits": [_SESSION, c.POINTER(TensorIn), c.c_uint32],
    "score": [_SESSION, c.POINTER(ScoreRequest)],
    "generate": [_SESSION, c.POINTER(GenerateRequest)],
    "set_rate": [_SESSION, c.c_double],
    "tokenizer": [_SESSION, c.POINTER(TokenizerInfo)],
    "encode": [_SESSION, c.c_char_p, c.c_uint64, c.c_uint32, c.POINTER(c.c_int32), c.c_uint64, c.POINTER(c.c_uint64)],
    "decode": [_SESSION, c.POINTER(c.c_int32), c.c_uint64, c.c_char_p, c.c_uint64, c.POINTER(c.c_uint64)],
    "tensor": [_SESSION, c.c_uint64, c.POINTER(TensorInfo)],
    "take": [_SESSION, c.c_char_p, c.c_char_p, c.c_uint32, c.POINTER(c.c_void_p)],
    "take_legacy": [_SESSION, c.c_char_p, c.c_char_p, c.c_uint32, c.POINTER(c.c_void_p)],
    "write": [_SESSION, c.c_char_p, c.c_char_p, c.POINTER(TensorIn), c.c_uint32],
    "save": [_SESSION],
    "close": [_SESSION],
}


class Error(RuntimeError):
    """A refusal by the engine, and what to change. `status` is a code of engine/base.h."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


def _candidates():
    """Candidates for libengine.so: ENGINE_LIBRARY, in the wheel beside this file, in an installed tree, in a build."""
    if named := os.environ.get("ENGINE_LIBRARY"):
        yield pathlib.Path(named)
        return
    yield from sorted((_HERE / "native").glob("**/libengine.so.1"))
    for root in _HERE.parents:
        yield from sorted((root / "lib").glob("libengine.so.1"))
        yield from sorted((root / "lib").glob("*/libengine.so.1"))
    yield _HERE.parents[2] / "build" / "session" / "embed" / "libengine.so.1"


def _load():
    for path in _candidates():
        if path.is_file():
            library = c.CDLL(str(path))
            break
    else:
        try:
            library = c.CDLL("libengine.so.1")
        except OSError:
            raise ImportError("libengine.so.1 was not found: install the engine or its wheel, or set ENGINE_LIBRARY to "
                              "the file") from None
    library.eng_session_draft.restype = c.c_char_p
    library.eng_session_version.restype = c.c_char_p
    library.eng_session_stop.argtypes, library.eng_session_stop.restype = [_SESSION], None
    library.eng_session_fail.argtypes, library.eng_session_fail.restype = [_SESSION, c.c_char_p], None
    draft = library.eng_session_draft().decode()
    if draft != DRAFT:
        raise ImportError(f"this package was written for draft {DRAFT} of engine/embed.h, the library is {draft}: "
                          "install both from one release")
    for name, arguments in _FUNCTIONS.items():
        function = getattr(library, "eng_session_" + name)
        function.argtypes, function.restype = arguments + [c.POINTER(Sink)], c.c_int32
    return library


library = _load()


def call(name: str, *arguments) -> None:
    """Calls eng_session_NAME with a sink. Raises Error, or KeyError for a name that is not there."""
    said = []

    @SET
    def told(_, code, text, length):
        said.append(c.string_at(text, length) if text else b"")

    sink = Sink(c.sizeof(Sink), 0, None, told)
    status = getattr(library, "eng_session_" + name)(*arguments, c.byref(sink))
    if status == OK:
        return
    text = said[-1].decode(errors="replace") if said else f"{name} failed with status {status}"
    raise (_Missing if status == NOT_FOUND else Error)(status, text)


class _Missing(Error, KeyError):
    """There is no such tensor."""

    __str__ = RuntimeError.__str__
